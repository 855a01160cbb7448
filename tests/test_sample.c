/* The sampler of kernels.h, on every backend: every token against the exact distribution (sorted, in double) and the
 * documented random number, chi-square of many draws, and a table of the cases that samplers are known to get wrong. */
#include "kernels/philox.h"
#include "tests/machine.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const Sampling PLAIN = {.repeat_penalty = 1, .top_p = 1, .temperature = 1, .seed = 42};
/* A row of a table of settings; other samplers are off. */
#define SET(repeat, last_n, presence, frequency, k, p, min, temp, of_seed)                                             \
  {                                                                                                                    \
    .repeat_penalty = repeat, .repeat_last_n = last_n, .presence_penalty = presence, .frequency_penalty = frequency,   \
    .top_k = k, .top_p = p, .min_p = min, .temperature = temp, .seed = of_seed                                         \
  }

/* The exact distribution, the slow way: p [V]; all zero when the logits are not usable. */
typedef struct Ranked {
  double logit, p;
  int id;
} Ranked;

static int by_falling_logit(const void *a, const void *b) {
  const Ranked *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static double *penalized(Fixture *f, const double *logits, int vocab, const int32_t *tokens, int length,
                         const Sampling *o) {
  double *z = host_values(f, (size_t)vocab);
  memcpy(z, logits, (size_t)vocab * sizeof *z);
  for (int id = 0; id < vocab; id++) {
    int seen = 0;
    for (int i = length - 1; i >= 0 && i >= length - o->repeat_last_n; i--) seen += tokens[i] == id;
    if (seen) z[id] = z[id] > 0 ? z[id] / (double)o->repeat_penalty : z[id] * (double)o->repeat_penalty;
    if (seen) z[id] -= (double)o->presence_penalty + seen * (double)o->frequency_penalty;
  }
  return z;
}

static double *exact_distribution(Fixture *f, const double *logits, int vocab, const int32_t *tokens, int length,
                                  const Sampling *o) {
  const double *z = penalized(f, logits, vocab, tokens, length, o);
  Ranked *r = host_memory(f, (size_t)vocab * sizeof *r);
  for (int i = 0; i < vocab; i++) r[i] = (Ranked){.logit = (double)(float)z[i], .id = i};
  qsort(r, (size_t)vocab, sizeof *r, by_falling_logit);
  int kept = o->top_k > 0 && o->top_k < vocab ? o->top_k : vocab;
  double total = 0, sum = 0, *p = host_values(f, (size_t)vocab);
  for (int i = 0; i < kept; i++) total += exp(r[i].logit - r[0].logit);
  int nucleus = 0;
  while (nucleus < kept && (nucleus == 0 || o->top_p >= 1 || sum < (double)o->top_p * (1 - 1e-6)))
    sum += exp(r[nucleus++].logit - r[0].logit) / total;
  kept = nucleus;
  while (kept > 1 && o->min_p > 0 && exp(r[kept - 1].logit - r[0].logit) < (double)o->min_p * (1 - 1e-6)) kept--;
  if (o->temperature <= 0) kept = 1;
  total = 0;
  for (int i = 0; i < kept; i++)
    total += r[i].p = kept == 1 ? 1 : exp((r[i].logit - r[0].logit) / (double)o->temperature);
  for (int i = 0; i < kept; i++) p[r[i].id] = r[i].p / total;
  return p;
}

/* What a row has after one call. */
typedef struct Drawn {
  int32_t token, length, position, status; /* token -1: none was appended */
} Drawn;

typedef struct Prompt {
  const int32_t *tokens;
  int length;
} Prompt;

static Sampling *put_samplings(Machine *m, const Sampling *sampling, int rows) {
  Sampling *host = host_memory(m->fixture, (size_t)rows * sizeof *host);
  for (int r = 0; r < rows; r++) host[r] = *sampling;
  Sampling *device = m->ops->alloc(m->context, "sampling", (size_t)rows * sizeof *host);
  m->ops->upload(m->context, device, host, (size_t)rows * sizeof *host);
  return device;
}

/* Draws once for each of `rows` samples with numbers first_stream onwards, all after the same prompt. logits: [V] for
 * all of them, or [rows][V]. */
static Drawn *draw_rows(Machine *m, const double *logits, bool same, int rows, int vocab, Prompt prompt,
                        int first_stream, const Sampling *sampling) {
  Fixture *f = m->fixture;
  int capacity = prompt.length + 1;
  size_t n = (size_t)rows, all = n * (size_t)vocab;
  double *copies = host_values(f, all), *tokens = host_values(f, n * (size_t)capacity), *lengths = host_values(f, n);
  double *positions = host_values(f, n), *streams = host_values(f, n), *status = host_values(f, n);
  for (size_t i = 0; i < all; i++) copies[i] = logits[same ? i % (size_t)vocab : i];
  for (int r = 0; r < rows; r++) {
    for (int t = 0; t < capacity; t++) tokens[r * capacity + t] = t < prompt.length ? prompt.tokens[t] : -1;
    lengths[r] = prompt.length;
    positions[r] = prompt.length - 1;
    streams[r] = first_stream + r;
  }
  Sequences s = {.rows = rows,
                 .capacity = capacity,
                 .tokens = machine_put(m, KIND_I32, tokens, n * (size_t)capacity),
                 .lengths = machine_put(m, KIND_I32, lengths, n),
                 .positions = machine_put(m, KIND_I32, positions, n),
                 .streams = machine_put(m, KIND_I32, streams, n),
                 .status = machine_put(m, KIND_I32, status, n),
                 .drawn = machine_put(m, KIND_I32, NULL, 2 * n),
                 .sampling = put_samplings(m, sampling, rows)};
  float *device = machine_put(m, KIND_F32, copies, all);
  m->ops->sample(m->context, &s, device, vocab);
  const double *got[] = {machine_get(m, KIND_I32, s.tokens, n * (size_t)capacity),
                         machine_get(m, KIND_I32, s.lengths, n), machine_get(m, KIND_I32, s.positions, n),
                         machine_get(m, KIND_I32, s.status, n), machine_get(m, KIND_I32, s.drawn, 2 * n)};
  void *owned[] = {s.tokens, s.lengths, s.positions, s.streams, s.status, s.drawn, s.sampling, device};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) m->ops->release(m->context, owned[i]);
  Drawn *drawn = host_memory(f, n * sizeof *drawn);
  for (int r = 0; r < rows; r++) /* -1: none */
    assert_true(got[4][2 * r + prompt.length % 2] == got[0][r * capacity + prompt.length]);
  for (int r = 0; r < rows; r++)
    drawn[r] = (Drawn){(int32_t)got[0][r * capacity + prompt.length], (int32_t)got[1][r], (int32_t)got[2][r],
                       (int32_t)got[3][r]};
  return drawn;
}

