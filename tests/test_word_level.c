/* text/tokenizer/word_level, its training and its tokenizer.json: pieces, ids, the text back, and what is refused. */
#include "text/dataset/tokenization.h"
#include "kernels/philox.h"
#include "tests/corpus_helpers.h"
#include "text/tokenizer/word_level.h"

typedef struct Trained {
  Corpus *corpus;
  Tokenizer *tokenizer;
} Trained;

static Trained train_on(Fixture *f, const char *name, const void *text, size_t size, TokenizerTraining options) {
  Trained out = {.corpus = open_one(put(f, name, text, size))};
  Error error = {0};
  options.threads = 2;
  if (!tokenization_train(&out.tokenizer, out.corpus, &options, &error)) fail_msg("%s", error.text);
  return out;
}

static Trained train_text(Fixture *f, const char *text, TokenizerTraining options) {
  return train_on(f, "a.txt", text, strlen(text), options);
}

static void release(Trained *trained) {
  corpus_close(trained->corpus);
  tokenizer_free(trained->tokenizer);
}

/* The tokens of a text, and the text that they become. */
static void expect_ids(const Trained *trained, const char *text, const char *back, size_t count, const int32_t *want) {
  Error error = {0};
  BpeIds ids = {0};
  char out[256] = "";
  size_t used = 0;
  bool at_start = true;
  if (!tokenizer_encode(trained->tokenizer, (const uint8_t *)text, strlen(text), &ids, &error))
    fail_msg("%s", error.text);
  assert_int_equal(ids.count, count);
  for (size_t i = 0; i < count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode_next(trained->tokenizer, ids.ids[i], &at_start, &size);
    assert_int_equal(ids.ids[i], want[i]);
    memcpy(out + used, bytes, size);
    used += size;
  }
  assert_int_equal(used, strlen(back));
  assert_memory_equal(out, back, used);
  free(ids.ids);
}

static void expect_refusal(const Trained *trained, const char *text, const char *part) {
  Error error = {0};
  BpeIds ids = {0};
  assert_false(tokenizer_encode(trained->tokenizer, (const uint8_t *)text, strlen(text), &ids, &error));
  assert_int_equal(error.code, EXIT_INPUT);
  if (!strstr(error.text, part)) fail_msg("no \"%s\" in: %s", part, error.text);
  free(ids.ids);
}

/* Encoding the corpus is refused, at that place. */
static void expect_place(Fixture *f, const Trained *trained, const char *part) {
  Error error = {0};
  TokenFile file;
  char path[256];
  snprintf(path, sizeof path, "%s/tokens.bin", f->dir);
  assert_false(
      tokenization_open(&file, path, trained->corpus, trained->tokenizer, &(Tokenization){.threads = 2}, &error));
  assert_int_equal(error.code, EXIT_INPUT);
  if (!strstr(error.text, part)) fail_msg("no \"%s\" in: %s", part, error.text);
  assert_int_equal(access(path, F_OK), -1);
}

/* ---- the kinds ---- */

static void characters(void **state) {
  Trained t = train_text(*state, "GATTACA\xC3\xA9\n", (TokenizerTraining){.level = WORD_LEVEL_CHARS});
  assert_int_equal(tokenizer_vocab(t.tokenizer), 7);
  assert_int_equal(tokenizer_end(t.tokenizer), 6);
  assert_string_equal(tokenizer_name(t.tokenizer), "chars");
  expect_ids(&t, "AT\nT\xC3\xA9", "AT\nT\xC3\xA9", 5, (const int32_t[]){0, 1, 2, 1, 5}); /* ties by their bytes */
  expect_refusal(&t, "AX", "the character 'X' is not in the vocabulary of 6 characters");
  expect_refusal(&t, "A\xC3", "'\\xC3' is not UTF-8");
  release(&t);
}

static void words(void **state) {
  Trained t = train_text(*state, "b a b\nb c\n", (TokenizerTraining){.level = WORD_LEVEL_WORDS});
  assert_int_equal(tokenizer_vocab(t.tokenizer), 5);
  expect_ids(&t, "b c\n\na", "b c\n\na", 5, (const int32_t[]){0, 3, 1, 1, 2});
  expect_ids(&t, " b\t c \r\n a\xC2\xA0", "b c\na", 4, (const int32_t[]){0, 3, 1, 2});
  expect_ids(&t, " \t", "", 0, NULL);
  expect_refusal(&t, "a bc", "the word 'bc' is not in the vocabulary of 4 words");
  release(&t);
}

