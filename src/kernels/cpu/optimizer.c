/* Gradient clipping (Pascanu et al. 2013) and AdamW (Loshchilov & Hutter 2019) on the CPU, over the flat arenas,
 * including pads, which stay zero. Memory bandwidth limits both operations, and each makes one pass. */
#include "kernels/cpu/weights.h"

#include <float.h>

enum { SPAN_BLOCKS = 16 }; /* reduction blocks that a thread takes at a time, at most */

/* Returns the sum of squares in fp64, which fp32 gradients do not overflow. */
static double block_squares(const float *grad, size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < count; i++) sum += (double)grad[i] * (double)grad[i];
  return sum;
}

typedef struct SquareSum {
  const float *grad;
  size_t count;
  double *partial; /* of every block, added in the order of the blocks */
} SquareSum;

static void square_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const SquareSum *s = job;
  for (int b = begin; b < end; b++) {
    size_t first = (size_t)b * REDUCTION_BLOCK, rest = s->count - first;
    s->partial[b] = block_squares(s->grad + first, rest < REDUCTION_BLOCK ? rest : REDUCTION_BLOCK);
  }
}

static double sum_squares(Context *c, const float *grad, size_t count) {
  size_t blocks = (count + REDUCTION_BLOCK - 1) / REDUCTION_BLOCK;
  double *partial = (void *)CPU(scratch)(c, 2 * blocks);
  if (!partial) return 0;
  pool_run(c->pool, (int)blocks, 2, SPAN_BLOCKS, square_blocks, &(SquareSum){grad, count, partial});
  double sum = 0;
  for (size_t b = 0; b < blocks; b++) sum += partial[b];
  return sum;
}

/* 1 - beta^t, without the cancellation of the subtraction for beta near 1. */
static float bias_correction(float beta, double t) { return (float)-expm1(t * log((double)beta)); }

/* Returns the sum of squares of the gradients that this process owns. */
static double own_squares(Context *c, const Parameters *p) {
  double sum = 0;
  if (!p->span_count) return sum_squares(c, p->grad, p->count);
  for (const Span *s = p->spans; s < p->spans + p->span_count; s++)
    if (s->owner == c->peers->rank) sum += sum_squares(c, p->grad + s->offset, s->count);
  return sum;
}

void CPU(clip)(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw) {
  if (c->error.code) return;
  if (params->span_count) collective_reduce_end(c->peers);
  double sums[] = {own_squares(c, params), state->loss_sum, (double)state->loss_count};
  if (c->error.code) return;
  if (params->span_count) collective_sum(c->peers, sums, 3);
  state->loss_sum = sums[1];
  state->loss_count = (int64_t)sums[2];
  double norm = sqrt(sums[0]);
  double t = (double)(state->step + 1), ratio = (double)max_norm / (norm + 1e-6);
  state->grad_norm = (float)norm;
  state->clip = max_norm > 0 && ratio < 1.0 ? (float)ratio : 1.0f;
  state->bias1 = bias_correction(adamw->beta1, t);
  state->bias2 = bias_correction(adamw->beta2, t);
  state->loss = (float)(state->loss_sum * (double)state->inv_targets);
  if (!isfinite(state->loss) || !isfinite(state->grad_norm)) state->halted = 1;
}

/* The factors of one update, the same for every element of a group. */
typedef struct Update {
  float clip, beta1, beta2, eps;
  float keep;       /* 1 - lr*wd */
  float step;       /* lr / bias1 */
  float root_bias2; /* bias2^(-1/2) */
} Update;

static void update_range(const Update *u, float *restrict w, const float *restrict grad, float *restrict m,
                         float *restrict v, size_t count) {
  const float clip = u->clip, beta1 = u->beta1, beta2 = u->beta2, eps = u->eps;
  const float keep = u->keep, step = u->step, root_bias2 = u->root_bias2;
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
#pragma omp simd
  for (size_t i = 0; i < count; i++) {
    float g = clip * grad[i];
    float first = beta1 * m[i] + rest1 * g, second = beta2 * v[i] + rest2 * g * g;
    float divisor = sqrtf(second) * root_bias2 + eps;
    divisor = divisor > FLT_MIN ? divisor : FLT_MIN; /* with eps = 0, elements without any gradient do not change */
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * keep - step * first / divisor;
  }
}

typedef struct RunUpdate {
  Update update;
  const Parameters *params;
  const AdamwRun *run;
} RunUpdate;

static void update_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const RunUpdate *s = job;
  const Parameters *p = s->params;
  const AdamwRun *run = s->run;
  const size_t last = (size_t)end * REDUCTION_BLOCK;
  for (size_t first = (size_t)begin * REDUCTION_BLOCK; first < last && first < run->count; first += REDUCTION_BLOCK) {
    const size_t at = p->groups[run->group].matrix.offset + run->first + first;
    const size_t count = run->count - first < REDUCTION_BLOCK ? run->count - first : REDUCTION_BLOCK;
    update_range(&s->update, p->master + at, p->grad + at, p->m + run->m_offset + first, p->v + run->v_offset + first,
                 count);
    CPU(follow_masters)(p, run->group, run->first + first, count); /* while they are in the cache */
  }
}

void CPU(adamw)(Context *c, StepState *state, const Parameters *params, const AdamW *adamw) {
  if (c->error.code || state->halted) return;
  Update u = {.clip = state->clip,
              .beta1 = adamw->beta1,
              .beta2 = adamw->beta2,
              .eps = adamw->eps,
              .step = state->lr / state->bias1,
              .root_bias2 = 1.0f / sqrtf(state->bias2)};
  float keep_decayed = 1.0f - state->lr * adamw->weight_decay;
  for (const AdamwRun *run = params->runs; run < params->runs + params->run_count; run++) {
    u.keep = params->groups[run->group].decay ? keep_decayed : 1.0f;
    pool_run(c->pool, (int)((run->count + REDUCTION_BLOCK - 1) / REDUCTION_BLOCK), 1, SPAN_BLOCKS, update_blocks,
             &(RunUpdate){u, params, run});
  }
  state->step += 1;
}
