/* Texts that are generated several at a time, on every backend: each is bit for bit the one that its prompt gets alone,
 * whatever stands beside it, and on any number of threads; stop texts, slides, log-probabilities. */
#include "inference/generation.h"
#include "tests/machine.h"
#include "tests/model_helpers.h"
#include "model/parameters.h"
#include "model/decoder.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CTX = 24, TEXTS = 9, MOST_BYTES = 400, MOST_TOKENS = 200, TOP = 3 };

static const ModelConfig shape = {.vocab = 257,
                                  .ctx = CTX,
                                  .layers = 2,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .dim = 32,
                                  .head_dim = 16,
                                  .ffn = 48,
                                  .tie = true,
                                  .rope_base = 10000,
                                  .norm_eps = 1e-5f,
                                  .gated = true};

/* The same with convolutions, norms of queries and keys, and attention without rotary positions. */
static ModelConfig mixed_shape(void) {
  ModelConfig config = shape;
  config.layers = 4;
  config.qk_norm = 1;
  strcpy(config.mixers, "CANC");
  return config;
}

/* A model of random weights, and the byte tokenizer. */
typedef struct Speaker {
  Machine machine;
  Model *model;
  Tokenizer *tokenizer;
} Speaker;

static void fill_speaker(Fixture *f, Speaker *s, const ModelConfig *config) {
  Error error = {0};
  need(model_open(&s->model, s->machine.ops, s->machine.context, config, &error), &error);
  float *weights = host_memory(f, model_arena_size(s->model, ARENA_MASTER) * sizeof *weights);
  parameter_table_init(model_table(s->model), (Initialization){config->bias ? INIT_TORCH : INIT_GPT2, 0.3f}, weights,
                       11);
  model_upload(s->model, ARENA_MASTER, weights);
  assert_non_null(s->tokenizer);
}

static Speaker speaker_of(Fixture *f, int threads, const ModelConfig *config) {
  Speaker s = {.machine = machine_open(f, threads), .tokenizer = tokenizer_byte()};
  fill_speaker(f, &s, config);
  return s;
}

static Speaker speaker_open(Fixture *f, int threads) { return speaker_of(f, threads, &shape); }

static void speaker_close(Speaker *s) {
  model_close(s->model);
  tokenizer_free(s->tokenizer);
  machine_close(&s->machine);
}

/* What became of a text. */
typedef struct Written {
  uint8_t bytes[MOST_BYTES];
  int32_t ids[MOST_TOKENS];
  float logprobs[MOST_TOKENS];
  TokenAlternative top[MOST_TOKENS][TOP];
  int64_t begins[MOST_TOKENS];
  size_t size;
  int count, pieces; /* pieces: steps after which more bytes were ready */
  int64_t tokens;
  StopReason reason;
} Written;

/* All but an incomplete character is ready, unless it may become a stop text. */
static void take_ready(Written *w, const Text *text) {
  assert_true(text->ready >= w->size && text->ready <= text->bytes.size && text->ready <= MOST_BYTES);
  if (text->bytes.size && !text->ended && !text->stops.count)
    assert_int_equal(text->ready, utf8_complete(text->bytes.bytes, text->bytes.size));
  if (text->ready == w->size) return;
  memcpy(w->bytes + w->size, text->bytes.bytes + w->size, text->ready - w->size);
  w->size = text->ready;
  w->pieces++;
}

static void take_end(Written *w, const Text *text) {
  assert_true(text->ids.count <= MOST_TOKENS);
  assert_int_equal(text->bytes.size, w->size);
  w->count = (int)text->ids.count;
  w->tokens = text->count;
  w->reason = text->reason;
  for (int i = 0; i < w->count; i++) {
    w->ids[i] = text->ids.ids[i];
    w->begins[i] = (int64_t)text->tokens[i].begin;
    w->logprobs[i] = text->tokens[i].logprob;
    if (text->alternatives == TOP) memcpy(w->top[i], text->top + i * TOP, sizeof w->top[0]);
  }
}