static void lines(void **state) {
  Trained t = train_text(*state, "x y\n\nx y\nz", (TokenizerTraining){.level = WORD_LEVEL_LINES});
  assert_int_equal(tokenizer_vocab(t.tokenizer), 4);
  expect_ids(&t, "z\nx y\n", "z\nx y\n", 2, (const int32_t[]){2, 0});
  expect_ids(&t, "\n\nz\n\n\nx y", "\n\nz\n\n\nx y\n", 6, (const int32_t[]){1, 1, 2, 1, 1, 0});
  expect_refusal(&t, "x", "the line 'x' is not in the vocabulary of 3 lines");
  release(&t);
}

static void ready_ids(void **state) {
  Trained t = train_text(*state, "3 0\n\t5 3", (TokenizerTraining){.level = WORD_LEVEL_IDS});
  assert_int_equal(tokenizer_vocab(t.tokenizer), 7);
  assert_int_equal(tokenizer_end(t.tokenizer), 6);
  expect_ids(&t, "4\n5  0", "4 5 0", 3, (const int32_t[]){4, 5, 0});
  expect_refusal(&t, "6", "'6' is not an id of the vocabulary: expected whole numbers from 0 to 5");
  expect_refusal(&t, "03", "'03'");
  expect_refusal(&t, "-1", "'-1'");
  expect_refusal(&t, "1.0", "'1.0'");
  expect_refusal(&t, "4294967297", "'4294967297'");
  release(&t);
  t = train_text(*state, "1 2", (TokenizerTraining){.level = WORD_LEVEL_IDS, .vocab_size = 9});
  assert_int_equal(tokenizer_end(t.tokenizer), 9);
  release(&t);
}

/* ---- unknown pieces ---- */

static void the_most_frequent_words(void **state) {
  const TokenizerTraining some = {.level = WORD_LEVEL_WORDS, .vocab_size = 4},
                          all = {.level = WORD_LEVEL_WORDS, .vocab_size = 5},
                          asked = {.level = WORD_LEVEL_WORDS, .unknown = true};
  Trained t = train_text(*state, "a b b c c c d", some);
  assert_int_equal(tokenizer_vocab(t.tokenizer), 4);
  expect_ids(&t, "c b a z", "c b <unk> <unk>", 4, (const int32_t[]){0, 1, 2, 2});
  release(&t);
  t = train_text(*state, "a b b c c c d", all); /* all words fit, and <unk> is not needed */
  expect_refusal(&t, "z", "'z'");
  release(&t);
  t = train_text(*state, "a b b", asked);
  expect_ids(&t, "a z \xFF", "a <unk> <unk>", 3, (const int32_t[]){1, 2, 2});
  release(&t);
  t = train_text(*state, "a <unk> b", (TokenizerTraining){.level = WORD_LEVEL_WORDS}); /* as in WikiText */
  expect_ids(&t, "z b <unk>", "<unk> b <unk>", 3, (const int32_t[]){2, 1, 2});
  release(&t);
}

static void the_place_of_an_unknown_piece(void **state) {
  Fixture *f = *state;
  const TokenizerTraining by_words = {.level = WORD_LEVEL_WORDS};
  Trained t = train_text(f, "a b\n\nb <|endoftext|> caf\xE9\n<|endoftext|>\nlast\n", by_words);
  expect_place(f, &t, "a.txt:3: the word '<|endoftext|>' is not in the vocabulary of 4 words");
  release(&t);
  t = train_text(f, "a\n<|endoftext|>\n<|endoftext|>\nb\nb caf\xE9 \n", by_words);
  expect_place(f, &t, "a.txt:5: the word 'caf\\xE9' is not UTF-8");
  release(&t);
  t = train_on(f, "a.txt", "a b\nc\0d\n", 8, by_words);
  expect_place(f, &t, "a.txt:2: the word 'c\\x00d' is not UTF-8, or has a zero byte");
  release(&t);
  const char *jsonl = "{\"text\": \"1 2\"}\n\n{\"text\": \"1\\n\\nx\"}\n";
  t = train_on(f, "a.jsonl", jsonl, strlen(jsonl), (TokenizerTraining){.level = WORD_LEVEL_IDS});
  expect_place(f, &t, "a.jsonl:3: 'x' is not an id");
  release(&t);
  t = train_on(f, "a.tsv", "1\t2\n-5\t2\n", 9, (TokenizerTraining){.level = WORD_LEVEL_IDS});
  expect_place(f, &t, "a.tsv:2: '-5' is not an id");
  release(&t);
}