/* The documented uniform number falls on the token drawn, up to the rounding of the cumulative sums. */
static void expect_drawn(const double *p, int vocab, Drawn drawn, int length, int stream, const Sampling *sampling) {
  assert_int_equal(drawn.status, SEQUENCE_OK);
  assert_int_equal(drawn.length, length + 1);
  assert_int_equal(drawn.position, length);
  assert_in_range(drawn.token, 0, vocab - 1);
  double u = (double)philox_uniform(philox(sampling->seed, 0, SITE_SAMPLE, (uint32_t)length, (uint32_t)stream).word[0]),
         below = 0;
  for (int i = 0; i < drawn.token; i++) below += p[i];
  if (!(p[drawn.token] > 0)) fail_msg("token %d has probability 0", (int)drawn.token);
  if (u < below - 1e-5 || u > below + p[drawn.token] + 1e-5)
    fail_msg("sample %d: u = %.7f lies outside [%.7f, %.7f) of token %d", stream, u, below, below + p[drawn.token],
             (int)drawn.token);
}

/* Pearson's statistic of `rows` draws, in standard deviations above its mean (chi-square with n tokens - 1 degrees). */
static double excess_chi_square(const double *p, int vocab, const Drawn *drawn, int rows) {
  double sum = 0, degrees = -1;
  for (int id = 0; id < vocab; id++) {
    int seen = 0;
    for (int r = 0; r < rows; r++) seen += drawn[r].token == id;
    if (p[id] <= 0) continue;
    sum += (seen - rows * p[id]) * (seen - rows * p[id]) / (rows * p[id]);
    degrees += 1;
  }
  return degrees < 1 ? 0 : (sum - degrees) / sqrt(2 * degrees);
}

