/* Sampling of the next token on the CPU.
 * Filters do not sort. They find the cutoff value by bisecting the range of fp32 numbers, counting (top-k) or summing
 * (top-p) the values that are not below the middle; this takes at most about 30 passes, so flat logits cost no more
 * than peaked ones. Fixed rules for edge cases:
 *   - probabilities are exp(z - max) relative to the tokens that top-k kept; temperature comes last and does not affect
 *     the filters;
 *   - a bias of -inf masks a token permanently;
 *   - of equal values at the cutoff, only the lowest ids that are needed are kept; a sum that equals top_p within fp32
 *     rounding has reached it;
 *   - the token drawn is the first, by id, whose cumulative weight is above u * total, so a token of weight 0 is never
 *     drawn;
 *   - -inf is a masked token; NaN, +inf or only masked tokens are an error, never token 0;
 *   - temperature <= 0 selects the largest logit (lowest id), and exp((z - max) / T) has no overflow for any T above
 *     it. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

#include <float.h>

enum {
  SUM_LANES = 32, /* partial sums, so that the order of additions is fixed */
  BLOCK = 64      /* logits that share a maximum, and weights that share a partial sum */
};
static const double ROUNDING = 1e-6; /* fp32: the largest difference between top_p and an equal sum */

/* The remaining tokens, ids rising. Arrays of V. */
typedef struct Candidates {
  float *logit;
  float *weight;
  int32_t *id;
  int count;
} Candidates;

/* ---- the cut of a filter, without sorting ---- */

/* The number (count_only) or sum of the keys that are at least `threshold`. With a fixed order of additions a sum never
 * falls when a term is added, so the result never rises with the threshold. */
static double mass_from(const float *key, int count, float threshold, bool count_only) {
  double mass = 0;
  for (int first = 0; first < count; first += 1024) {
    int n = count - first < 1024 ? count - first : 1024, i = 0;
    float lanes[SUM_LANES] = {0}, sum = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
#pragma omp simd
      for (int l = 0; l < SUM_LANES; l++) {
        float x = key[first + i + l], add = count_only ? 1.0f : x;
        lanes[l] += x >= threshold ? add : 0.0f;
      }
    }
    for (int l = 0; i + l < n; l++) {
      float x = key[first + i + l], add = count_only ? 1.0f : x;
      lanes[l] += x >= threshold ? add : 0.0f;
    }
    for (int l = 0; l < SUM_LANES; l++) sum += lanes[l];
    mass += (double)sum;
  }
  return mass;
}

/* Converts fp32 to int32 of the same order, -0 just below 0, and back. */
static int32_t order_of(float x) {
  int32_t bits;
  memcpy(&bits, &x, 4);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}

static float number_of(int32_t order) {
  int32_t bits = order < 0 ? order ^ INT32_MAX : order;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/* A filter keeps everything above `value`, and the first `ties` of those equal to it. */
typedef struct Cut {
  float value;
  int64_t ties;
} Cut;

/* Finds the shortest prefix, by falling key, whose mass reaches `target` > 0. max is the largest key; the keys from min
 * on reach the target. */
static Cut find_cut(const float *key, int count, float min, float max, double target, bool count_only) {
  int64_t low = order_of(min), high = (int64_t)order_of(max) + 1; /* low reaches the target, high does not */
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (mass_from(key, count, number_of((int32_t)middle), count_only) >= target) low = middle;
    else high = middle;
  }
  float value = number_of((int32_t)low);
  double above = high > order_of(max) ? 0 : mass_from(key, count, number_of((int32_t)high), count_only);
  double ties = ceil((target - above) / (count_only ? 1.0 : (double)value));
  return (Cut){value, ties < 1 ? 1 : ties < count ? (int64_t)ties : count};
}

/* `key` may be any of the candidates' own arrays: each element moves down or stays. */
static void keep(Candidates *c, const float *key, Cut cut) {
  int kept = 0;
  for (int i = 0; i < c->count; i++) {
    bool stays = key[i] > cut.value || (key[i] == cut.value && cut.ties-- > 0);
    c->logit[kept] = c->logit[i];
    c->weight[kept] = c->weight[i];
    c->id[kept] = c->id[i];
    kept += stays;
  }
  c->count = kept;
}

/* ---- the stages, in their order ---- */

static void add_bias(float *logits, int vocab, const LogitBias *bias, int row) {
  if (!bias->counts) return;
  const int64_t first = (int64_t)row * bias->capacity;
  for (int64_t i = first; i < first + bias->counts[row]; i++)
    if (bias->tokens[i] >= 0 && bias->tokens[i] < vocab) logits[bias->tokens[i]] += bias->values[i];
}

/* Applies the penalties that count once for each of the last n tokens, then the penalty of every occurrence; `seen` has
 * a bit for each token. */
