/* Muon on the CPU. One thread performs the whole update of a matrix, in fp32 and in its own buffer, so that threads
 * synchronize once per step.
 * The iteration works on X as [long][short], the matrix itself or its transpose, so that X^T X needs no transpose and
 * has the smaller size. X^T X and its square are symmetric; blocks above the diagonal are copied, not computed. */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/weights.h"

#include <stdatomic.h>

enum {
  PANEL = 48,  /* adjacent packed columns: whole blocks of tiles, whole vectors */
  DEPTH = 128, /* rows of a pass over a panel, which stays in L1 */
  SPAN = 96,   /* rows multiplied with all panels together, at most */
  BLOCK = 64   /* elements of a row that are transposed at a time */
};
_Static_assert(PANEL % TILE_ROWS == 0 && PANEL % LANES == 0, "tiles and vectors of a panel are whole");

/* A matrix [rows][cols], and the arrays of its iteration. */
typedef struct Work {
  int rows, cols;
  size_t offset, m_offset; /* of weights and gradients, of moments */
  int height, width;       /* of X: the longer side, and the shorter one padded with zeros to whole vectors */
  float *x;                /* [height][width] */
  float *gram, *step, *steps, *spare; /* [width][width] */
  float *packed;                      /* panels of two [DEPTH][width] arrays, or of [width][width] */
  float *rows_out;                    /* [SPAN][width] */
} Work;

/* Lays out the arrays for a matrix in `buffer` and returns their size in floats; `buffer` NULL: only the size. */
static size_t lay_out(Work *w, const MuonMatrix *matrix, float *buffer) {
  w->rows = matrix->rows;
  w->cols = matrix->cols;
  w->offset = matrix->offset;
  w->m_offset = matrix->m_offset;
  w->height = w->rows > w->cols ? w->rows : w->cols;
  w->width = round_up(w->rows > w->cols ? w->cols : w->rows, LANES);
  const size_t width = (size_t)w->width, panels = (size_t)round_up(w->width, PANEL), square = width * width;
  const size_t sizes[] = {(size_t)w->height * width,
                          square,
                          square,
                          square,
                          square,
                          panels * (width > 2 * DEPTH ? width : 2 * DEPTH),
                          SPAN * width};
  float **arrays[] = {&w->x, &w->gram, &w->step, &w->steps, &w->spare, &w->packed, &w->rows_out};
  size_t used = 0;
  for (int i = 0; i < 7; i++) {
    *arrays[i] = buffer ? buffer + used : NULL;
    used += sizes[i];
  }
  return used;
}

/* ---- products ---- */

/* Packs the rows of x [depth][width] to panels [panel][depth][PANEL]. */
static void pack(const float *x, int width, int depth, float *to) {
  for (int j = 0; j < width; j += PANEL, to += (int64_t)depth * PANEL) {
    const size_t bytes = (size_t)smaller(width - j, PANEL) * sizeof *to;
    for (int k = 0; k < depth; k++) memcpy(to + k * PANEL, x + (int64_t)k * width + j, bytes);
  }
}

/* out [width][width] = x^T y, which must be symmetric; x and y [depth][width]. It computes the vectors up to the
 * diagonal and copies the blocks above it. */
static void multiply_symmetric(const Work *w, float *out, const float *x, const float *y, int depth) {
  const int width = w->width;
  float *of_x = w->packed, *of_y = x == y ? of_x : of_x + (int64_t)round_up(width, PANEL) * DEPTH;
  for (int k = 0; k < depth; k += DEPTH) {
    const int some = smaller(depth - k, DEPTH);
    pack(x + (int64_t)k * width, width, some, of_x);
    if (x != y) pack(y + (int64_t)k * width, width, some, of_y);
    for (int i = 0; i < width; i += PANEL) {
      const int rows = smaller(width - i, PANEL);
      const float *a = of_x + (int64_t)i * some, *b = of_y;
      float *to = out + (int64_t)i * width;
      for (int j = 0; j < i; j += PANEL, b += PANEL * some)
        CPU(tile_multiply)(rows, PANEL, some, a, 1, PANEL, b, PANEL, to + j, width, k > 0);
      for (int row = 0; row < rows; row += TILE_ROWS, to += TILE_ROWS * width) {
        const int last = smaller(row + TILE_ROWS, rows);
        CPU(tile_multiply)(last - row, round_up(last, LANES), some, a + row, 1, PANEL, b, PANEL, to + i, width, k > 0);
      }
    }
  }
  for (int i = 0; i < width; i += LANES)
    for (int j = 0; j < i; j += LANES)
      CPU(transpose)(LANES, LANES, out + (int64_t)i * width + j, width, out + (int64_t)j * width + i, width);
}

