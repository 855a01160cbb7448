/* The reader of a run's state, for a small model. (In this build checksums are not compared.) */
#include "tests/fuzz/fuzz.h"

#include "files/checkpoint/state.h"
#include "files/checkpoint/directory.h"
#include "tests/small_model.h"

#include <math.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static float values[CHECKPOINT_ARENAS][ARENA];
  float *const arenas[CHECKPOINT_ARENAS] = {values[0], values[1], values[2]};
  char last[128];
  snprintf(last, sizeof last, "%s/" CHECKPOINT_LAST, fuzz_directory());
  mkdir(last, 0700);
  fuzz_file(CHECKPOINT_LAST_STATE, bytes, size);
  CheckpointState state = {0};
  Error error = {0};
  if (checkpoint_read_state(fuzz_directory(), &small_table, arenas, &state, &error)) {
    for (int a = 0; a < CHECKPOINT_ARENAS; a++)
      for (int i = 0; i < ARENA; i++) FUZZ_REQUIRE(isfinite(values[a][i]));
    checkpoint_state_number(&state, "step");
  } else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  checkpoint_state_free(&state);
  checkpoint_find_number(fuzz_directory(), "step");
  checkpoint_find_optimizer(fuzz_directory());
  return 0;
}