static void test_sample_distribution(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 16, PROMPT = 6 };
  const int rows = fixture_is_cuda(f) ? 150 : 20000;
  static const int32_t prompt[PROMPT] = {3, 9, 9, 1, 12, 3};
  static const Sampling cases[] = {SET(1, 0, 0, 0, 0, 1, 0, 1, 1),
                                   SET(1, 0, 0, 0, 0, 1, 0, 0.5f, 2),
                                   SET(1, 0, 0, 0, 0, 1, 0, 2, 3),
                                   SET(1, 0, 0, 0, 5, 1, 0, 1, 4),
                                   SET(1, 0, 0, 0, 0, 0.7f, 0, 1, 5),
                                   SET(1, 0, 0, 0, 0, 1, 0.1f, 1, 6),
                                   SET(1.3f, 4, 0, 0, 0, 1, 0, 1, 7),
                                   SET(0.7f, 64, 0, 0, 0, 1, 0, 1, 8),
                                   SET(1, 0, 0, 0, 8, 0.9f, 0, 0.8f, 9),
                                   SET(1, 0, 0, 0, 8, 0.95f, 0.05f, 1.2f, 10),
                                   SET(1.1f, 64, 0, 0, 6, 0.8f, 0.2f, 3, 11),
                                   SET(1.5f, 2, 0, 0, 12, 0.99f, 0.01f, 0.7f, UINT64_MAX),
                                   SET(1, 64, 0.7f, 0, 0, 1, 0, 1, 12),
                                   SET(1, 64, 0, 0.4f, 0, 1, 0, 1, 13),
                                   SET(1.2f, 4, -0.5f, 0.3f, 9, 0.95f, 0.02f, 0.9f, 14)};
  double logits[VOCAB];
  for (int i = 0; i < VOCAB; i++) logits[i] = (double)(float)(1.5 * sin(1.7 * i + 0.3) + 0.01 * i);
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double *p = exact_distribution(f, logits, VOCAB, prompt, PROMPT, &cases[i]);
    Drawn *drawn = draw_rows(&m, logits, true, rows, VOCAB, (Prompt){prompt, PROMPT}, 0, &cases[i]);
    for (int r = 0; r < rows; r++) expect_drawn(p, VOCAB, drawn[r], PROMPT, r, &cases[i]);
    double excess = excess_chi_square(p, VOCAB, drawn, rows);
    if (!(excess < 4)) fail_msg("case %zu: chi-square is %.1f standard deviations above its mean", i, excess);
  }
  machine_close(&m);
}

/* A vocabulary of many blocks, with many equal logits; cuts of every size. */
static void test_sample_large_vocabulary(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 5003 };
  const int rows = fixture_is_cuda(f) ? 1 : 12;
  static const int ks[] = {0, 1, 2, 5, 40, 78, 79, 80, 1000, VOCAB - 1, VOCAB, VOCAB + 7};
  static const float ps[] = {0.001f, 0.3f, 0.95f, 0.9999f, 1};
  static const float temperatures[] = {0, 1e-8f, 0.8f};
  double *logits = random_values(f, 77, VOCAB);
  Machine m = machine_open(f, 0);
  for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++)
      for (size_t t = 0; t < 3; t++) {
        Sampling o = {
            .repeat_penalty = 1, .top_k = ks[k], .top_p = ps[i], .temperature = temperatures[t], .seed = 7 * k + i};
        double *p = exact_distribution(f, logits, VOCAB, NULL, 0, &o);
        Drawn *drawn = draw_rows(&m, logits, true, rows, VOCAB, (Prompt){NULL, 0}, 100, &o);
        for (int r = 0; r < rows; r++) expect_drawn(p, VOCAB, drawn[r], 0, 100 + r, &o);
      }
  machine_close(&m);
}

/* Vocabularies of one token and of many, logits all equal and all different, a long look back. */
static void test_sample_vocabulary_sizes(void **state) {
  Fixture *f = *state;
  enum { LOOKBACK = 3000, ROWS = 3 };
  static const int sizes[] = {1, 2, 33, 1000, 2048, 2049, 50304, 140000};
  static const Sampling cases[] = {
      SET(1, 0, 0, 0, 0, 1, 0, 0.8f, 1),          SET(1, 0, 0, 0, 40, 1, 0, 0.8f, 2),
      SET(1, 0, 0, 0, 0, 0.9f, 0, 1, 3),          SET(1.3f, 4096, 0, 0, 50, 0.95f, 0.01f, 0.7f, 4),
      SET(1.3f, 4096, 0, 0, 3000, 0.9f, 0, 1, 5), SET(1.1f, 4096, 0.25f, 0.125f, 0, 0.99f, 0, 1, 6)};
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int flat = 0; flat < 2; flat++)
      for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int vocab = sizes[i];
        if (flat && vocab > 50304) continue;
        double *logits = flat ? host_values(f, (size_t)vocab) : random_values(f, 9, (size_t)vocab);
        int32_t *prompt = host_memory(f, LOOKBACK * sizeof *prompt);
        for (int t = 0; t < LOOKBACK; t++) prompt[t] = (int32_t)((t * 7919LL) % vocab);
        double *p = exact_distribution(f, logits, vocab, prompt, LOOKBACK, &cases[k]);
        Drawn *drawn = draw_rows(&m, logits, true, ROWS, vocab, (Prompt){prompt, LOOKBACK}, 5, &cases[k]);
        for (int r = 0; r < ROWS; r++) expect_drawn(p, vocab, drawn[r], LOOKBACK, 5 + r, &cases[k]);
      }
  machine_close(&m);
}

