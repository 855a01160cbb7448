/* GEMM on the CPU: oneDNN where it is installed, else register tiles over packed panels.
 *
 * The three products of a linear layer with weight W [M][K]: y = x W^T, dx = dy W, dW = dy^T x. In fp32 the compute
 * copy of a weight is the master weight. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tile.h"

#include <omp.h>
#ifdef INKLING_ONEDNN
#include <dnnl.h>
#endif

/* c[rows][cols] = beta c + op(a)[rows][depth] op(b)[depth][cols], row-major; beta is 0 or 1. */
typedef struct Product {
  int rows, cols, depth;
  const float *a;
  int64_t a_stride;
  bool a_transposed; /* a is stored [depth][rows] */
  const float *b;
  int64_t b_stride;
  bool b_transposed; /* b is stored [cols][depth] */
  float *c;
  int64_t c_stride;
  bool add;
} Product;

#ifdef INKLING_ONEDNN

static void multiply(Context *c, const Product *p) {
  omp_set_num_threads(c->threads); /* oneDNN takes its thread count from OpenMP */
  dnnl_status_t status =
      dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', p->rows, p->cols, p->depth, 1.0f, p->a,
                 p->a_stride, p->b, p->b_stride, p->add ? 1.0f : 0.0f, p->c, p->c_stride);
  if (status == dnnl_out_of_memory) fail(&c->error, EXIT_MEMORY, "out of memory in a matrix product of oneDNN");
  else if (status != dnnl_success)
    fail(&c->error, EXIT_INTERNAL, "oneDNN refused a matrix product (status %d)", (int)status);
}

#else

enum { PANEL_DEPTH = 256, PANEL_COLS = 4 * TILE_COLS, PANEL_ROWS = 8 * TILE_ROWS };

/* b[k0 .. k0+depth)[j0 .. j0+cols) -> panel[depth][PANEL_COLS], zero beyond cols. */
static void pack_b(const Product *p, int k0, int depth, int j0, int cols, float *panel) {
  for (int k = 0; k < depth; k++)
    for (int j = 0; j < PANEL_COLS; j++) {
      const float *from = p->b_transposed ? p->b + (int64_t)(j0 + j) * p->b_stride + k0 + k
                                          : p->b + (int64_t)(k0 + k) * p->b_stride + j0 + j;
      panel[k * PANEL_COLS + j] = j < cols ? *from : 0.0f;
    }
}

/* a rows i0 .. i0+rows, columns k0 .. k0+depth -> panel[depth][PANEL_ROWS], zero beyond rows. */
static void pack_a(const Product *p, int i0, int rows, int k0, int depth, float *panel) {
  for (int k = 0; k < depth; k++)
    for (int i = 0; i < PANEL_ROWS; i++) {
      const float *from = p->a_transposed ? p->a + (int64_t)(k0 + k) * p->a_stride + i0 + i
                                          : p->a + (int64_t)(i0 + i) * p->a_stride + k0 + k;
      panel[k * PANEL_ROWS + i] = i < rows ? *from : 0.0f;
    }
}

/* One block of c: PANEL_ROWS x PANEL_COLS sums over the whole depth, so that no two threads share a sum. */
static void multiply_block(const Product *p, int i0, int j0) {
  _Alignas(64) float a[PANEL_DEPTH * PANEL_ROWS], b[PANEL_DEPTH * PANEL_COLS], sum[PANEL_ROWS * PANEL_COLS];
  int rows = p->rows - i0 < PANEL_ROWS ? p->rows - i0 : PANEL_ROWS;
  int cols = p->cols - j0 < PANEL_COLS ? p->cols - j0 : PANEL_COLS;
  for (int k0 = 0; k0 < p->depth; k0 += PANEL_DEPTH) {
    int depth = p->depth - k0 < PANEL_DEPTH ? p->depth - k0 : PANEL_DEPTH;
    pack_a(p, i0, rows, k0, depth, a);
    pack_b(p, k0, depth, j0, cols, b);
    tile_multiply(round_up(rows, TILE_ROWS), round_up(cols, LANES), depth, a, 1, PANEL_ROWS, b, PANEL_COLS, sum,
                  PANEL_COLS, k0 > 0);
  }
  for (int i = 0; i < rows; i++) {
    float *to = p->c + (int64_t)(i0 + i) * p->c_stride + j0;
    for (int j = 0; j < cols; j++) to[j] = (p->add ? to[j] : 0.0f) + sum[i * PANEL_COLS + j];
  }
}