static void penalize(float *logits, int vocab, const int32_t *ring, int capacity, int length, const Sampling *sampling,
                     uint32_t *seen) {
  const float repeat = sampling->repeat_penalty, frequency = sampling->frequency_penalty;
  const bool once = repeat != 1.0f || sampling->presence_penalty != 0.0f;
  if (sampling->repeat_last_n <= 0 || (!once && frequency == 0.0f)) return;
  int n = sampling->repeat_last_n < length ? sampling->repeat_last_n : length;
  n = n < capacity ? n : capacity;
  if (once) memset(seen, 0, ((size_t)vocab + 31) / 32 * sizeof *seen);
  for (int i = length - n; once && i < length; i++) {
    int32_t token = ring[i % capacity];
    if (token < 0 || token >= vocab || (seen[token / 32] >> (token % 32) & 1)) continue;
    seen[token / 32] |= 1u << (token % 32);
    float z = logits[token];
    volatile float left = z > 0 ? z / repeat : z * repeat; /* rounded on every instruction set, never fused */
    logits[token] = left - sampling->presence_penalty;
  }
  for (int i = length - n; frequency != 0.0f && i < length; i++) {
    int32_t token = ring[i % capacity];
    if (token >= 0 && token < vocab) logits[token] -= frequency;
  }
}

/* Returns the largest of n <= BLOCK logits; *bad counts those that are NaN or +inf. Lanes make it vector code with
 * every compiler. */
static float block_max(const float *logits, int n, int *bad) {
  float max[8];
  int32_t wrong[8] = {0};
  for (int l = 0; l < 8; l++) max[l] = -INFINITY;
  int i = 0;
  for (; i + 8 <= n; i += 8) {
#pragma omp simd
    for (int l = 0; l < 8; l++) {
      float z = logits[i + l];
      wrong[l] += !(z <= FLT_MAX);
      max[l] = z > max[l] ? z : max[l];
    }
  }
  for (int l = 0; i + l < n; l++) {
    float z = logits[i + l];
    wrong[l] += !(z <= FLT_MAX);
    max[l] = z > max[l] ? z : max[l];
  }
  for (int l = 1; l < 8; l++) {
    wrong[0] += wrong[l];
    max[0] = max[l] > max[0] ? max[l] : max[0];
  }
  *bad += wrong[0];
  return max[0];
}

/* Finds the largest logit of each block; false when a logit is NaN or +inf, or all are -inf. */
static bool block_maxima(const float *logits, int vocab, float *maxima, float *max) {
  int bad = 0;
  *max = -INFINITY;
  for (int first = 0; first < vocab; first += BLOCK) {
    float m = block_max(logits + first, vocab - first < BLOCK ? vocab - first : BLOCK, &bad);
    *max = m > *max ? m : *max;
    maxima[first / BLOCK] = m;
  }
  return !bad && *max >= -FLT_MAX;
}

static int lowest_of(const float *logits, int vocab, float value) {
  int id = 0;
  while (id < vocab - 1 && logits[id] != value) id++;
  return id;
}

/* Gathers the logits from `bound` on, without masked ones. The candidates use the array of the logits. */
static void gather(Candidates *c, int vocab, const float *maxima, float bound) {
  const float *logits = c->logit;
  int count = 0;
  for (int first = 0; first < vocab; first += BLOCK) {
    if (!(maxima[first / BLOCK] >= bound)) continue;
    int end = vocab - first < BLOCK ? vocab : first + BLOCK;
    for (int i = first; i < end; i++) {
      float z = logits[i];
      c->logit[count] = z;
      c->id[count] = i;
      count += z >= bound;
    }
  }
  c->count = count;
}

/* The k-th largest logit is at least the k-th largest maximum of the blocks: this bound excludes nearly all logits
 * before any is counted. */
static void top_k(Candidates *c, int vocab, const float *maxima, float max, int k) {
  int blocks = (vocab + BLOCK - 1) / BLOCK;
  float bound = -FLT_MAX;
  if (k > 0 && k < blocks && mass_from(maxima, blocks, -FLT_MAX, true) >= k)
    bound = find_cut(maxima, blocks, -FLT_MAX, max, k, true).value;
  gather(c, vocab, maxima, bound);
  if (k > 0 && k < c->count) keep(c, c->logit, find_cut(c->logit, c->count, bound, max, k, true));
}

static void weigh(Candidates *c, float max, float temperature) {
#pragma omp simd
  for (int i = 0; i < c->count; i++) c->weight[i] = exp_f32((c->logit[i] - max) / temperature);
}

static void top_p(Candidates *c, float max, float p) {
  if (!(p < 1.0f)) return;
  weigh(c, max, 1);
  double total = mass_from(c->weight, c->count, 0, false), target = (double)p * total * (1 - ROUNDING);
  /* the weights below this one add up to less than half of what may be removed */
  float min = (float)((1 - (double)p) * total / c->count / 2);
  keep(c, c->weight, target > 0 ? find_cut(c->weight, c->count, min, 1, target, false) : (Cut){1, 1});
}

