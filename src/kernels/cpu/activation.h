/* Activation functions of an MLP, for training and decoding. */
#ifndef INKLING_KERNELS_CPU_ACTIVATION_H
#define INKLING_KERNELS_CPU_ACTIVATION_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

/* act(x) = x * factor; `slope` is the factor's derivative, 0 for ACTIVATION_SILU, which does not need it. */
typedef struct Curve {
  float factor, slope;
} Curve;

/* Evaluates the factor and its slope at x. `kind` is a compile-time constant at every call of these functions. */
static inline __attribute__((always_inline)) Curve curve_at(Activation kind, float x) {
  NormalF32 normal;
  switch (kind) {
  case ACTIVATION_RELU: return (Curve){x > 0 ? 1.0f : 0.0f, 0.0f};
  case ACTIVATION_SILU: return (Curve){sigmoid_f32(x), 0.0f};
  case ACTIVATION_GELU: normal = normal_f32(x); return (Curve){normal.cdf, normal.pdf};
  case ACTIVATION_GELU_TANH: break;
  }
  const float k = 1.59576912f; /* 2 sqrt(2 / pi) */
  float sigmoid = sigmoid_f32(k * (x + 0.044715f * x * x * x));
  return (Curve){sigmoid, sigmoid * (1.0f - sigmoid) * (k * (1.0f + 0.134145f * x * x))};
}

/* Returns d * act(x). */
static inline __attribute__((always_inline)) float times_value(Activation kind, float d, float x, Curve at) {
  return kind == ACTIVATION_RELU ? d * (x < 0 ? 0.0f : x) : d * x * at.factor; /* -inf * 0 would be NaN */
}

/* Returns d * act'(x). */
static inline __attribute__((always_inline)) float times_slope(Activation kind, float d, float x, Curve at) {
  if (kind == ACTIVATION_SILU) return d * at.factor * (1.0f + x * (1.0f - at.factor));
  if (kind == ACTIVATION_RELU) return d * at.factor;
  return d * (at.factor + (at.slope == 0.0f ? 0.0f : x * at.slope));
}

#define GATED_OR_NOT(function, kind, mlp, ...)                                                                         \
  if ((mlp)->gated) function(kind, true, (mlp)->ffn, __VA_ARGS__);                                                     \
  else function(kind, false, (mlp)->ffn, __VA_ARGS__)

/* Calls function(activation, gated, ffn, ...) with the first two as constants. */
#define WITH_MLP(function, mlp, ...)                                                                                   \
  switch ((mlp)->activation) {                                                                                         \
  case ACTIVATION_SILU: GATED_OR_NOT(function, ACTIVATION_SILU, mlp, __VA_ARGS__); break;                              \
  case ACTIVATION_GELU: GATED_OR_NOT(function, ACTIVATION_GELU, mlp, __VA_ARGS__); break;                              \
  case ACTIVATION_GELU_TANH: GATED_OR_NOT(function, ACTIVATION_GELU_TANH, mlp, __VA_ARGS__); break;                    \
  case ACTIVATION_RELU: GATED_OR_NOT(function, ACTIVATION_RELU, mlp, __VA_ARGS__); break;                              \
  }

#endif
