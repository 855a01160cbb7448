/* Cross-entropy and the counters of a step.
 *
 *   cross_entropy   logits [N][stride], V <= stride of them in use; targets, losses [N]
 *     lse = log sum_{k<V} exp z_k;   loss = lse - (1-s) z_y - (s/V) sum_{k<V} z_k
 *     dz_k = inv_targets * (exp(z_k - lse) - (1-s) [k=y] - s/V), in place
 *   distill         dz_k += w inv_targets * ((1-s) [k=y] + s/V - softmax(teacher)_k)
 *
 * The logits are the largest array of a step, so they should be read from memory once and written once: 2 * N * stride
 * numbers; a second read would add 2 * N * stride. A row of up to 1024 numbers stays in a warp's registers. A longer
 * row is computed by a block, whose first pass finds maximum, sum and sum of exponentials at once. The second pass
 * reads the logits
 *   - from shared memory, if two blocks with their rows fit in a multiprocessor, so that one loads while the other
 *     computes (bf16: up to V = 56 k on sm_90 with 227 KB; 40 k on sm_80 with 163 KB; 24 k on sm_86 and sm_89), or
 *   - from L1 or L2: the current rows, two or three 200 KB rows for each multiprocessor, fit in L2 (132 * 2 * 100 KB =
 *     26 MB of 50 on H100, 22 of 40 on A100, 26 of 72 on AD102). It runs backwards, the newest lines first.
 * Registers would need 98 numbers per thread for V = 50 k at 512 threads, and leave one block to a multiprocessor.
 *
 * The sum of all logits is computed even without smoothing: it reveals any NaN or infinity, which the exponential of a
 * masked logit would hide. Columns V <= k < stride may hold any values; they are never used. */
#ifndef INKLING_KERNELS_CUDA_LOSS_CUH
#define INKLING_KERNELS_CUDA_LOSS_CUH

#include "kernels/cuda/peers.cuh"

#include <float.h>

namespace {

constexpr int LOSS_BLOCK = 512, LOSS_WARPS = LOSS_BLOCK / 32;
constexpr int LOSS_AHEAD = 4;        /* vectors that a thread loads before it uses the first */
constexpr int LOSS_WARP_BLOCK = 256; /* threads of a block with a row for each warp */
constexpr int LOSS_SUM_BLOCK = 1024;

struct CrossEntropy {
  float *losses;
  void *logits;
  int64_t stride;
  const int32_t *targets;
  int rows, vocab;
  float smoothing;
  const StepState *state;
  bool gradient;
};

/* max z, sum exp(z - max), sum z over a part of a row. The initial maximum is finite, so that merging it with logits of
 * -infinity gives no NaN. */
struct RowSums {
  float max = -FLT_MAX, exps = 0, sum = 0;

  __device__ __forceinline__ void rescale(float to) {
    exps *= exp_approx(max - to);
    max = to;
  }
  template <int N> __device__ __forceinline__ void add(const float (&z)[N]) {
    float top = max;
#pragma unroll
    for (int i = 0; i < N; i++) top = fmaxf(top, z[i]);
    if (top > max) rescale(top);
    float part = 0; /* a separate sum of neighbors: long rows lose fewer bits */
#pragma unroll
    for (int i = 0; i < N; i++) {
      part += exp_approx(z[i] - max);
      sum += z[i];
    }
    exps += part;
  }
};

/* Merges the lanes of a warp in a fixed tree; all lanes receive the result. */
__device__ __forceinline__ RowSums warp_merge(RowSums r) {
  r.rescale(warp_max(r.max));
  r.exps = warp_sum(r.exps);
  r.sum = warp_sum(r.sum);
  return r;
}

/* The gradient of a row: dz_k = exp(z_k - max) * scale - uniform, minus at_target for k = y. */
struct RowGradient {
  float max, scale, uniform, at_target;
  __device__ __forceinline__ RowGradient(const CrossEntropy &p, const RowSums &r)
      : max(r.max), scale(p.state->inv_targets / r.exps), uniform(p.state->inv_targets * p.smoothing / (float)p.vocab),
        at_target(p.state->inv_targets * (1.0f - p.smoothing)) {}
  __device__ __forceinline__ float operator()(float z) const { return exp_approx(z - max) * scale - uniform; }
  /* z[i] is logit first + i */
  template <int N> __device__ __forceinline__ void apply(float (&z)[N], int first, int target) const {
#pragma unroll
    for (int i = 0; i < N; i++) z[i] = (*this)(z[i]);
    if ((unsigned)(target - first) < N) {
#pragma unroll
      for (int i = 0; i < N; i++)
        if (first + i == target) z[i] -= at_target;
    }
  }
};

/* Computed relative to the maximum, so that large logits do not cancel. */
__device__ __forceinline__ float row_loss(const CrossEntropy &p, const RowSums &r, float z_target) {
  if (!(fabsf(r.sum) <= FLT_MAX)) return NAN;
  return logf(r.exps) + (1.0f - p.smoothing) * (r.max - z_target) + p.smoothing * (r.max - r.sum / (float)p.vocab);
}

/* Rows without a loss have an ignored target, or a target outside of the vocabulary, which gives NaN. */
__device__ __forceinline__ bool has_loss(const CrossEntropy &p, int target) { return target >= 0 && target < p.vocab; }
__device__ __forceinline__ float other_loss(int target) { return target < 0 ? 0.0f : NAN; }

/* Writes a row without a loss: its gradient is zero. Called by all THREADS threads of the row. */
template <int THREADS, class T> __device__ __forceinline__ void skip_row(const CrossEntropy &p, T *z, int64_t row) {
  constexpr int N = VECTOR<T>;
  const int thread = (int)threadIdx.x % THREADS;
  const float zero[N] = {};
  if (thread == 0) p.losses[row] = other_loss(p.targets[row]);
  for (int64_t at = thread * N; p.gradient && at < p.stride; at += THREADS * N) store<N>(z + at, zero);
}

/* Returns the maximum of a row, and the lane's part of its sum; x[i][j] is logit (lane + 32i) * N + j. */
template <int PACKS, int N>
__device__ __forceinline__ RowSums row_maximum(const CrossEntropy &p, const float (&x)[PACKS][N], int lane) {
  RowSums r;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
#pragma unroll
    for (int j = 0; j < N; j++) {
      r.max = fmaxf(r.max, x[i][j]);
      if ((lane + i * 32) * N + j < p.vocab) r.sum += x[i][j];
    }
  }
  r.max = warp_max(r.max);
  return r;
}

