/* Activation functions, and what follows the first product of an MLP in training. u [N][F], or gated (Shazeer 2020)
 * [N][2F]: gate, then up; h, dh [N][F].
 *
 *   forward    h = dropout(act(u))                 gated: h = dropout(act(gate) * up)
 *   backward   d = dropout(dh):  du = d * act'(u)  gated: dgate = d * up * act'(gate),  dup = d * act(gate)
 *
 * With act(u) = u * phi(u), and act'(u) in terms of phi(u) (Activation in kernels.h):
 *
 *   SiLU       phi = sigmoid(u)                               act' = phi * (1 + u * (1 - phi))
 *   GELU       phi = (1 + erf(u / sqrt 2)) / 2                act' = phi + u * exp(-u^2 / 2) / sqrt(2 pi)
 *   GELU tanh  phi = sigmoid(2k (u + c u^3))                  act' = phi * (1 + u * (1 - phi) * 2k (1 + 3c u^2))
 *   ReLU       phi = u > 0                                    act' = phi
 *
 * Every thread reads and writes 16-byte vectors. For each number of h forward reads 1 and writes 1, backward reads 2
 * and writes 1; gated 2 and 1, 3 and 2. */
#ifndef INKLING_KERNELS_CUDA_MLP_CUH
#define INKLING_KERNELS_CUDA_MLP_CUH

#include "kernels/cuda/cuda.cuh"

namespace {

constexpr int MLP_BLOCK = 256;
constexpr float GELU_2K = 1.59576912f, GELU_C = 0.044715f; /* 2 sqrt(2 / pi) */
constexpr float ROOT_HALF = 0.707106781f, INV_ROOT_2PI = 0.398942280f;

/* Saturates to 0 and 1 without NaN: exp overflows to infinity and 1 / infinity is 0. The fast forms, for results of T
 * bf16, are good for 1e-6 where the sigmoid is not tiny, far below what bf16 keeps. */
template <class T> __device__ __forceinline__ float sigmoid(float x) {
  if (sizeof(T) == 2) return __fdividef(1.0f, 1.0f + __expf(-x));
  return 1.0f / (1.0f + expf(-x));
}

template <class T, Activation A> __device__ __forceinline__ float phi(float u) {
  if constexpr (A == ACTIVATION_SILU) return sigmoid<T>(u);
  else if constexpr (A == ACTIVATION_GELU) return 0.5f * (1.0f + erff(ROOT_HALF * u));
  else if constexpr (A == ACTIVATION_GELU_TANH) return sigmoid<T>(GELU_2K * (u + GELU_C * u * u * u));
  else {
    static_assert(A == ACTIVATION_RELU, "every activation has a formula");
    return u > 0 ? 1.0f : 0.0f;
  }
}

/* Returns act(u) in decoding. NaN stays, and ReLU of -inf is 0, which u * phi(u) would not be. */
__device__ __forceinline__ float decode_activation(Activation activation, float u) {
  switch (activation) {
  case ACTIVATION_SILU: return u * phi<float, ACTIVATION_SILU>(u);
  case ACTIVATION_GELU: return u * phi<float, ACTIVATION_GELU>(u);
  case ACTIVATION_GELU_TANH: return u * phi<float, ACTIVATION_GELU_TANH>(u);
  case ACTIVATION_RELU: break;
  }
  return u <= 0 ? 0.0f : u;
}

/* Returns d * act'(u); p = phi(u). */
template <class T, Activation A> __device__ __forceinline__ float times_slope(float d, float u, float p) {
  if constexpr (A == ACTIVATION_SILU) return d * p * (1.0f + u * (1.0f - p));
  else if constexpr (A == ACTIVATION_GELU) {
    const float bell = sizeof(T) == 2 ? __expf(-0.5f * u * u) : expf(-0.5f * u * u);
    return d * (p + u * INV_ROOT_2PI * bell);
  } else if constexpr (A == ACTIVATION_GELU_TANH)
    return d * p * (1.0f + u * (1.0f - p) * GELU_2K * (1.0f + 3.0f * GELU_C * u * u));
  else {
    static_assert(A == ACTIVATION_RELU, "every activation has a derivative");
    return d * p;
  }
}

struct MlpPass {
  void *out;          /* h, du */
  const void *u, *dh; /* dh: backward */
  int64_t rows;
  int ffn, length;
  DropoutMask mask;
};

/* DROP is a template argument, because dropout needs registers. */
template <class T, Activation A, bool GATED, bool DROP>
__global__ void __launch_bounds__(MLP_BLOCK) activation_forward(MlpPass p) {
  constexpr int N = VECTOR<T>;
  const unsigned thread = blockIdx.x * MLP_BLOCK + threadIdx.x;
  for (Walk at(thread, gridDim.x * MLP_BLOCK, p.ffn / N); at.row < p.rows; at.next()) {
    const T *from = static_cast<const T *>(p.u) + at.row * (GATED ? 2 : 1) * p.ffn + at.col * N;
    float u[N], h[N];
    load<N>(u, from);
    if constexpr (GATED) load<N>(h, from + p.ffn);
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float act = u[i] * phi<T, A>(u[i]);
      h[i] = GATED ? h[i] * act : act;
    }
    if constexpr (DROP) apply_dropout<N>(h, p.mask, (int)at.row, p.length, p.ffn, at.col * N);
    store<N>(static_cast<T *>(p.out) + at.row * p.ffn + at.col * N, h);
  }
}

