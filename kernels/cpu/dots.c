/* A thread reads a block of weight rows once and uses it for all rows of activations while it is in L1. It widens f32
 * and bf16 weights in registers and multiplies in fp32: lane l of a sum adds the products l, l + LANES, ... in
 * ascending order. It multiplies int8 weights with int8 activations group by group: it adds the 32 products of a group
 * as integers, which is exact, then scales the result and adds it in fp32. Finally it adds the lanes in a fixed
 * tree. */
#include "kernels/cpu/dots.h"

enum {
  WEIGHT_TILE = 4, /* weight rows and sequences whose sums are in registers together */
  SEQUENCE_TILE = 4,
  SPAN_BLOCKS = 256, /* weight tiles that a thread takes at a time, at most */
  CACHE_LINE = 64,
  PREFETCH =
      8192 /* distance in bytes at which weights are prefetched: rows are adjacent in memory, and with prefetching
                     memory delivers narrow weights faster than they are widened */
};

/* ---- weights in f32 and bf16 ---- */

/* sum += one group of weights times the same elements of x. */
static inline __attribute__((always_inline)) Vector add_group(DType dtype, const void *data, int64_t at, const float *x,
                                                              Vector sum) {
  UNROLL for (int k = 0; k < WEIGHT_GROUP; k += LANES) sum +=
      load_wide(dtype, data, at + k) * *(const UnalignedVector *)(x + k);
  return sum;
}

/* The product of the elements of row `row` after its last whole vector. */
static __attribute__((noinline)) float dot_tail(const Weights *w, int row, const float *x) {
  float wide[LANES] = {0}, of_x[LANES] = {0};
  int first = w->cols / LANES * LANES, count = w->cols - first;
  CPU(widen_weights)(w, row, first, count, wide);
  memcpy(of_x, x + first, (size_t)count * sizeof(float));
  return sum_lanes(*(const UnalignedVector *)wide * *(const UnalignedVector *)of_x);
}

#ifdef __clang__
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t FourNumbers __attribute__((vector_size(16)));
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (FourNumbers){i, j, k, l})
#endif

/* Adds the lanes of four vectors, each as sum_lanes() does. */
static inline Four sum_four(Vector a, Vector b, Vector c, Vector d) {
  Four w = fold(a), x = fold(b), y = fold(c), z = fold(d);
  Four wx = MIX(w, x, 0, 4, 1, 5) + MIX(w, x, 2, 6, 3, 7), yz = MIX(y, z, 0, 4, 1, 5) + MIX(y, z, 2, 6, 3, 7);
  return MIX(wx, yz, 0, 1, 4, 5) + MIX(wx, yz, 2, 3, 6, 7);
}

typedef float Sums[SEQUENCE_TILE][WEIGHT_TILE]; /* the sums of a tile: [sequence][weight row] */

