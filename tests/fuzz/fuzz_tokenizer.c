/* The reader of tokenizer.json. What it accepts encodes any bytes to ids of its vocabulary or says why not; where texts
 * are only cut, the ids stand for the same bytes. */
#include "tests/fuzz/fuzz.h"

#include "tokenizer/tokenizer.h"

#include <string.h>

static bool keeps_texts(const Pipeline *p) {
  for (int i = 0; i < p->count; i++) {
    const Step *step = &p->steps[i];
    const bool cuts = step->kind == STEP_GPT2 || (step->kind == STEP_ADDED && !added_tokens_strip(step->added)) ||
                      (step->kind == STEP_REGEX && step->behavior != SPLIT_REMOVED);
    if (!cuts) return false;
  }
  return !p->bpe->characters;
}

static void compare(const Tokenizer *tokenizer, const BpeIds *ids, const uint8_t *text, size_t text_size) {
  size_t at = 0;
  for (size_t i = 0; i < ids->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(tokenizer, ids->ids[i], &size);
    FUZZ_REQUIRE(size <= text_size - at && memcmp(bytes, text + at, size) == 0);
    at += size;
  }
  FUZZ_REQUIRE(at == text_size);
}

static void encode(Tokenizer *tokenizer, bool special) {
  static const uint8_t text[] =
      "The  caf\xc3\xa9's 123 \xe4\xb8\xad\xe6\x96\x87,\n\t\xff\x80 don't <|endoftext|> e\xcc\x81\xcc\xa3  "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! "
      "<|end|>";
  BpeIds ids = {0};
  Error error = {0};
  tokenizer_set_special(tokenizer, special);
  if (tokenizer_encode(tokenizer, text, sizeof text, &ids, &error)) {
    for (size_t i = 0; i < ids.count; i++) FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab(tokenizer));
    if (!special && keeps_texts(tokenizer_pipeline(tokenizer))) compare(tokenizer, &ids, text, sizeof text);
  } else {
    fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  }
  free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Tokenizer *tokenizer = NULL;
  Error error = {0};
  if (tokenizer_load(&tokenizer, fuzz_file(TOKENIZER_JSON, bytes, size), &error)) {
    FUZZ_REQUIRE(tokenizer_end(tokenizer) >= 0 && tokenizer_end(tokenizer) < tokenizer_vocab(tokenizer));
    FUZZ_REQUIRE(tokenizer_begin(tokenizer) < tokenizer_vocab(tokenizer));
    encode(tokenizer, false);
    encode(tokenizer, true);
    FUZZ_REQUIRE(tokenizer_save(tokenizer, fuzz_directory(), 64, &error));
  } else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  tokenizer_free(tokenizer);
  return 0;
}
