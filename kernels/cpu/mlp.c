/* SwiGLU, forward and backward. gate_up [N][2F]: gate, then up. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

typedef struct SwiGlu {
  float *h, *dgate_up; /* of the forward, of the backward */
  const float *gate_up, *dh;
  int ffn;
} SwiGlu;

static void swiglu_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const SwiGlu *s = job;
  for (int n = begin; n < end; n++) {
    const float *gate = s->gate_up + (int64_t)n * 2 * s->ffn, *up = gate + s->ffn;
    float *h = s->h + (int64_t)n * s->ffn;
#pragma omp simd
    for (int j = 0; j < s->ffn; j++) h[j] = gate[j] * sigmoid_f32(gate[j]) * up[j];
  }
}

static void swiglu_backward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const SwiGlu *s = job;
  for (int n = begin; n < end; n++) {
    const float *gate = s->gate_up + (int64_t)n * 2 * s->ffn, *up = gate + s->ffn;
    const float *d = s->dh + (int64_t)n * s->ffn;
    float *dgate = s->dgate_up + (int64_t)n * 2 * s->ffn, *dup = dgate + s->ffn;
#pragma omp simd
    for (int j = 0; j < s->ffn; j++) {
      float g = gate[j], u = up[j], sigmoid = sigmoid_f32(g);
      dgate[j] = d[j] * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
      dup[j] = d[j] * g * sigmoid;
    }
  }
}

void CPU(swiglu)(Context *c, void *h, const void *gate_up, int rows, int ffn) {
  if (c->error.code) return;
  pool_run(c->pool, rows, 1, SPAN_ROWS, swiglu_rows, &(SwiGlu){.h = h, .gate_up = gate_up, .ffn = ffn});
}

void CPU(swiglu_backward)(Context *c, void *dgate_up, const void *dh, const void *gate_up, int rows, int ffn) {
  if (c->error.code) return;
  pool_run(c->pool, rows, 1, SPAN_ROWS, swiglu_backward_rows,
           &(SwiGlu){.dgate_up = dgate_up, .gate_up = gate_up, .dh = dh, .ffn = ffn});
}