/* In a validation text: also where nothing else is left, and in prompts with a vocabulary of their own. */
static void missing_pieces_are_left_out(void **state) {
  Fixture *f = *state;
  Trained t = train_text(f, "a b b b a c", (TokenizerTraining){.level = WORD_LEVEL_WORDS});         /* b a c, end */
  Trained prompts = train_on(f, "b.txt", "xyy", 3, (TokenizerTraining){.level = WORD_LEVEL_CHARS}); /* y x, end */
  EncodedPieces counts[2] = {{0}};
  Tokenization options = {.threads = 2, .source_tokenizer = prompts.tokenizer, .counts = counts};
  const struct {
    const char *name, *text;
    int count;
    int32_t ids[9];
    EncodedPieces all[2];
  } cases[] = {{"c.txt", "a z b z\n<|endoftext|>\nz z\n<|endoftext|>\nc", 6, {1, 0, 3, 3, 2, 3}, {{9, 6}, {0, 0}}},
               {"c.tsv", "x?y\tz a\n??\tz\ny\tb z b\n", 9, {5, 4, 1, 3, 3, 4, 0, 0, 3}, {{6, 3}, {6, 3}}}};
  for (int i = 0; i < 2; i++) {
    Corpus *corpus = open_one(put_text(f, cases[i].name, cases[i].text));
    Error error = {0};
    TokenFile file;
    int32_t ids[9];
    memset(counts, 0, sizeof counts);
    if (!tokenization_open(&file, at(f, "tokens"), corpus, t.tokenizer, &options, &error)) fail_msg("%s", error.text);
    assert_int_equal(file.info.documents, 3);
    assert_int_equal(file.info.tokens, cases[i].count);
    assert_true(token_file_read(&file, 0, cases[i].count, ids, &error));
    assert_memory_equal(ids, cases[i].ids, (size_t)cases[i].count * sizeof *ids);
    assert_memory_equal(counts, cases[i].all, sizeof counts);
    token_file_close(&file);
    corpus_close(corpus);
  }
  release(&t);
  release(&prompts);
}

/* ---- however a text is divided ---- */

static void documents_larger_than_a_slice(void **state) {
  static const char *const parts[] = {"a ", "bb\n", " ", "\n", "\xC3\xA9\t", "ccc "};
  const size_t size = 34 << 20;
  char *text = malloc(size + 8);
  assert_non_null(text);
  for (int level = WORD_LEVEL_CHARS; level < WORD_LEVELS; level++) {
    if (level == WORD_LEVEL_IDS) continue; /* the text has no numbers */
    size_t used = 0;
    for (uint32_t i = 0; used < size; i++) {
      const char *part = parts[philox(5, i % 50021, 0, 0, 0).word[0] % 6];
      memcpy(text + used, part, strlen(part));
      used += strlen(part);
    }
    Trained t = train_on(*state, "a.txt", text, used, (TokenizerTraining){.level = (WordLevel)level});
    Error error = {0};
    TokenFile file;
    BpeIds want = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/tokens.bin", ((Fixture *)*state)->dir);
    const Tokenization options = {.threads = 2};
    if (!tokenization_open(&file, path, t.corpus, t.tokenizer, &options, &error)) fail_msg("%s", error.text);
    assert_true(tokenizer_encode(t.tokenizer, (const uint8_t *)text, used, &want, &error));
    assert_int_equal(file.info.tokens, want.count + 1);
    int32_t *ids = malloc(want.count * sizeof *ids);
    assert_non_null(ids);
    assert_true(token_file_read(&file, 0, (int64_t)want.count, ids, &error));
    assert_memory_equal(ids, want.ids, want.count * sizeof *ids);
    free(ids);
    free(want.ids);
    token_file_close(&file);
    unlink(path);
    release(&t);
  }
  free(text);
}

/* ---- extremes ---- */

static void one_kind_of_token(void **state) {
  Trained t = train_text(*state, "AAAA", (TokenizerTraining){.level = WORD_LEVEL_CHARS});
  assert_int_equal(tokenizer_vocab(t.tokenizer), 2);
  release(&t);
  t = train_text(*state, " \n", (TokenizerTraining){.level = WORD_LEVEL_IDS}); /* no id at all */
  assert_int_equal(tokenizer_vocab(t.tokenizer), 1);
  expect_refusal(&t, "0", "'0'");
  release(&t);
}