/* Replaces the numbers of a row by their exponentials, and sums them. */
template <int PACKS, int N> __device__ __forceinline__ void take_exponentials(RowSums &r, float (&x)[PACKS][N]) {
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
#pragma unroll
    for (int j = 0; j < N; j++) {
      x[i][j] = exp_approx(x[i][j] - r.max);
      r.exps += x[i][j];
    }
  }
  r.exps = warp_sum(r.exps);
  r.sum = warp_sum(r.sum);
}

/* Short rows, at most 32 * E numbers with pads: a warp for each. */
template <class T, int E> __global__ void __launch_bounds__(LOSS_WARP_BLOCK) cross_entropy_short(CrossEntropy p) {
  constexpr int N = VECTOR<T>, PACKS = E / N;
  const int lane = (int)threadIdx.x % 32, row = (int)(blockIdx.x * (LOSS_WARP_BLOCK / 32) + threadIdx.x / 32);
  if (row >= p.rows) return;
  T *z = static_cast<T *>(p.logits) + row * p.stride;
  const int target = p.targets[row];
  if (!has_loss(p, target)) {
    skip_row<32>(p, z, row);
    return;
  }
  float x[PACKS][N];
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * 32) * N;
    if (at < p.vocab) load<N>(x[i], z + at);
#pragma unroll
    for (int j = 0; j < N; j++)
      if (at + j >= p.vocab) x[i][j] = -INFINITY; /* a pad; its exponential is 0 */
  }
  RowSums r = row_maximum(p, x, lane);
  const float z_target = to_float(z[target]);
  __syncwarp(); /* all lanes have read the target's logit before any lane writes */
  take_exponentials(r, x);
  if (lane == 0) p.losses[row] = row_loss(p, r, z_target);
  if (!p.gradient) return;
  const RowGradient g(p, r);
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * 32) * N;
    if (at >= p.stride) continue;
#pragma unroll
    for (int j = 0; j < N; j++) {
      float dz = x[i][j] * g.scale - g.uniform;
      if (at + j == target) dz -= g.at_target;
      x[i][j] = at + j < p.vocab ? dz : 0.0f;
    }
    store<N>(z + at, x[i]);
  }
}

/* A long row: whole vectors of logits, and after them the last few logits and the pads, handled one by one. */
template <class T> struct LongRow {
  T *z;
  int packs;    /* whole vectors */
  int64_t rest; /* this thread's first column after them */
};

/* Returns maximum and sums of the logits that this thread reads. CACHED: keeps its vectors in `cache` for the second
 * pass. */
