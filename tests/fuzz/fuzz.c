#define _GNU_SOURCE /* nftw() */

#include "tests/fuzz/fuzz.h"

#include "base/file.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info, (void)kind, (void)where;
  return remove(path);
}

static void remove_directory(void) { nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

const char *fuzz_directory(void) {
  if (*directory) return directory;
  snprintf(directory, sizeof directory, "%s/inkling-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  FUZZ_REQUIRE(mkdtemp(directory));
  atexit(remove_directory);
  return directory;
}

const char *fuzz_file(const char *name, const uint8_t *bytes, size_t size) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
  FILE *file = fopen(path, "wb");
  FUZZ_REQUIRE(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
  return path;
}

void fuzz_require_done(bool ok, const Error *error) {
  if (ok) return;
  fprintf(stderr, "%s\n", error->text);
  abort();
}

void fuzz_require_refusal(const Error *error, ExitCode code) {
  FUZZ_REQUIRE(error->text[0] != '\0');
  FUZZ_REQUIRE(error->code == code || error->code == EXIT_MEMORY);
}

#ifndef INKLING_FUZZ
/* Replays the files that are named, and those in directories that are. */
static int replay(const char *path, const struct stat *info, int kind, struct FTW *where) {
  MappedFile file;
  Error error = {0};
  (void)info, (void)where;
  if (kind != FTW_F) return 0;
  if (!file_map(&file, path, EXIT_INPUT, &error)) return fprintf(stderr, "%s\n", error.text), 1;
  LLVMFuzzerTestOneInput(file.bytes ? file.bytes : (const uint8_t *)"", file.size);
  file_unmap(&file);
  return 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (nftw(argv[i], replay, 8, FTW_PHYS) != 0) return EXIT_FAILURE;
  return EXIT_SUCCESS;
}
#endif
