/* SwiGLU, forward and backward. gate_up [N][2F]: gate, then up. */
#include "kernels/cpu/share.h"
#include "kernels/cpu/simd.h"

void CPU(swiglu)(Context *c, void *h, const void *gate_up, int rows, int ffn) {
  if (c->error.code) return;
  share_set(c, 0, rows);
#pragma omp parallel num_threads(c->threads)
  EACH_SHARED(c, n, SPAN_ROWS) {
    const float *gate = (const float *)gate_up + (int64_t)n * 2 * ffn, *up = gate + ffn;
    float *out = (float *)h + (int64_t)n * ffn;
#pragma omp simd
    for (int j = 0; j < ffn; j++) out[j] = gate[j] * sigmoid_f32(gate[j]) * up[j];
  }
}

void CPU(swiglu_backward)(Context *c, void *dgate_up, const void *dh, const void *gate_up, int rows, int ffn) {
  if (c->error.code) return;
  share_set(c, 0, rows);
#pragma omp parallel num_threads(c->threads)
  EACH_SHARED(c, n, SPAN_ROWS) {
    const float *gate = (const float *)gate_up + (int64_t)n * 2 * ffn, *up = gate + ffn;
    const float *d = (const float *)dh + (int64_t)n * ffn;
    float *dgate = (float *)dgate_up + (int64_t)n * 2 * ffn, *dup = dgate + ffn;
#pragma omp simd
    for (int j = 0; j < ffn; j++) {
      float g = gate[j], u = up[j], s = sigmoid_f32(g);
      dgate[j] = d[j] * u * s * (1.0f + g * (1.0f - s));
      dup[j] = d[j] * g * s;
    }
  }
}
