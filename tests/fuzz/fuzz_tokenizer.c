/* The reader of tokenizer.json. What it accepts encodes any bytes to ids of its vocabulary or says why not; where texts
 * are only cut, the ids stand for the same bytes; where a text may be cut, those of the parts are those of the whole.
 * It becomes keys of a GGUF file, or is refused. */
#include "tests/cut_helpers.h"
#include "tests/fuzz/fuzz.h"

#include "files/formats/gguf_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

#include <string.h>

static bool keeps_texts(const Pipeline *p) {
  for (int i = 0; i < p->count; i++) {
    const Step *step = &p->steps[i];
    const bool cuts = step->kind == STEP_GPT2 || (step->kind == STEP_ADDED && !step->added->strips) ||
                      (step->kind == STEP_REGEX && step->behavior != SPLIT_REMOVED);
    if (!cuts) return false;
  }
  return !p->bpe->characters;
}

static const uint8_t text[] =
    "The  caf\xc3\xa9's 123 \xe4\xb8\xad\xe6\x96\x87,\n\t\xff\x80 don't <|endoftext|> e\xcc\x81\xcc\xa3 \n\nIt's 5 \n "
    "of  "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! "
    "<|end|>";

static void compare(const Tokenizer *tokenizer, const BpeIds *ids) {
  size_t at = 0;
  for (size_t i = 0; i < ids->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(tokenizer, ids->ids[i], &size);
    FUZZ_REQUIRE(size <= sizeof text - at && memcmp(bytes, text + at, size) == 0);
    at += size;
  }
  FUZZ_REQUIRE(at == sizeof text);
}

/* A piece of the text may be missing in a vocabulary of whole pieces. */
static void require_refusal(const Tokenizer *tokenizer, const Error *error) {
  fuzz_require_refusal(error, tokenizer_bpe(tokenizer)->level ? EXIT_INPUT : EXIT_CHECKPOINT);
}

static void cut(const Tokenizer *tokenizer, bool special) {
  int cuts = 0;
  Error error = {0};
  FUZZ_REQUIRE(!find_wrong_cut(tokenizer, (PipelineText){text, sizeof text}, special, &cuts, &error));
  if (error.code) require_refusal(tokenizer, &error);
}

static void write_keys(const Tokenizer *tokenizer) {
  GgufTokenizer keys;
  GgufHeader header = {0};
  Error error = {0};
  if (gguf_tokenizer_make(&keys, "", tokenizer, &error)) {
    gguf_tokenizer_add(&header, &keys, tokenizer_vocab(tokenizer) + 3);
    FUZZ_REQUIRE(!header.no_memory && header.keys >= 5);
  } else {
    fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  }
  gguf_header_free(&header);
  gguf_tokenizer_free(&keys);
}

static void encode(Tokenizer *tokenizer, bool special) {
  BpeIds ids = {0};
  Error error = {0};
  tokenizer_set_special(tokenizer, special);
  if (tokenizer_encode(tokenizer, text, sizeof text, &ids, &error)) {
    for (size_t i = 0; i < ids.count; i++) FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab(tokenizer));
    if (!special && keeps_texts(tokenizer_pipeline(tokenizer))) compare(tokenizer, &ids);
  } else {
    require_refusal(tokenizer, &error);
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
    cut(tokenizer, false);
    cut(tokenizer, true);
    write_keys(tokenizer);
    FUZZ_REQUIRE(tokenizer_save(tokenizer, fuzz_directory(), 64, &error));
  } else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  tokenizer_free(tokenizer);
  return 0;
}