/* exp(z - max) >= min_p, in logits */
static void min_p(Candidates *c, float max, float p) {
  if (!(p > 0.0f)) return;
  double cutoff = p < 1.0f ? (double)max + log((double)p) - ROUNDING : (double)max;
  int kept = 0;
  for (int i = 0; i < c->count; i++) {
    c->logit[kept] = c->logit[i];
    c->id[kept] = c->id[i];
    kept += (double)c->logit[kept] >= cutoff;
  }
  c->count = kept;
}

static double block_weight(const Candidates *c, int first) {
  int end = c->count - first < BLOCK ? c->count : first + BLOCK;
  double lanes[8] = {0};
  int i = first;
  for (; i + 8 <= end; i += 8) {
#pragma omp simd
    for (int l = 0; l < 8; l++) lanes[l] += (double)c->weight[i + l];
  }
  for (int l = 0; i + l < end; l++) lanes[l] += (double)c->weight[i + l];
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/* Returns the first id whose cumulative weight is above u * total. Total and search add the same sums of blocks in the
 * same order, so the search finds the block. If rounding hides the token in it, the block's last token with a weight is
 * drawn. */
static int32_t draw(const Candidates *c, float u) {
  double total = 0, below = 0;
  for (int first = 0; first < c->count; first += BLOCK) total += block_weight(c, first);
  double aim = (double)u * total;
  int32_t last = c->id[0];
  for (int first = 0; first < c->count; first += BLOCK) {
    double next = below + block_weight(c, first), sum = below;
    bool here = aim < next;
    for (int i = first; here && i < c->count && i < first + BLOCK; i++) {
      sum += (double)c->weight[i];
      if (c->weight[i] > 0) last = c->id[i];
      if (aim < sum) return last;
    }
    if (here) return last;
    below = next;
  }
  for (int i = 0; i < c->count; i++)
    if (c->weight[i] > 0) last = c->id[i];
  return last;
}

/* ---- a row ---- */

/* The floats that a thread needs: weights, ids, block maxima, a bit for each token. */
static size_t scratch_per_thread(int vocab) {
  size_t v = (size_t)vocab;
  return (2 * v + v / BLOCK + 1 + v / 32 + 1 + SUM_LANES) / SUM_LANES * SUM_LANES;
}

/* Returns the next token of a row, or -1 when its logits are not finite. */
static int32_t choose(const Sequences *s, int row, float *logits, int vocab, float *scratch) {
  const Sampling *sampling = &s->sampling[row];
  const int length = s->lengths[row];
  Candidates c = {.logit = logits, .weight = scratch, .id = (void *)(scratch + vocab)};
  float *maxima = scratch + 2 * (int64_t)vocab, max;
  add_bias(logits, vocab, &s->bias, row);
  penalize(logits, vocab, s->tokens + (int64_t)row * s->capacity, s->capacity, length, sampling,
           (void *)(maxima + vocab / BLOCK + 1));
  if (!block_maxima(logits, vocab, maxima, &max)) return -1;
  if (!(sampling->temperature > 0)) return lowest_of(logits, vocab, max);
  top_k(&c, vocab, maxima, max, sampling->top_k);
  top_p(&c, max, sampling->top_p);
  min_p(&c, max, sampling->min_p);
  weigh(&c, max, sampling->temperature);
  const uint32_t stream = (uint32_t)s->streams[row];
  return draw(&c, philox_uniform(philox(sampling->seed, 0, SITE_SAMPLE, (uint32_t)length, stream).word[0]));
}

/* A row that failed before stays failed. */
static void sample_row(const Sequences *s, int row, float *logits, int vocab, float *scratch) {
  int32_t length = s->lengths[row];
  s->drawn[2 * row + (length & 1)] = -1;
  if (s->status[row] != SEQUENCE_OK || length < 0) return;
  const int32_t token = choose(s, row, logits, vocab, scratch);
  if (token < 0) {
    s->status[row] = SEQUENCE_NONFINITE;
    return;
  }
  s->drawn[2 * row + (length & 1)] = token;
  s->tokens[(int64_t)row * s->capacity + length % s->capacity] = token;
  s->lengths[row] = length + 1;
  s->positions[row] += 1;
}

typedef struct SampleJob {
  const Sequences *sequences;
  float *logits;
  int vocab;
  float *scratch;
  size_t per_thread;
} SampleJob;

static void sample_rows(const void *job, int begin, int end, int thread) {
  const SampleJob *s = job;
  for (int r = begin; r < end; r++)
    sample_row(s->sequences, r, s->logits + (int64_t)r * s->vocab, s->vocab,
               s->scratch + (size_t)thread * s->per_thread);
}

void CPU(sample)(Context *c, const Sequences *s, float *logits, int vocab) {
  if (c->error.code) return;
  int threads = s->rows > 1 ? c->threads : 1;
  size_t per_thread = scratch_per_thread(vocab);
  float *scratch = CPU(scratch)(c, (size_t)threads * per_thread);
  if (!scratch) return;
  pool_run(c->pool, s->rows, 1, 1, sample_rows, &(SampleJob){s, logits, vocab, scratch, per_thread});
}