static void multiply(Context *c, const Product *p) {
  int row_blocks = (p->rows + PANEL_ROWS - 1) / PANEL_ROWS, col_blocks = (p->cols + PANEL_COLS - 1) / PANEL_COLS;
#pragma omp parallel for collapse(2) schedule(static) num_threads(c->threads)
  for (int j = 0; j < col_blocks; j++)
    for (int i = 0; i < row_blocks; i++) multiply_block(p, i * PANEL_ROWS, j * PANEL_COLS);
}

#endif

void CPU(linear)(Context *c, void *y, const void *x, const Parameters *params, Matrix w, int rows) {
  if (c->error.code || rows == 0) return;
  multiply(c, &(Product){.rows = rows,
                         .cols = w.rows,
                         .depth = w.cols,
                         .a = x,
                         .a_stride = w.cols,
                         .b = (const float *)params->compute + w.offset,
                         .b_stride = w.cols,
                         .b_transposed = true,
                         .c = y,
                         .c_stride = w.rows});
}

void CPU(linear_backward_input)(Context *c, void *dx, const void *dy, const Parameters *params, Matrix w, int rows) {
  if (c->error.code || rows == 0) return;
  multiply(c, &(Product){.rows = rows,
                         .cols = w.cols,
                         .depth = w.rows,
                         .a = dy,
                         .a_stride = w.rows,
                         .b = (const float *)params->compute + w.offset,
                         .b_stride = w.cols,
                         .c = dx,
                         .c_stride = w.cols});
}

void CPU(linear_backward_weight)(Context *c, const Parameters *params, Matrix w, const void *dy, const void *x,
                                 int rows, bool accumulate) {
  if (c->error.code) return;
  float *dw = params->grad + w.offset;
  if (rows == 0) {
    if (!accumulate) memset(dw, 0, (size_t)w.rows * (size_t)w.cols * sizeof(float));
    return;
  }
  multiply(c, &(Product){.rows = w.rows,
                         .cols = w.cols,
                         .depth = rows,
                         .a = dy,
                         .a_stride = w.rows,
                         .a_transposed = true,
                         .b = x,
                         .b_stride = w.cols,
                         .c = dw,
                         .c_stride = w.cols,
                         .add = accumulate});
}

/* Tiles that stay in the first-level cache: what a perfect GEMM would reach. */
double CPU(peak_flops)(Context *c) {
  enum { DEPTH = 128, ROUNDS = 2000, TRIES = 5 };
  double best = 0;
  for (int try = 0; try < TRIES; try++) {
    double start = omp_get_wtime();
#pragma omp parallel num_threads(c->threads)
    {
      _Alignas(64) float a[TILE_ROWS * DEPTH], b[DEPTH * TILE_COLS], sum[TILE_ROWS * TILE_COLS];
      for (int i = 0; i < TILE_ROWS * DEPTH; i++) a[i] = 1e-3f * (float)i;
      for (int i = 0; i < DEPTH * TILE_COLS; i++) b[i] = 1e-3f * (float)i;
      for (int round = 0; round < ROUNDS; round++) {
        tile_multiply(TILE_ROWS, TILE_COLS, DEPTH, a, DEPTH, 1, b, TILE_COLS, sum, TILE_COLS, round > 0);
        __asm__ volatile("" : : "r"(sum) : "memory"); /* the result is used, as far as the compiler knows */
      }
    }
    double seconds = omp_get_wtime() - start;
    double flops = 2.0 * TILE_ROWS * TILE_COLS * DEPTH * ROUNDS * c->threads / seconds;
    best = flops > best ? flops : best;
  }
  return best;
}
