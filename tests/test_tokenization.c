/* text/dataset/tokenization: however documents come, their tokens are those of each encoded by
 * itself. */
#include "text/dataset/tokenization.h"
#include "kernels/philox.h"
#include "tests/corpus_helpers.h"

/* ab, " ab", abab and two newlines are tokens. */
static Tokenizer *make_tokenizer(void) {
  const BpeMerge merges[] = {{'a', 'b', 256}, {' ', 256, 257}, {256, 256, 258}, {'\n', '\n', 259}};
  Tokenizer *out;
  Error error = {0};
  assert_true(tokenizer_from_merges(&out, merges, 4, &error));
  return out;
}

static const Tokenization two_threads = {.threads = 2};

static TokenFile open_tokens(const char *path, Corpus *corpus, const Tokenizer *tokenizer) {
  TokenFile file;
  Error error = {0};
  if (!tokenization_open(&file, path, corpus, tokenizer, &two_threads, &error)) fail_msg("%s", error.text);
  assert_int_equal(file.info.vocab, tokenizer_vocab(tokenizer));
  if (corpus) assert_true(file.info.fingerprint == tokenization_fingerprint(corpus, tokenizer, NULL));
  return file;
}

/* The file's tokens are `want`, and left out of the loss where `left_out` (may be NULL) says so. */
static void expect_tokens(const TokenFile *file, const BpeIds *want, const bool *left_out) {
  Error error = {0};
  int32_t *ids = malloc((want->count + 1) * sizeof *ids);
  assert_non_null(ids);
  assert_int_equal(file->info.tokens, want->count);
  assert_true(token_file_read(file, 0, (int64_t)want->count, ids, &error));
  assert_memory_equal(ids, want->ids, want->count * sizeof *ids);
  assert_true(token_file_read_targets(file, 0, (int64_t)want->count, -1, ids, &error));
  for (size_t i = 0; i < want->count; i++) assert_int_equal(ids[i], left_out && left_out[i] ? -1 : want->ids[i]);
  free(ids);
}

static void add(Tokenizer *tokenizer, BpeIds *ids, const char *text, size_t size, bool end) {
  Error error = {0};
  const int32_t id = tokenizer_end(tokenizer);
  assert_true(tokenizer_encode(tokenizer, (const uint8_t *)text, size, ids, &error));
  if (end) assert_true(bpe_ids_sink(ids, &id, 1, &error));
}

/* Many small documents, one larger than a block has room for, one larger than a slice. */
static void documents_of_all_sizes(void **state) {
  Fixture *f = *state;
  Tokenizer *tokenizer = make_tokenizer();
  enum { SMALL = 3000, SIZES = 5 };
  const size_t sizes[SIZES] = {5 << 20, 3, 40 << 20, 1, 16 << 20};
  size_t room = (size_t)SMALL * 120 + (66 << 20), size = 0;
  char *text = malloc(room);
  BpeIds want = {0};
  assert_non_null(text);
  for (int i = 0; i < SMALL + SIZES; i++) {
    const size_t count = i % 600 < 599 ? philox(1, (uint32_t)i, 0, 0, 0).word[0] % 90 + 1 : sizes[i / 600];
    char *begin = text + size;
    for (size_t k = 0; k < count; k++)
      begin[k] = "ab ab\nab,abab \xC3\xA9"[philox(2, (uint32_t)(k / 4), (uint32_t)i, 0, 0).word[k % 4] % 16];
    begin[count] = '\n'; /* the line end before the mark belongs to the document */
    add(tokenizer, &want, begin, count + 1, true);
    size += count + 1 + (size_t)sprintf(begin + count + 1, "<|endoftext|>\n");
  }
  Corpus *corpus = open_one(put(f, "a.txt", text, size));
  TokenFile file = open_tokens(at(f, "tokens"), corpus, tokenizer);
  assert_int_equal(file.info.documents, SMALL + SIZES);
  assert_int_equal(file.info.bytes, size);
  assert_false(file.info.loss_mask);
  expect_tokens(&file, &want, NULL);
  token_file_close(&file);
  corpus_close(corpus);
  tokenizer_free(tokenizer);
  free(want.ids);
  free(text);
}