template <bool CACHED, class T, int N>
__device__ __forceinline__ RowSums read_row(int vocab, const LongRow<T> &row, Pack<T, N> *cache) {
  RowSums r;
  for (int first = (int)threadIdx.x; first < row.packs; first += LOSS_AHEAD * LOSS_BLOCK) {
    Pack<T, N> ahead[LOSS_AHEAD];
#pragma unroll
    for (int a = 0; a < LOSS_AHEAD; a++) {
      const int i = first + a * LOSS_BLOCK;
      if (i < row.packs) ahead[a] = load_pack<N>(row.z + (int64_t)i * N);
    }
#pragma unroll
    for (int a = 0; a < LOSS_AHEAD; a++) {
      const int i = first + a * LOSS_BLOCK;
      if (i >= row.packs) continue;
      if (CACHED) cache[i] = ahead[a];
      float x[N];
      unpack(x, ahead[a]);
      r.add(x);
    }
  }
  if (row.rest < vocab) {
    const float x[1] = {to_float(row.z[row.rest])};
    r.add(x);
  }
  return r;
}

/* Merges the threads of a block in a fixed tree; all threads receive the result. */
__device__ __forceinline__ RowSums block_merge(RowSums r) {
  __shared__ float part[3][32];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  r = warp_merge(r);
  if (lane == 0) part[0][warp] = r.max, part[1][warp] = r.exps, part[2][warp] = r.sum;
  __syncthreads();
  r = RowSums();
  if (lane < LOSS_WARPS) r.max = part[0][lane], r.exps = part[1][lane], r.sum = part[2][lane];
  return warp_merge(r);
}

/* Writes the gradient, from this thread's last vector to its first. It reads only its own vectors of the cache, so it
 * needs no barrier. */
template <bool CACHED, class T, int N>
__device__ __forceinline__ void write_row(const CrossEntropy &p, const LongRow<T> &row, const Pack<T, N> *cache,
                                          const RowGradient &g, int target) {
  const int thread = (int)threadIdx.x, last = thread + (row.packs - 1 - thread) / LOSS_BLOCK * LOSS_BLOCK;
#pragma unroll 2
  for (int i = thread < row.packs ? last : -1; i >= 0; i -= LOSS_BLOCK) {
    float x[N];
    if (CACHED) unpack(x, cache[i]);
    else load<N>(x, row.z + (int64_t)i * N);
    g.apply(x, i * N, target);
    store<N>(row.z + (int64_t)i * N, x);
  }
#pragma unroll 1
  for (int64_t k = row.rest; k < p.stride; k += LOSS_BLOCK) {
    float x[1] = {0};
    if (k < p.vocab) {
      x[0] = to_float(row.z[k]);
      g.apply(x, (int)k, target);
    }
    row.z[k] = from_float<T>(x[0]);
  }
}

/* Long rows: a block for each. */
template <class T, bool CACHED> __global__ void __launch_bounds__(LOSS_BLOCK, 2) cross_entropy_long(CrossEntropy p) {
  constexpr int N = VECTOR<T>;
  DYNAMIC_SHARED(memory);
  Pack<T, N> *const cache = reinterpret_cast<Pack<T, N> *>(memory);
  const int64_t n = blockIdx.x;
  T *const z = static_cast<T *>(p.logits) + n * p.stride;
  const int target = p.targets[n], packs = p.vocab / N;
  const LongRow<T> row = {z, packs, (int64_t)packs * N + threadIdx.x};
  if (!has_loss(p, target)) {
    skip_row<LOSS_BLOCK>(p, z, n);
    return;
  }
  const float z_target = to_float(z[target]);
  /* the barrier of block_merge() also waits until all threads have read the target's logit */
  const RowSums r = block_merge(read_row<CACHED>(p.vocab, row, cache));
  if (threadIdx.x == 0) p.losses[n] = row_loss(p, r, z_target);
  if (p.gradient) write_row<CACHED>(p, row, cache, RowGradient(p, r), target);
}

struct Distillation {
  void *dlogits, *teacher;
  int64_t stride;
  const int32_t *targets;
  int vocab;
  float smoothing, weight;
  const StepState *state;
};

/* A block for each row, whose second pass finds the teacher's logits in L1 or L2. */
template <class T> __global__ void __launch_bounds__(LOSS_BLOCK) distill_rows(Distillation p) {
  constexpr int N = VECTOR<T>;
  const int64_t n = blockIdx.x;
  const int target = p.targets[n], packs = p.vocab / N, rest = packs * N + (int)threadIdx.x;
  if (target < 0 || target >= p.vocab) return;
  T *const t = static_cast<T *>(p.teacher) + n * p.stride, *const dz = static_cast<T *>(p.dlogits) + n * p.stride;
  const RowSums r = block_merge(read_row<false, T, N>(p.vocab, {t, packs, rest}, NULL));
  const float weight = p.weight * p.state->inv_targets, scale = weight / r.exps;
  const float uniform = weight * p.smoothing / (float)p.vocab, at_target = weight * (1.0f - p.smoothing);
  for (int i = (int)threadIdx.x; i < packs; i += LOSS_BLOCK) {
    float x[N], d[N];
    load<N>(x, t + (int64_t)i * N);
    load<N>(d, dz + (int64_t)i * N);
#pragma unroll
    for (int j = 0; j < N; j++)
      d[j] += uniform - exp_approx(x[j] - r.max) * scale + (i * N + j == target ? at_target : 0.0f);
    store<N>(dz + (int64_t)i * N, d);
  }
  if (rest < p.vocab)
    dz[rest] = from_float<T>(to_float(dz[rest]) + uniform - exp_approx(to_float(t[rest]) - r.max) * scale +
                             (rest == target ? at_target : 0.0f));
}

