/* A thread reads a block of weight rows once and uses it for all rows of activations while it is in L1. It widens f32
 * and bf16 weights in registers and multiplies in fp32: lane l of a sum adds the products l, l + LANES, ... in
 * ascending order. Finally it adds the lanes in a fixed tree.
 * It multiplies int8 weights with int8 activations group by group, with a weight row in each lane: it adds the 32
 * products of a group as integers, which is exact, then scales the result and adds it in fp32. */
#include "kernels/cpu/dots.h"

#include "kernels/processor.h"

enum {
  WEIGHT_TILE = 4, /* weight rows and sequences whose sums are in registers together */
  SEQUENCE_TILE = 4,
  INT8_SEQUENCES = 8, /* that are multiplied with a block of int8 weights together, at most */
  INT8_SPAN = 128,    /* sequences whose numbers stay in L2 */
  SPAN_BLOCKS = 256,  /* weight tiles that a thread takes at a time, at most */
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

/* Adds the lanes of four vectors, each as sum_lanes() does. */
static inline Four sum_four(Vector a, Vector b, Vector c, Vector d) {
  Four w = fold(a), x = fold(b), y = fold(c), z = fold(d);
  Four wx = SHUFFLE(FourNumbers, w, x, 0, 4, 1, 5) + SHUFFLE(FourNumbers, w, x, 2, 6, 3, 7);
  Four yz = SHUFFLE(FourNumbers, y, z, 0, 4, 1, 5) + SHUFFLE(FourNumbers, y, z, 2, 6, 3, 7);
  return SHUFFLE(FourNumbers, wx, yz, 0, 1, 4, 5) + SHUFFLE(FourNumbers, wx, yz, 2, 3, 6, 7);
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
                                                           const Weights *w, int row, const float *x) {
  Vector sum[WEIGHT_TILE][SEQUENCE_TILE];
  int whole = w->cols / WEIGHT_GROUP;
  int64_t at = (int64_t)row * w->cols;
  UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] = (Vector){0};
  const int size = dtype == DTYPE_F32 ? 4 : 2;
  const char *ahead = (const char *)w->data + at * size + PREFETCH;
  for (int g = 0; g < whole; g++, ahead += weights * WEIGHT_GROUP * size) {
    fetch_ahead(ahead, weights * WEIGHT_GROUP * size);
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] =
        add_group(dtype, w->data, at + (int64_t)i * w->cols + g * WEIGHT_GROUP,
                  x + (int64_t)j * w->cols + g * WEIGHT_GROUP, sum[i][j]);
  }
  for (int k = whole * WEIGHT_GROUP; k + LANES <= w->cols; k += LANES) /* the last, partial group */
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] +=
        load_wide(dtype, w->data, at + (int64_t)i * w->cols + k) *
        *(const UnalignedVector *)(x + (int64_t)j * w->cols + k);
  finish_tile(weights, sequences, out, sum);
  for (int i = 0; i < weights && w->cols % LANES; i++)
    for (int j = 0; j < sequences; j++) out[j][i] += dot_tail(w, row + i, x + (int64_t)j * w->cols);
}

/* Like dot_tile, for one row of w or WEIGHT_TILE rows. Returns the number of computed sequences. */
static inline __attribute__((always_inline)) int dots_in(DType dtype, Sums out, const Weights *w, int row, int weights,
                                                         const float *x, int sequences) {
  if (weights < WEIGHT_TILE) return dot_tile(dtype, 1, 1, out, w, row, x), 1;
  if (sequences >= 4 && TILE_VECTORS == 4) return dot_tile(dtype, 4, 4, out, w, row, x), 4; /* 16 sums in registers */
  if (sequences >= 2) return dot_tile(dtype, 4, 2, out, w, row, x), 2;
  return dot_tile(dtype, 4, 1, out, w, row, x), 1;
}