/* Prompts are left out of the loss, responses and what ends them are not; either may be empty. */
static void prompts_are_left_out(void **state) {
  Fixture *f = *state;
  Tokenizer *tokenizer = make_tokenizer();
  const char *const pairs[][2] = {{"ab ab", "abab"}, {"", "ab"}, {"ab\\n\\nab", "a"}, {" ab", ""}};
  const char *const texts[][2] = {{"ab ab", "abab"}, {"", "ab"}, {"ab\n\nab", "a"}, {" ab", ""}};
  char lines[1024] = "";
  bool left_out[256];
  BpeIds want = {0};
  for (int i = 0; i < 4; i++) {
    sprintf(lines + strlen(lines), "{\"q\": \"%s\", \"a\": \"%s\"}\n", pairs[i][0], pairs[i][1]);
    for (int part = 0; part < 2; part++) {
      const size_t from = want.count;
      add(tokenizer, &want, texts[i][part], strlen(texts[i][part]), part == 1);
      for (size_t k = from; k < want.count; k++) left_out[k] = part == 0;
    }
  }
  const char *path = put_text(f, "b.jsonl", lines);
  Corpus *corpus = open_with(&path, 1, &(CorpusOptions){.prompt_field = "q", .response_field = "a"});
  TokenFile file = open_tokens(at(f, "tokens"), corpus, tokenizer);
  assert_true(file.info.loss_mask);
  assert_int_equal(file.info.documents, 4);
  expect_tokens(&file, &want, left_out);
  token_file_close(&file);
  corpus_close(corpus);
  tokenizer_free(tokenizer);
  free(want.ids);
}

/* Prompts by a tokenizer of their own, above the vocabulary of the other; large ones, too. */
static void prompts_have_their_own_tokenizer(void **state) {
  Fixture *f = *state;
  Error error = {0};
  Tokenizer *tokenizer = tokenizer_byte(), *of_prompts = make_tokenizer();
  enum { PAIRS = 300, LARGE = 5 << 20, LARGER = 33 << 20 }; /* LARGER than a slice */
  const Tokenization options = {.source_tokenizer = of_prompts, .threads = 2};
  char *lines = malloc((size_t)PAIRS * 64 + LARGE + LARGER);
  BpeIds want = {0};
  bool *left_out = calloc((size_t)PAIRS * 64 + LARGE + LARGER, sizeof *left_out);
  size_t size = 0;
  assert_true(lines && left_out);
  for (int i = 0; i < PAIRS; i++) {
    const size_t lengths[] = {i == 150 ? (size_t)LARGE : (size_t)(i % 7),
                              i == 151 ? (size_t)LARGER : (size_t)(i % 5 + (i % 7 == 0))};
    for (int part = 0; part < 2; part++) {
      const size_t from = want.count;
      char *text = lines + size;
      for (size_t k = 0; k < lengths[part]; k++) text[k] = "abab c"[(k + (size_t)i) % 6];
      add(part ? tokenizer : of_prompts, &want, text, lengths[part], part == 1);
      for (size_t k = from; k < want.count; k++) left_out[k] = part == 0, want.ids[k] += part ? 0 : 257;
      size += lengths[part];
      lines[size++] = part ? '\n' : '\t';
    }
  }
  Corpus *corpus = open_one(put(f, "a.tsv", lines, size));
  TokenFile file;
  if (!tokenization_open(&file, at(f, "tokens"), corpus, tokenizer, &options, &error)) fail_msg("%s", error.text);
  assert_int_equal(file.info.vocab, 257 + 261);
  assert_int_equal(file.info.documents, PAIRS);
  assert_true(file.info.fingerprint == tokenization_fingerprint(corpus, tokenizer, of_prompts));
  expect_tokens(&file, &want, left_out);
  token_file_close(&file);
  corpus_close(corpus);
  tokenizer_free(tokenizer);
  tokenizer_free(of_prompts);
  free(want.ids);
  free(left_out);
  free(lines);
}

