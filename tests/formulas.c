#include "tests/formulas.h"

#include <math.h>

/* ---- norms ---- */

RowStats row_stats(NormKind kind, double eps, const double *x, size_t dim) {
  double mean = 0, squares = 0;
  for (size_t i = 0; norm_has_mean(kind) && i < dim; i++) mean += x[i] / (double)dim;
  for (size_t i = 0; i < dim; i++) squares += (x[i] - mean) * (x[i] - mean);
  return (RowStats){mean, 1 / sqrt(squares / (double)dim + eps)};
}

void normalize_row(const NormValues *n, double *y, const double *x, size_t dim) {
  const RowStats s = row_stats(n->kind, n->eps, x, dim);
  for (size_t i = 0; i < dim; i++)
    y[i] = n->weight[i] * (x[i] - s.mean) * s.rstd + (norm_has_bias(n->kind) ? n->bias[i] : 0);
}

void normalize_row_backward(const NormValues *n, double *dx, double *dweight, double *dbias, const double *dy,
                            const double *x, size_t dim) {
  const RowStats s = row_stats(n->kind, n->eps, x, dim);
  double mean = 0, product = 0; /* of g, of g * xh */
  for (size_t i = 0; i < dim; i++) {
    const double g = n->weight[i] * dy[i], xh = (x[i] - s.mean) * s.rstd;
    if (norm_has_mean(n->kind)) mean += g / (double)dim;
    product += g * xh / (double)dim;
    dweight[i] += dy[i] * xh;
    if (norm_has_bias(n->kind)) dbias[i] += dy[i];
  }
  for (size_t i = 0; i < dim; i++) dx[i] = s.rstd * (n->weight[i] * dy[i] - mean - (x[i] - s.mean) * s.rstd * product);
}

/* ---- activations ---- */

static const double PI = 3.14159265358979323846;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double tanh_argument(double u) { return 2 * sqrt(2 / PI) * (u + 0.044715 * u * u * u); }

double activation_value(Activation a, double u) {
  switch (a) {
  case ACTIVATION_SILU: return u * sigmoid(u);
  case ACTIVATION_GELU: return u * erfc(-u / sqrt(2)) / 2;
  case ACTIVATION_GELU_TANH: return u * sigmoid(tanh_argument(u));
  case ACTIVATION_RELU: return u > 0 ? u : 0;
  }
  return (double)NAN;
}

double activation_slope(Activation a, double u) {
  const double s = sigmoid(a == ACTIVATION_GELU_TANH ? tanh_argument(u) : u);
  switch (a) {
  case ACTIVATION_SILU: return s * (1 + u * (1 - s));
  case ACTIVATION_GELU: return erfc(-u / sqrt(2)) / 2 + u * exp(-u * u / 2) / sqrt(2 * PI);
  case ACTIVATION_GELU_TANH: return s + u * s * (1 - s) * 2 * sqrt(2 / PI) * (1 + 3 * 0.044715 * u * u);
  case ACTIVATION_RELU: return u > 0;
  }
  return (double)NAN;
}

MlpShape mlp_shape(int i, int ffn) { return (MlpShape){(Activation)(i / 2), i % 2 == 1, ffn}; }

/* The index in u of number i of [rows][ffn]. */
static size_t index_in_u(const MlpShape *mlp, size_t i) {
  const size_t ffn = (size_t)mlp->ffn;
  return mlp->gated ? i / ffn * 2 * ffn + i % ffn : i;
}

double *activation_rows(Fixture *f, const MlpShape *mlp, const double *u, int rows) {
  const size_t ffn = (size_t)mlp->ffn, count = (size_t)rows * ffn;
  double *h = host_values(f, count);
  for (size_t i = 0; i < count; i++) {
    const size_t at = index_in_u(mlp, i);
    h[i] = activation_value(mlp->activation, u[at]) * (mlp->gated ? u[at + ffn] : 1);
  }
  return h;
}

double *activation_rows_backward(Fixture *f, const MlpShape *mlp, const double *dh, const double *u, int rows) {
  const size_t ffn = (size_t)mlp->ffn, count = (size_t)rows * ffn;
  double *du = host_values(f, mlp->gated ? 2 * count : count);
  for (size_t i = 0; i < count; i++) {
    const size_t at = index_in_u(mlp, i);
    du[at] = dh[i] * activation_slope(mlp->activation, u[at]) * (mlp->gated ? u[at + ffn] : 1);
    if (mlp->gated) du[at + ffn] = dh[i] * activation_value(mlp->activation, u[at]);
  }
  return du;
}

/* ---- products ---- */

double *linear_rows(Fixture *f, const double *w, const double *b, const double *x, int rows, int outputs, int inputs) {
  double *y = host_values(f, (size_t)rows * (size_t)outputs);
  for (int n = 0; n < rows; n++)
    for (int m = 0; m < outputs; m++) {
      double sum = b ? b[m] : 0;
      for (int k = 0; k < inputs; k++) sum += x[n * inputs + k] * w[m * inputs + k];
      y[n * outputs + m] = sum;
    }
  return y;
}

/* ---- attention ---- */

double rope_angle(int position, int i, int dims) { return position * pow(10000.0, -2.0 * i / dims); }

double *rope_table(Fixture *f, int positions, int dims) {
  double *table = host_values(f, (size_t)(positions * dims));
  for (int t = 0; t < positions; t++)
    for (int i = 0; i < dims / 2; i++) {
      table[t * dims + 2 * i] = cos(rope_angle(t, i, dims));
      table[t * dims + 2 * i + 1] = sin(rope_angle(t, i, dims));
    }
  return table;
}

void rotate_heads(double *x, int heads, int head_dim, int dims, int position) {
  for (int h = 0; h < heads; h++)
    for (int i = 0; i < dims / 2; i++) {
      double *a = x + h * head_dim + i, *b = a + dims / 2, a0 = *a, b0 = *b, angle = rope_angle(position, i, dims);
      *a = a0 * cos(angle) - b0 * sin(angle);
      *b = b0 * cos(angle) + a0 * sin(angle);
    }
}

double *attention_row(Fixture *f, const HeadShape *s, double scale, const double *query, const double *keys,
                      const double *values, int count) {
  const int d = s->head_dim, width = s->kv_heads * d;
  double *out = host_values(f, (size_t)(s->heads * d)), *p = host_values(f, (size_t)count);
  for (int h = 0; h < s->heads; h++) {
    const int group = h * s->kv_heads / s->heads * d;
    double max = -INFINITY, total = 0;
    for (int j = 0; j < count; j++) {
      p[j] = 0;
      for (int i = 0; i < d; i++) p[j] += query[h * d + i] * keys[j * width + group + i];
      p[j] *= scale;
      max = fmax(max, p[j]);
    }
    for (int j = 0; j < count; j++) total += p[j] = exp(p[j] - max);
    for (int j = 0; j < count; j++)
      for (int i = 0; i < d; i++) out[h * d + i] += p[j] / total * values[j * width + group + i];
  }
  return out;
}