/* ---- what samplers get wrong ---- */

typedef struct Case {
  const char *name;
  int vocab;
  double logits[10];
  Sampling sampling;
  unsigned expected; /* bit per token that must come out, and no other; 0: SEQUENCE_NONFINITE */
  int32_t prompt[4];
  int prompt_length;
} Case;

#define HALF (-0.69314718055994531)
static const Case cases_of_old[] = {
    {"top-k, ties at the cut: the lower ids", 4, {1, 2, 2, 2}, SET(1, 0, 0, 0, 2, 1, 0, 1, 1), 0x6, {0}, 0},
    {"top-k, ties, largest last", 4, {2, 2, 2, 3}, SET(1, 0, 0, 0, 2, 1, 0, 1, 1), 0x9, {0}, 0},
    {"top-k 1, equal zeros of both signs", 2, {-0.0, 0.0}, SET(1, 0, 0, 0, 1, 1, 0, 1, 1), 0x1, {0}, 0},
    {"top-k 0 is off", 4, {0, 0.5, 0, 0.5}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0xF, {0}, 0},
    {"top-k -1 is off", 4, {0, 0.5, 0, 0.5}, SET(1, 0, 0, 0, -1, 1, 0, 1, 1), 0xF, {0}, 0},
    {"top-k above the vocabulary", 4, {0, 0.5, 0, 0.5}, SET(1, 0, 0, 0, 1000, 1, 0, 1, 1), 0xF, {0}, 0},
    {"top-k equal to the vocabulary", 4, {0, 0.5, 0, 0.5}, SET(1, 0, 0, 0, 4, 1, 0, 1, 1), 0xF, {0}, 0},
    {"top-k counts no masked token", 4, {-INFINITY, 1, -INFINITY, 1}, SET(1, 0, 0, 0, 3, 1, 0, 1, 1), 0xA, {0}, 0},
    {"top-p 1 is off, not greedy", 4, {0, 0, 0, -2}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0xF, {0}, 0},
    {"top-p above 1 is off", 4, {0, 0, 0, -2}, SET(1, 0, 0, 0, 0, 7, 0, 1, 1), 0xF, {0}, 0},
    {"top-p just below 1", 4, {0, 0, 0, 0}, SET(1, 0, 0, 0, 0, 0.99999994f, 0, 1, 1), 0xF, {0}, 0},
    {"top-p 0 keeps one", 4, {0, 1, 1, 0}, SET(1, 0, 0, 0, 0, 0, 0, 1, 1), 0x2, {0}, 0},
    {"top-p tiny keeps one", 4, {0, 1, 1, 0}, SET(1, 0, 0, 0, 0, 1e-30f, 0, 1, 1), 0x2, {0}, 0},
    {"sum exactly top-p: no extra token", 4, {0, 0, 0, 0}, SET(1, 0, 0, 0, 0, 0.5f, 0, 1, 1), 0x3, {0}, 0},
    {"sum exactly top-p, three of four", 4, {0, 0, 0, 0}, SET(1, 0, 0, 0, 0, 0.75f, 0, 1, 1), 0x7, {0}, 0},
    {"sum exactly top-p up to its rounding", 10, {0}, SET(1, 0, 0, 0, 0, 0.3f, 0, 1, 1), 0x7, {0}, 0},
    {"sum exactly top-p, unequal",
     4,
     {HALF, 2 * HALF, 3 * HALF, 3 * HALF},
     SET(1, 0, 0, 0, 0, 0.75f, 0, 1, 1),
     0x3,
     {0},
     0},
    {"top-p just reached needs one more", 4, {0, 0, 0, 0}, SET(1, 0, 0, 0, 0, 0.51f, 0, 1, 1), 0x7, {0}, 0},
    {"top-p after top-k is renormalised",
     4,
     {4 * HALF, 4.4 * HALF, 5 * HALF, 6 * HALF},
     SET(1, 0, 0, 0, 2, 0.55f, 0, 1, 1),
     0x1,
     {0},
     0},
    {"temperature changes no filter",
     3,
     {HALF, 1.7 * HALF, 2.3 * HALF},
     SET(1, 0, 0, 0, 0, 0.6f, 0, 100, 1),
     0x3,
     {0},
     0},
    {"min-p at its bound", 3, {0, HALF, 2 * HALF}, SET(1, 0, 0, 0, 0, 1, 0.5f, 1, 1), 0x3, {0}, 0},
    {"min-p 1 keeps the largest", 3, {0, -1, 0}, SET(1, 0, 0, 0, 0, 1, 1, 1, 1), 0x5, {0}, 0},
    {"min-p above 1 keeps the largest", 3, {0, -1, 0}, SET(1, 0, 0, 0, 0, 1, 3, 1, 1), 0x5, {0}, 0},
    {"min-p 0 is off", 3, {0, -3, 0}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0x7, {0}, 0},
    {"temperature 0 is the largest", 4, {1, 2, 3, 2}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0x4, {0}, 0},
    {"temperature 0, ties: the lowest id", 4, {1, 3, 3, 2}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0x2, {0}, 0},
    {"temperature 0, all negative", 3, {-5, -4, -6}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0x2, {0}, 0},
    {"temperature 0, masked token 0", 3, {-INFINITY, -4, -6}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0x2, {0}, 0},
    {"temperature 1e-8", 3, {1, 3, 2.9999}, SET(1, 0, 0, 0, 0, 1, 0, 1e-8f, 1), 0x2, {0}, 0},
    {"temperature 1e-8, ties are both drawn", 3, {1, 3, 3}, SET(1, 0, 0, 0, 0, 1, 0, 1e-8f, 1), 0x6, {0}, 0},
    {"temperature 1e-8, masked token", 3, {-INFINITY, 3, 3}, SET(1, 0, 0, 0, 0, 1, 0, 1e-8f, 1), 0x6, {0}, 0},
    {"temperature below all normal numbers", 3, {1, 3, 2}, SET(1, 0, 0, 0, 0, 1, 0, 1e-44f, 1), 0x2, {0}, 0},
    {"huge logits", 3, {1e30, -1e30, 1e30}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0x5, {0}, 0},
    {"extreme logits", 3, {-3.4e38, 3.4e38, 3.4e38}, SET(1, 0, 0, 0, 2, 0.9f, 0.1f, 1, 1), 0x6, {0}, 0},
    {"masked tokens are not drawn", 3, {0, -INFINITY, 0}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0x5, {0}, 0},
    {"weight 0 is not drawn, not even as token 0", 3, {-200, 0, 0}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0x6, {0}, 0},
    {"weight 0 at the end is not drawn", 3, {0, 0, -200}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0x3, {0}, 0},
    {"no underflow before the temperature", 2, {0, -150}, SET(1, 0, 0, 0, 0, 1, 0, 100, 1), 0x3, {0}, 0},
    {"one token", 1, {-7}, SET(1, 0, 0, 0, 1, 0.5f, 0.5f, 1, 1), 0x1, {0}, 0},
    {"one token, masked", 1, {-INFINITY}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0, {0}, 0},
    {"NaN first", 3, {NAN, 1, 2}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0, {0}, 0},
    {"NaN last", 3, {1, 2, NAN}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0, {0}, 0},
    {"NaN, greedy", 3, {1, NAN, 2}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0, {0}, 0},
    {"NaN that top-k would drop", 10, {9, 8, 7, 6, 5, 4, 3, 2, 1, NAN}, SET(1, 0, 0, 0, 1, 1, 0, 1, 1), 0, {0}, 0},
    {"+inf", 3, {1, INFINITY, 2}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0, {0}, 0},
    {"+inf, greedy", 3, {1, INFINITY, 2}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0, {0}, 0},
    {"all masked", 3, {-INFINITY, -INFINITY, -INFINITY}, SET(1, 0, 0, 0, 0, 1, 0, 1, 1), 0, {0}, 0},
    {"all masked, greedy", 3, {-INFINITY, -INFINITY, -INFINITY}, SET(1, 0, 0, 0, 0, 1, 0, 0, 1), 0, {0}, 0},
    {"a penalized token counts once", 2, {2, 1.5}, SET(1.2f, 64, 0, 0, 0, 1, 0, 0, 1), 0x1, {0, 0, 0}, 3},
    {"a penalty divides positive logits", 2, {2, 1.5}, SET(1.5f, 64, 0, 0, 0, 1, 0, 0, 1), 0x2, {0}, 1},
    {"a penalty multiplies negative logits", 2, {-1, -1.5}, SET(2, 64, 0, 0, 0, 1, 0, 0, 1), 0x2, {0}, 1},
    {"a penalty sees the last n only", 3, {2, 1.5, 0}, SET(9, 2, 0, 0, 0, 1, 0, 0, 1), 0x1, {0, 1, 2}, 3},
    {"a penalty sees n tokens", 3, {2, 1.5, 0}, SET(9, 3, 0, 0, 0, 1, 0, 0, 1), 0x2, {0, 2, 2}, 3},
    {"repeat_last_n 0 is off", 2, {2, 1.5}, SET(9, 0, 0, 0, 0, 1, 0, 0, 1), 0x1, {0}, 1},
    {"repeat_last_n -1 is off", 2, {2, 1.5}, SET(9, -1, 0, 0, 0, 1, 0, 0, 1), 0x1, {0}, 1},
    {"a penalized masked token stays masked", 2, {-INFINITY, -9}, SET(2, 64, 0, 0, 0, 1, 0, 1, 1), 0x2, {0}, 1},
    {"a token outside the vocabulary is not penalized", 2, {2, 1.5}, SET(9, 64, 0, 0, 0, 1, 0, 0, 1), 0x1, {7, -1}, 2},
    {"presence is taken once", 2, {2, 1.5}, SET(1, 64, 0.4f, 0, 0, 1, 0, 0, 1), 0x1, {0, 0, 0}, 3},
    {"presence is taken", 2, {2, 1.5}, SET(1, 64, 0.6f, 0, 0, 1, 0, 0, 1), 0x2, {0, 0, 0}, 3},
    {"presence is taken from negative logits", 2, {-2, -2.5}, SET(1, 64, 0.6f, 0, 0, 1, 0, 0, 1), 0x2, {0}, 1},
    {"a negative presence is added", 2, {1.5, 2}, SET(1, 64, -0.6f, 0, 0, 1, 0, 0, 1), 0x1, {0}, 1},
    {"presence comes after the repeat penalty", 2, {2, 0.8}, SET(2, 64, 0.3f, 0, 0, 1, 0, 0, 1), 0x2, {0}, 1},
    {"frequency is taken each time", 2, {2, 1.5}, SET(1, 64, 0, 0.2f, 0, 1, 0, 0, 1), 0x2, {0, 0, 0}, 3},
    {"frequency is taken twice", 2, {2, 1.5}, SET(1, 64, 0, 0.2f, 0, 1, 0, 0, 1), 0x1, {0, 1, 0}, 3},
    {"frequency sees the last n only", 2, {2, 1.5}, SET(1, 2, 0, 0.2f, 0, 1, 0, 0, 1), 0x1, {0, 0, 0}, 3},
    {"frequency of a token outside the vocabulary", 2, {2, 1.5}, SET(1, 64, 0, 9, 0, 1, 0, 0, 1), 0x1, {7, -1}, 2},
    {"presence and frequency of a masked token", 2, {-INFINITY, -9}, SET(1, 64, -5, -5, 0, 1, 0, 1, 1), 0x2, {0}, 1},
};