/* Adds the lanes of a tile's sums. `weights` and `sequences` are constants at every call. */
static inline __attribute__((always_inline)) void finish_tile(int weights, int sequences, Sums out,
                                                              Vector sum[WEIGHT_TILE][SEQUENCE_TILE]) {
  UNROLL for (int j = 0; j < sequences; j++) {
    if (weights == WEIGHT_TILE) {
      Four sums = sum_four(sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
      memcpy(out[j], &sums, sizeof sums);
    } else out[j][0] = sum_lanes(sum[0][j]);
  }
}

/* Prefetches weights that will be read later. */
static inline __attribute__((always_inline)) void fetch_ahead(const char *from, int bytes) {
  UNROLL for (int line = 0; line < bytes; line += CACHE_LINE) __builtin_prefetch(from + line);
}

/* out[j][i] = sum_k w[row + i][k] x[j][k] for `weights` rows of w and `sequences` rows of x. dtype, weights and
 * sequences are constants at every call, so that each call becomes straight-line code with its sums in registers. */
static inline __attribute__((always_inline)) void dot_tile(DType dtype, int weights, int sequences, Sums out,
                                                           const Weights *w, int row, Rows x) {
  Vector sum[WEIGHT_TILE][SEQUENCE_TILE];
  int whole = w->cols / WEIGHT_GROUP;
  int64_t at = row * w->stride;
  UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] = (Vector){0};
  const int size = dtype == DTYPE_F32 ? 4 : 2;
  const bool adjacent = w->stride == w->cols; /* not for the keys of one head */
  const char *ahead = (const char *)w->data + at * size + PREFETCH;
  for (int g = 0; g < whole; g++, ahead += weights * WEIGHT_GROUP * size) {
    if (adjacent) fetch_ahead(ahead, weights * WEIGHT_GROUP * size);
    else
      UNROLL for (int i = 0; i < weights; i++) fetch_ahead(
          (const char *)w->data + (at + (i + ROWS_AHEAD) * w->stride + g * WEIGHT_GROUP) * size, WEIGHT_GROUP * size);
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] = add_group(
        dtype, w->data, at + i * w->stride + g * WEIGHT_GROUP, x.data + j * x.stride + g * WEIGHT_GROUP, sum[i][j]);
  }
  for (int k = whole * WEIGHT_GROUP; k + LANES <= w->cols; k += LANES) /* the last, partial group */
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] +=
        load_wide(dtype, w->data, at + i * w->stride + k) * *(const UnalignedVector *)(x.data + j * x.stride + k);
  finish_tile(weights, sequences, out, sum);
  for (int i = 0; i < weights && w->cols % LANES; i++)
    for (int j = 0; j < sequences; j++) out[j][i] += dot_tail(w, row + i, x.data + j * x.stride);
}

/* Like dot_tile, for one row of w or WEIGHT_TILE rows. Returns the number of computed sequences. */
static inline __attribute__((always_inline)) int dots_in(DType dtype, Sums out, const Weights *w, int row, int weights,
                                                         Rows x, int sequences) {
  if (weights < WEIGHT_TILE) return dot_tile(dtype, 1, 1, out, w, row, x), 1;
  if (sequences >= 4 && TILE_VECTORS == 4) return dot_tile(dtype, 4, 4, out, w, row, x), 4; /* 16 sums in registers */
  if (sequences >= 2) return dot_tile(dtype, 4, 2, out, w, row, x), 2;
  return dot_tile(dtype, 4, 1, out, w, row, x), 1;
}

static int dots_f32(Sums out, const Weights *w, int row, int weights, Rows x, int n) {
  return dots_in(DTYPE_F32, out, w, row, weights, x, n);
}
static int dots_bf16(Sums out, const Weights *w, int row, int weights, Rows x, int n) {
  return dots_in(DTYPE_BF16, out, w, row, weights, x, n);
}
static int (*const dots_wide[])(Sums, const Weights *, int, int, Rows, int) = {dots_f32, dots_bf16};

/* ---- weights and activations in int8 ---- */

enum { PARTS = LANES < 8 ? LANES : 8 };
typedef float Part __attribute__((vector_size(4 * PARTS)));

/* Adds the products of a group to PARTS sums. No number is -128, so every pair of products fits 16 bits. */
static inline __attribute__((always_inline)) Part multiply_group(bool vnni, const int8_t *w, const int8_t *x) {
#if defined(__AVX2__)
  __m256i weights = _mm256_loadu_si256((const void *)w), sum;
  __m256i signs = _mm256_sign_epi8(_mm256_loadu_si256((const void *)x), weights), sizes = _mm256_abs_epi8(weights);
#if defined(__AVX512VL__)
  if (vnni) {
    sum = _mm256_setzero_si256();
    __asm__("vpdpbusd %2, %1, %0"
            : "+v"(sum)
            : "v"(sizes), "v"(signs)); /* no intrinsic: not every v4 processor has it */
  } else
#endif
    sum = _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, signs), _mm256_set1_epi16(1));
  (void)vnni;
  return (Part)_mm256_cvtepi32_ps(sum);
