/* SwiGLU (Shazeer 2020), forward and backward. gate_up [N][2F]: gate, then up; h, dh [N][F].
 *
 *   forward    h = gate * s * up,  s = sigmoid(gate)                          reads 2, writes 1 number per element of h
 *   backward   dgate = dh * up * s * (1 + gate * (1 - s)),  dup = dh * gate * s    reads 3, writes 2
 *
 * Both only stream: every thread moves 16-byte vectors and nothing is kept. */
#ifndef INKLING_KERNELS_MLP_CUH
#define INKLING_KERNELS_MLP_CUH

#include "kernels/cuda.cuh"

namespace {

constexpr int MLP_BLOCK = 256;

/* Saturates to 0 and 1 without NaN: exp overflows to infinity and 1 / infinity is 0. The fast forms are good for 1e-6
 * where sigmoid is not tiny, far below what bf16 keeps. */
template <class T> __device__ __forceinline__ float sigmoid(float x) {
  if (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
  return 1.0f / (1.0f + expf(-x));
}

template <class T>
__global__ void __launch_bounds__(MLP_BLOCK) swiglu_forward(T *h, const T *gate_up, int64_t rows, int ffn) {
  constexpr int N = VECTOR<T>;
  for (Walk at(blockIdx.x * MLP_BLOCK + threadIdx.x, gridDim.x * MLP_BLOCK, ffn / N); at.row < rows; at.next()) {
    const T *from = gate_up + at.row * 2 * ffn + at.col * N;
    float gate[N], up[N];
    load<N>(gate, from);
    load<N>(up, from + ffn);
#pragma unroll
    for (int i = 0; i < N; i++) up[i] *= gate[i] * sigmoid<T>(gate[i]);
    store<N>(h + at.row * ffn + at.col * N, up);
  }
}

/* dgate_up may be gate_up: a thread reads what it overwrites, and nobody else does. */
template <class T>
__global__ void __launch_bounds__(MLP_BLOCK)
    swiglu_backward(T *dgate_up, const T *dh, const T *gate_up, int64_t rows, int ffn) {
  constexpr int N = VECTOR<T>;
  for (Walk at(blockIdx.x * MLP_BLOCK + threadIdx.x, gridDim.x * MLP_BLOCK, ffn / N); at.row < rows; at.next()) {
    const int64_t offset = at.row * 2 * ffn + at.col * N;
    float gate[N], up[N], d[N];
    load<N>(gate, gate_up + offset);
    load<N>(up, gate_up + offset + ffn);
    load<N>(d, dh + at.row * ffn + at.col * N);
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float g = gate[i], s = sigmoid<T>(g);
      gate[i] = d[i] * up[i] * s * (1.0f + g * (1.0f - s));
      up[i] = d[i] * g * s;
    }
    store<N>(dgate_up + offset, gate);
    store<N>(dgate_up + offset + ffn, up);
  }
}

} // namespace

/* A grid for a thread for each vector of [rows][ffn]. */
template <class T> static dim3 mlp_grid(const Context *c, int rows, int ffn) {
  return loop_grid(c, divide_up((int64_t)rows * (ffn / VECTOR<T>), MLP_BLOCK), 16);
}

void cuda_swiglu(Context *c, void *h, const void *gate_up, int rows, int ffn) {
  require_alignment(c, "swiglu", {ffn}, {h, gate_up});
  with_element(c, [&](auto element) {
    using T = decltype(element);
    launch(c, "swiglu", swiglu_forward<T>, mlp_grid<T>(c, rows, ffn), MLP_BLOCK, 0, (T *)h, (const T *)gate_up, rows,
           ffn);
  });
}

void cuda_swiglu_backward(Context *c, void *dgate_up, const void *dh, const void *gate_up, int rows, int ffn) {
  require_alignment(c, "swiglu_backward", {ffn}, {dgate_up, dh, gate_up});
  with_element(c, [&](auto element) {
    using T = decltype(element);
    launch(c, "swiglu_backward", swiglu_backward<T>, mlp_grid<T>(c, rows, ffn), MLP_BLOCK, 0, (T *)dgate_up,
           (const T *)dh, (const T *)gate_up, rows, ffn);
  });
}

#endif
