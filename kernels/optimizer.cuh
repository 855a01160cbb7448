/* Gradient clipping (Pascanu et al. 2013) and AdamW (Loshchilov & Hutter 2019) over the flat arenas [count], which are
 * multiples of TENSOR_ALIGNMENT long; gaps and pads are zero and stay zero.
 *
 *   clip    grad_norm = |grad|_2 in fp64;  clip = min(1, max_norm / (grad_norm + 1e-6))
 *   adamw   g = clip*grad;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
 *           w = w*(1 - lr*wd) - lr * (m/bias1) / (sqrt(v/bias2) + eps)
 *
 * Bytes per parameter: clip reads 4; adamw reads 16 and writes 12, and 2 more for the bf16 copy that GEMMs read. What
 * depends on the step comes from StepState, so that a recording of these launches serves every step. */
#ifndef INKLING_KERNELS_OPTIMIZER_CUH
#define INKLING_KERNELS_OPTIMIZER_CUH

#include "kernels/cuda.cuh"

#include <float.h>

namespace {

constexpr int ARENA_BLOCK = 256, ARENA_GRID = 32; /* threads; blocks for every multiprocessor */
constexpr int CLIP_BLOCK = 512, CLIP_GRID = 4;
static_assert(TENSOR_ALIGNMENT % 4 == 0, "arenas are made of float4");

/* Infinity and NaN are not. */
__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

/* The bf16 copy of the masters. */
__global__ void __launch_bounds__(ARENA_BLOCK) convert_masters(bf16 *compute, const float *master, size_t count) {
  const size_t stride = (size_t)gridDim.x * ARENA_BLOCK;
  for (size_t i = (size_t)blockIdx.x * ARENA_BLOCK + threadIdx.x; i < count / 4; i += stride) {
    float x[4];
    load<4>(x, master + 4 * i);
    store<4>(compute + 4 * i, x);
  }
}

/* partial [gridDim.x]: sums of squares, in fp64, which no fp32 gradient overflows. The grid depends on the arena's
 * size and the device alone, and so do the sums' bits. */
__global__ void __launch_bounds__(CLIP_BLOCK) sum_squares(double *partial, const float *grad, size_t count) {
  const size_t stride = (size_t)gridDim.x * CLIP_BLOCK;
  double sum = 0;
#pragma unroll 4
  for (size_t i = (size_t)blockIdx.x * CLIP_BLOCK + threadIdx.x; i < count / 4; i += stride) {
    float g[4];
    load<4>(g, grad + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) sum += (double)g[j] * (double)g[j];
  }
  sum = block_sum<CLIP_BLOCK>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* 1 - beta^t without the cancellation that the subtraction would suffer for beta near 1 */
__device__ __forceinline__ float bias_correction(float beta, double t) { return (float)-expm1(t * log((double)beta)); }

/* One block: the norm out of partial [parts], and what follows from it. */
__global__ void __launch_bounds__(CLIP_BLOCK)
    finish_clip(StepState *state, const double *partial, int parts, float max_norm, AdamW adamw) {
  double sum = 0;
  for (int i = (int)threadIdx.x; i < parts; i += CLIP_BLOCK) sum += partial[i];
  sum = block_sum<CLIP_BLOCK>(sum);
  if (threadIdx.x) return;
  const double norm = sqrt(sum), t = (double)(state->step + 1), ratio = (double)max_norm / (norm + 1e-6);
  state->grad_norm = (float)norm;
  state->clip = max_norm > 0 && ratio < 1.0 ? (float)ratio : 1.0f;
  state->bias1 = bias_correction(adamw.beta1, t);
  state->bias2 = bias_correction(adamw.beta2, t);
  state->loss = (float)(state->loss_sum * (double)state->inv_targets);
  if (!is_finite(state->loss) || !is_finite(state->grad_norm)) state->halted = 1;
}

struct Arenas {
  float *master, *m, *v;
  const float *grad;
  const unsigned char *decay; /* [count / TENSOR_ALIGNMENT]: whether weight decay applies */
  size_t count;
};

/* COPY: compute [count] takes the new weights in bf16. */
template <bool COPY>
__global__ void __launch_bounds__(ARENA_BLOCK)
    update_parameters(Arenas a, bf16 *compute, const StepState *state, AdamW adamw) {
  if (state->halted) return;
  const float beta1 = adamw.beta1, beta2 = adamw.beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2, eps = adamw.eps;
  const float clip = state->clip, step = state->lr / state->bias1, root_bias2 = 1.0f / sqrtf(state->bias2);
  const float keep_decayed = 1.0f - state->lr * adamw.weight_decay;
  const size_t stride = (size_t)gridDim.x * ARENA_BLOCK;
  for (size_t i = (size_t)blockIdx.x * ARENA_BLOCK + threadIdx.x; i < a.count / 4; i += stride) {
    float w[4], m[4], v[4], grad[4];
    load<4>(grad, a.grad + 4 * i);
    load<4>(m, a.m + 4 * i);
    load<4>(v, a.v + 4 * i);
    load<4>(w, a.master + 4 * i);
    const float keep = a.decay[i / (TENSOR_ALIGNMENT / 4)] ? keep_decayed : 1.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float g = clip * grad[j];
      m[j] = beta1 * m[j] + rest1 * g;
      v[j] = beta2 * v[j] + rest2 * g * g;
      /* eps = 0: an element that never had a gradient, pads too, stays as it is */
      const float divisor = fmaxf(sqrtf(v[j]) * root_bias2 + eps, FLT_MIN);
      w[j] = w[j] * keep - step * m[j] / divisor;
    }
    store<4>(a.m + 4 * i, m);
    store<4>(a.v + 4 * i, v);
    store<4>(a.master + 4 * i, w);
    if (COPY) store<4>(compute + 4 * i, w);
  }
}

/* A launch of its own, after all blocks of the update have looked at the state. */
__global__ void count_step(StepState *state) {
  if (!state->halted) state->step += 1;
}

} // namespace