/* All texts, `rows` at a time. */
static Written *write_all(Fixture *f, Speaker *s, const Text *texts, int count, int rows) {
  Written *written = host_memory(f, (size_t)count * sizeof *written);
  Text *all = host_memory(f, (size_t)count * sizeof *all);
  Error error = {0};
  Decoder *decoder = NULL;
  Generation *generation = NULL;
  int begun = 0;
  need(decoder_open(&decoder, s->model, rows, &error), &error);
  need(generation_open(&generation, decoder, rows, s->tokenizer, &error), &error);
  do {
    for (; begun < count && generation_has_room(generation); begun++) {
      all[begun] = texts[begun];
      all[begun].keep_tokens = true;
      need(generation_add(generation, &all[begun], &error), &error);
    }
    need(generation_step(generation, &error), &error);
    for (int i = 0; i < begun; i++) take_ready(&written[i], &all[i]);
  } while (generation_count(generation) || begun < count);
  for (int i = 0; i < count; i++) {
    assert_true(all[i].ended);
    take_end(&written[i], &all[i]);
    generation_free_text(&all[i]);
  }
  generation_close(generation);
  decoder_close(decoder);
  return written;
}

static Written write_one(Fixture *f, Speaker *s, Text text) { return *write_all(f, s, &text, 1, 1); }

static int32_t prompt[] = {'F', 'i', 'r', 's', 't', ' ', 'C', 'i', 't', 'i', 'z', 'e', 'n', ':', '\n'};
static int32_t other[] = {256, 'a', 0xE2, 0x80};

static Text plain(int64_t tokens, uint64_t seed) {
  return (Text){.prompt.decoder = {.ids = prompt, .count = 15},
                .sampling = {.repeat_penalty = 1, .top_p = 1, .temperature = 1, .seed = seed},
                .max_tokens = tokens,
                .alternatives = -1};
}

/* Prompts that are the same and others, sampling of every kind, texts that slide, stop, end at once and never begin. */
static void various_texts(Text out[TEXTS], const PatternList *stops, TokenRules *rules) {
  for (int i = 0; i < TEXTS; i++) out[i] = plain(6 + 5 * i, (uint64_t)i / 2);
  out[0].rules = rules;
  out[1].stream = 7;
  out[2].keep = CTX / 2;
  out[2].max_tokens = 40;
  out[3].sampling = sampling_greedy();
  out[3].keep = CTX;
  out[3].max_tokens = 15;
  out[4].prompt.decoder = (BpeIds){.ids = other, .count = 4};
  out[4].sampling = (Sampling){.repeat_penalty = 1.3f,
                               .repeat_last_n = 8,
                               .presence_penalty = 0.2f,
                               .frequency_penalty = 0.1f,
                               .top_k = 30,
                               .top_p = 0.9f,
                               .min_p = 0.01f,
                               .temperature = 0.8f,
                               .seed = 5};
  out[5].prompt.decoder.count = 1;
  out[5].stops = *stops;
  out[6].max_tokens = 0;
  out[7].max_tokens = -1;
  out[7].ignore_end = out[2].ignore_end = true;
  out[7].alternatives = TOP;
  out[7].rules = rules;
  out[8].stops = *stops;
  out[8].prompt.decoder.count = 2;
  out[8].keep = 1;
  out[8].ignore_end = true;
  out[8].max_tokens = 60;
}

static void rows_are_single_texts(Fixture *f, const ModelConfig *config) {
  const int most_threads = fixture_is_cuda(f) ? 1 : 3;
  PatternList stops = {0};
  Error error = {0};
  need(pattern_list_add(&stops, "a", 1, &error), &error);
  need(pattern_list_add(&stops, "\x93\x94", 2, &error), &error);
  Text texts[TEXTS];
  TokenRules rules;
  Speaker alone = speaker_of(f, 1, config);
  Tokenizer *tokenizer = tokenizer_byte(); /* outlives all speakers */
  need(token_rules_make(&rules, tokenizer, &error), &error);
  need(token_rules_bias(&rules, 'Q', 30, &error) && token_rules_ban(&rules, (const uint8_t *)"QQQ", 3, &error), &error);
  various_texts(texts, &stops, &rules);
  Written *single = host_memory(f, TEXTS * sizeof *single);
  for (int i = 0; i < TEXTS; i++) single[i] = write_one(f, &alone, texts[i]);
  speaker_close(&alone);
  assert_true(memcmp(single[0].bytes, single[1].bytes, 6) != 0); /* another stream is another text */
  assert_memory_equal(single[0].bytes, "QQ", 2);
  assert_int_not_equal(single[0].bytes[2], 'Q');
  assert_int_equal(single[6].tokens, 0);
  assert_int_equal(single[7].reason, STOP_CONTEXT);
  assert_int_equal(single[7].tokens, CTX - 15 + 1);
  assert_int_equal(single[2].tokens, 40);
  for (int threads = 1; threads <= most_threads; threads += 2)
    for (int rows = 2; rows <= TEXTS; rows += fixture_is_cuda(f) ? 5 : 2) {
      Speaker s = speaker_of(f, threads, config);
      const Written *all = write_all(f, &s, texts, TEXTS, rows);
      for (int i = 0; i < TEXTS; i++)
        if (memcmp(&all[i], &single[i], sizeof all[i]) != 0)
          fail_msg("%d threads, %d rows: text %d has %d tokens, alone %d", threads, rows, i, all[i].count,
                   single[i].count);
      speaker_close(&s);
    }
  pattern_list_free(&stops);
  token_rules_free(&rules);
  tokenizer_free(tokenizer);
}