/* x [height][width] = x t, t [width][width] */
static void multiply_rows(const Work *w, const float *t) {
  const int width = w->width;
  pack(t, width, width, w->packed);
  for (int i = 0; i < w->height; i += SPAN) {
    const int rows = smaller(w->height - i, SPAN);
    float *x = w->x + (int64_t)i * width;
    for (int j = 0; j < width; j += PANEL) {
      const int cols = smaller(width - j, PANEL);
      const float *panel = w->packed + (int64_t)j * width;
      for (int k = 0; k < width; k += DEPTH) {
        const int some = smaller(width - k, DEPTH);
        const float *b = panel + (int64_t)k * PANEL;
        CPU(tile_multiply)(rows, cols, some, x + k, width, 1, b, PANEL, w->rows_out + j, width, k > 0);
      }
    }
    memcpy(x, w->rows_out, (size_t)rows * (size_t)width * sizeof *x);
  }
}

/* step = a I + b gram + c gram^2 */
static void polynomial(const Work *w) {
  const int64_t width = w->width;
  float *step = w->step;
  const float *gram = w->gram;
  multiply_symmetric(w, step, gram, gram, w->width);
#pragma omp simd
  for (int64_t i = 0; i < width * width; i++) step[i] = MUON_B * gram[i] + MUON_C * step[i];
  for (int64_t i = 0; i < width; i++) step[i * width + i] += MUON_A;
}

static void swap(float **a, float **b) {
  float *other = *a;
  *a = *b;
  *b = other;
}

/* A step multiplies X by a polynomial of its Gram matrix, and the Gram matrix by that polynomial's square; these
 * matrices are symmetric and commute. If X is long, several steps with the Gram matrix alone and one product with X
 * cost less. Small singular values of X are squared in the Gram matrix and lost to rounding; after two steps they are
 * large enough, so the Gram matrix is computed again. */
static void orthogonalize(Work *w) {
  const bool is_long = 2 * w->height >= 3 * w->width;
  const int width = w->width;
  for (int done = 0, count; done < MUON_STEPS; done += count) {
    count = !is_long ? 1 : done == 0 ? 2 : MUON_STEPS - done;
    multiply_symmetric(w, w->gram, w->x, w->x, w->height);
    for (int i = 0; i < count; i++) {
      if (i > 0) { /* gram = gram step^2 */
        multiply_symmetric(w, w->spare, w->step, w->step, width);
        multiply_symmetric(w, w->step, w->gram, w->spare, width);
        swap(&w->gram, &w->step);
      }
      polynomial(w);
      if (i > 0) multiply_symmetric(w, w->spare, w->steps, w->step, width);
      else memcpy(w->spare, w->step, (size_t)width * (size_t)width * sizeof(float));
      swap(&w->steps, &w->spare);
    }
    multiply_rows(w, w->steps);
  }
}

/* ---- before and after the iteration ---- */

/* The factors of one update. */
typedef struct Factors {
  float clip, momentum;
  float keep; /* 1 - rate*wd */
  float rate;
} Factors;

/* Computes m and u for `count` elements, and returns the sum of the squares of u. */
static float update_momentum(const Factors *f, const float *restrict grad, float *restrict m, float *restrict u,
                             int count) {
  const float clip = f->clip, momentum = f->momentum, rest = 1.0f - f->momentum;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < count; i++) {
    float g = clip * grad[i];
    float next = momentum * m[i] + rest * g;
    m[i] = next;
    u[i] = momentum * next + rest * g;
    sum += u[i] * u[i];
  }
  return sum;
}

/* w = keep * w - step * x */
static void update_weights(float keep, float step, float *restrict w, const float *restrict x, int count) {
#pragma omp simd
  for (int i = 0; i < count; i++) w[i] = keep * w[i] - step * x[i];
}

