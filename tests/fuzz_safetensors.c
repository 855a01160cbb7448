/* Fuzzes the safetensors reader.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -DLIBFUZZER -D_XOPEN_SOURCE=700 -I. tests/fuzz_safetensors.c \
 *     checkpoint/safetensors.c util/error.c util/file.c util/path.c util/text.c util/utf8.c -ljansson -lm
 *
 * Without -DLIBFUZZER (and fuzzer) it is a plain program that replays the files given as arguments. */
#define _GNU_SOURCE

#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Reads every byte that the reader promises; stops where a promise is broken. */
static void walk(const SafeTensors *file) {
  size_t total = 0;
  volatile uint8_t sum = 0;
  for (int i = 0; i < file->count; i++) {
    const SafeTensor *tensor = &file->tensors[i];
    const uint8_t *data = tensor->data;
    for (size_t b = 0; b < tensor->bytes; b++) sum = (uint8_t)(sum + data[b]);
    if (safetensors_find(file, tensor->name) != tensor) abort();
    total += tensor->bytes;
  }
  for (int i = 0; i < file->metadata_count; i++)
    if (safetensors_metadata(file, file->metadata[i].key) != file->metadata[i].value) abort();
  if (total + 8 > file->file.size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0) abort();
  for (size_t done = 0; done < size;) {
    ssize_t n = write(fd, bytes + done, size - done);
    if (n <= 0) abort();
    done += (size_t)n;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  SafeTensors file;
  Error error = {0};
  if (safetensors_open(&file, path, &error)) walk(&file);
  else if (error.code != EXIT_CHECKPOINT || error.text[0] == '\0') abort();
  safetensors_close(&file);
  close(fd);
  return 0;
}

#ifndef LIBFUZZER
static int replay(const char *path) {
  MappedFile file;
  Error error = {0};
  if (!file_map(&file, path, EXIT_INPUT, &error)) {
    fprintf(stderr, "%s\n", error.text);
    return EXIT_INPUT;
  }
  LLVMFuzzerTestOneInput(file.bytes, file.size);
  file_unmap(&file);
  return 0;
}

int main(int argc, char **argv) {
  int status = 0;
  for (int i = 1; i < argc; i++) status = replay(argv[i]) != 0 ? EXIT_INPUT : status;
  return status;
}
#endif
