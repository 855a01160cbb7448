/* Gradient clipping (Pascanu et al. 2013) and AdamW (Loshchilov & Hutter 2019) on the CPU, over the flat arenas, pads
 * included: they are zero and stay zero. Both operations are bound by memory and make one pass. */
#include "kernels/cpu/weights.h"

#include <float.h>

enum { SPAN_BLOCKS = 16 }; /* reduction blocks that a thread takes at a time, at most */

/* Sum of squares in fp64, which no fp32 gradient overflows. */
static double block_squares(const float *grad, size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < count; i++) sum += (double)grad[i] * (double)grad[i];
  return sum;
}

typedef struct SquareSum {
  const float *grad;
  size_t count;
  double *partial; /* of every block; added in the order of the blocks */
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

/* 1 - beta^t without the cancellation that the subtraction would suffer for beta near 1 */
static float bias_correction(float beta, double t) { return (float)-expm1(t * log((double)beta)); }

void CPU(clip)(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw) {
  if (c->error.code) return;
  double norm = sqrt(sum_squares(c, params->grad, params->count));
  if (c->error.code) return;
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
    divisor =
        divisor > FLT_MIN ? divisor : FLT_MIN; /* eps = 0: an element that never had a gradient, pads too, stays */
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * keep - step * first / divisor;
  }
}

typedef struct GroupUpdate {
  Update update;
  const Parameters *params;
  int group;
} GroupUpdate;

static void update_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const GroupUpdate *s = job;
  const Parameters *p = s->params;
  const Matrix *m = &p->groups[s->group].matrix;
  size_t all = (size_t)m->rows * (size_t)m->cols, last = (size_t)end * REDUCTION_BLOCK;
  for (size_t first = (size_t)begin * REDUCTION_BLOCK; first < last && first < all; first += REDUCTION_BLOCK) {
    size_t at = m->offset + first, count = all - first < REDUCTION_BLOCK ? all - first : REDUCTION_BLOCK;
    update_range(&s->update, p->master + at, p->grad + at, p->m + at, p->v + p->groups[s->group].v_offset + first,
                 count);
    CPU(follow_masters)(p, s->group, first, count); /* while they are in the cache */
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
  for (int g = 0; g < params->group_count; g++) {
    const ParameterGroup *group = &params->groups[g];
    if (group->rule != UPDATE_ADAMW) continue;
    size_t count = (size_t)group->matrix.rows * (size_t)group->matrix.cols;
    u.keep = group->decay ? keep_decayed : 1.0f;
    pool_run(c->pool, (int)((count + REDUCTION_BLOCK - 1) / REDUCTION_BLOCK), 1, SPAN_BLOCKS, update_blocks,
             &(GroupUpdate){u, params, g});
  }
  state->step += 1;
}