static void test_rows_are_single_texts(void **state) {
  const ModelConfig mixed = mixed_shape();
  rows_are_single_texts(*state, &shape);
  rows_are_single_texts(*state, &mixed);
}

static bool contains(const Written *w, const char *text) {
  const size_t size = strlen(text);
  for (size_t i = 0; i + size <= w->size; i++)
    if (memcmp(w->bytes + i, text, size) == 0) return true;
  return false;
}

static void expect_no_token(const Speaker *s, Text text) {
  Decoder *decoder = NULL;
  Generation *generation = NULL;
  Error error = {0};
  need(decoder_open(&decoder, s->model, 1, &error), &error);
  need(generation_open(&generation, decoder, 1, s->tokenizer, &error), &error);
  need(generation_add(generation, &text, &error), &error);
  assert_false(generation_step(generation, &error));
  assert_int_equal(error.code, EXIT_USAGE);
  generation_close(generation);
  decoder_close(decoder);
  generation_free_text(&text);
}

/* A banned text never appears, though every other one that begins with it may; biases are as they were given last. */
static void test_rules(void **state) {
  Fixture *f = *state;
  enum { LENGTH = 60 };
  Speaker s = speaker_open(f, 1);
  TokenRules rules;
  Error error = {0};
  Text asked = plain(LENGTH, 3);
  asked.keep = CTX / 2;
  asked.ignore_end = true;
  need(token_rules_make(&rules, s.tokenizer, &error), &error);
  need(token_rules_bias(&rules, 'a', 9, &error) && token_rules_bias(&rules, 'b', 9, &error), &error);
  need(token_rules_bias(&rules, 'c', 20, &error) && token_rules_bias(&rules, 'c', -INFINITY, &error), &error);
  asked.rules = &rules;
  const Written free_text = write_one(f, &s, asked);
  assert_false(contains(&free_text, "c"));
  assert_true(contains(&free_text, "aab"));
  assert_true(contains(&free_text, "ba"));
  need(token_rules_ban(&rules, (const uint8_t *)"aab", 3, &error), &error);
  need(token_rules_ban(&rules, (const uint8_t *)"ba", 2, &error), &error);
  const Written banned = write_one(f, &s, asked);
  assert_false(contains(&banned, "aab"));
  assert_false(contains(&banned, "ba"));
  assert_true(contains(&banned, "bb"));
  for (int id = 0; id < 257; id++) need(token_rules_bias(&rules, id, -INFINITY, &error), &error);
  expect_no_token(&s, asked);
  token_rules_free(&rules);
  speaker_close(&s);
}

/* A model with more rows than its tokenizer has tokens draws none of the others, with rules or without. */
static void test_unused_rows(void **state) {
  Fixture *f = *state;
  enum { LENGTH = 60, ROWS = 600 };
  ModelConfig config = shape;
  config.vocab = ROWS;
  Speaker s = speaker_of(f, 1, &config);
  TokenRules rules;
  Error error = {0};
  Text asked = plain(LENGTH, 3);
  asked.keep = CTX / 2;
  asked.ignore_end = true;
  asked.sampling.top_k = 0, asked.sampling.top_p = 1, asked.sampling.min_p = 0;
  assert_true(tokenizer_set_vocab(s.tokenizer, ROWS));
  need(token_rules_make(&rules, s.tokenizer, &error), &error);
  need(token_rules_bias(&rules, 'a', 4, &error), &error);
  need(token_rules_ban(&rules, (const uint8_t *)"aa", 2, &error), &error);
  for (int ruled = 0; ruled < 2; ruled++) {
    asked.rules = ruled ? &rules : NULL;
    const Written w = write_one(f, &s, asked);
    assert_true(w.count > LENGTH / 2);
    for (int i = 0; i < w.count; i++) assert_true(w.ids[i] <= 256);
    assert_false(ruled && contains(&w, "aa"));
  }
  for (int id = 0; id <= 256; id++) need(token_rules_bias(&rules, id, -INFINITY, &error), &error);
  expect_no_token(&s, asked);
  token_rules_free(&rules);
  speaker_close(&s);
}