/* Another tokenizer of prompts makes other tokens, also one with as many. */
static void fingerprints_cover_both(void **state) {
  Fixture *f = *state;
  const BpeMerge one[] = {{'a', 'b', 256}}, other[] = {{'b', 'a', 256}};
  Tokenizer *byte = tokenizer_byte(), *first = NULL, *second = NULL;
  Error error = {0};
  TokenFile file;
  assert_true(tokenizer_from_merges(&first, one, 1, &error) && tokenizer_from_merges(&second, other, 1, &error));
  Corpus *corpus = open_one(put_text(f, "a.tsv", "abba\tabab\n"));
  const Tokenizer *const sources[] = {NULL, byte, first, second};
  const int64_t tokens[] = {9, 9, 8, 8};
  for (int i = 0; i < 4; i++) {
    const Tokenization options = {.source_tokenizer = sources[i], .threads = 1};
    const uint64_t fingerprint = tokenization_fingerprint(corpus, byte, sources[i]);
    for (int k = 0; k < i; k++) assert_true(fingerprint != tokenization_fingerprint(corpus, byte, sources[k]));
    assert_true(tokenization_open(&file, at(f, "tokens"), corpus, byte, &options, &error));
    assert_true(file.info.fingerprint == fingerprint && file.info.tokens == tokens[i]);
    token_file_close(&file);
  }
  assert_false(tokenization_open(&file, at(f, "tokens"), NULL, byte, &two_threads, &error));
  expect_error(&error, EXIT_CHECKPOINT, "belongs to another text");
  corpus_close(corpus);
  tokenizer_free(byte);
  tokenizer_free(first);
  tokenizer_free(second);
}

static void tokenizers_of_one_side(void **state) {
  Fixture *f = *state;
  const char *const merged[] = {"st", "xy", "vw"}; /* st is the second on both sides */
  Corpus *corpus = open_one(put_text(f, "a.tsv", "xy.xy.st\tvw.st\nxy.st\tvw.vw.st\n"));
  for (int texts = TRAINING_ALL; texts <= TRAINING_RESPONSES; texts++) {
    Tokenizer *tokenizer;
    Error error = {0};
    const TokenizerTraining options = {.vocab_size = 258, .threads = 2, .texts = (TrainingTexts)texts};
    size_t size;
    assert_true(tokenization_train(&tokenizer, corpus, &options, &error));
    assert_int_equal(tokenizer_vocab(tokenizer), 258);
    assert_memory_equal(tokenizer_decode(tokenizer, 256, &size), merged[texts], 2);
    tokenizer_free(tokenizer);
  }
  corpus_close(corpus);
}

/* The vocabulary is the one of all documents, large and small; --vocab-size is an upper bound. */
static void tokenizers_are_trained(void **state) {
  Fixture *f = *state;
  const size_t size = 36 << 20;
  char *text = malloc(size + 64);
  Error error = {0};
  Tokenizer *all, *few;
  assert_non_null(text);
  for (size_t i = 0; i < size; i++)
    text[i] = "xyz wv"[i % 24 < 6 ? i % 6 : philox(3, (uint32_t)(i % 4096), 0, 0, 0).word[0] % 6];
  memcpy(text + size, "\n<|endoftext|>\nqq qq qq\n", 24);
  Corpus *corpus = open_one(put(f, "a.txt", text, size + 24));
  assert_true(tokenization_train(&all, corpus, &(TokenizerTraining){.vocab_size = 300, .threads = 2}, &error));
  assert_true(tokenization_train(&few, corpus, &(TokenizerTraining){.vocab_size = 258, .threads = 1}, &error));
  assert_int_equal(tokenizer_vocab(all), 300);
  assert_int_equal(tokenizer_vocab(few), 258);
  assert_int_equal(tokenizer_bpe(few)->merges[0].left, tokenizer_bpe(all)->merges[0].left);
  assert_int_equal(tokenizer_bpe(few)->merges[0].right, tokenizer_bpe(all)->merges[0].right);
  corpus_close(corpus);
  corpus = open_one(put_text(f, "a.txt", "qq")); /* no pair occurs twice */
  tokenizer_free(few);
  assert_true(tokenization_train(&few, corpus, &(TokenizerTraining){.vocab_size = 1000, .threads = 2}, &error));
  assert_int_equal(tokenizer_vocab(few), 257);
  corpus_close(corpus);
  tokenizer_free(all);
  tokenizer_free(few);
  free(text);
}

/* ---- files that are there ---- */

static bool never(void *context, int64_t done, Error *error) {
  (void)context, (void)done, (void)error;
  fail_msg("the corpus is encoded again");
  return false;
}

