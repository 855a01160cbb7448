/* SwiGLU, forward and backward. gate_up [N][2F]: gate, then up. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

typedef struct SwiGlu {
  Element *h, *dgate_up; /* of the forward, of the backward */
  const Element *gate_up, *dh;
  int ffn;
} SwiGlu;

static void swiglu_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const SwiGlu *s = job;
  for (int n = begin; n < end; n++) {
    const Element *gate = s->gate_up + (int64_t)n * 2 * s->ffn, *up = gate + s->ffn;
    Element *h = s->h + (int64_t)n * s->ffn;
#pragma omp simd
    for (int j = 0; j < s->ffn; j++) h[j] = narrow(widen(gate[j]) * sigmoid_f32(widen(gate[j])) * widen(up[j]));
  }
}

static void swiglu_backward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const SwiGlu *s = job;
  for (int n = begin; n < end; n++) {
    const Element *gate = s->gate_up + (int64_t)n * 2 * s->ffn, *up = gate + s->ffn;
    const Element *d = s->dh + (int64_t)n * s->ffn;
    Element *dgate = s->dgate_up + (int64_t)n * 2 * s->ffn, *dup = dgate + s->ffn;
#pragma omp simd
    for (int j = 0; j < s->ffn; j++) {
      float g = widen(gate[j]), u = widen(up[j]), dh = widen(d[j]), sigmoid = sigmoid_f32(g);
      dgate[j] = narrow(dh * u * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      dup[j] = narrow(dh * g * sigmoid);
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