/* out may be u: only the thread that overwrites a number reads it. */
template <class T, Activation A, bool GATED, bool DROP>
__global__ void __launch_bounds__(MLP_BLOCK) activation_backward(MlpPass p) {
  constexpr int N = VECTOR<T>;
  const unsigned thread = blockIdx.x * MLP_BLOCK + threadIdx.x;
  for (Walk at(thread, gridDim.x * MLP_BLOCK, p.ffn / N); at.row < p.rows; at.next()) {
    const int64_t offset = at.row * (GATED ? 2 : 1) * p.ffn + at.col * N;
    const T *from = static_cast<const T *>(p.u) + offset;
    T *to = static_cast<T *>(p.out) + offset;
    float u[N], up[N], d[N];
    load<N>(u, from);
    if constexpr (GATED) load<N>(up, from + p.ffn);
    load<N>(d, static_cast<const T *>(p.dh) + at.row * p.ffn + at.col * N);
    if constexpr (DROP) apply_dropout<N>(d, p.mask, (int)at.row, p.length, p.ffn, at.col * N);
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float g = u[i], s = phi<T, A>(g);
      u[i] = times_slope<T, A>(GATED ? d[i] * up[i] : d[i], g, s);
      up[i] = d[i] * g * s;
    }
    store<N>(to, u);
    if constexpr (GATED) store<N>(to + p.ffn, up);
  }
}

} // namespace

/* Calls f(T(), ACTIVATION, GATED, DROP), constants but for the first. */
template <class F> static void with_mlp(const Context *c, const MlpShape *mlp, const Dropout *dropout, F f) {
  const auto with_activation = [&](auto activation) {
    with_element(c, [&](auto element) {
      with_constant(mlp->gated, [&](auto gated) {
        with_constant(dropout_active(dropout), [&](auto drop) { f(element, activation, gated, drop); });
      });
    });
  };
#define CASE(id, ...)                                                                                                  \
  case ACTIVATION_##id: return with_activation(std::integral_constant<Activation, ACTIVATION_##id>());
  switch (mlp->activation) { ACTIVATIONS(CASE) }
#undef CASE
}

/* The grid for a thread for each vector of [rows][ffn]. */
template <class T> static dim3 mlp_grid(const Context *c, const MlpPass &p) {
  return loop_grid(c, divide_up(p.rows * (p.ffn / VECTOR<T>), MLP_BLOCK), 16);
}

static MlpPass mlp_pass(void *out, const void *u, const MlpShape *mlp, int batch, int length, const Dropout *dropout) {
  MlpPass p = {};
  p.out = out, p.u = u;
  p.rows = (int64_t)batch * length, p.ffn = mlp->ffn, p.length = length;
  p.mask = dropout_mask(dropout);
  return p;
}

void cuda_activation(Context *c, void *h, const void *u, const MlpShape *mlp, int batch, int length,
                     const Dropout *dropout) {
  const MlpPass p = mlp_pass(h, u, mlp, batch, length, dropout);
  require_alignment(c, "activation", {p.ffn}, {h, u});
  with_mlp(c, mlp, dropout, [&]<class T>(T, auto activation, auto gated, auto drop) {
    launch(c, "activation", activation_forward<T, activation, gated, drop>, mlp_grid<T>(c, p), MLP_BLOCK, 0, p);
  });
}

void cuda_activation_backward(Context *c, void *du, const void *dh, const void *u, const MlpShape *mlp, int batch,
                              int length, const Dropout *dropout) {
  MlpPass p = mlp_pass(du, u, mlp, batch, length, dropout);
  p.dh = dh;
  require_alignment(c, "activation_backward", {p.ffn}, {du, dh, u});
  with_mlp(c, mlp, dropout, [&]<class T>(T, auto activation, auto gated, auto drop) {
    launch(c, "activation_backward", activation_backward<T, activation, gated, drop>, mlp_grid<T>(c, p), MLP_BLOCK, 0,
           p);
  });
}

#endif