/* Computes x = u and returns its norm. */
static double begin(const Work *w, const Parameters *p, const Factors *f) {
  double sum = 0;
  const float *grad = p->grad + w->offset;
  float *m = p->m + w->m_offset;
  if (w->rows >= w->cols) {
    for (int64_t i = 0; i < w->rows; i++) {
      float *x = w->x + i * w->width;
      sum += (double)update_momentum(f, grad + i * w->cols, m + i * w->cols, x, w->cols);
      memset(x + w->cols, 0, (size_t)(w->width - w->cols) * sizeof *x);
    }
    return sqrt(sum);
  }
  _Alignas(64) float turned[LANES * BLOCK];
  for (int64_t i = 0; i < w->width; i += LANES)
    for (int j = 0; j < w->cols; j += BLOCK) {
      const int count = smaller(w->cols - j, BLOCK);
      memset(turned, 0, sizeof turned);
      for (int row = 0; row < LANES && i + row < w->rows; row++) {
        const int64_t at = (i + row) * w->cols + j;
        sum += (double)update_momentum(f, grad + at, m + at, turned + row * BLOCK, count);
      }
      CPU(transpose)(LANES, count, turned, BLOCK, w->x + (int64_t)j * w->width + i, w->width);
    }
  return sqrt(sum);
}

static void finish(const Work *w, const Parameters *p, const Factors *f) {
  const float step = f->rate * sqrtf(w->rows > w->cols ? (float)w->rows / (float)w->cols : 1.0f);
  float *weights = p->master + w->offset;
  if (w->rows >= w->cols) {
    for (int64_t i = 0; i < w->rows; i++)
      update_weights(f->keep, step, weights + i * w->cols, w->x + i * w->width, w->cols);
    return;
  }
  _Alignas(64) float turned[LANES * BLOCK];
  for (int64_t i = 0; i < w->width; i += LANES)
    for (int j = 0; j < w->cols; j += BLOCK) {
      const int count = smaller(w->cols - j, BLOCK);
      CPU(transpose)(count, LANES, w->x + (int64_t)j * w->width + i, w->width, turned, BLOCK);
      for (int row = 0; row < LANES && i + row < w->rows; row++)
        update_weights(f->keep, step, weights + (i + row) * w->cols + j, turned + row * BLOCK, count);
    }
}

static void scale(float factor, float *x, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

/* ---- all matrices ---- */

/* A buffer for each thread, at most one for each matrix. */
typedef struct Buffers {
  int count;
  size_t size; /* of a buffer, in floats */
} Buffers;

static Buffers buffers_for(const Context *c, const Parameters *p) {
  Buffers buffers = {smaller(c->threads, p->muon_count), 0};
  for (int i = 0; i < p->muon_count; i++) {
    const size_t size = lay_out(&(Work){0}, &p->muon[i], NULL);
    buffers.size = size > buffers.size ? size : buffers.size;
  }
  buffers.size = (buffers.size + LANES - 1) / LANES * LANES;
  return buffers;
}

void CPU(reserve_muon)(Context *c, const Parameters *params) {
  const Buffers buffers = buffers_for(c, params);
  if (buffers.count) CPU(scratch)(c, buffers.size * (size_t)buffers.count);
}

typedef struct MuonJob {
  const Parameters *params;
  Factors factors;
  Buffers buffers;
  float *memory;    /* of all buffers */
  atomic_int *next; /* the next matrix */
} MuonJob;

static void update_matrix(const MuonJob *s, const MuonMatrix *matrix, float *buffer) {
  const Parameters *p = s->params;
  Work w;
  lay_out(&w, matrix, buffer);
  const double norm = begin(&w, p, &s->factors);
  scale((float)(1 / fmax(norm, (double)MUON_EPS)), w.x, (int64_t)w.height * w.width);
  orthogonalize(&w);
  finish(&w, p, &s->factors);
  const size_t at = matrix->offset - p->groups[matrix->group].matrix.offset;
  CPU(follow_masters)(p, matrix->group, at, (size_t)matrix->rows * (size_t)matrix->cols);
}

/* Each buffer updates one matrix after the other until none is left. */
static void update_matrices(const void *job, int first, int last, int thread) {
  const MuonJob *s = job;
  (void)thread;
  for (int i = first; i < last; i++)
    for (int m; (m = atomic_fetch_add(s->next, 1)) < s->params->muon_count;)
      update_matrix(s, &s->params->muon[m], s->memory + (size_t)i * s->buffers.size);
}

void CPU(muon)(Context *c, const StepState *state, const Parameters *params, const Muon *muon) {
  if (c->error.code || state->halted) return;
  const float rate = muon->lr_factor * state->lr;
  atomic_int next = 0;
  MuonJob job = {.params = params,
                 .factors = {state->clip, muon->momentum, 1.0f - rate * muon->weight_decay, rate},
                 .buffers = buffers_for(c, params),
                 .next = &next};
  job.memory = CPU(scratch)(c, job.buffers.size * (size_t)job.buffers.count);
  if (job.memory) pool_run(c->pool, job.buffers.count, 1, 1, update_matrices, &job);
}
