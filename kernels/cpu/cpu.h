/* Inside the CPU backend: the context and what its families (one file each) share. */
#ifndef INKLING_KERNELS_CPU_H
#define INKLING_KERNELS_CPU_H

#include "kernels.h"
#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Allocation Allocation;

struct Context {
  DType dtype;
  int threads;
  Error error; /* the first one; operations do nothing once error.code is set */
  Allocation *allocations;
  size_t bytes, peak_bytes;
  float *scratch; /* shared by the operations, one at a time; see cpu_scratch() */
  size_t scratch_count;
  StepState reports[REPORT_RING];
  int report_first, report_count;
};

/* At least `count` floats, 64-byte aligned, that live until the next call. NULL (with the context's error set) when
 * memory is out. Grows rarely: the second run of a step never allocates. */
float *cpu_scratch(Context *c, size_t count);

/* Element ranges are cut into this many elements per block wherever a reduction is spread over threads: partial sums
 * belong to blocks, not to threads, so results do not depend on the number of threads. */
enum { REDUCTION_BLOCK = 4096 };

/* Rows of one family each; kernels/cpu/backend.c puts them into `cpu_backend`. Signatures as in kernels.h. */
void cpu_embedding(Context *c, void *out, const Parameters *params, Matrix table, const int32_t *tokens, int batch,
                   int length, const Dropout *dropout);
void cpu_embedding_backward(Context *c, const Parameters *params, Matrix table, const void *dx, const int32_t *offsets,
                            const int32_t *order, int vocab, int batch, int length, const Dropout *dropout,
                            bool accumulate);
void cpu_residual_norm(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                       const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout);
void cpu_residual_norm_backward(Context *c, void *dx, void *dbranch, float *dweight, const void *dy, const void *dres,
                                const void *x, const float *rstd, const float *weight, int batch, int length, int dim,
                                const Dropout *dropout, bool accumulate);
void cpu_linear(Context *c, void *y, int64_t y_stride, const void *x, int64_t x_stride, const Parameters *params,
                Matrix w, int rows);
void cpu_linear_backward_input(Context *c, void *dx, int64_t dx_stride, const void *dy, int64_t dy_stride,
                               const Parameters *params, Matrix w, int rows);
void cpu_linear_backward_weight(Context *c, const Parameters *params, Matrix w, const void *dy, int64_t dy_stride,
                                const void *x, int64_t x_stride, int rows, bool accumulate);
double cpu_peak_flops(Context *c);
void cpu_rope(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope);
void cpu_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse);
void cpu_attention_backward(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                            View v, View out, const float *lse, const Rope *rope);
void cpu_swiglu(Context *c, void *h, const void *gate_up, int rows, int ffn);
void cpu_swiglu_backward(Context *c, void *dgate_up, const void *dh, const void *gate_up, int rows, int ffn);
void cpu_cross_entropy(Context *c, float *losses, void *logits, int64_t stride, const int32_t *targets, int rows,
                       int vocab, float smoothing, const StepState *state, bool gradient);
void cpu_loss_sum(Context *c, StepState *state, const float *losses, const int32_t *targets, int rows);
void cpu_step_begin(Context *c, StepState *state, const float *lr_table, const int32_t *targets);
void cpu_next_micro_batch(Context *c, StepState *state, int sequences);
void cpu_clip(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw);
void cpu_adamw(Context *c, StepState *state, const Parameters *params, const AdamW *adamw);
void cpu_decode_embedding(Context *c, void *x, const Parameters *params, Matrix table, const Sequences *s);
void cpu_decode_qkv(Context *c, void *q, const KvCache *cache, const void *x, const float *norm_weight, float eps,
                    const Parameters *params, Matrix w, const Rope *rope, const Sequences *s);
void cpu_decode_attention(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                          const Sequences *s);
void cpu_decode_residual(Context *c, void *x, const void *in, const Parameters *params, Matrix w, const Sequences *s);
void cpu_decode_mlp(Context *c, void *h, const void *x, const float *norm_weight, float eps, const Parameters *params,
                    Matrix w, const Sequences *s);
void cpu_decode_logits(Context *c, float *logits, const void *x, const float *norm_weight, float eps,
                       const Parameters *params, Matrix w, int vocab, int rows);
void cpu_sample(Context *c, const Sequences *s, float *logits, int vocab, const Sampling *sampling);
void cpu_cache_store(Context *c, const KvCache *cache, int slot, int position, View k, View v, int length);

#endif