static int dots_f32(Sums out, const Weights *w, int row, int weights, const float *x, int n) {
  return dots_in(DTYPE_F32, out, w, row, weights, x, n);
}
static int dots_bf16(Sums out, const Weights *w, int row, int weights, const float *x, int n) {
  return dots_in(DTYPE_BF16, out, w, row, weights, x, n);
}
static int (*const dots_wide[])(Sums, const Weights *, int, int, const float *, int) = {dots_f32, dots_bf16};

/* ---- weights and activations in int8 ---- */

typedef float Int8Sums[INT8_SEQUENCES][INT8_ROWS]; /* the sums of a block: [sequence][weight row] */

#ifdef __SSSE3__
static inline int32_t four_of(const Int8Group *x, int quad) {
  int32_t numbers;
  memcpy(&numbers, x->number + 4 * quad, sizeof numbers);
  return numbers;
}
#endif

#if defined(__AVX512VL__)
/* The instruction multiplies unsigned numbers with signed ones: the weights plus 128, which adds 128 times the sum of
 * the activations. No intrinsic: not every v4 processor has it. */
static inline __attribute__((always_inline)) void int8_vnni_tile(int sequences, Int8Sums out, const Int8Weights *w,
                                                                 int groups, const Int8Group *x) {
  Vector total[INT8_SEQUENCES];
  const __m512i offset = _mm512_set1_epi8((char)-128);
  UNROLL for (int j = 0; j < sequences; j++) total[j] = (Vector){0};
  for (int g = 0; g < groups; g++, w++) {
    __m512i sum[INT8_SEQUENCES];
    fetch_ahead((const char *)w + PREFETCH, sizeof *w);
    UNROLL for (int j = 0; j < sequences; j++) sum[j] = _mm512_set1_epi32(-128 * x[j * groups + g].sum);
    UNROLL for (int quad = 0; quad < WEIGHT_GROUP / 4; quad++) {
      const __m512i weights = _mm512_xor_si512(_mm512_loadu_si512(w->number[quad]), offset);
      UNROLL for (int j = 0; j < sequences; j++) {
        const __m512i numbers = _mm512_set1_epi32(four_of(&x[j * groups + g], quad));
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[j]) : "v"(weights), "v"(numbers));
      }
    }
    const Vector scale = *(const UnalignedVector *)w->scale;
    UNROLL for (int j = 0; j < sequences; j++) total[j] +=
        (Vector)_mm512_cvtepi32_ps(sum[j]) * (scale * x[j * groups + g].scale);
  }
  UNROLL for (int j = 0; j < sequences; j++) memcpy(out[j], &total[j], sizeof total[j]);
}

static int int8_vnni(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences) {
  if (sequences >= 8) return int8_vnni_tile(8, out, w, groups, x), 8;
  if (sequences >= 4) return int8_vnni_tile(4, out, w, groups, x), 4;
  if (sequences >= 2) return int8_vnni_tile(2, out, w, groups, x), 2;
  return int8_vnni_tile(1, out, w, groups, x), 1;
}
#endif

#if defined(__SSSE3__)
#if defined(__AVX2__)
typedef __m256i Part; /* four numbers of each of PART_ROWS rows, or their sums */
typedef __m256 FloatPart;
#define PART(operation) _mm256_##operation
#else
typedef __m128i Part;
typedef __m128 FloatPart;
#define PART(operation) _mm_##operation
#endif
enum { PART_ROWS = sizeof(Part) / 4 };

/* A block with `sequences` sequences, `parts` times PART_ROWS rows at a time; parts * sequences <= INT8_TILE. No number
 * is -128, so every pair of products fits 16 bits. */