static void check_case(Machine *m, const Case *c) {
  const int rows = fixture_is_cuda(m->fixture) ? 30 : 300;
  Prompt prompt = {c->prompt, c->prompt_length};
  Drawn *drawn = draw_rows(m, c->logits, true, rows, c->vocab, prompt, 0, &c->sampling);
  unsigned seen = 0;
  for (int r = 0; r < rows; r++) {
    bool appended = drawn[r].length == prompt.length + 1;
    if (c->expected == 0 ? drawn[r].status != SEQUENCE_NONFINITE || appended || drawn[r].token != -1 ||
                               drawn[r].position != prompt.length - 1
                         : drawn[r].status != SEQUENCE_OK || !appended || drawn[r].position != prompt.length)
      fail_msg("%s: status %d, length %d, position %d", c->name, (int)drawn[r].status, (int)drawn[r].length,
               (int)drawn[r].position);
    if (drawn[r].token >= 0) seen |= 1u << drawn[r].token;
  }
  if (seen != c->expected) fail_msg("%s: tokens 0x%x came out, not 0x%x", c->name, seen, c->expected);
}

static void test_sample_known_bugs(void **state) {
  Fixture *f = *state;
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof cases_of_old / sizeof *cases_of_old; i++) check_case(&m, &cases_of_old[i]);
  machine_close(&m);
}

