/* Gradient clipping (Pascanu et al. 2013) and AdamW (Loshchilov & Hutter 2019) over the flat arenas [count], which are
 * multiples of TENSOR_ALIGNMENT in length; gaps and pads are zero and stay zero.
 *
 *   clip    grad_norm = |grad|_2 in fp64;  clip = min(1, max_norm / (grad_norm + 1e-6))
 *   adamw   g = clip*grad;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
 *           w = w*(1 - lr*wd) - lr * (m/bias1) / (sqrt(v/bias2) + eps)
 *
 * Bytes per parameter: clip reads 4; adamw, for the parameters that it updates, reads 16 and writes 12, and 2 more for
 * the bf16 copy that GEMMs read; its list adds 1/64. Values that depend on the step come from StepState, so one
 * captured graph serves every step. */
#ifndef INKLING_KERNELS_CUDA_OPTIMIZER_CUH
#define INKLING_KERNELS_CUDA_OPTIMIZER_CUH

#include "kernels/cuda/peers.cuh"

#include <float.h>

namespace {

constexpr int CLIP_BLOCK = 512, CLIP_GRID = 4;
constexpr int ARENA_RESIDENT = 5; /* blocks of AdamW that a multiprocessor has registers for */

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

/* partial [gridDim.x]: sums of squares, in fp64, which fp32 gradients do not overflow. The grid, and with it the bits
 * of the sums, depends only on the arena's size and the device. */
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

/* 1 - beta^t, without the cancellation of the subtraction for beta near 1. */
__device__ __forceinline__ float bias_correction(float beta, double t) { return (float)-expm1(t * log((double)beta)); }

/* One block: the norm from partial [parts], and the values of StepState that clip() sets. `peers`: partial has the
 * PEER_SUMS of all processes. */
__global__ void __launch_bounds__(CLIP_BLOCK)
    finish_clip(StepState *state, const double *partial, int parts, bool peers, float max_norm, AdamW adamw) {
  double sum = 0;
  for (int i = (int)threadIdx.x; i < parts; i += CLIP_BLOCK) sum += partial[i];
  sum = block_sum<CLIP_BLOCK>(sum);
  if (threadIdx.x) return;
  const double norm = sqrt(sum), t = (double)(state->step + 1), ratio = (double)max_norm / (norm + 1e-6);
  if (peers) state->loss_sum = partial[1], state->loss_count = (int64_t)partial[2];
  state->grad_norm = (float)norm;
  state->clip = max_norm > 0 && ratio < 1.0 ? (float)ratio : 1.0f;
  state->bias1 = bias_correction(adamw.beta1, t);
  state->bias2 = bias_correction(adamw.beta2, t);
  state->loss = (float)(state->loss_sum * (double)state->inv_targets);
  if (!is_finite(state->loss) || !is_finite(state->grad_norm)) state->halted = 1;
}

struct Arenas {
  float *master, *m, *v;
  bool sharded; /* masters have the offsets of first moments */
  const float *grad;
  const AdamwPiece *pieces;
  unsigned piece_count;
};

/* COPY: compute [count] receives the new weights in bf16. At most as many blocks as pieces. */
template <bool COPY>
__global__ void __launch_bounds__(ARENA_BLOCK, ARENA_RESIDENT)
    update_parameters(Arenas a, bf16 *compute, const StepState *state, AdamW adamw) {
  AdamwPiece next = a.pieces[blockIdx.x]; /* loaded one iteration ahead, because it has the addresses of the others */
  if (state->halted) return;
  const float beta1 = adamw.beta1, beta2 = adamw.beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2, eps = adamw.eps;
  const float clip = state->clip, step = state->lr / state->bias1, root_bias2 = 1.0f / sqrtf(state->bias2);
  const float keep_decayed = 1.0f - state->lr * adamw.weight_decay;
  for (unsigned i = blockIdx.x; i < a.piece_count; i += gridDim.x) {
    const AdamwPiece piece = next;
    if (i + gridDim.x < a.piece_count) next = a.pieces[i + gridDim.x];
    if (threadIdx.x >= piece.blocks * (TENSOR_ALIGNMENT / 4)) continue;
    const size_t at = (size_t)piece.first * TENSOR_ALIGNMENT + 4 * threadIdx.x;
    const size_t first = (size_t)piece.m * TENSOR_ALIGNMENT + 4 * threadIdx.x;
    const size_t second = (size_t)piece.v * TENSOR_ALIGNMENT + 4 * threadIdx.x;
    float w[4], m[4], v[4], grad[4];
    load<4>(grad, a.grad + at);
    load<4>(m, a.m + first);
    load<4>(v, a.v + second);
    float *const master = a.master + (a.sharded ? first : at);
    load<4>(w, master);
    const float keep = piece.decay ? keep_decayed : 1.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float g = clip * grad[j];
      m[j] = beta1 * m[j] + rest1 * g;
      v[j] = beta2 * v[j] + rest2 * g * g;
      /* with eps = 0, elements that never had a gradient, such as pads, keep their value */
      const float divisor = fmaxf(sqrtf(v[j]) * root_bias2 + eps, FLT_MIN);
      w[j] = w[j] * keep - step * m[j] / divisor;
    }
    store<4>(a.m + first, m);
    store<4>(a.v + second, v);
    store<4>(master, w);
    if (COPY) store<4>(compute + at, w);
  }
}

/* A separate launch: all blocks of the update must have read the state before. */
__global__ void count_step(StepState *state) {
  if (!state->halted) state->step += 1;
}

} // namespace

void cuda_clip(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw) {
  if (c->error.code) return;
  if (params->span_count) {
    sum_steps(c, state, params);
    launch(c, "clip", finish_clip, 1, CLIP_BLOCK, 0, state, c->sums, 1, true, max_norm, *adamw);
    return;
  }
  const dim3 grid = loop_grid(c, divide_up((int64_t)params->count, 4 * CLIP_BLOCK), CLIP_GRID);
  double *partial = (double *)scratch(c, grid.x * sizeof(double));
  launch(c, "sum of squared gradients", sum_squares, grid, CLIP_BLOCK, 0, partial, params->grad, params->count);
  launch(c, "clip", finish_clip, 1, CLIP_BLOCK, 0, state, partial, (int)grid.x, false, max_norm, *adamw);
}

void cuda_adamw(Context *c, StepState *state, const Parameters *params, const AdamW *adamw) {
  if (c->error.code) return;
  const ParameterLists *lists = (const ParameterLists *)params->backend_data;
  const Arenas arenas = {params->master, params->m,     params->v,         params->vectors != NULL,
                         params->grad,   lists->pieces, lists->piece_count};
  const dim3 grid = loop_grid(c, lists->piece_count, ARENA_GRID);
  const bool copy = params->compute != params->master;
  launch(c, "adamw", copy ? update_parameters<true> : update_parameters<false>, grid, ARENA_BLOCK, 0, arenas,
         (bf16 *)params->compute, state, *adamw);
  launch(c, "end of a step", count_step, 1, 1, 0, state);
}

#endif