static inline __attribute__((always_inline)) int int8_tile(int parts, int sequences, Int8Sums out,
                                                           const Int8Weights *block, int groups, const Int8Group *x) {
  enum { INT8_TILE = 4 };
  for (int first = 0; first < INT8_ROWS; first += parts * PART_ROWS) {
    const Int8Weights *w = block;
    FloatPart total[INT8_TILE];
    UNROLL for (int t = 0; t < parts * sequences; t++) total[t] = PART(setzero_ps)();
    for (int g = 0; g < groups; g++, w++) {
      Part sum[INT8_TILE], weights;
      if (first == 0) fetch_ahead((const char *)w + PREFETCH, sizeof *w);
      UNROLL for (int t = 0; t < parts * sequences; t++) sum[t] = PART(set1_epi32)(0);
      for (int quad = 0; quad < WEIGHT_GROUP / 4; quad++) UNROLL for (int t = 0; t < parts * sequences; t++) {
          memcpy(&weights, w->number[quad][first + t % parts * PART_ROWS], sizeof weights);
          const Part numbers = PART(set1_epi32)(four_of(&x[t / parts * groups + g], quad));
          const Part pairs = PART(maddubs_epi16)(PART(abs_epi8)(weights), PART(sign_epi8)(numbers, weights));
          sum[t] = PART(add_epi32)(sum[t], PART(madd_epi16)(pairs, PART(set1_epi16)(1)));
        }
      UNROLL for (int t = 0; t < parts * sequences; t++) {
        const FloatPart scale = PART(loadu_ps)(w->scale + first + t % parts * PART_ROWS);
        total[t] += PART(cvtepi32_ps)(sum[t]) * (scale * x[t / parts * groups + g].scale);
      }
    }
    UNROLL for (int t = 0; t < parts * sequences; t++)
        PART(storeu_ps)(out[t / parts] + first + t % parts * PART_ROWS, total[t]);
  }
  return sequences;
}

static int int8_plain(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences) {
  if (sequences >= 4) return int8_tile(1, 4, out, w, groups, x);
  if (sequences >= 2) return int8_tile(2, 2, out, w, groups, x);
  return int8_tile(INT8_ROWS / PART_ROWS, 1, out, w, groups, x);
}
#elif defined(__aarch64__)
enum { PARTS = INT8_ROWS / 4 };

/* sum[p] = the products of a group with rows 4p .. 4p + 3. */
#ifdef __ARM_FEATURE_DOTPROD
static inline void int8_products(int32x4_t sum[PARTS], const Int8Weights *w, const Int8Group *x) {
  UNROLL for (int p = 0; p < PARTS; p++) sum[p] = vdupq_n_s32(0);
  UNROLL for (int quad = 0; quad < WEIGHT_GROUP / 4; quad += 2) {
    const int8x8_t numbers = vld1_s8(x->number + 4 * quad);
    UNROLL for (int p = 0; p < PARTS; p++) {
      sum[p] = vdotq_lane_s32(sum[p], vld1q_s8(w->number[quad][4 * p]), numbers, 0);
      sum[p] = vdotq_lane_s32(sum[p], vld1q_s8(w->number[quad + 1][4 * p]), numbers, 1);
    }
  }
}
#else
/* No number is -128, so two products fit 16 bits. */
static inline void int8_products(int32x4_t sum[PARTS], const Int8Weights *w, const Int8Group *x) {
  int32x4_t high[PARTS]; /* the sums of rows 4p + 2 and 4p + 3, in two halves each; sum: of the first two rows */
  UNROLL for (int p = 0; p < PARTS; p++) sum[p] = high[p] = vdupq_n_s32(0);
  UNROLL for (int quad = 0; quad < WEIGHT_GROUP / 4; quad += 2) {
    const int8x8_t numbers = vld1_s8(x->number + 4 * quad);
    const int8x8_t first = vreinterpret_s8_s32(vdup_lane_s32(vreinterpret_s32_s8(numbers), 0));
    const int8x8_t second = vreinterpret_s8_s32(vdup_lane_s32(vreinterpret_s32_s8(numbers), 1));
    UNROLL for (int p = 0; p < PARTS; p++) {
      const int8x16_t a = vld1q_s8(w->number[quad][4 * p]), b = vld1q_s8(w->number[quad + 1][4 * p]);
      sum[p] = vpadalq_s16(sum[p], vmlal_s8(vmull_s8(vget_low_s8(a), first), vget_low_s8(b), second));
      high[p] = vpadalq_s16(high[p], vmlal_s8(vmull_s8(vget_high_s8(a), first), vget_high_s8(b), second));
    }
  }
  UNROLL for (int p = 0; p < PARTS; p++) sum[p] = vpaddq_s32(sum[p], high[p]);
}
#endif