/* The same logits, random numbers and settings give the same tokens on every backend; the first one draws them. */
static void test_sample_backends_agree(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 700, ROWS = 60, SETTINGS = 6 };
  static int32_t first[SETTINGS][ROWS];
  static bool known;
  static const int32_t prompt[] = {3, 9, 9, 650, 3, 9};
  Sampling settings[SETTINGS];
  for (int i = 0; i < SETTINGS; i++) settings[i] = PLAIN;
  settings[1].top_k = 40;
  settings[2].top_p = 0.9f;
  settings[3].min_p = 0.05f;
  settings[4].repeat_penalty = 1.5f;
  settings[4].repeat_last_n = 5;
  settings[4].presence_penalty = 0.5f;
  settings[4].frequency_penalty = 0.25f;
  settings[5] = (Sampling){.repeat_penalty = 1.1f,
                           .repeat_last_n = 64,
                           .top_k = 50,
                           .top_p = 0.95f,
                           .min_p = 0.02f,
                           .temperature = 0.8f,
                           .seed = 7};
  double *logits = random_values(f, 17, VOCAB * ROWS);
  for (int i = 0; i < VOCAB * ROWS; i++) logits[i] *= 3;
  Machine m = machine_open(f, 0);
  for (int i = 0; i < SETTINGS; i++) {
    const Drawn *drawn = draw_rows(&m, logits, false, ROWS, VOCAB, (Prompt){prompt, 6}, 11, &settings[i]);
    for (int r = 0; r < ROWS; r++) {
      if (!known) first[i][r] = drawn[r].token;
      assert_int_equal(drawn[r].token, first[i][r]);
    }
  }
  known = true;
  machine_close(&m);
}

