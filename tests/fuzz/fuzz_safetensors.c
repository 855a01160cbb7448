/* The reader of safetensors, which is given any file. */
#include "tests/fuzz/fuzz.h"

#include "files/formats/safetensors.h"

#include <string.h>

/* Reads every byte that the reader promises. */
static void walk(const SafeTensors *file) {
  size_t total = 0;
  volatile uint8_t sum = 0;
  for (int i = 0; i < file->count; i++) {
    const SafeTensor *tensor = &file->tensors[i];
    const uint8_t *data = tensor->data;
    for (size_t b = 0; b < tensor->bytes; b++) sum = (uint8_t)(sum + data[b]);
    FUZZ_REQUIRE(safetensors_find(file, tensor->name) == tensor);
    total += tensor->bytes;
  }
  for (int i = 0; i < file->metadata_count; i++)
    FUZZ_REQUIRE(safetensors_metadata(file, file->metadata[i].key) == file->metadata[i].value);
  FUZZ_REQUIRE(total + 8 <= file->file.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  SafeTensors file;
  Error error = {0};
  if (safetensors_open(&file, fuzz_file("model.safetensors", bytes, size), &error)) walk(&file);
  else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  safetensors_close(&file);
  return 0;
}
