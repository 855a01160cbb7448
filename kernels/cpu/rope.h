/* The rotation of one head, for rope() and the backward pass of attention. */
#ifndef INKLING_KERNELS_CPU_ROPE_H
#define INKLING_KERNELS_CPU_ROPE_H

#include "kernels/cpu/element.h"

/* Rotates `in` by the angles of `table` ([D/2][2] = cos, sin) into `out`; direction -1 rotates back. in and out may be
 * the same. */
static inline void rope_head(Element *out, const float *in, const float *table, int head_dim, float direction) {
  int half = head_dim / 2;
#pragma omp simd
  for (int i = 0; i < half; i++) {
    float cosine = table[2 * i], sine = direction * table[2 * i + 1], x0 = in[i], x1 = in[i + half];
    out[i] = narrow(x0 * cosine - x1 * sine);
    out[i + half] = narrow(x1 * cosine + x0 * sine);
  }
}

#endif