/* Where a text stops is where the stop text first stands in what it would be without. */
static void test_stop_texts(void **state) {
  Fixture *f = *state;
  enum { LENGTH = 60 };
  Speaker s = speaker_open(f, 1);
  Text asked = plain(LENGTH, 3);
  asked.keep = CTX / 2;
  asked.ignore_end = true;
  const Written whole = write_one(f, &s, asked);
  assert_true(whole.size > 40);
  for (size_t length = 1; length <= 9; length += 4)
    for (size_t at = 0; at + length <= whole.size && at < 30; at += 14) {
      asked.stops = (PatternList){0};
      Error error = {0};
      need(pattern_list_add(&asked.stops, whole.bytes + at, length, &error), &error);
      const Written cut = write_one(f, &s, asked);
      size_t first = 0;
      while (memcmp(whole.bytes + first, whole.bytes + at, length) != 0) first++;
      assert_int_equal(cut.reason, STOP_TEXT);
      assert_int_equal(cut.size, first);
      assert_memory_equal(cut.bytes, whole.bytes, first);
      pattern_list_free(&asked.stops);
    }
  uint8_t never[6]; /* begins as the end of the text does: it is held back, and comes out */
  asked.stops = (PatternList){0};
  Error error = {0};
  memcpy(never, whole.bytes + whole.size - 5, 5);
  never[5] = (uint8_t)(whole.bytes[0] ^ 1);
  need(pattern_list_add(&asked.stops, never, 6, &error), &error);
  const Written same = write_one(f, &s, asked);
  assert_int_equal(same.size, whole.size);
  assert_memory_equal(same.bytes, whole.bytes, whole.size);
  pattern_list_free(&asked.stops);
  speaker_close(&s);
}

/* When as much is kept as there is room for, each token is that of a new text whose prompt is what was kept. */
static void slides_case(Fixture *f, const ModelConfig *config) {
  enum { LENGTH = CTX + 6 };
  Speaker s = speaker_of(f, 1, config);
  Text asked = plain(LENGTH, 0);
  asked.sampling = sampling_greedy();
  asked.ignore_end = true;
  asked.keep = CTX;
  asked.prompt.decoder.count = 3;
  const Written whole = write_one(f, &s, asked);
  assert_int_equal(whole.count, LENGTH);
  int32_t text[3 + LENGTH];
  memcpy(text, prompt, 3 * sizeof *text);
  memcpy(text + 3, whole.ids, LENGTH * sizeof *text);
  for (int at = CTX - 2; at < LENGTH; at += 3) {
    Text next = plain(1, 0);
    next.sampling = sampling_greedy();
    next.ignore_end = true;
    next.prompt.decoder.count = at + 3 < CTX ? (size_t)at + 3 : CTX;
    next.prompt.decoder.ids = text + at + 3 - next.prompt.decoder.count;
    assert_int_equal(write_one(f, &s, next).ids[0], whole.ids[at]);
  }
  speaker_close(&s);
}

static void test_slides(void **state) {
  const ModelConfig mixed = mixed_shape();
  slides_case(*state, &shape);
  slides_case(*state, &mixed);
}

/* Against the logits themselves, and begins against the bytes. */
static void test_logprobs(void **state) {
  Fixture *f = *state;
  enum { LENGTH = 5 };
  Speaker s = speaker_open(f, 1);
  Text asked = plain(LENGTH, 1);
  asked.alternatives = TOP;
  asked.sampling.temperature = 0.3f;
  const Written w = write_one(f, &s, asked);
  int32_t text[15 + LENGTH];
  memcpy(text, prompt, sizeof prompt);
  memcpy(text + 15, w.ids, (size_t)w.count * sizeof *text);
  Decoder *decoder = NULL;
  Error error = {0};
  float logits[257];
  need(decoder_open(&decoder, s.model, 1, &error), &error);
  for (int t = 0; t < w.count; t++) {
    double sum = 0;
    int better = 0;
    need(decoder_prompt(decoder, 0, text, 15 + t, &error) && decoder_logits(decoder, logits, &error), &error);
    for (int i = 0; i < 257; i++) sum += exp((double)logits[i]);
    const double want = (double)logits[w.ids[t]] - log(sum), best = (double)logits[w.top[t][0].id] - log(sum);
    assert_true(fabs((double)w.logprobs[t] - want) < (f->dtype == DTYPE_BF16 ? 0.2 : 1e-4));
    assert_true(fabs((double)w.top[t][0].logprob - best) < (f->dtype == DTYPE_BF16 ? 0.2 : 1e-4));
    for (int k = 1; k < TOP; k++) assert_true(w.top[t][k].logprob <= w.top[t][k - 1].logprob);
    for (int i = 0; i < 257; i++) better += logits[i] > logits[w.top[t][TOP - 1].id];
    if (f->dtype == DTYPE_F32) assert_true(better <= TOP - 1);
    assert_int_equal(w.begins[t], t);
  }
  decoder_close(decoder);
  speaker_close(&s);
}

