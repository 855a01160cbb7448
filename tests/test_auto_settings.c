/* train/auto_settings: what ./train chooses for texts from a page to tens of gigabytes, on a laptop and on a GPU. */
#include "train/architecture.h"
#include "train/auto_settings.h"
#include "train/outlook.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const ContextInfo laptop = {
    .dtype = DTYPE_F32, .threads = 8, .vector_bits = 256, .free_bytes = (size_t)12 << 30};
static const ContextInfo card = {
    .dtype = DTYPE_BF16, .accelerator = true, .free_bytes = (size_t)78 << 30, .total_bytes = (size_t)80 << 30};
static const Characters english = {1000000, 998000, 90}, chinese = {1000000, 350000, 3000}, dna = {1000000, 1000000, 5};
static const double CARD_FLOPS = 6e14, LAPTOP_FLOPS = 4e11;

/* Everything chosen for a text, as ./train does it. */
typedef struct Chosen {
  TrainSettings settings;
  ModelConfig model;
  AutoReasons reasons;
  DocumentLengths lengths;
  double parameters, epochs;
  bool byte;
} Chosen;

static void begin(Chosen *c) {
  Options options;
  memset(c, 0, sizeof *c);
  train_options(&options, &c->settings);
  options_free(&options);
}

static void choose(Chosen *c, const ContextInfo *device, double peak_flops, double bytes) {
  Error error = {0};
  TrainSettings *s = &c->settings;
  auto_tokenizer(s, (int64_t)bytes, &english, device->accelerator, &c->reasons);
  c->byte = strcmp(s->tokenizer, "byte") == 0;
  const double bytes_per_token = c->byte ? 1 : s->vocab_size > 8192 ? 4 : 3;
  const AutoInputs given = {.vocab = c->byte ? 257 : s->vocab_size,
                            .source_vocab = 257,
                            .text_bytes = (int64_t)bytes,
                            .train_tokens = (int64_t)(0.9 * bytes / bytes_per_token),
                            .lengths = c->lengths,
                            .device = device,
                            .peak_flops = peak_flops};
  if (!auto_model(s, &given, &c->model, &c->reasons, &error)) fail_msg("%s", error.text);
  if (!auto_length(s, &given, &c->model, &c->reasons, &error)) fail_msg("%s", error.text);
  c->parameters = (double)model_parameters(&c->model);
  c->epochs = (double)s->steps * (double)settings_tokens_per_step(s) / (double)given.train_tokens;
}

/* What other programs call an option is none of ours, or it would never be said. */
static void test_aliases(void **state) {
  (void)state;
  TrainSettings s;
  Options options;
  train_options(&options, &s);
  for (int i = 0; i < options.hint_count; i++)
    for (int row = 0; row < options.count; row++) {
      const char *name = options.rows[row].name, *found = options.hints[i].given;
      while ((found = strstr(found, name))) {
        const bool whole = (found == options.hints[i].given || found[-1] == ' ') && strchr(" ", found[strlen(name)]);
        if (whole) fail_msg("--%s is one of ours", name);
        found++;
      }
    }
  options_free(&options);
}

/* Rows name other rows in lists of words: each word must be the name of a row. */
static void test_named_rows(void **state) {
  (void)state;
  TrainSettings s;
  Options options;
  train_options(&options, &s);
  for (int i = 0; i < options.count; i++) {
    const char *const lists[] = {options.rows[i].needs, options.rows[i].excludes, options.rows[i].follows};
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++)
      for (const char *word = lists[list]; word && *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        bool found = false;
        for (int k = 0; k < options.count; k++)
          found = found || (strlen(options.rows[k].name) == length && memcmp(options.rows[k].name, word, length) == 0);
        if (!found) fail_msg("--%s names %s", options.rows[i].name, word);
        word += length;
      }
  }
  options_free(&options);
}