/* The words 0 to count - 1. */
static Corpus *many_words(Fixture *f, int count) {
  char *text = malloc((size_t)count * 10), *to = text;
  assert_non_null(text);
  for (int i = 0; i < count; i++) to += sprintf(to, "w%d%c", i, i % 8 < 7 ? ' ' : '\n');
  Corpus *corpus = open_one(put(f, "many.txt", text, (size_t)(to - text)));
  free(text);
  return corpus;
}

static void too_many_words(void **state) {
  Error error = {0};
  Tokenizer *out;
  Corpus *corpus = many_words(*state, 10000000);
  TokenizerTraining options = {.level = WORD_LEVEL_WORDS, .threads = 1, .vocab_size = 5000};
  assert_false(tokenization_train(&out, corpus, &options, &error));
  assert_int_equal(error.code, EXIT_INPUT);
  assert_non_null(strstr(error.text, "different words"));
  assert_non_null(strstr(error.text, "--tokenizer bpe"));
  corpus_close(corpus);
  corpus = many_words(*state, 1100000);
  options.vocab_size = 0;
  error = (Error){0};
  assert_false(tokenization_train(&out, corpus, &options, &error));
  assert_int_equal(error.code, EXIT_INPUT);
  assert_non_null(strstr(error.text, "--vocab-size N keeps"));
  corpus_close(corpus);
}

/* ---- tokenizer.json ---- */

static void a_saved_tokenizer_is_the_same(void **state) {
  Fixture *f = *state;
  for (int level = WORD_LEVEL_NONE + 1; level < WORD_LEVELS; level++) {
    const bool ids = level == WORD_LEVEL_IDS;
    Trained t = train_text(f, ids ? "7 8" : "a \"b\"\n\\ \x01 b\n",
                           (TokenizerTraining){.level = (WordLevel)level, .unknown = !ids});
    Error error = {0};
    Tokenizer *again;
    char path[256];
    snprintf(path, sizeof path, "%s/" TOKENIZER_JSON, f->dir);
    tokenizer_set_begins_with_end(t.tokenizer, true);
    assert_true(tokenizer_save(t.tokenizer, f->dir, 64, &error));
    if (!tokenizer_load(&again, path, &error)) fail_msg("%s", error.text);
    assert_true(tokenizer_fingerprint(again) == tokenizer_fingerprint(t.tokenizer));
    assert_true(tokenizer_begins_with_end(again));
    assert_string_equal(tokenizer_name(again), word_level_kinds[level].name);
    tokenizer_free(again);
    unlink(path);
    snprintf(path, sizeof path, "%s/" TOKENIZER_CONFIG_JSON, f->dir);
    unlink(path);
    release(&t);
  }
}

static void pieces_of_sequences(void **state) {
  const char *text = ">one\nACGT\nAC GT\r\n\n>two\n;a comment\nTT\n>empty\n";
  Trained t = train_on(*state, "a.FA", text, strlen(text), (TokenizerTraining){.level = WORD_LEVEL_CHARS});
  Error error = {0};
  Document document;
  assert_int_equal(tokenizer_vocab(t.tokenizer), 5);
  corpus_rewind(t.corpus, (Progress){0});
  assert_true(corpus_next(t.corpus, &document, &error));
  assert_int_equal(document.size, 8);
  assert_memory_equal(document.text, "ACGTACGT", 8);
  assert_int_equal(document.line, 1);
  assert_true(corpus_next(t.corpus, &document, &error));
  assert_int_equal(document.size, 2);
  assert_memory_equal(document.text, "TT", 2);
  assert_int_equal(document.line, 5);
  assert_true(corpus_next(t.corpus, &document, &error));
  assert_null(document.text);
  release(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(characters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(words, set_up, tear_down),
      cmocka_unit_test_setup_teardown(lines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(ready_ids, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_most_frequent_words, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_place_of_an_unknown_piece, set_up, tear_down),
      cmocka_unit_test_setup_teardown(missing_pieces_are_left_out, set_up, tear_down),
      cmocka_unit_test_setup_teardown(documents_larger_than_a_slice, set_up, tear_down),
      cmocka_unit_test_setup_teardown(one_kind_of_token, set_up, tear_down),
      cmocka_unit_test_setup_teardown(too_many_words, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_saved_tokenizer_is_the_same, set_up, tear_down),
      cmocka_unit_test_setup_teardown(pieces_of_sequences, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