#else
  Part sum = {0};
  (void)vnni;
  for (int l = 0; l < PARTS; l++) {
    int32_t part = 0;
    for (int k = l; k < WEIGHT_GROUP; k += PARTS) part += w[k] * x[k];
    sum[l] = (float)part;
  }
  return sum;
#endif
}

static inline __attribute__((always_inline)) Vector lanes_of(Part part) {
  Vector lanes = {0};
  memcpy(&lanes, &part, sizeof part);
  return lanes;
}

typedef struct Int8Rows {
  const Int8Group *data;
  int stride; /* groups */
} Int8Rows;

/* The product of the last, partial group of row `row`; x ends with zeros. */
static __attribute__((noinline)) float int8_tail(const Weights *w, int row, const Int8Group *x) {
  int8_t numbers[WEIGHT_GROUP] = {0};
  int whole = w->cols / WEIGHT_GROUP, first = whole * WEIGHT_GROUP;
  memcpy(numbers, (const int8_t *)w->data + row * w->stride + first, (size_t)(w->cols - first));
  Part sum = multiply_group(false, numbers, x[whole].number);
  return w->scales[(int64_t)row * weight_groups(w->cols) + whole] * x[whole].scale * sum_lanes(lanes_of(sum));
}

/* Like dot_tile, for int8 weights. */
static inline __attribute__((always_inline)) void int8_tile(bool vnni, int weights, int sequences, Sums out,
                                                            const Weights *w, int row, Int8Rows x) {
  Part sum[WEIGHT_TILE][SEQUENCE_TILE];
  Vector ends[WEIGHT_TILE][SEQUENCE_TILE];
  int groups = weight_groups(w->cols), whole = w->cols / WEIGHT_GROUP;
  const float *scales = w->scales + (int64_t)row * groups;
  const int8_t *data = (const int8_t *)w->data + row * w->stride;
  UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] = (Part){0};
  for (int g = 0; g < whole; g++) {
    fetch_ahead((const char *)data + g * weights * WEIGHT_GROUP + PREFETCH, weights * WEIGHT_GROUP);
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) {
      const Int8Group *group = &x.data[j * x.stride + g];
      Part product = multiply_group(vnni, data + i * w->stride + g * WEIGHT_GROUP, group->number);
      sum[i][j] += product * group->scale * scales[i * groups + g];
    }
  }
  UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) ends[i][j] = lanes_of(sum[i][j]);
  finish_tile(weights, sequences, out, ends);
  for (int i = 0; i < weights && whole < groups; i++)
    for (int j = 0; j < sequences; j++) out[j][i] += int8_tail(w, row + i, x.data + j * x.stride);
}

static inline __attribute__((always_inline)) int int8_in(bool vnni, Sums out, const Weights *w, int row, int weights,
                                                         Int8Rows x, int sequences) {
  if (weights < WEIGHT_TILE) return int8_tile(vnni, 1, 1, out, w, row, x), 1;
  if (sequences >= 4 && TILE_VECTORS == 4) return int8_tile(vnni, 4, 4, out, w, row, x), 4;
  if (sequences >= 2) return int8_tile(vnni, 4, 2, out, w, row, x), 2;
  return int8_tile(vnni, 4, 1, out, w, row, x), 1;
}

static int int8_plain(Sums out, const Weights *w, int row, int weights, Int8Rows x, int n) {
  return int8_in(false, out, w, row, weights, x, n);
}

#if defined(__AVX512VL__)
static int int8_vnni(Sums out, const Weights *w, int row, int weights, Int8Rows x, int n) {
  return int8_in(true, out, w, row, weights, x, n);
}
#endif

/* Both functions compute the same numbers. */
static int (*int8_dots(void))(Sums, const Weights *, int, int, Int8Rows, int) {
#if defined(__AVX512VL__)
  if (__builtin_cpu_supports("avx512vnni")) return int8_vnni;
#endif
  return int8_plain;
}

