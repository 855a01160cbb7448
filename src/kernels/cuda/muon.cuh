/* Muon (Jordan et al. 2024). All matrices [rows][cols] of a shape, from all layers, are one strided batch X in dt, so
 * an update has 18 launches for every shape of the model (LLaMA: 54, for C x C, F x C and C x F). Every second shape runs
 * beside the others, if that takes little memory:
 *
 *   momentum    g = clip*grad;  m = mu*m + (1-mu)*g;  X = mu*m + (1-mu)*g, and the sums of its squares, in fp32 before
 *               it is rounded
 *   normalize   X /= max(|X|, MUON_EPS)
 *   iterate     MUON_STEPS times, by kernels/cuda/gemm.cuh:  G = X X^T, or X^T X where rows > cols, s x s with s the smaller
 *               side;  T = MUON_B*G + MUON_C*G G;  X' = MUON_A*X + T X, or X T
 *   finish      w = w*(1 - rate*wd) - rate*sqrt(max(1, rows/cols))*X, and its bf16 copy
 *
 * FLOPs of a matrix, with l its longer side: MUON_STEPS * (4 s^2 l + 2 s^3); a square matrix takes 30 s per parameter.
 * Bytes per parameter with X in bf16 (fp32): momentum reads 8 and writes 6 (8), normalize reads 2 (4) and writes 2 (4),
 * finish reads 6 (8) and writes 6 (4); a step of the iteration reads X four times and writes it once, and moves 6 s/l
 * times as many numbers for G and T. Scratch: X and X' of the largest batch, and T of the batch with the most s x s
 * numbers; G uses the memory of X', which is written later. In bf16 about 2.4 bytes for every parameter of a LLaMA, and
 * as much again for the shapes that run beside others.
 *
 * Values that depend on the step come from StepState. When it is halted, scratch is still normalized and multiplied,
 * but its contents are not used. */
#ifndef INKLING_KERNELS_CUDA_MUON_CUH
#define INKLING_KERNELS_CUDA_MUON_CUH

#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/parameters.cuh"

namespace {

constexpr int MUON_BLOCK = 256;
constexpr int MUON_PART = 8192, MUON_PARTS = 512; /* elements for a block at least; blocks of a matrix at most */

/* The batch of a launch. Block (i, j) computes part j of matrix i; the parts, and with them the bits of the sums,
 * depend only on the shape. */
struct MuonWork {
  const MuonOffsets *offsets; /* [gridDim.x] of the matrices */
  int64_t size;               /* elements of a matrix, a multiple of WIDTH_MULTIPLE */
  int64_t part;               /* elements of a part, likewise; the last one has fewer */
  double *partial;            /* [gridDim.x][gridDim.y] sums of squares */
};

/* X [gridDim.x][size] */
template <class T>
__global__ void __launch_bounds__(MUON_BLOCK)
    muon_momentum(T *x, MuonWork work, float *m, const float *grad, const StepState *state, float momentum) {
  if (state->halted) return;
  const MuonOffsets at = work.offsets[blockIdx.x];
  const int64_t first = blockIdx.y * work.part, last = min(first + work.part, work.size);
  const float clip = state->clip, rest = 1.0f - momentum;
  float sum = 0;
  m += at.m_offset, grad += at.offset, x += blockIdx.x * work.size;
  for (int64_t i = first + 4 * threadIdx.x; i < last; i += 4 * MUON_BLOCK) {
    float g[4], next[4], u[4];
    load<4>(g, grad + i);
    load<4>(next, m + i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      g[j] *= clip;
      next[j] = momentum * next[j] + rest * g[j];
      u[j] = momentum * next[j] + rest * g[j];
      sum += u[j] * u[j];
    }
    store<4>(m + i, next);
    store<4>(x + i, u);
  }
  const double total = block_sum<MUON_BLOCK>((double)sum);
  if (threadIdx.x == 0) work.partial[(int64_t)blockIdx.x * gridDim.y + blockIdx.y] = total;
}

template <class T> __global__ void __launch_bounds__(MUON_BLOCK) muon_normalize(T *x, MuonWork work) {
  constexpr int N = VECTOR<T>;
  double sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.y; i += MUON_BLOCK)
    sum += work.partial[(int64_t)blockIdx.x * gridDim.y + i];
  sum = block_sum<MUON_BLOCK>(sum);
  const float scale = (float)(1.0 / fmax(sqrt(sum), (double)MUON_EPS));
  const int64_t first = blockIdx.y * work.part, last = min(first + work.part, work.size);
  x += blockIdx.x * work.size;
  for (int64_t i = first + N * (int)threadIdx.x; i < last; i += N * MUON_BLOCK) {
    float v[N];
    load<N>(v, x + i);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] *= scale;
    store<N>(x + i, v);
  }
}

/* scale: sqrt(max(1, rows / cols)). The compute copy receives the new weights, unless it is the masters. `sharded`:
 * masters have the offsets of moments. */
template <class T>
__global__ void __launch_bounds__(MUON_BLOCK)
    muon_finish(float *master, T *compute, bool sharded, const T *x, MuonWork work, const StepState *state, Muon muon,
                float scale) {
  if (state->halted) return;
  const MuonOffsets at = work.offsets[blockIdx.x];
  const int64_t first = blockIdx.y * work.part, last = min(first + work.part, work.size);
  const float rate = muon.lr_factor * state->lr, keep = 1.0f - rate * muon.weight_decay, step = rate * scale;
  master += sharded ? at.m_offset : at.offset, compute += at.offset, x += blockIdx.x * work.size;
  for (int64_t i = first + 4 * threadIdx.x; i < last; i += 4 * MUON_BLOCK) {
    float w[4], v[4];
    load<4>(w, master + i);
    load<4>(v, x + i);
#pragma unroll
    for (int j = 0; j < 4; j++) w[j] = keep * w[j] - step * v[j];
    store<4>(master + i, w);
    if (sizeof(T) == 2) store<4>(compute + i, w);
  }
}