static void test_sample_greedy(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 777, ROWS = 40 };
  double *logits = random_values(f, 5, VOCAB * ROWS);
  Sampling greedy = PLAIN;
  greedy.temperature = 0;
  Machine m = machine_open(f, 0);
  Drawn *drawn = draw_rows(&m, logits, false, ROWS, VOCAB, (Prompt){NULL, 0}, 0, &greedy);
  for (int r = 0; r < ROWS; r++) {
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
      if (logits[r * VOCAB + i] > logits[r * VOCAB + best]) best = i;
    assert_int_equal(drawn[r].token, best);
  }
  machine_close(&m);
}

/* Rows of one call are what single calls draw, on any number of threads; a row that is not finite troubles no other. */
static void test_sample_rows_are_single_runs(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 1000, ROWS = 5, BAD = 2 };
  static const int32_t tokens[] = {5, 6, 5, 900};
  Prompt prompt = {tokens, 4};
  Sampling o = {
      .repeat_penalty = 1.1f, .repeat_last_n = 64, .top_p = 0.95f, .min_p = 0.01f, .temperature = 0.9f, .seed = 3};
  double *logits = random_values(f, 6, VOCAB * ROWS);
  logits[BAD * VOCAB + 999] = NAN;
  Machine one = machine_open(f, 1);
  for (int threads = 1; threads <= (fixture_is_cuda(f) ? 1 : 3); threads++)
    for (int k = 0; k <= 40; k += 40) {
      o.top_k = k;
      Machine m = machine_open(f, threads);
      Drawn *batch = draw_rows(&m, logits, false, ROWS, VOCAB, prompt, 20, &o);
      for (int r = 0; r < ROWS; r++) {
        Drawn *single = draw_rows(&one, logits + r * VOCAB, true, 1, VOCAB, prompt, 20 + r, &o);
        assert_memory_equal(&batch[r], single, sizeof *single);
        assert_int_equal(batch[r].status, r == BAD ? SEQUENCE_NONFINITE : SEQUENCE_OK);
      }
      machine_close(&m);
    }
  machine_close(&one);
}

/* Rows of one call with settings and biases of their own are what single calls draw from logits that have the bias. */
static void test_sample_rows_have_their_own_settings(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 300, ROWS = 4, BIASES = 3 };
  static const Sampling own[ROWS] = {SET(1, 0, 0, 0, 0, 1, 0, 1, 1), SET(1, 0, 0, 0, 5, 1, 0, 0.7f, 2),
                                     SET(1.5f, 8, 0, 0, 0, 0.9f, 0, 1, 3), SET(1, 8, 1, 0.5f, 0, 1, 0.05f, 2, 4)};
  static const int32_t counts[ROWS] = {0, 1, 3, 3};
  static const int32_t tokens[ROWS * BIASES] = {9, 9, 9, 7, 0, 0, 299, -1, 300, 5, 6, 900};
  static const double values[ROWS * BIASES] = {50, 50, 50, 50, 9, 9, 3, 70, 70, -INFINITY, 2.5, 70};
  static const int32_t prompt[] = {5, 6, 5, 200}, lengths[ROWS] = {4, 4, 4, 4}, numbers[ROWS] = {0, 1, 2, 3};
  static const int32_t zeros[ROWS] = {0};
  double *logits = random_values(f, 12, VOCAB * ROWS);
  int32_t ring[ROWS * 5] = {0};
  for (int r = 0; r < ROWS; r++) memcpy(ring + 5 * r, prompt, sizeof prompt);
  Machine m = machine_open(f, 0);
  Sampling *sampling = put_samplings(&m, own, ROWS);
  m.ops->upload(m.context, sampling, own, sizeof own);
  const Sequences s = {.rows = ROWS,
                       .capacity = 5,
                       .tokens = machine_put_ints(&m, ring, ROWS * 5),
                       .lengths = machine_put_ints(&m, lengths, ROWS),
                       .positions = machine_put_ints(&m, lengths, ROWS),
                       .streams = machine_put_ints(&m, numbers, ROWS),
                       .status = machine_put_ints(&m, zeros, ROWS),
                       .drawn = machine_put(&m, KIND_I32, NULL, 2 * ROWS),
                       .sampling = sampling,
                       .bias = {.counts = machine_put_ints(&m, counts, ROWS),
                                .tokens = machine_put_ints(&m, tokens, ROWS * BIASES),
                                .values = machine_put(&m, KIND_F32, values, ROWS * BIASES),
                                .capacity = BIASES}};
  m.ops->sample(m.context, &s, machine_put(&m, KIND_F32, logits, VOCAB * ROWS), VOCAB);
  const double *drawn = machine_get(&m, KIND_I32, s.drawn, 2 * ROWS);
  for (int r = 0; r < ROWS; r++) {
    double *biased = logits + r * VOCAB;
    for (int i = r * BIASES; i < r * BIASES + counts[r]; i++)
      if (tokens[i] >= 0 && tokens[i] < VOCAB) biased[tokens[i]] = (double)(float)(biased[tokens[i]] + values[i]);
    const Drawn *single = draw_rows(&m, biased, true, 1, VOCAB, (Prompt){prompt, 4}, r, &own[r]);
    assert_int_equal((int)drawn[2 * r + lengths[r] % 2], single->token);
    assert_int_equal(single->status, SEQUENCE_OK);
  }
  assert_int_equal((int)drawn[2 + lengths[1] % 2], 7); /* 50 more than all others */
  machine_close(&m);
}