/* ---- products ---- */

typedef struct FewRows {
  Target out;
  Weights w;
  const float *bias; /* NULL: none */
  int outputs;
  Rows x;
  Int8Rows int8; /* with int8 weights */
  int (*int8_dots)(Sums, const Weights *, int, int, Int8Rows, int);
  int rows;
} FewRows;

/* Multiplies weight rows m .. m + weights - 1 with all sequences. */
static void multiply_block(const FewRows *s, int m, int weights) {
  Sums tile;
  int tiled = weights == WEIGHT_TILE ? WEIGHT_TILE : 1;
  for (int first = m; first < m + weights; first += tiled)
    for (int r = 0; r < s->rows;) {
      int done, left = s->rows - r;
      if (s->int8.data)
        done = s->int8_dots(tile, &s->w, first, tiled,
                            (Int8Rows){s->int8.data + (int64_t)r * s->int8.stride, s->int8.stride}, left);
      else
        done = dots_wide[s->w.dtype](tile, &s->w, first, tiled, (Rows){s->x.data + r * s->x.stride, s->x.stride}, left);
      for (int j = 0; j < done; j++) {
        float *to = s->out.data + (r + j) * s->out.stride + first;
        for (int i = 0; i < tiled; i++) to[i] = s->bias ? tile[j][i] + widen(narrow(s->bias[first + i])) : tile[j][i];
      }
      r += done;
    }
}

/* Blocks of WEIGHT_TILE outputs. */
static void multiply_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const FewRows *s = job;
  for (int m = begin * WEIGHT_TILE; m < end * WEIGHT_TILE && m < s->outputs; m += WEIGHT_TILE)
    multiply_block(s, m, smaller(s->outputs - m, WEIGHT_TILE));
}

void CPU(multiply_few)(Context *c, Target out, const Parameters *params, Linear layer, int outputs, Rows x, int rows) {
  FewRows job = {.out = out,
                 .w = CPU(weights)(params, layer.weight),
                 .bias = bias_of(params, layer.bias),
                 .outputs = outputs,
                 .x = x,
                 .rows = rows};
  int cols = layer.weight.cols;
  if (job.w.dtype == DTYPE_I8) {
    job.int8 = (Int8Rows){CPU(int8_rows)(c, x.data, x.stride, rows, cols), weight_groups(cols)};
    job.int8_dots = int8_dots();
    if (!job.int8.data) return;
  }
  int64_t work = (int64_t)WEIGHT_TILE * cols * rows, least = 1 + SPAN_WORK / work;
  pool_run(c->pool, (outputs + WEIGHT_TILE - 1) / WEIGHT_TILE, (int)least, SPAN_BLOCKS, multiply_blocks, &job);
}

void CPU(dots)(float *out, const Weights *w, const float *x) {
  Sums tile;
  for (int row = 0; row < w->rows;) {
    int together = w->rows - row < WEIGHT_TILE ? 1 : WEIGHT_TILE;
    dots_wide[w->dtype](tile, w, row, together, (Rows){x, 0}, 1);
    for (int i = 0; i < together; i++) out[row++] = tile[0][i];
  }
}

float CPU(dot)(const float *a, const float *b, int depth) {
  float sum;
  CPU(dots)(&sum, &(Weights){.dtype = DTYPE_F32, .rows = 1, .cols = depth, .data = a}, b);
  return sum;
}

float CPU(sum)(const float *x, int count) {
  Vector lanes = {0};
  float last[LANES] = {0};
  int whole = count / LANES * LANES;
  for (int i = 0; i < whole; i += LANES) lanes += *(const UnalignedVector *)(x + i);
  memcpy(last, x + whole, (size_t)(count - whole) * sizeof(float));
  return sum_lanes(lanes + *(const UnalignedVector *)last);
}
