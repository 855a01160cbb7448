/* The reader of tokenizer.json. What it accepts encodes any bytes to ids of its vocabulary or says why not; where texts
 * are only cut, the ids stand for the same bytes; where a text may be cut, those of the parts are those of the whole. It
 * becomes keys of a GGUF file, or is refused. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/gguf_tokenizer.h"
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

static bool encode_parts(BpeEncoder *encoder, size_t cut, BpeIds *ids) {
  const PretokenizeText parts[] = {{text, cut}, {text + cut, sizeof text - cut}};
  Error error = {0};
  ids->count = 0;
  return (cut == 0 || bpe_encode(encoder, &parts[0], 1, -1, bpe_ids_sink, ids, &error)) &&
         bpe_encode(encoder, &parts[1], 1, 0, bpe_ids_sink, ids, &error);
}

static void cut(const Tokenizer *tokenizer, bool special) {
  const Pipeline *pipeline = tokenizer_pipeline(tokenizer);
  BpeEncoder *encoder;
  BpeIds whole = {0}, ids = {0};
  Error error = {0};
  FUZZ_REQUIRE(bpe_encoder_create(&encoder, pipeline, special, 1, NULL, &error));
  bool ok = encode_parts(encoder, 0, &whole);
  for (size_t at = 0; ok && (at = pipeline_cut(pipeline, text, sizeof text, at + 1)) < sizeof text;) {
    ok = encode_parts(encoder, at, &ids);
    FUZZ_REQUIRE(!ok || (ids.count == whole.count && !memcmp(ids.ids, whole.ids, ids.count * sizeof *ids.ids)));
  }
  bpe_encoder_free(encoder);
  free(whole.ids);
  free(ids.ids);
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
    cut(tokenizer, false);
    cut(tokenizer, true);
    write_keys(tokenizer);
    FUZZ_REQUIRE(tokenizer_save(tokenizer, fuzz_directory(), 64, &error));
  } else fuzz_require_refusal(&error, EXIT_CHECKPOINT);
  tokenizer_free(tokenizer);
  return 0;
}