static inline __attribute__((always_inline)) int int8_tile(int sequences, Int8Sums out, const Int8Weights *w,
                                                           int groups, const Int8Group *x) {
  enum { INT8_TILE = 2 };
  float32x4_t total[INT8_TILE][PARTS];
  UNROLL for (int j = 0; j < sequences; j++) UNROLL for (int p = 0; p < PARTS; p++) total[j][p] = vdupq_n_f32(0);
  for (int g = 0; g < groups; g++, w++) {
    fetch_ahead((const char *)w + PREFETCH, sizeof *w);
    UNROLL for (int j = 0; j < sequences; j++) {
      int32x4_t sum[PARTS];
      int8_products(sum, w, &x[j * groups + g]);
      UNROLL for (int p = 0; p < PARTS; p++) total[j][p] +=
          vcvtq_f32_s32(sum[p]) * (vld1q_f32(w->scale + 4 * p) * x[j * groups + g].scale);
    }
  }
  UNROLL for (int j = 0; j < sequences; j++) UNROLL for (int p = 0; p < PARTS; p++)
      vst1q_f32(out[j] + 4 * p, total[j][p]);
  return sequences;
}

static int int8_plain(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences) {
  if (sequences >= 2) return int8_tile(2, out, w, groups, x);
  return int8_tile(1, out, w, groups, x);
}
#elif defined(__wasm_simd128__)
enum { PARTS = INT8_ROWS / 4 };

/* Each part of four rows has two vectors of sums: of the first and second pairs of numbers of two rows. */
static int int8_plain(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences) {
  v128_t total[PARTS];
  (void)sequences;
  UNROLL for (int p = 0; p < PARTS; p++) total[p] = wasm_f32x4_splat(0);
  for (int g = 0; g < groups; g++, w++) {
    v128_t low[PARTS], high[PARTS];
    UNROLL for (int p = 0; p < PARTS; p++) low[p] = high[p] = wasm_i32x4_splat(0);
    UNROLL for (int quad = 0; quad < WEIGHT_GROUP / 4; quad++) {
      const v128_t numbers = wasm_i16x8_extend_low_i8x16(wasm_v128_load32_splat(x[g].number + 4 * quad));
      UNROLL for (int p = 0; p < PARTS; p++) {
        const v128_t weights = wasm_v128_load(w->number[quad][4 * p]);
        low[p] = wasm_i32x4_add(low[p], wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(weights), numbers));
        high[p] = wasm_i32x4_add(high[p], wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(weights), numbers));
      }
    }
    UNROLL for (int p = 0; p < PARTS; p++) {
      const v128_t sum = wasm_i32x4_add(wasm_i32x4_shuffle(low[p], high[p], 0, 2, 4, 6),
                                        wasm_i32x4_shuffle(low[p], high[p], 1, 3, 5, 7));
      const v128_t scale = wasm_f32x4_mul(wasm_v128_load(w->scale + 4 * p), wasm_f32x4_splat(x[g].scale));
      total[p] = wasm_f32x4_add(total[p], wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum), scale));
    }
  }
  UNROLL for (int p = 0; p < PARTS; p++) wasm_v128_store(out[0] + 4 * p, total[p]);
  return 1;
}
#else
static int int8_plain(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences) {
  (void)sequences;
  memset(out[0], 0, sizeof out[0]);
  for (int g = 0; g < groups; g++, w++) {
    int32_t sum[INT8_ROWS] = {0};
    for (int quad = 0; quad < WEIGHT_GROUP / 4; quad++)
      for (int row = 0; row < INT8_ROWS; row++)
        for (int i = 0; i < 4; i++) sum[row] += w->number[quad][row][i] * x[g].number[4 * quad + i];
    for (int row = 0; row < INT8_ROWS; row++) out[0][row] += (float)sum[row] * (w->scale[row] * x[g].scale);
  }
  return 1;
}
#endif

