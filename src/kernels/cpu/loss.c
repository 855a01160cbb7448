/* Cross-entropy and the counters of a step on the CPU.
 *
 * The first pass over a row of logits reads it from memory and the last writes it; the passes between find it in L2.
 * Sums use a fixed number of lanes and a fixed tree, so that the bits of a row's result depend only on the row. The
 * code sums all logits even without smoothing, to detect NaN and infinity, which exp() of a masked logit would hide. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "base/system.h"

enum {
  SUM_LANES = 32,          /* partial sums of a row */
  BLOCK = 1024,            /* exponentials computed before they are added */
  PARALLEL_ELEMENTS = 2048 /* elements that a thread takes at least */
};

static float sum_lanes(float *lanes) {
  for (int half = SUM_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

typedef struct MaxAndSum {
  float max, sum;
} MaxAndSum;

static inline __attribute__((always_inline)) MaxAndSum max_and_sum(const float *z, int count) {
  float max[SUM_LANES], sum[SUM_LANES] = {0};
  for (int l = 0; l < SUM_LANES; l++) max[l] = -INFINITY;
  int k = 0;
  for (; k + SUM_LANES <= count; k += SUM_LANES) {
#pragma omp simd
    for (int l = 0; l < SUM_LANES; l++) {
      max[l] = z[k + l] > max[l] ? z[k + l] : max[l];
      sum[l] += z[k + l];
    }
  }
  for (int l = 0; k + l < count; l++) {
    max[l] = z[k + l] > max[l] ? z[k + l] : max[l];
    sum[l] += z[k + l];
  }
  for (int l = 1; l < SUM_LANES; l++) max[0] = max[l] > max[0] ? max[l] : max[0];
  return (MaxAndSum){max[0], sum_lanes(sum)};
}

/* Returns the sum of exp(z_k - max); with `keep` the exponentials replace the logits. */
static double sum_exp(float *z, int count, float max, bool keep) {
  float spare[BLOCK];
  double sum = 0;
  for (int k = 0; k < count; k += BLOCK) {
    int n = smaller(count - k, BLOCK);
    const float *from = z + k;
    float *to = keep ? z + k : spare; // cppcheck-suppress legacyUninitvar -- written before it is read
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = exp_f32(from[i] - max);
    sum += (double)max_and_sum(to, n).sum;
  }
  return sum;
}

/* Returns the loss of one row; with `gradient` its gradient replaces the logits. */
static float row_loss(float *z, int64_t stride, int32_t target, int vocab, float smoothing, float scale,
                      bool gradient) {
  if (target < 0 || target >= vocab) {
    if (gradient) memset(z, 0, (size_t)stride * sizeof(float));
    return target < 0 ? 0.0f : NAN; /* a target outside of the vocabulary is an error, not ignored */
  }
  MaxAndSum seen = max_and_sum(z, vocab);
  float z_target = z[target];
  double sum = sum_exp(z, vocab, seen.max, gradient);
  if (gradient) {
    float p_scale = (float)((double)scale / sum), uniform = scale * smoothing / (float)vocab;
#pragma omp simd
    for (int k = 0; k < vocab; k++) z[k] = z[k] * p_scale - uniform;
    z[target] -= scale * (1.0f - smoothing);
    memset(z + vocab, 0, (size_t)(stride - vocab) * sizeof(float));
  }
  if (!isfinite(seen.sum)) return NAN;
  /* relative to the maximum, so that large logits do not cancel */
  double to_target = (double)seen.max - (double)z_target, to_mean = (double)seen.max - (double)seen.sum / vocab;
  return (float)(log(sum) + (1.0 - (double)smoothing) * to_target + (double)smoothing * to_mean);
}

typedef struct CrossEntropy {
  float *losses;
  Element *logits;
  float *wide; /* bf16: [threads][stride] */
  int64_t stride;
  const int32_t *targets;
  int vocab;
  float smoothing, scale;
  bool gradient;
} CrossEntropy;

static void loss_rows(const void *job, int begin, int end, int thread) {
  const CrossEntropy *s = job;
  for (int n = begin; n < end; n++) {
    Element *row = s->logits + n * s->stride;
    float *z = CPU_BF16 ? s->wide + thread * s->stride : (float *)row;
    wide_row(row, z, s->vocab);
    s->losses[n] = row_loss(z, s->stride, s->targets[n], s->vocab, s->smoothing, s->scale, s->gradient);
    if (s->gradient) narrow_row(row, z, s->stride);
  }
}

void CPU(cross_entropy)(Context *c, float *losses, void *logits, int64_t stride, const int32_t *targets, int rows,
                        int vocab, float smoothing, const StepState *state, bool gradient) {
  float *wide = CPU_BF16 ? CPU(scratch)(c, (size_t)stride * (size_t)c->threads) : NULL;
  if (c->error.code) return;
  const CrossEntropy loss = {losses, logits, wide, stride, targets, vocab, smoothing, state->inv_targets, gradient};
  pool_run(c->pool, rows, 1 + PARALLEL_ELEMENTS / vocab, SPAN_ROWS, loss_rows, &loss);
}

typedef struct Distillation {
  Element *dlogits, *teacher;
  float *wide; /* bf16: [threads][2][stride] */
  int64_t stride;
  const int32_t *targets;
  int vocab;
  float smoothing, scale;
} Distillation;

/* `t`: the teacher's logits, which are overwritten. */
static void distill_row(float *dz, float *t, int32_t target, int vocab, float smoothing, float scale) {
  const double sum = sum_exp(t, vocab, max_and_sum(t, vocab).max, true);
  const float t_scale = (float)((double)scale / sum), uniform = scale * smoothing / (float)vocab;
#pragma omp simd
  for (int k = 0; k < vocab; k++) dz[k] += uniform - t[k] * t_scale;
  dz[target] += scale * (1.0f - smoothing);
}

static void distill_rows(const void *job, int begin, int end, int thread) {
  const Distillation *s = job;
  for (int n = begin; n < end; n++) {
    const int32_t target = s->targets[n];
    if (target < 0 || target >= s->vocab) continue;
    Element *row = s->dlogits + n * s->stride, *teacher = s->teacher + n * s->stride;
    float *dz = CPU_BF16 ? s->wide + 2 * thread * s->stride : (float *)row;
    float *t = CPU_BF16 ? dz + s->stride : (float *)teacher;
    wide_row(row, dz, s->vocab);
    wide_row(teacher, t, s->vocab);
    distill_row(dz, t, target, s->vocab, s->smoothing, s->scale);
    narrow_row(row, dz, s->vocab);
  }
}

void CPU(distill)(Context *c, void *dlogits, void *teacher, int64_t stride, const int32_t *targets, int rows, int vocab,
                  float smoothing, float weight, const StepState *state) {
  float *wide = CPU_BF16 ? CPU(scratch)(c, 2 * (size_t)stride * (size_t)c->threads) : NULL;
  if (c->error.code) return;
  const Distillation job = {dlogits, teacher, wide, stride, targets, vocab, smoothing, weight * state->inv_targets};
  pool_run(c->pool, rows, 1 + PARALLEL_ELEMENTS / vocab, SPAN_ROWS, distill_rows, &job);
}

void CPU(loss_sum)(Context *c, StepState *state, const float *losses, const int32_t *targets, int rows) {
  if (c->error.code) return;
  double sum = state->loss_sum;
  int64_t count = state->loss_count;
  for (int n = 0; n < rows; n++) {
    sum += (double)losses[n];
    count += targets[n] >= 0;
  }
  state->loss_sum = sum;
  state->loss_count = count;
}

void CPU(step_begin)(Context *c, StepState *state, const float *lr_table, const int32_t *targets) {
  if (c->error.code) return;
  state->lr = lr_table ? lr_table[state->step + 1] : 0.0f;
  double count = targets ? *targets : 0;
  if (targets && c->peers) collective_sum(c->peers, &count, 1);
  state->inv_targets = count > 0 ? 1.0f / (float)count : 0.0f;
  state->loss_sum = 0;
  state->loss_count = 0;
  state->sequence = 0;
  c->began = clock_nanoseconds();
}

void CPU(next_micro_batch)(Context *c, StepState *state, int sequences) {
  if (c->error.code) return;
  state->sequence += sequences;
}