/* The tokens are a ring: beyond its capacity the oldest are overwritten, and penalties look back across its end. */
static void test_sample_ring(void **state) {
  Fixture *f = *state;
  enum { CAPACITY = 3, VOCAB = 4, CALLS = 5 };
  Machine m = machine_open(f, 0);
  const int32_t tokens[] = {1, 1, 1, 0, 0, 0, -5}, lengths[] = {3, 2}, positions[] = {2, 1}, streams[] = {0, 1};
  const int32_t status[] = {SEQUENCE_OK, SEQUENCE_OK};
  Sequences s = {.rows = 2,
                 .capacity = CAPACITY,
                 .tokens = machine_put_ints(&m, tokens, 7),
                 .lengths = machine_put_ints(&m, lengths, 2),
                 .positions = machine_put_ints(&m, positions, 2),
                 .streams = machine_put_ints(&m, streams, 2),
                 .status = machine_put_ints(&m, status, 2),
                 .drawn = machine_put(&m, KIND_I32, NULL, 4)};
  const double logits[2 * VOCAB] = {0, 0, 8, 9, 0, 0, 8, 9};
  Sampling alternating = PLAIN; /* the token before is halved, so the two best take turns: 3, 2, 3, 2, 3 */
  alternating.temperature = 0;
  alternating.repeat_penalty = 2;
  alternating.repeat_last_n = 1;
  s.sampling = put_samplings(&m, &alternating, 2);
  for (int call = 0; call < CALLS; call++)
    m.ops->sample(m.context, &s, machine_put(&m, KIND_F32, logits, 2 * VOCAB), VOCAB);
  /* row 0 writes to 0 1 2 0 1, row 1 to 2 0 1 2 0 */
  const double want_tokens[] = {2, 3, 3, 3, 3, 2, -5}, want_lengths[] = {8, 7}, want_positions[] = {7, 6};
  expect_same("tokens", machine_get(&m, KIND_I32, s.tokens, 7), want_tokens, 7);
  expect_same("lengths", machine_get(&m, KIND_I32, s.lengths, 2), want_lengths, 2);
  expect_same("positions", machine_get(&m, KIND_I32, s.positions, 2), want_positions, 2);
  machine_close(&m);
}

int main(void) {
  /* Logits are fp32 in every context: what takes long is tried in one, the rest shows that all sample alike. */
  const struct CMUnitTest long_tests[] = {
      cmocka_unit_test(test_sample_distribution),
      cmocka_unit_test(test_sample_large_vocabulary),
      cmocka_unit_test(test_sample_vocabulary_sizes),
  };
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sample_known_bugs),
      cmocka_unit_test(test_sample_backends_agree),
      cmocka_unit_test(test_sample_greedy),
      cmocka_unit_test(test_sample_rows_are_single_runs),
      cmocka_unit_test(test_sample_rows_have_their_own_settings),
      cmocka_unit_test(test_sample_ring),
  };
  int failed = run_on_backends_in_f32("sample: distributions", long_tests, sizeof long_tests / sizeof *long_tests);
  failed += run_on_backends("sample", tests, sizeof tests / sizeof *tests);
  return failed ? 1 : 0;
}