/* backend_data: Arenas.decay, for parameters that are trained. Segments never change, so it is made once and stays
 * where recordings expect it. */
static void make_decay_flags(Context *c, Parameters *params) {
  const size_t blocks = params->count / TENSOR_ALIGNMENT;
  unsigned char *flags = (unsigned char *)cuda_alloc(c, "weight decay flags", blocks);
  for (int s = 0; s < params->group_count && !c->error.code; s++) {
    const ParameterGroup *segment = &params->groups[s];
    const size_t count = (size_t)segment->matrix.rows * (size_t)segment->matrix.cols;
    if (!segment->decay || !count) continue;
    check(c,
          cudaMemsetAsync(flags + segment->matrix.offset / TENSOR_ALIGNMENT, 1,
                          (count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT, c->stream),
          "weight decay flags");
  }
  params->backend_data = flags;
}

/* params->compute is made from the masters: in f32 the masters themselves. */
void cuda_refresh_parameters(Context *c, Parameters *params) {
  if (c->error.code) return;
  if (params->grad && !params->backend_data) make_decay_flags(c, params);
  if (c->dtype == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = cuda_alloc(c, "compute copy of the weights", params->count * sizeof(bf16));
  launch(c, "compute copy of the weights", convert_masters,
         loop_grid(c, divide_up((int64_t)params->count, 4 * ARENA_BLOCK), ARENA_GRID), ARENA_BLOCK, 0,
         (bf16 *)params->compute, params->master, params->count);
}

void cuda_release_parameters(Context *c, Parameters *params) {
  if (params->compute != params->master) cuda_release(c, params->compute);
  cuda_release(c, params->backend_data);
  params->compute = NULL;
  params->backend_data = NULL;
}

void cuda_clip(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw) {
  const dim3 grid = loop_grid(c, divide_up((int64_t)params->count, 4 * CLIP_BLOCK), CLIP_GRID);
  double *partial = (double *)scratch(c, grid.x * sizeof(double));
  launch(c, "sum of squared gradients", sum_squares, grid, CLIP_BLOCK, 0, partial, params->grad, params->count);
  launch(c, "clip", finish_clip, 1, CLIP_BLOCK, 0, state, partial, (int)grid.x, max_norm, *adamw);
}

void cuda_adamw(Context *c, StepState *state, const Parameters *params, const AdamW *adamw) {
  const Arenas arenas = {
      params->master, params->m, params->v, params->grad, (const unsigned char *)params->backend_data, params->count};
  const dim3 grid = loop_grid(c, divide_up((int64_t)params->count, 4 * ARENA_BLOCK), ARENA_GRID);
  const bool copy = params->compute != params->master;
  launch(c, "adamw", copy ? update_parameters<true> : update_parameters<false>, grid, ARENA_BLOCK, 0, arenas,
         (bf16 *)params->compute, state, *adamw);
  launch(c, "end of a step", count_step, 1, 1, 0, state);
}

#endif
