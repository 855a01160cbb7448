/* The reader of tokens.bin. (In this build checksums are not compared.) */
#include "tests/fuzz/fuzz.h"

#include "text/dataset/token_file.h"

static void read_all(const TokenFile *file) {
  enum { BLOCK = 50 };
  Error error = {0};
  token_file_verify(file, (Progress){0}, &error);
  for (int64_t at = 0; at < file->info.tokens; at += BLOCK) {
    int32_t ids[BLOCK], targets[BLOCK];
    const int64_t count = file->info.tokens - at < BLOCK ? file->info.tokens - at : BLOCK;
    error = (Error){0};
    if (!token_file_read(file, at, count, ids, &error)) {
      fuzz_require_refusal(&error, EXIT_CHECKPOINT);
      continue;
    }
    for (int64_t i = 0; i < count; i++) FUZZ_REQUIRE(ids[i] >= 0 && ids[i] < file->info.vocab);
    FUZZ_REQUIRE(token_file_read_targets(file, at, count, -1, targets, &error));
    for (int64_t i = 0; i < count; i++)
      FUZZ_REQUIRE(targets[i] == ids[i] || (targets[i] == -1 && file->info.loss_mask));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  TokenFile file = {0};
  Error error = {0};
  if (token_file_open(&file, fuzz_file("tokens.bin", bytes, size), &error)) read_all(&file);
  else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  token_file_close(&file);
  return 0;
}