/* Scratch space of an update, enough for each batch. */
template <class T> struct MuonScratch {
  T *x, *next; /* X and X' */
  T *t;
  double *partial;
};

} // namespace

static int64_t muon_parts(const MuonBatch &batch) {
  const int64_t parts = divide_up((int64_t)batch.rows * batch.cols, MUON_PART);
  return parts < MUON_PARTS ? parts : MUON_PARTS;
}

/* Returns the number of batches that run at once, each with scratch space of its own: 1 or 2. 0, with the context's
 * error set, when out of memory. */
template <class T>
static int muon_scratch(Context *c, const std::vector<MuonBatch> &batches, MuonScratch<T> (&out)[2]) {
  int64_t sizes[] = {0, 0, 0}; /* X, T, sums; bytes */
  for (const MuonBatch &batch : batches) {
    const int64_t side = batch.rows < batch.cols ? batch.rows : batch.cols, count = batch.count;
    const int64_t wanted[] = {count * batch.rows * batch.cols * (int64_t)sizeof(T),
                              count * side * side * (int64_t)sizeof(T),
                              count * muon_parts(batch) * (int64_t)sizeof(double)};
    for (int i = 0; i < 3; i++)
      if (wanted[i] > sizes[i]) sizes[i] = divide_up(wanted[i], 256) * 256;
  }
  const int64_t bytes = 2 * sizes[0] + sizes[1] + sizes[2];
  const int lanes = batches.size() > 1 && bytes <= MUON_BESIDE ? 2 : 1;
  char *memory = (char *)scratch(c, (size_t)(lanes * bytes));
  if (!memory) return 0;
  for (int i = 0; i < lanes; i++, memory += bytes)
    out[i] = {(T *)memory, (T *)(memory + sizes[0]), (T *)(memory + 2 * sizes[0]),
              (double *)(memory + 2 * sizes[0] + sizes[1])};
  return lanes;
}

/* For cuBLASLt X is column-major [cols][rows]; G and T are symmetric. The result is in s->x. */
template <class T> static void orthogonalize(Context *c, const MuonBatch &batch, MuonScratch<T> *s) {
  const bool tall = batch.rows > batch.cols, tune = c->gemm->measures;
  const int64_t rows = batch.rows, cols = batch.cols, side = tall ? cols : rows;
  const size_t bytes = sizeof(T);
  const GemmKey gram = {!tall, tall, side, side, tall ? rows : cols, bytes, bytes, batch.count};
  const GemmKey square = {1, 0, side, side, side, bytes, bytes, batch.count};
  const GemmKey product = {0, 0, cols, rows, side, bytes, bytes, batch.count};
  for (int step = 0; step < MUON_STEPS; step++) {
    T *const x = s->x, *const next = s->next, *const t = s->t;
    const T *const left = tall ? t : x, *const right = tall ? x : t;
    gemm(c, gram, tune, {.d = next, .a = x, .b = x});
    gemm(c, square, tune, {.d = t, .a = next, .b = next, .c = next, .alpha = MUON_C, .beta = MUON_B});
    gemm(c, product, tune, {.d = next, .a = left, .b = right, .c = x, .beta = MUON_A});
    s->x = next, s->next = x;
  }
}

template <class T>
static void update_batch(Context *c, const StepState *state, const Parameters *params, const Muon *muon,
                         const MuonBatch &batch, MuonScratch<T> s) {
  const ParameterLists *lists = (const ParameterLists *)params->backend_data;
  const int64_t size = (int64_t)batch.rows * batch.cols, parts = muon_parts(batch);
  const MuonWork work = {lists->matrices + batch.first, size,
                         divide_up(divide_up(size, WIDTH_MULTIPLE), parts) * WIDTH_MULTIPLE, s.partial};
  const dim3 grid((unsigned)batch.count, (unsigned)parts);
  const float scale = batch.rows > batch.cols ? sqrtf((float)batch.rows / (float)batch.cols) : 1.0f;
  require_alignment(c, "muon", {batch.rows, batch.cols}, {});
  launch(c, "muon", muon_momentum<T>, grid, MUON_BLOCK, 0, s.x, work, params->m, params->grad, state, muon->momentum);
  launch(c, "muon", muon_normalize<T>, grid, MUON_BLOCK, 0, s.x, work);
  orthogonalize(c, batch, &s);
  launch(c, "muon", muon_finish<T>, grid, MUON_BLOCK, 0, params->master, (T *)params->compute, params->vectors != NULL,
         s.x, work, state, *muon, scale);
}

void cuda_muon(Context *c, const StepState *state, const Parameters *params, const Muon *muon) {
  const ParameterLists *lists = (const ParameterLists *)params->backend_data;
  if (c->error.code || lists->batches.empty()) return;
  with_element(c, [&]<class T>(T) {
    MuonScratch<T> s[2];
    const int lanes = muon_scratch(c, lists->batches, s);
    for (int lane = lanes - 1; lane >= 0; lane--) /* lane 1 first: it waits for the work before it */
      for (int i = lane; i < (int)lists->batches.size(); i += lanes) {
        const auto update = [&] { update_batch(c, state, params, muon, lists->batches[(size_t)i], s[lane]); };
        if (lane) beside(c, update);
        else update();
      }
  });
  cuda_join(c, 0);
}

#endif