typedef int Int8Dots(Int8Sums out, const Int8Weights *w, int groups, const Int8Group *x, int sequences);

/* Both functions compute the same integers. */
static Int8Dots *int8_dots(void) {
#if defined(__AVX512VL__)
  if (processor_has_vnni()) return int8_vnni;
#endif
  return int8_plain;
}

/* ---- products ---- */

typedef struct Streamed {
  float *out; /* [rows][outputs] */
  Weights w;
  const float *bias; /* NULL: none */
  int outputs;
  const float *x;        /* [rows][cols] */
  const Int8Group *int8; /* [rows][groups] with int8 weights */
  Int8Dots *int8_dots;
  int rows;
} Streamed;

/* Writes the sums of `sequences` from sequence r on, and of `count` rows of weights from row m on. */
static void write_sums(const Streamed *s, int r, int sequences, int m, int count, const float *sums, int stride) {
  for (int j = 0; j < sequences; j++, sums += stride) {
    float *to = s->out + (int64_t)(r + j) * s->outputs + m;
    for (int i = 0; i < count; i++) to[i] = s->bias ? sums[i] + widen(narrow(s->bias[m + i])) : sums[i];
  }
}

/* Multiplies blocks of WEIGHT_TILE rows of weights with all sequences. */
static void multiply_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Streamed *s = job;
  const int last = smaller(end * WEIGHT_TILE, s->outputs);
  for (int m = begin * WEIGHT_TILE, weights; m < last; m += weights) {
    weights = last - m < WEIGHT_TILE ? 1 : WEIGHT_TILE;
    for (int r = 0, done; r < s->rows; r += done) {
      Sums tile;
      done = dots_wide[s->w.dtype](tile, &s->w, m, weights, s->x + (int64_t)r * s->w.cols, s->rows - r);
      write_sums(s, r, done, m, weights, tile[0], WEIGHT_TILE);
    }
  }
}

/* Blocks of INT8_ROWS outputs, which stay in L1 while they are multiplied with sequences that stay in L2. */
static void multiply_int8_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Streamed *s = job;
  const int groups = weight_groups(s->w.cols);
  for (int first = 0; first < s->rows; first += INT8_SPAN)
    for (int block = begin; block < end; block++)
      for (int r = first, last = smaller(first + INT8_SPAN, s->rows), done; r < last; r += done) {
        Int8Sums sums;
        done = s->int8_dots(sums, (const Int8Weights *)s->w.data + (int64_t)block * groups, groups,
                            s->int8 + (int64_t)r * groups, last - r);
        const int m = block * INT8_ROWS;
        write_sums(s, r, done, m, smaller(s->outputs - m, INT8_ROWS), sums[0], INT8_ROWS);
      }
}

void CPU(multiply_streamed)(Context *c, float *out, const Parameters *params, Linear layer, int outputs, const float *x,
                            int rows) {
  Streamed job = {.out = out,
                  .w = CPU(weights)(params, layer.weight),
                  .bias = bias_of(params, layer.bias),
                  .outputs = outputs,
                  .x = x,
                  .rows = rows};
  const bool int8 = job.w.dtype == DTYPE_I8;
  if (int8) {
    job.int8 = CPU(int8_rows)(c, x, rows, layer.weight.cols);
    job.int8_dots = int8_dots();
    if (!job.int8) return;
  }
  const int block = int8 ? INT8_ROWS : WEIGHT_TILE;
  int64_t work = (int64_t)block * layer.weight.cols * rows, least = 1 + SPAN_WORK / work;
  pool_run(c->pool, (outputs + block - 1) / block, (int)least, SPAN_BLOCKS,
           int8 ? multiply_int8_blocks : multiply_blocks, &job);
}

void CPU(dots)(float *out, const Weights *w, const float *x) {
  Sums tile;
  for (int row = 0; row < w->rows;) {
    int together = w->rows - row < WEIGHT_TILE ? 1 : WEIGHT_TILE;
    dots_wide[w->dtype](tile, w, row, together, x, 1);
    for (int i = 0; i < together; i++) out[row++] = tile[0][i];
  }
}