/* An evaluation of shorter texts while a decoder is open finds the decoder's logits, and does not take the memory of
 * its longest prompt. */
static void test_evaluation_beside_decoder(void **state) {
  Fixture *f = *state;
  enum { SHORT = 3 };
  Speaker s = speaker_open(f, 1);
  Decoder *decoder = NULL;
  Error error = {0};
  float before[257], after[257], all[SHORT][257];
  int32_t *text = host_memory(f, (size_t)shape.ctx * sizeof *text);
  for (int i = 0; i < shape.ctx; i++) text[i] = prompt[i % SHORT];
  const TokenBatch batch = {.tokens = text, .targets = text};
  double sum = 0;
  int64_t count = 0;
  need(decoder_open(&decoder, s.model, 1, &error), &error);
  need(decoder_prompt(decoder, 0, text, shape.ctx, &error) && decoder_logits(decoder, before, &error), &error);
  need(model_evaluate_begin(s.model, 1, SHORT, &error), &error);
  need(model_evaluate(s.model, &batch, 1, SHORT, &sum, &count, all[0], &error), &error);
  assert_int_equal(count, SHORT);
  need(decoder_prompt(decoder, 0, text, shape.ctx, &error) && decoder_logits(decoder, after, &error), &error);
  assert_memory_equal(before, after, sizeof before);
  need(decoder_prompt(decoder, 0, text, SHORT, &error) && decoder_logits(decoder, after, &error), &error);
  for (int i = 0; i < 257; i++)
    assert_true(fabsf(after[i] - all[SHORT - 1][i]) < (f->dtype == DTYPE_BF16 ? 0.2f : 1e-3f));
  decoder_close(decoder);
  speaker_close(&s);
}

/* A model of an image, with its weights in `weights` (0: as they are computed with), writes what the model writes that
 * the image was taken from. An image of another size is refused. */
static void image_case(Fixture *f, DType weights) {
  const ContextOptions options = {.dtype = f->dtype, .weights = weights, .threads = 2};
  ModelConfig config = mixed_shape();
  config.tie = false;
  config.bias = config.qkv_bias = config.head_bias = 1;
  Speaker from = {.machine = {f, f->backend, NULL}, .tokenizer = tokenizer_byte()}, to = from;
  Error error = {0}, refused = {0};
  need(f->backend->open(&from.machine.context, &options, &error), &error);
  need(f->backend->open(&to.machine.context, &options, &error), &error);
  fill_speaker(f, &from, &config);
  const size_t bytes = model_image_bytes(from.model);
  void *image = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(image);
  model_write_image(from.model, image);
  assert_false(model_open_image(&to.model, f->backend, to.machine.context, &config, image, bytes - 4, &refused));
  assert_int_equal(refused.code, EXIT_CHECKPOINT);
  need(model_open_image(&to.model, f->backend, to.machine.context, &config, image, bytes, &error), &error);
  const Written want = write_one(f, &from, plain(60, 3)), got = write_one(f, &to, plain(60, 3));
  assert_int_equal(got.count, want.count);
  assert_memory_equal(got.ids, want.ids, sizeof want.ids);
  to.tokenizer = NULL; /* of both */
  speaker_close(&to);
  speaker_close(&from);
  free(image);
}

static void test_images(void **state) {
  Fixture *f = *state;
  if (!f->backend->image_bytes) skip();
  image_case(f, DTYPE_F32);
  if (f->dtype != DTYPE_F32) return;
  image_case(f, DTYPE_BF16);
  image_case(f, DTYPE_I8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_are_single_texts),
      cmocka_unit_test(test_stop_texts),
      cmocka_unit_test(test_rules),
      cmocka_unit_test(test_unused_rows),
      cmocka_unit_test(test_slides),
      cmocka_unit_test(test_logprobs),
      cmocka_unit_test(test_evaluation_beside_decoder),
      cmocka_unit_test(test_images),
  };
  return run_on_backends("generation", tests, sizeof tests / sizeof *tests) ? 1 : 0;
}
