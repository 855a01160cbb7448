/* Dropout masks of the residual stream on the CPU, recomputed at every use (struct Dropout in kernels.h). */
#ifndef INKLING_KERNELS_CPU_DROPOUT_H
#define INKLING_KERNELS_CPU_DROPOUT_H

#include "kernels.h"
#include "kernels/cpu/element.h"
#include "kernels/philox.h"

/* Returns the number of the step in progress, a key of the random numbers. */
static inline uint32_t dropout_step(const Dropout *dropout) { return (uint32_t)(dropout->state->step + 1); }

/* out[j] = mask[first + j] * in[j] for `count` elements of sequence `sequence` of the micro-batch, from element `first`
 * on. */
static inline void dropout_row(const Dropout *dropout, int sequence, int64_t first, int count, const Element *in,
                               float *out) {
  uint32_t threshold = dropout_threshold(dropout->p, 32), step = dropout_step(dropout);
  uint32_t stream = (uint32_t)(dropout->state->sequence + sequence);
  float scale = 1.0f / (1.0f - dropout->p);
  for (int j = 0; j < count;) {
    int64_t element = first + j;
    PhiloxWords words = philox(dropout->seed, (uint32_t)(element / 4), dropout->site, step, stream);
    for (int lane = (int)(element % 4); lane < 4 && j < count; lane++, j++)
      out[j] = words.word[lane] >= threshold ? widen(in[j]) * scale : 0.0f;
  }
}

enum { DROPOUT_COLUMNS = 256 }; /* elements processed at a time */

/* Does the same with an output of Element; in and out may be the same. */
static inline void dropout_elements(const Dropout *dropout, int sequence, int64_t first, int count, const Element *in,
                                    Element *out) {
  float kept[DROPOUT_COLUMNS];
  for (int j = 0; j < count; j += DROPOUT_COLUMNS) {
    int some = count - j < DROPOUT_COLUMNS ? count - j : DROPOUT_COLUMNS;
    dropout_row(dropout, sequence, first + j, some, in + j, kept);
    narrow_row(out + j, kept, some);
  }
}

#endif
