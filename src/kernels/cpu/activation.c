/* Activations of an MLP, forward and backward. */
#include "kernels/cpu/activation.h"

#include "kernels/cpu/rows.h"

typedef struct Hidden {
  Element *h, *du; /* outputs of forward and backward */
  const Element *u, *dh;
  const MlpShape *mlp;
  int length;
  const Dropout *dropout;
} Hidden;

static inline __attribute__((always_inline)) void forward_row(Activation kind, bool gated, int ffn, Element *h,
                                                              const Element *u) {
#pragma omp simd
  for (int j = 0; j < ffn; j++) {
    float x = widen(u[j]), value = times_value(kind, 1.0f, x, curve_at(kind, x));
    h[j] = narrow(gated ? value * widen(u[ffn + j]) : value);
  }
}

static void forward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Hidden *s = job;
  int ffn = s->mlp->ffn;
  for (int n = begin; n < end; n++) {
    Element *h = s->h + (int64_t)n * ffn;
    WITH_MLP(forward_row, s->mlp, h, s->u + (int64_t)n * mlp_width(s->mlp))
    if (dropout_active(s->dropout))
      dropout_elements(s->dropout, n / s->length, (int64_t)(n % s->length) * ffn, ffn, h, h);
  }
}

void CPU(activation)(Context *c, void *h, const void *u, const MlpShape *mlp, int batch, int length,
                     const Dropout *dropout) {
  if (c->error.code) return;
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, forward_rows,
           &(Hidden){.h = h, .u = u, .mlp = mlp, .length = length, .dropout = dropout});
}

/* Computes numbers first .. first + count of a row of du from those of dh. */
static inline __attribute__((always_inline)) void backward_row(Activation kind, bool gated, int ffn, Element *du,
                                                               const Element *u, const float *dh, int first,
                                                               int count) {
#pragma omp simd
  for (int i = 0; i < count; i++) {
    int j = first + i;
    float d = dh[i], x = widen(u[j]);
    Curve at = curve_at(kind, x);
    if (gated) {
      float up = widen(u[ffn + j]);
      du[ffn + j] = narrow(times_value(kind, d, x, at));
      d *= up;
    }
    du[j] = narrow(times_slope(kind, d, x, at));
  }
}

static void backward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Hidden *s = job;
  int ffn = s->mlp->ffn;
  for (int n = begin; n < end; n++) {
    int64_t at = (int64_t)n * mlp_width(s->mlp), element = (int64_t)(n % s->length) * ffn;
    for (int first = 0; first < ffn; first += DROPOUT_COLUMNS) {
      float kept[DROPOUT_COLUMNS];
      int count = ffn - first < DROPOUT_COLUMNS ? ffn - first : DROPOUT_COLUMNS;
      const Element *from = s->dh + (int64_t)n * ffn + first;
      const float *dh = kept;
      if (dropout_active(s->dropout)) dropout_row(s->dropout, n / s->length, element + first, count, from, kept);
      else dh = wide_row(from, kept, count);
      WITH_MLP(backward_row, s->mlp, s->du + at, s->u + at, dh, first, count)
    }
  }
}

void CPU(activation_backward)(Context *c, void *du, const void *dh, const void *u, const MlpShape *mlp, int batch,
                              int length, const Dropout *dropout) {
  if (c->error.code) return;
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, backward_rows,
           &(Hidden){.du = du, .dh = dh, .u = u, .mlp = mlp, .length = length, .dropout = dropout});
}