static void intact_files_are_used(void **state) {
  Fixture *f = *state;
  Error error = {0};
  Tokenizer *tokenizer = make_tokenizer(), *other = tokenizer_byte();
  TokenFile file;
  const char *tokens = at(f, "tokens");
  const Tokenization reuse = {.threads = 1, .encoding = {never, NULL}};
  Corpus *corpus = open_one(put_text(f, "a.txt", "abab ab"));
  file = open_tokens(tokens, corpus, tokenizer);
  token_file_close(&file);
  assert_true(tokenization_open(&file, tokens, corpus, tokenizer, &reuse, &error));
  token_file_close(&file);
  assert_true(tokenization_open(&file, tokens, NULL, tokenizer, &reuse, &error)); /* the text may be gone */
  token_file_close(&file);
  assert_false(tokenization_open(&file, tokens, NULL, other, &reuse, &error));
  expect_error(&error, EXIT_CHECKPOINT, "belongs to another text");
  file = open_tokens(tokens, corpus, other); /* another tokenizer: encoded again */
  assert_int_equal(file.info.tokens, 8);
  token_file_close(&file);
  FILE *stream = fopen(tokens, "r+b"); /* one token is another one */
  assert_non_null(stream);
  assert_int_equal(fseek(stream, 80, SEEK_SET), 0);
  fputc('x', stream);
  fclose(stream);
  file = open_tokens(tokens, corpus, other);
  expect_tokens(&file, &(BpeIds){(int32_t[]){'a', 'b', 'a', 'b', ' ', 'a', 'b', 256}, 8, 8}, NULL);
  token_file_close(&file);
  corpus_close(corpus);
  tokenizer_free(tokenizer);
  tokenizer_free(other);
}

/* ---- stopping ---- */

typedef struct Stop {
  int64_t at, bytes; /* bytes: of the last report */
} Stop;

static bool stop_at(void *context, int64_t bytes, Error *error) {
  Stop *stop = context;
  stop->bytes = bytes;
  return bytes < stop->at || (fail)(error, EXIT_SIGNALS, "stopped");
}

static void expect_stop(Fixture *f, Corpus *corpus, int64_t at_bytes, int64_t before) {
  Error error = {0}, training = {0};
  Tokenizer *tokenizer = make_tokenizer(), *trained;
  TokenFile file;
  Stop stop = {.at = at_bytes};
  const Tokenization options = {.threads = 2, .encoding = {stop_at, &stop}};
  assert_false(tokenization_open(&file, at(f, "tokens"), corpus, tokenizer, &options, &error));
  assert_int_equal(error.code, EXIT_SIGNALS);
  assert_true(stop.bytes >= at_bytes && stop.bytes < before);
  assert_int_equal(access(at(f, "tokens"), F_OK), -1); /* nothing half is left */
  const TokenizerTraining same = {.vocab_size = 300, .threads = 2, .counting = {stop_at, &stop}};
  assert_false(tokenization_train(&trained, corpus, &same, &training));
  assert_int_equal(training.code, EXIT_SIGNALS);
  assert_true(stop.bytes >= at_bytes && stop.bytes < before);
  tokenizer_free(tokenizer);
}

static void stops_between_documents(void **state) {
  Fixture *f = *state;
  const size_t size = 50 << 20;
  char *text = calloc(size, 1);
  assert_non_null(text);
  for (size_t i = 0; i < size; i += 1 << 20) memcpy(text + i, "\n<|endoftext|>\n", 15);
  Corpus *corpus = open_one(put(f, "a.txt", text, size));
  free(text);
  expect_stop(f, corpus, 30 << 20, 40 << 20);
  corpus_close(corpus);
}

/* One document that is worked on in slices; and before that, while its end is looked for. */
static void stops_inside_documents(void **state) {
  Fixture *f = *state;
  const size_t size = 150 << 20;
  char *text = malloc(size);
  assert_non_null(text);
  for (size_t i = 0; i < size; i++) text[i] = "a line of text\n"[i % 15];
  Corpus *corpus = open_one(put(f, "a.txt", text, size));
  free(text);
  expect_stop(f, corpus, 90 << 20, 100 << 20);
  expect_stop(f, corpus, 0, 1);
  corpus_close(corpus);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(documents_of_all_sizes),  WITH_FIXTURE(prompts_are_left_out),
      WITH_FIXTURE(tokenizers_are_trained),  WITH_FIXTURE(prompts_have_their_own_tokenizer),
      WITH_FIXTURE(fingerprints_cover_both), WITH_FIXTURE(tokenizers_of_one_side),
      WITH_FIXTURE(intact_files_are_used),   WITH_FIXTURE(stops_between_documents),
      WITH_FIXTURE(stops_inside_documents),
  };
  return cmocka_run_group_tests_name("tokenization", tests, NULL, NULL);
}