/* One block: sums in fp64, in an order that depends only on the number of rows. */
__global__ void __launch_bounds__(LOSS_SUM_BLOCK)
    sum_losses(StepState *state, const float *losses, const int32_t *targets, int rows) {
  double sum = 0;
  int count = 0;
#pragma unroll 8
  for (int n = (int)threadIdx.x; n < rows; n += LOSS_SUM_BLOCK) {
    sum += (double)losses[n];
    count += targets[n] >= 0;
  }
  sum = block_sum<LOSS_SUM_BLOCK>(sum);
  count = block_sum<LOSS_SUM_BLOCK>(count);
  if (threadIdx.x) return;
  state->loss_sum += sum;
  state->loss_count += count;
}

/* all: the number of targets of all processes, NULL for a single process */
__global__ void begin_step(StepState *state, const float *lr_table, const int32_t *targets, const double *all,
                           int64_t *began) {
  const float count = all ? (float)*all : targets ? (float)*targets : 0.0f;
  state->lr = lr_table ? lr_table[state->step + 1] : 0.0f;
  state->inv_targets = count > 0 ? 1.0f / count : 0.0f;
  state->loss_sum = 0;
  state->loss_count = 0;
  state->sequence = 0;
  *began = nanoseconds();
}

__global__ void advance_sequence(StepState *state, int sequences) { state->sequence += sequences; }

} // namespace

void cuda_cross_entropy(Context *c, float *losses, void *logits, int64_t stride, const int32_t *targets, int rows,
                        int vocab, float smoothing, const StepState *state, bool gradient) {
  const CrossEntropy p = {losses, logits, stride, targets, rows, vocab, smoothing, state, gradient};
  const dim3 warps((unsigned)divide_up(rows, LOSS_WARP_BLOCK / 32)), blocks((unsigned)rows);
  require_alignment(c, "cross_entropy", {stride}, {logits});
  with_element(c, [&]<class T>(T) {
    const size_t bytes = (size_t)(vocab / VECTOR<T>)*16,
                 reserved = 2048; /* per block: static memory and the system's */
    const bool cached = gradient && 2 * (bytes + reserved) <= (size_t)c->shared_bytes;
    if (stride <= 256) launch(c, "cross_entropy", cross_entropy_short<T, 8>, warps, LOSS_WARP_BLOCK, 0, p);
    else if (stride <= 1024) launch(c, "cross_entropy", cross_entropy_short<T, 32>, warps, LOSS_WARP_BLOCK, 0, p);
    else if (cached) launch(c, "cross_entropy", cross_entropy_long<T, true>, blocks, LOSS_BLOCK, bytes, p);
    else launch(c, "cross_entropy", cross_entropy_long<T, false>, blocks, LOSS_BLOCK, 0, p);
  });
}

void cuda_distill(Context *c, void *dlogits, void *teacher, int64_t stride, const int32_t *targets, int rows, int vocab,
                  float smoothing, float weight, const StepState *state) {
  const Distillation p = {dlogits, teacher, stride, targets, vocab, smoothing, weight, state};
  require_alignment(c, "distill", {stride}, {dlogits, teacher});
  with_element(c, [&]<class T>(T) { launch(c, "distill", distill_rows<T>, (unsigned)rows, LOSS_BLOCK, 0, p); });
}

void cuda_loss_sum(Context *c, StepState *state, const float *losses, const int32_t *targets, int rows) {
  launch(c, "loss_sum", sum_losses, 1, LOSS_SUM_BLOCK, 0, state, losses, targets, rows);
}

void cuda_step_begin(Context *c, StepState *state, const float *lr_table, const int32_t *targets) {
  const double *all = count_targets(c, targets);
  launch(c, "start of a step", begin_step, 1, 1, 0, state, lr_table, targets, all, c->reports.began);
}

void cuda_next_micro_batch(Context *c, StepState *state, int sequences) {
  launch(c, "next micro-batch", advance_sequence, 1, 1, 0, state, sequences);
}

#endif
