/* The reader of tokenizer.json. What it accepts encodes any bytes, and their ids stand for the same bytes. */
#include "tests/fuzz/fuzz.h"

#include "tokenizer/tokenizer.h"

#include <string.h>

static void encode(const Tokenizer *tokenizer) {
  static const uint8_t text[] = "The  caf\xc3\xa9's 123 \xe4\xb8\xad\xe6\x96\x87,\n\t\xff\x80 don't <|endoftext|>  ";
  BpeIds ids = {0};
  Error error = {0};
  if (!tokenizer_encode(tokenizer, text, sizeof text, &ids, &error)) fuzz_require_refusal(&error, EXIT_MEMORY);
  size_t at = 0;
  for (size_t i = 0; i < ids.count; i++) {
    size_t size;
    FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab(tokenizer));
    const uint8_t *bytes = tokenizer_decode(tokenizer, ids.ids[i], &size);
    FUZZ_REQUIRE(size <= sizeof text - at && memcmp(bytes, text + at, size) == 0);
    at += size;
  }
  FUZZ_REQUIRE(at == sizeof text);
  free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Tokenizer *tokenizer = NULL;
  Error error = {0};
  if (tokenizer_load(&tokenizer, fuzz_file(TOKENIZER_JSON, bytes, size), &error)) {
    FUZZ_REQUIRE(tokenizer_end(tokenizer) >= 0 && tokenizer_end(tokenizer) < tokenizer_vocab(tokenizer));
    encode(tokenizer);
    FUZZ_REQUIRE(tokenizer_save(tokenizer, fuzz_directory(), 64, &error));
  } else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  tokenizer_free(tokenizer);
  return 0;
}
