/* The reader of config.json. What it accepts can be written, and is then read as the same. */
#include "tests/fuzz/fuzz.h"

#include "tests/model_files_helpers.h"
#include "files/formats/model_files.h"

#include <string.h>
#include <sys/stat.h>

static void read_again(const ModelConfig *config, SpecialTokens tokens) {
  char dir[128];
  Error error = {0};
  snprintf(dir, sizeof dir, "%s/written", fuzz_directory());
  mkdir(dir, 0700);
  fuzz_require_done(write_config(dir, config, tokens, &error), &error);
  ModelConfig again;
  SpecialTokens tokens_again;
  fuzz_require_done(read_config(dir, &again, &tokens_again, &error), &error);
  FUZZ_REQUIRE(memcmp(config, &again, sizeof again) == 0);
  FUZZ_REQUIRE(tokens.start == tokens_again.start && tokens.end == tokens_again.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  fuzz_file(MODEL_FILE_CONFIG, bytes, size);
  ModelConfig config;
  SpecialTokens tokens;
  Error error = {0};
  memset(&config, 0, sizeof config);
  if (!read_config(fuzz_directory(), &config, &tokens, &error)) {
    fuzz_require_refusal(&error, EXIT_CHECKPOINT);
    return 0;
  }
  FUZZ_REQUIRE(model_config_check(&config, EXIT_CHECKPOINT, &error));
  read_again(&config, tokens);
  return 0;
}