/* What a published model repeats must have been decided for every option that a run writes down. */
static void test_every_setting_has_a_kind(void **state) {
  (void)state;
  TrainSettings s;
  Options options;
  train_options(&options, &s);
  for (const Option *row = options.rows; row < options.rows + options.count; row++)
    if (!row->transient && options_setting_kind(&options, row->name) == SETTING_UNKNOWN)
      fail_msg("--%s: add .setting to its row", row->name);
  assert_int_equal(options_setting_kind(&options, "lr"), SETTING_OF_MODEL);
  assert_int_equal(options_setting_kind(&options, "data"), SETTING_PATH);
  assert_int_equal(options_setting_kind(&options, "keep-at"), SETTING_ASIDE);
  assert_int_equal(options_setting_kind(&options, "no-such-option"), SETTING_UNKNOWN);
  assert_int_equal(options_setting_kind(NULL, "lr"), SETTING_UNKNOWN);
  options_free(&options);
}

static void test_tokenizer(void **state) {
  (void)state;
  Chosen c;
  const struct {
    const Characters *characters;
    double bytes;
    int cpu, gpu; /* vocabulary; 0: bytes */
  } cases[] = {{&english, 1, 0, 0},          {&english, 399999, 0, 0},       {&english, 400000, 1024, 1024},
               {&english, 10e6, 4096, 4096}, {&english, 100e6, 4096, 32768}, {&english, 20e9, 4096, 32768},
               {&chinese, 1000, 1024, 1024}, {&chinese, 400000, 2048, 2048}, {&dna, 1000, 0, 0},
               {&dna, 100e6, 0, 0},          {&(Characters){0}, 100e6, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int gpu = 0; gpu < 2; gpu++) {
      begin(&c);
      auto_tokenizer(&c.settings, (int64_t)cases[i].bytes, cases[i].characters, gpu, &c.reasons);
      const int vocab = gpu ? cases[i].gpu : cases[i].cpu;
      assert_string_equal(c.settings.tokenizer, vocab ? "bpe" : "byte");
      assert_int_equal(c.settings.vocab_size, vocab);
      assert_non_null(strstr(c.reasons.text, vocab ? "a BPE of at most" : "a token is a byte"));
    }
}

static void test_given_tokenizers_stay(void **state) {
  (void)state;
  Chosen c;
  begin(&c);
  c.settings.vocab_size = 300;
  auto_tokenizer(&c.settings, 1000, &english, false, &c.reasons);
  assert_string_equal(c.settings.tokenizer, "bpe"); /* a vocabulary size asks for one */
  assert_int_equal(c.settings.vocab_size, 300);
  begin(&c);
  c.settings.preset = PRESET_124M;
  auto_tokenizer(&c.settings, 1000, &english, false, &c.reasons);
  assert_string_equal(c.settings.tokenizer, "bpe");
  assert_int_equal(c.settings.vocab_size, 50304);
  begin(&c);
  c.settings.tokenizer = "gpt2/tokenizer.json";
  auto_tokenizer(&c.settings, (int64_t)1e9, &english, false, &c.reasons);
  assert_string_equal(c.settings.tokenizer, "gpt2/tokenizer.json");
  assert_int_equal(c.settings.vocab_size, 0);
  assert_string_equal(c.reasons.text, "");
}

/* Each is for a half of the text. */
static void test_source_tokenizers(void **state) {
  (void)state;
  Chosen c;
  begin(&c);
  auto_tokenizer(&c.settings, (int64_t)10e6, &english, false, &c.reasons);
  assert_null(c.settings.source_tokenizer);
  begin(&c);
  c.settings.source_vocab_size = 300;
  auto_tokenizer(&c.settings, 1000, &english, false, &c.reasons);
  assert_string_equal(c.settings.tokenizer, "byte");
  assert_string_equal(c.settings.source_tokenizer, "bpe");
  assert_int_equal(c.settings.source_vocab_size, 300);
  begin(&c);
  c.settings.source_tokenizer = "bpe";
  auto_tokenizer(&c.settings, (int64_t)10e6, &english, false, &c.reasons);
  assert_int_equal(c.settings.vocab_size, 2048);
  assert_int_equal(c.settings.source_vocab_size, 2048);
  assert_non_null(strstr(c.reasons.text, "a BPE of at most 2048 tokens for prompts"));
  begin(&c);
  c.settings.source_tokenizer = "byte";
  auto_tokenizer(&c.settings, (int64_t)10e6, &english, false, &c.reasons);
  assert_int_equal(c.settings.source_vocab_size, 0);
}

/* Tables of two vocabularies cannot be one; what is chosen alone is not tied then. */
static void test_sources_and_tied_tables(void **state) {
  (void)state;
  Error error = {0};
  for (int arch = 0; architecture_names[arch]; arch++)
    for (int separate = 0; separate < 2; separate++) {
      Chosen c;
      begin(&c);
      c.settings.arch = arch, c.settings.model.dim = 64, c.settings.model.layers = 2,
      c.settings.model.encoder_layers = 1;
      c.settings.source_tokenizer = separate ? "byte" : NULL;
      assert_true(architecture_check_sources(&c.settings, true, &error));
      architecture_fill(&c.settings, true);
      assert_int_equal(c.settings.model.tie, !separate && arch != ARCHITECTURE_ORIGINAL);
      c.settings.model.tie = true;
      assert_int_equal(architecture_check_sources(&c.settings, true, &error), !separate);
      c.settings.model.tie = -1, c.settings.model.encoder_layers = 0;
      assert_int_equal(architecture_check_sources(&c.settings, true, &error), !separate);
    }
}

/* Whatever the text: some steps, not too many epochs, no more work than some minutes. */
static void expect_sensible(const ContextInfo *device, double peak_flops, double budget) {
  Chosen c;
  for (double bytes = 1000; bytes < 1e11; bytes *= 3) {
    begin(&c);
    choose(&c, device, peak_flops, bytes);
    const TrainSettings *s = &c.settings;
    assert_true(s->steps >= 100 && s->steps <= 1000000);
    const int passes = s->teacher_steps ? 2 : 1;
    assert_true(c.epochs < passes * (s->optimizer == OPTIMIZER_MUON ? 10 : 15) + 0.1 || s->steps == 100);
    const double run = auto_step_flops(s, &c.model, NULL, device->accelerator) * (double)s->steps;
    assert_true(run + auto_teacher_flops(s, &c.model, device->accelerator) <= 2 * budget || s->steps == 100);
    assert_true(s->dropout == 0 && s->wd >= 0.1f && s->wd <= 4);
    const double epoch = (double)s->steps / c.epochs; /* steps */
    const double share = fmin(1, s->teacher_steps ? 10 / c.epochs : c.epochs / 5);
    assert_true(fabs((double)s->wd - fmin(fmax(0.1, 100 / epoch * share), 4)) < 0.051);
    assert_true(s->batch >= 1 && s->grad_accum >= 1 && s->eval_every >= 1 && s->warmup <= s->steps);
    assert_non_null(strstr(c.reasons.text, "preset"));
    assert_non_null(strstr(c.reasons.text, "steps"));
  }
}

/* More time never means a higher expected loss or a smaller model, and the plan of a budget is that of the run. */
static void test_more_time(void **state) {
  (void)state;
  for (int gpu = 0; gpu < 2; gpu++)
    for (double bytes = 1000; bytes < 1e11; bytes *= 7) {
      Outlook before = {.loss = INFINITY};
      for (double minutes = 0.1; minutes < 1000; minutes *= 2) {
        Chosen c, same;
        Error error = {0};
        begin(&c);
        begin(&same);
        const AutoInputs given = {.vocab = 1024,
                                  .source_vocab = 1024,
                                  .text_bytes = (int64_t)bytes,
                                  .train_tokens = (int64_t)(bytes / 3) + 1,
                                  .device = gpu ? &card : &laptop,
                                  .peak_flops = gpu ? CARD_FLOPS : LAPTOP_FLOPS};
        c.settings.minutes = same.settings.minutes = minutes;
        const Outlook now = outlooks_plan(&c.settings, &given).items[0];
        assert_true(auto_model(&same.settings, &given, &same.model, &same.reasons, &error));
        assert_true(now.preset == same.settings.preset && now.parameters == (double)model_parameters(&same.model));
        const bool smaller = now.parameters < before.parameters && now.taught == before.taught;
        if (!(now.loss <= 1.0001 * before.loss) || smaller)
          fail_msg("%g bytes, %g minutes: %s, %.2f epochs, %.4f after %s, %.2f, %.4f", bytes, minutes,
                   preset_names[now.preset], now.epochs, now.loss, preset_names[before.preset], before.epochs,
                   before.loss);
        before = now;
      }
    }
}

/* Budgets are compared in the order of the list; without one, with longer ones. What is said of them is for people. */
static void test_outlooks(void **state) {
  (void)state;
  Chosen c;
  char text[256];
  begin(&c);
  const AutoInputs given = {.vocab = 257,
                            .source_vocab = 257,
                            .text_bytes = 5000000,
                            .train_tokens = 5000000,
                            .device = &laptop,
                            .peak_flops = LAPTOP_FLOPS};
  Outlooks all = outlooks_plan(&c.settings, &given);
  assert_true(all.count == 5 && all.items[0].minutes == 2 && all.items[1].minutes == 3 && all.items[4].minutes == 100);
  outlooks_say(&all, 2, true, text, sizeof text);
  assert_true(strncmp(text, "another run of this text should reach about 1.", 46) == 0);
  assert_non_null(strstr(text, " bits per byte with --minutes 3, 1."));
  assert_true(fabs(outlooks_planned_bits(&all, 5e6, all.items[0].epochs, 2) - 2) < 1e-9);
  assert_true(outlooks_planned_bits(&all, 5e6, all.items[0].epochs / 2, 2) < 1.99);
  outlooks_say(&all, NAN, true, text, sizeof text);
  assert_string_equal(text, "");
  c.settings.minutes = 60;
  c.settings.budgets[0] = 5;
  c.settings.budget_count = 1;
  all = outlooks_plan(&c.settings, &given);
  assert_true(all.count == 2 && all.items[1].minutes == 5 && all.items[1].loss > all.items[0].loss);
  c.settings.epochs = 3;
  assert_int_equal(outlooks_plan(&c.settings, &given).count, 0);
  begin(&c);
  all = outlooks_plan(&c.settings, &(AutoInputs){.vocab = 257,
                                                 .source_vocab = 257,
                                                 .text_bytes = 20000,
                                                 .train_tokens = 20000,
                                                 .device = &laptop,
                                                 .peak_flops = LAPTOP_FLOPS});
  outlooks_say(&all, 2, true, text, sizeof text);
  assert_string_equal(text, "more time would hardly help; more text would");
  outlooks_say(&all, 2, false, text, sizeof text);
  assert_string_equal(text, "");
}

static void test_any_text(void **state) {
  (void)state;
  expect_sensible(&laptop, LAPTOP_FLOPS, 120 * 5e10 * 8);
  expect_sensible(&card, CARD_FLOPS, 30 * 0.4 * CARD_FLOPS);
}

static void test_card_takes_more(void **state) {
  (void)state;
  Chosen small, large;
  begin(&small);
  choose(&small, &laptop, LAPTOP_FLOPS, 20e9);
  begin(&large);
  choose(&large, &card, CARD_FLOPS, 20e9);
  assert_int_equal(small.settings.preset, PRESET_NANO);
  assert_true(large.parameters > 5 * small.parameters);
  begin(&large);
  large.settings.minutes = 600;
  choose(&large, &card, CARD_FLOPS, 20e9);
  assert_int_equal(large.settings.preset, PRESET_110M);
  const double books = 5e6;
  begin(&large);
  choose(&large, &card, CARD_FLOPS, books);
  begin(&small);
  choose(&small, &laptop, LAPTOP_FLOPS, books);
  assert_true(large.parameters > small.parameters);
  begin(&large);
  large.settings.minutes = 60;
  choose(&large, &laptop, LAPTOP_FLOPS, books);
  assert_true(large.parameters > small.parameters);
}

/* A part of the shape that is given fits the preset; a whole shape has the batch and the context of a preset like
 * it. */
static void test_given_shapes(void **state) {
  (void)state;
  const struct {
    int layers, heads, dim, preset;
  } cases[] = {{0, 0, 64, -1},          {0, 0, 128, -1},           {2, 0, 0, -1},
               {0, 3, 0, -1},           {12, 12, 768, PRESET_42M}, {6, 6, 384, PRESET_MEDIUM},
               {4, 4, 128, PRESET_NANO}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int gpu = 0; gpu < 2; gpu++) {
      Chosen c;
      begin(&c);
      c.settings.model.layers = cases[i].layers, c.settings.model.heads = cases[i].heads;
      c.settings.model.dim = cases[i].dim;
      choose(&c, gpu ? &card : &laptop, gpu ? CARD_FLOPS : LAPTOP_FLOPS, 1e6);
      if (cases[i].preset >= 0) assert_true(c.settings.preset >= cases[i].preset);
    }
}

/* A GPU has time for the steps of a small batch if the text is small or few epochs are asked for, but a given number of
 * steps is read with the usual one. */
static void test_small_batch(void **state) {
  (void)state;
  const struct {
    double bytes, epochs, minutes;
    int64_t steps;
    int batch;
  } cases[] = {{1e6, NAN, NAN, 0, 8},
               {1e6, NAN, 0.02, 0, 32},
               {1e9, NAN, NAN, 0, 64},
               {100e6, 0.1, NAN, 0, 8},
               {1e6, NAN, NAN, 500, 58}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Chosen c;
    begin(&c);
    c.settings.preset = PRESET_BABY;
    c.settings.epochs = cases[i].epochs;
    c.settings.minutes = cases[i].minutes;
    c.settings.steps = cases[i].steps;
    choose(&c, &card, CARD_FLOPS, cases[i].bytes);
    assert_int_equal(c.settings.batch, cases[i].batch);
  }
}

/* What a length by time was reckoned with is said: on a CPU not what was measured. */
static void test_usual_speed(void **state) {
  (void)state;
  for (int slower = 1; slower <= 4; slower *= 4) {
    Chosen c;
    begin(&c);
    choose(&c, &laptop, LAPTOP_FLOPS / slower, 5e6);
    assert_non_null(strstr(c.reasons.text, " steps (2 minutes at 400 GFLOP/s, usual for 8 such threads)"));
  }
}

/* Where the usual length would take hours, it is half an hour, and that is said. */
static void test_half_an_hour(void **state) {
  (void)state;
  Chosen c;
  const double slow = 1e9;
  begin(&c);
  c.settings.preset = PRESET_15M;
  choose(&c, &laptop, slow, 20e6);
  const TrainSettings *s = &c.settings;
  const double step = auto_step_seconds(
      model_step_flops(&c.model, settings_tokens_per_step(s), (OptimizerKind)s->optimizer, false), &laptop, slow);
  assert_true(step * (double)s->steps <= 1800 || s->steps == 1);
  assert_non_null(strstr(c.reasons.text, "half an hour; longer with --minutes"));
  begin(&c);
  c.settings.preset = PRESET_15M;
  c.settings.steps = 5000;
  choose(&c, &laptop, slow, 20e6);
  assert_int_equal(c.settings.steps, 5000);
  assert_null(strstr(c.reasons.text, "half an hour"));
}

/* A speed that is measured again and comes out a little different chooses the same. */
static void test_measured_speed(void **state) {
  (void)state;
  Chosen a, b;
  begin(&a);
  choose(&a, &card, CARD_FLOPS, 1e9);
  begin(&b);
  choose(&b, &card, 1.1 * CARD_FLOPS, 1e9);
  assert_int_equal(a.settings.preset, b.settings.preset);
  assert_int_equal(a.settings.steps, b.settings.steps);
}

static void test_given_values_stay(void **state) {
  (void)state;
  Chosen c;
  begin(&c);
  TrainSettings *s = &c.settings;
  s->tokenizer = "byte";
  s->model.layers = 3, s->model.heads = 2, s->model.dim = 48, s->model.ctx = 20, s->batch = 5, s->steps = 7,
  s->dropout = 0.25f, s->optimizer = OPTIMIZER_ADAMW;
  choose(&c, &laptop, LAPTOP_FLOPS, 20000);
  assert_true(s->model.layers == 3 && s->model.heads == 2 && s->model.dim == 48 && s->model.ctx == 20 &&
              s->batch == 5 && s->steps == 7);
  assert_true(s->dropout == 0.25f);
  assert_int_equal(strncmp(c.reasons.text, "lfm2 (", 6), 0);
  assert_null(strchr(c.reasons.text, ';'));
  assert_int_equal(c.model.head_dim, 24);
  begin(&c);
  c.settings.preset = PRESET_BABY;
  choose(&c, &laptop, LAPTOP_FLOPS, 20000);
  assert_int_equal(c.model.dim, 384);
}

/* The best architecture, unless components are given, which belong to llama; a model to start from keeps its own. */
static void test_architecture(void **state) {
  (void)state;
  Chosen c;
  begin(&c);
  choose(&c, &laptop, LAPTOP_FLOPS, 1e6);
  assert_int_equal(c.settings.arch, ARCHITECTURE_LFM2);
  assert_string_equal(c.model.mixers, "CCA");
  assert_true(c.model.qk_norm == 1 && c.model.tie == 1);
  assert_non_null(strstr(c.reasons.text, "lfm2 ("));
  begin(&c);
  c.settings.model.norm = NORM_LAYER;
  choose(&c, &laptop, LAPTOP_FLOPS, 1e5);
  assert_int_equal(c.settings.arch, ARCHITECTURE_LLAMA);
  assert_string_equal(c.model.mixers, "A");
  assert_true(c.model.qk_norm == 0 && c.model.tie == 0); /* a token is a byte */
  assert_null(strstr(c.reasons.text, "lfm2"));
  begin(&c);
  snprintf(c.settings.model.mixers, sizeof c.settings.model.mixers, "CCCA");
  choose(&c, &laptop, LAPTOP_FLOPS, 1e6);
  assert_int_equal(c.settings.arch, ARCHITECTURE_LFM2);
  assert_string_equal(c.model.mixers, "CCCA");
  begin(&c);
  c.settings.init = "a.run";
  architecture_fill(&c.settings, false);
  assert_int_equal(c.settings.arch, -1);
}

static void expect_regularization(OptimizerKind optimizer, double bytes, double epochs, float given_wd, float wd,
                                  float dropout) {
  Chosen c;
  begin(&c);
  c.settings.optimizer = (int)optimizer, c.settings.epochs = epochs, c.settings.wd = given_wd;
  choose(&c, &laptop, LAPTOP_FLOPS, bytes);
  assert_true(c.settings.wd == wd && c.settings.dropout == dropout);
  assert_int_equal(strstr(c.reasons.text, "weight decay") != NULL, isnan(given_wd) && wd > 0.1f);
  assert_int_equal(strstr(c.reasons.text, "dropout") != NULL, dropout > 0);
}

/* Against memorizing a text that is read many times. */
static void test_regularization(void **state) {
  (void)state;
  expect_regularization(OPTIMIZER_MUON, 2e5, 1, NAN, 0.2f, 0);
  expect_regularization(OPTIMIZER_MUON, 2e5, 10, NAN, 0.9f, 0);
  expect_regularization(OPTIMIZER_MUON, 2e5, 100, NAN, 0.9f, 0);
  expect_regularization(OPTIMIZER_MUON, 2e4, 10, NAN, 4, 0);
  expect_regularization(OPTIMIZER_MUON, 5e6, 1, NAN, 0.1f, 0);
  expect_regularization(OPTIMIZER_MUON, 1e6, 10, NAN, 0.5f, 0);
  expect_regularization(OPTIMIZER_MUON, 2e5, 100, 0.5f, 0.5f, 0);
  expect_regularization(OPTIMIZER_ADAMW, 2e5, 5, NAN, 0.1f, 0);
  expect_regularization(OPTIMIZER_ADAMW, 2e5, 10, NAN, 0.1f, 0.1f);
  expect_regularization(OPTIMIZER_ADAMW, 2e5, 50, NAN, 0.1f, 0.2f);
}

/* Packed documents fit several times, as far as the device can take it; the tokens of a step stay about as many. */
static void test_context_for_documents(void **state) {
  (void)state;
  const struct {
    int k, cpu, gpu; /* documents of at most 2^k tokens; contexts */
  } cases[] = {{2, 256, 256}, {5, 256, 256}, {7, 512, 512}, {14, 512, 2048}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int gpu = 0; gpu < 2; gpu++) {
      Chosen c;
      begin(&c);
      c.lengths.documents = 100;
      c.lengths.counts[cases[i].k] = 96;
      c.lengths.counts[20] = 4; /* a few are very long */
      c.settings.preset = gpu ? PRESET_BABY : PRESET_NANO;
      choose(&c, gpu ? &card : &laptop, CARD_FLOPS, gpu ? 1e9 : 1e6);
      assert_int_equal(c.model.ctx, gpu ? cases[i].gpu : cases[i].cpu);
      assert_true(settings_tokens_per_step(&c.settings) <= (gpu ? 64 * 256 : 24 * 64) ||
                  settings_tokens_per_step(&c.settings) == c.model.ctx);
      assert_true(settings_tokens_per_step(&c.settings) * 2 >= (gpu ? 64 * 256 : 24 * 64));
    }
}

/* A card with little memory: smaller micro-batches, as many tokens a step. */
static void test_batch_fits(void **state) {
  (void)state;
  Chosen whole, parts;
  ContextInfo small = card;
  small.free_bytes = (size_t)3 << 30;
  begin(&whole);
  whole.settings.preset = PRESET_42M;
  choose(&whole, &card, CARD_FLOPS, 1e9);
  begin(&parts);
  parts.settings.preset = PRESET_42M;
  choose(&parts, &small, CARD_FLOPS, 1e9);
  assert_int_equal(whole.settings.grad_accum, 1);
  assert_true(parts.settings.batch < whole.settings.batch);
  assert_int_equal(settings_tokens_per_step(&parts.settings), settings_tokens_per_step(&whole.settings));
  TrainConfig train = settings_train_config(&parts.settings);
  const size_t total = model_memory(&parts.model, &train, &small).total;
  assert_true(total <= small.free_bytes);
  small.own_bytes = (size_t)48 << 20;
  assert_int_equal(model_memory(&parts.model, &train, &small).total, total + small.own_bytes);
  assert_non_null(strstr(parts.reasons.text, "memory"));
  begin(&parts);
  parts.settings.preset = PRESET_42M;
  parts.settings.batch = 32;
  choose(&parts, &small, CARD_FLOPS, 1e9); /* given: refused later, with what would fit */
  assert_int_equal(parts.settings.batch, 32);
}

/* The sentence that says why, too. */
static OptimizerKind optimizer_on(const ContextInfo *device, int batch, int grad_accum, int64_t batch_tokens, float lr,
                                  float muon_lr) {
  Chosen c;
  begin(&c);
  c.settings.batch = batch, c.settings.grad_accum = grad_accum, c.settings.batch_tokens = batch_tokens;
  c.settings.lr = lr, c.settings.muon_lr = muon_lr, c.settings.preset = PRESET_NANO, c.settings.model.ctx = 64;
  choose(&c, device, device->accelerator ? CARD_FLOPS : 0, 1e6);
  const bool muon = c.settings.optimizer == OPTIMIZER_MUON;
  const char *why = !isnan(muon_lr) ? "Muon (muon-lr is given)"
                    : muon          ? "Muon (learns more"
                    : !isnan(lr)    ? "AdamW (lr is given"
                                    : "AdamW (in such short steps";
  assert_non_null(strstr(c.reasons.text, why));
  assert_true(isnan(lr) ? c.settings.lr == (muon ? 3e-3f : 1e-3f) : c.settings.lr == lr);
  assert_true(!muon ? isnan(c.settings.muon_lr) : c.settings.muon_lr == (isnan(muon_lr) ? 0.01f : muon_lr));
  return (OptimizerKind)c.settings.optimizer;
}

static OptimizerKind optimizer_of(int batch, int grad_accum, float lr, float muon_lr) {
  return optimizer_on(&laptop, batch, grad_accum, 0, lr, muon_lr);
}

/* Muon, but not where it would be most of a step, nor with a learning rate that was found for AdamW. A GPU computes
 * more for the iteration. */
static void test_optimizer(void **state) {
  (void)state;
  assert_int_equal(optimizer_of(0, 0, NAN, NAN), OPTIMIZER_MUON);
  assert_int_equal(optimizer_of(3, 0, NAN, NAN), OPTIMIZER_ADAMW);
  assert_int_equal(optimizer_of(4, 2, NAN, NAN), OPTIMIZER_MUON);
  assert_int_equal(optimizer_of(7, 0, NAN, NAN), OPTIMIZER_MUON);
  assert_int_equal(optimizer_of(4, 0, NAN, 0.02f), OPTIMIZER_MUON);
  assert_int_equal(optimizer_of(0, 0, 1e-3f, NAN), OPTIMIZER_ADAMW);
  assert_int_equal(optimizer_of(0, 0, 2e-3f, 0.02f), OPTIMIZER_MUON);
  assert_int_equal(optimizer_on(&card, 6, 0, 0, NAN, NAN), OPTIMIZER_ADAMW);
  assert_int_equal(optimizer_on(&card, 0, 0, 0, NAN, NAN), OPTIMIZER_MUON);
  assert_int_equal(optimizer_on(&laptop, 0, 0, 128, NAN, NAN), OPTIMIZER_ADAMW);
  assert_int_equal(optimizer_on(&laptop, 2, 0, 1024, NAN, NAN), OPTIMIZER_MUON);
}

/* One moment of a matrix instead of two; the iteration's room is that of threads, or of all matrices of a shape. */
static void test_memory_of_muon(void **state) {
  (void)state;
  Chosen c;
  begin(&c);
  c.settings.preset = PRESET_BABY;
  choose(&c, &card, CARD_FLOPS, 1e6);
  TrainConfig train = settings_train_config(&c.settings);
  const size_t square = 384 * 384, hidden = 384 * 1024, matrices = 6 * (4 * square + 3 * hidden);
  const MemoryPlan gpu = model_memory(&c.model, &train, &card), cpu = model_memory(&c.model, &train, &laptop);
  train.optimizer = OPTIMIZER_ADAMW;
  const MemoryPlan adamw = model_memory(&c.model, &train, &card);
  assert_int_equal(adamw.iteration, 0);
  assert_int_equal(adamw.moments - gpu.moments, matrices * sizeof(float));
  /* X of gate and up of all layers, twice, and of the four squares of all layers their squares; two shapes at once */
  assert_int_equal(gpu.iteration, 2 * (2 * 12 * hidden + 24 * square) * dtype_bytes(card.dtype));
  assert_int_equal(cpu.iteration, (size_t)laptop.threads * (hidden + 6 * square) * sizeof(float));
  assert_int_equal(adamw.total - gpu.total, adamw.moments - gpu.moments - gpu.iteration);
}

/* What was given is not explained; batches are the optimizer's. */
static void test_given_optimizer(void **state) {
  (void)state;
  for (int optimizer = 0; settings_optimizers[optimizer]; optimizer++) {
    Chosen c;
    begin(&c);
    c.settings.optimizer = optimizer;
    choose(&c, &laptop, LAPTOP_FLOPS, 1e6);
    assert_int_equal(c.settings.optimizer, optimizer);
    assert_null(strstr(c.reasons.text, "Muon"));
    assert_int_equal(c.settings.batch, optimizer == OPTIMIZER_MUON ? 6 : 3);
    const TrainConfig train = settings_train_config(&c.settings);
    assert_int_equal(train.optimizer, optimizer);
    if (optimizer == OPTIMIZER_MUON)
      assert_true(fabsf(train.muon.lr_factor - 0.01f / 3e-3f) < 1e-5f && train.muon.weight_decay == c.settings.wd);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_aliases),
      cmocka_unit_test(test_named_rows),
      cmocka_unit_test(test_every_setting_has_a_kind),
      cmocka_unit_test(test_tokenizer),
      cmocka_unit_test(test_given_tokenizers_stay),
      cmocka_unit_test(test_source_tokenizers),
      cmocka_unit_test(test_sources_and_tied_tables),
      cmocka_unit_test(test_more_time),
      cmocka_unit_test(test_outlooks),
      cmocka_unit_test(test_any_text),
      cmocka_unit_test(test_card_takes_more),
      cmocka_unit_test(test_half_an_hour),
      cmocka_unit_test(test_usual_speed),
      cmocka_unit_test(test_measured_speed),
      cmocka_unit_test(test_given_values_stay),
      cmocka_unit_test(test_batch_fits),
      cmocka_unit_test(test_context_for_documents),
      cmocka_unit_test(test_optimizer),
      cmocka_unit_test(test_given_optimizer),
      cmocka_unit_test(test_memory_of_muon),
      cmocka_unit_test(test_architecture),
      cmocka_unit_test(test_regularization),
      cmocka_unit_test(test_small_batch),
      cmocka_unit_test(test_given_shapes),
  };
  return cmocka_run_group_tests_name("auto settings", tests, NULL, NULL);
}
