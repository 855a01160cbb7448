/* The reader of weights in several files, which an index names; the files themselves are as they should be. */
#include "tests/fuzz/fuzz.h"

#include "tests/model_files_helpers.h"
#include "files/formats/safetensors.h"
#include "tests/small_model.h"
#include "files/formats/model_files.h"

#include <math.h>

/* part-1 has the first tensors, part-2 the rest, part-3 those of part-2 once more, and one that is no model's. */
static void write_part(const char *name, int first, int end, const char *other) {
  static float values[ARENA];
  SafeTensor tensors[64];
  Error error = {0};
  char path[256];
  int count = 0;
  for (int i = first; i < end; i++, count++)
    tensors[count] = safetensors_of_parameter(&small_table.tensors[i], small_table.tensors[i].name, values);
  if (other)
    tensors[count++] = (SafeTensor){.name = other, .type = TENSOR_F32, .rank = 1, .shape = {2}, .data = values};
  snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
  fuzz_require_done(safetensors_write(path, tensors, count, NULL, 0, &error), &error);
}

static void write_model(void) {
  static bool written;
  Error error = {0};
  const int half = small_table.count / 2;
  if (written) return;
  FUZZ_REQUIRE(small_table.count < 64);
  fuzz_require_done(write_config(fuzz_directory(), &small_config, (SpecialTokens){.start = -1, .end = -1}, &error),
                    &error);
  write_part("part-1.safetensors", 0, half, NULL);
  write_part("part-2.safetensors", half, small_table.count, NULL);
  write_part("part-3.safetensors", half, small_table.count, "other.weight");
  written = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static float values[ARENA];
  Error error = {0};
  write_model();
  fuzz_file(MODEL_FILE_WEIGHTS_INDEX, bytes, size);
  for (int i = 0; i < ARENA; i++) values[i] = NAN;
  if (read_weights(fuzz_directory(), &small_config, &small_table, values, &error))
    for (int i = 0; i < small_table.count; i++) FUZZ_REQUIRE(values[small_table.tensors[i].offset] == 0);
  else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  check_weights_size(fuzz_directory(), &error);
  return 0;
}
