/* The three products of a linear layer with weight W [M][K]: y = x W^T, dx = dy W, dW = dy^T x. Sums are fp32, factors
 * have the element type (tile.h). In fp32 builds read-only weights may be bf16, which packing widens, or int8, which
 * dots.h multiplies.
 * y and dx: the threads pack the weight into shared panels of TILE_COLS columns (a few percent of the work) and then
 * divide the rows, so that each thread gets rows that are in its cache. dW: the rows are divided into segments; a
 * thread packs its segment and sums the products; then the sums of the segments are added in order. The order of every
 * sum depends only on the shape, not on the number of threads. */
#include "kernels/cpu/dots.h"
#include "base/system.h"

enum {
  DEPTH = TILE_COLS > 32 ? 128 : 256, /* words of a pass over a panel, which stays in L1 */
  PACKED = 1 << 18,                   /* words packed before rows are multiplied: 1 MiB */
  SPAN = 96                           /* rows multiplied with a panel together, at most */
};

static int divide_up(int n, int by) { return (n + by - 1) / by; }
static void microkernel_begin(const Microkernel *m) {
  if (m->begin) m->begin();
}
static void microkernel_end(const Microkernel *m) {
  if (m->end) m->end();
}

/* Packs the words of one row of the depth: from[j] in fp32, in bf16 paired with next[j]; next NULL: with 0. `whole`:
 * count is the width of a panel. */
static inline __attribute__((always_inline)) void pack_words(bool whole, int count, const Element *from,
                                                             const Element *next, Word *to) {
#if CPU_BF16
  (void)whole;
  if (next) {
#pragma omp simd
    for (int j = 0; j < count; j++) to[j] = (Word)from[j] | (Word)next[j] << 16;
  } else {
#pragma omp simd
    for (int j = 0; j < count; j++) to[j] = from[j];
  }
#else
  (void)next;
  if (!whole) memcpy(to, from, (size_t)count * sizeof *to);
  else
    UNROLL for (int j = 0; j < count; j += LANES) * (UnalignedVector *)(to + j) = *(const UnalignedVector *)(from + j);
#endif
}

/* Packs from[depth][cols], rows `stride` apart, to panels of `width` columns: to[panel * size + word * width], zero up
 * to the next multiple of LANES. It reads whole rows, which is fast for memory. */
static inline __attribute__((always_inline)) void pack_columns(int width, int depth, int cols, const Element *from,
                                                               int64_t stride, Word *to, int64_t size) {
  for (int k = 0; k < depth; k += PER_WORD, from += PER_WORD * stride, to += width) {
    const Element *next = PER_WORD > 1 && k + 1 < depth ? from + stride : NULL;
    Word *panel = to;
    int j = 0;
    for (; j + width <= cols; j += width, panel += size)
      pack_words(true, width, from + j, next ? next + j : NULL, panel);
    if (j == cols) continue;
    pack_words(false, cols - j, from + j, next ? next + j : NULL, panel);
    for (int l = cols - j; l < round_up(cols - j, LANES); l++) panel[l] = 0;
  }
}

/* c[rows][cols] = a[rows][depth] w; the weights are [depth][cols], or [cols][depth] when `transposed`. */
typedef struct Product {
  int rows, cols, depth;
  const Element *a;
  Weights w;
  bool transposed;
  const float *bias; /* added to every row of c, or NULL */
  bool add;          /* c += */
  Element *c;
} Product;

static int words_of(int depth) { return divide_up(depth, PER_WORD); }

/* Packs elements k0 .. k0+depth of rows j .. j+cols of the weights to to[words][TILE_COLS]. */
static void pack_transposed(const Weights *w, int j, int cols, int k0, int depth, Word *to) {
#if CPU_BF16
  const uint16_t *from = (const uint16_t *)w->data + (int64_t)j * w->cols + k0;
  if (w->cols % PER_WORD == 0 && depth % PER_WORD == 0) {
    CPU(transpose)(cols, depth / PER_WORD, (const float *)from, w->cols / PER_WORD, (float *)to, TILE_COLS);
    return;
  }
  for (int i = 0; i < cols; i++, from += w->cols)
    for (int k = 0; k < depth; k += PER_WORD)
      to[k / PER_WORD * TILE_COLS + i] = (Word)from[k] | (k + 1 < depth ? (Word)from[k + 1] << 16 : 0);
#else
  enum { WIDTH = 8 * WEIGHT_GROUP };
  if (w->dtype == DTYPE_F32) {
    CPU(transpose)(cols, depth, (const float *)w->data + (int64_t)j * w->cols + k0, w->cols, to, TILE_COLS);
    return;
  }
  _Alignas(64) float wide[LANES * WIDTH];
  for (int i = 0; i < cols; i += LANES)
    for (int k = 0; k < depth; k += WIDTH) {
      int rows = smaller(cols - i, LANES), width = smaller(depth - k, WIDTH);
      for (int row = 0; row < rows; row++) CPU(widen_weights)(w, j + i + row, k0 + k, width, wide + row * WIDTH);
      CPU(transpose)(rows, width, wide, WIDTH, to + (int64_t)k * TILE_COLS + i, TILE_COLS);
    }
#endif
}

/* The part of the weights that is packed at a time: panels of TILE_COLS columns, words of their depth. */
typedef struct Block {
  int panels, words;
} Block;

/* Panels first .. last of a product, words begin .. end of their depth, each panel [words + 1][TILE_COLS]: at distances
 * that are multiples of 4 KiB their rows would conflict in the cache. */
typedef struct PackedPanels {
  const Product *product;
  const Microkernel *by;
  int first, last, begin, end;
  int64_t size;
  Word *data;
  Element *padded; /* for rows of a that end with a partial word: [threads][SPAN][padded depth] */
  float *sums;     /* bf16 with several blocks of the depth: [rows][sums_row] */
  int64_t sums_row;
} PackedPanels;

/* Packs words begin .. end of the packed depth. */
static void pack_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const PackedPanels *g = job;
  const Product *p = g->product;
  int j = g->first * TILE_COLS, cols = smaller(g->last * TILE_COLS, p->cols) - j;
  int k = (g->begin + begin) * PER_WORD, depth = smaller((g->begin + end) * PER_WORD, p->depth) - k;
  pack_columns(TILE_COLS, depth, cols, (const Element *)p->w.data + (int64_t)k * p->w.cols + j, p->w.cols,
               g->data + (int64_t)begin * TILE_COLS, g->size);
}

/* Packs panels of transposed weights. */
static void pack_transposed_panels(const void *job, int begin, int end, int thread) {
  (void)thread;
  const PackedPanels *g = job;
  const Product *p = g->product;
  for (int panel = begin; panel < end; panel++) {
    Word *into = g->data + panel * g->size;
    int j = (g->first + panel) * TILE_COLS, cols = smaller(p->cols - j, TILE_COLS);
    int first = g->begin * PER_WORD, depth = smaller(g->end * PER_WORD, p->depth) - first;
    for (int k = 0; k < g->end - g->begin && cols % LANES; k++)
      for (int l = cols; l < round_up(cols, LANES); l++) into[k * TILE_COLS + l] = 0;
    pack_transposed(&p->w, j, cols, first, depth, into);
  }
}

/* Returns the packed depth of rows i .. i+rows of a, `*stride` apart, each padded to whole words. */
static const Element *whole_words(const PackedPanels *g, int i, int rows, int thread, int64_t *stride) {
  const Product *p = g->product;
  int k = g->begin * PER_WORD, depth = smaller(g->end * PER_WORD, p->depth) - k;
  const Element *from = p->a + (int64_t)i * p->depth + k;
  *stride = (int64_t)words_of(p->depth) * PER_WORD;
  if (*stride == p->depth) return from;
  Element *to = g->padded + thread * SPAN * *stride;
  for (int row = 0; row < rows; row++) {
    memcpy(to + row * *stride, from + (int64_t)row * p->depth, (size_t)depth * sizeof *to);
    if (depth % PER_WORD) to[row * *stride + depth] = 0;
  }
  return to;
}

/* Adds the bias to a panel, and in bf16 converts `sums` to c. */
static void finish_panel(const Product *p, Element *c, const float *sums, int64_t stride, int j, int rows, int cols) {
  const float *bias = p->bias ? p->bias + j : NULL;
#if CPU_BF16
  for (int row = 0; row < rows; row++, c += p->cols, sums += stride) {
    if (!p->add && !bias) {
      narrow_row(c, sums, cols);
      continue;
    }
#pragma omp simd
    for (int i = 0; i < cols; i++)
      c[i] = narrow(sums[i] + (p->add ? widen(c[i]) : 0.0f) + (bias ? widen(narrow(bias[i])) : 0.0f));
  }
#else
  (void)sums, (void)stride;
  for (int row = 0; row < rows && bias; row++, c += p->cols) {
#pragma omp simd
    for (int i = 0; i < cols; i++) c[i] += bias[i];
  }
#endif
}

/* c = a times one packed panel, in bf16 by way of sums. The depth is divided into equal passes. */
static void multiply_panel(const PackedPanels *g, int panel, int i, int rows, const Element *a, int64_t a_row) {
  const Product *p = g->product;
  _Alignas(64) float own[CPU_BF16 ? SPAN * TILE_COLS : 1];
  int j = (g->first + panel) * TILE_COLS, cols = smaller(p->cols - j, TILE_COLS), words = g->end - g->begin;
  int each = divide_up(words, divide_up(words, DEPTH));
  Element *c = p->c + (int64_t)i * p->cols + j;
  int64_t stride = p->cols;
  float *sums = (float *)c;
  if (CPU_BF16) {
    stride = g->sums ? g->sums_row : TILE_COLS;
    sums = g->sums ? g->sums + i * stride + panel * TILE_COLS : own;
  }
  int k = 0;
  do {
    g->by->multiply(rows, cols, smaller(each, words - k), a + (int64_t)k * PER_WORD, a_row, 1,
                    g->data + panel * g->size + (int64_t)k * TILE_COLS, TILE_COLS, sums, stride,
                    g->begin + k > 0 || (p->add && !CPU_BF16));
    k += each;
  } while (k < words); /* words > 0 */
  if (g->end == words_of(p->depth)) finish_panel(p, c, sums, stride, j, rows, cols);
}

static void multiply_rows(const PackedPanels *g, int begin, int end, int first, int last, int thread) {
  microkernel_begin(g->by);
  for (int i = begin; i < end; i += SPAN) {
    int rows = smaller(end - i, SPAN);
    int64_t stride;
    const Element *a = whole_words(g, i, rows, thread, &stride);
    for (int panel = first; panel < last; panel++) multiply_panel(g, panel, i, rows, a, stride);
  }
  microkernel_end(g->by);
}

/* Multiplies blocks of the microkernel's rows with all panels. */
static void multiply_tiles(const void *job, int begin, int end, int thread) {
  const PackedPanels *g = job;
  int rows = g->by->rows;
  multiply_rows(g, begin * rows, smaller(end * rows, g->product->rows), 0, g->last - g->first, thread);
}

/* Multiplies all rows with some panels. */
static void multiply_panels(const void *job, int begin, int end, int thread) {
  const PackedPanels *g = job;
  multiply_rows(g, 0, g->product->rows, begin, end, thread);
}

/* Returns the block that moves the least memory for a row: a is read once for each group of panels, and the fp32 sums
 * of c are read and written for each further block of the depth. */
static Block choose_block(const Product *p) {
  enum { MOST = PACKED / (DEPTH * TILE_COLS) }; /* panels that fill PACKED with one pass of the depth */
  const int words = words_of(p->depth), panels = divide_up(p->cols, TILE_COLS);
  const int fit = smaller(panels, PACKED / TILE_COLS / (words + 1)), wide = smaller(panels, MOST);
  const Block deep = {fit > 1 ? fit : 1, words},
              flat = {wide, smaller(words, PACKED / (wide * TILE_COLS) / DEPTH * DEPTH)};
  const double deep_cost = (double)divide_up(panels, deep.panels) * p->depth;
  const double flat_cost = (double)divide_up(panels, flat.panels) * p->depth +
                           2.0 * (double)PER_WORD * (divide_up(words, flat.words) - 1) * p->cols;
  return deep_cost <= flat_cost ? deep : flat;
}

static void multiply(Context *c, const Product *p) {
  const Microkernel *by = c->microkernel;
  const Block block = choose_block(p);
  int words = words_of(p->depth), panels = divide_up(p->cols, TILE_COLS), tiles = divide_up(p->rows, by->rows);
  int64_t size = (int64_t)(block.words + 1) * TILE_COLS;
  size_t packed = (size_t)(block.panels * size), padded = p->depth % PER_WORD ? (size_t)SPAN * (size_t)words : 0;
  size_t sums = CPU_BF16 && block.words < words ? (size_t)p->rows * (size_t)(block.panels * TILE_COLS) : 0;
  float *memory = CPU(scratch)(c, packed + sums + padded * (size_t)c->threads);
  if (!memory) return;
  for (int first = 0; first < panels; first += block.panels)
    for (int begin = 0; begin < words; begin += block.words) {
      const PackedPanels g = {.product = p,
                              .by = by,
                              .first = first,
                              .last = smaller(first + block.panels, panels),
                              .begin = begin,
                              .end = smaller(begin + block.words, words),
                              .size = size,
                              .data = (Word *)memory,
                              .sums = sums ? memory + packed : NULL,
                              .sums_row = block.panels * TILE_COLS,
                              .padded = (Element *)(memory + packed + sums)};
      int count = g.last - first;
      if (p->transposed) pool_run(c->pool, count, 1, 4, pack_transposed_panels, &g);
      else pool_run(c->pool, g.end - begin, 8, 64, pack_rows, &g);
      if (tiles >= count || tiles >= 4 * c->threads) pool_run(c->pool, tiles, 1, SPAN / by->rows, multiply_tiles, &g);
      else pool_run(c->pool, count, 1, 4, multiply_panels, &g);
    }
}

void CPU(linear)(Context *c, void *y, const void *x, const Parameters *params, Linear layer, int rows) {
  const int outputs = layer.weight.rows, inputs = layer.weight.cols;
  if (c->error.code || rows == 0) return;
  if (c->weights == DTYPE_I8) {
    CPU(multiply_streamed)(c, y, params, layer, outputs, x, rows);
    return;
  }
  multiply(c, &(Product){.rows = rows,
                         .cols = outputs,
                         .depth = inputs,
                         .a = x,
                         .w = CPU(weights)(params, layer.weight),
                         .transposed = true,
                         .bias = bias_of(params, layer.bias),
                         .c = y});
}

void CPU(linear_backward_input)(Context *c, void *dx, const void *dy, const Parameters *params, Linear layer, int rows,
                                bool accumulate) {
  if (c->error.code || rows == 0) return;
  if (c->weights) {
    fail(&c->error, EXIT_INTERNAL, "weights in %s are only read", dtype_name(c->weights));
    return;
  }
  multiply(c, &(Product){.rows = rows,
                         .cols = layer.weight.cols,
                         .depth = layer.weight.rows,
                         .a = dy,
                         .w = CPU(weights)(params, layer.weight),
                         .add = accumulate,
                         .c = dx});
}

/* ---- the gradient of a weight ---- */

enum {
  STRIP = CPU_BF16 ? 96 : 48, /* adjacent packed columns of dy: whole blocks of microkernels, whole vectors */
  SPAN_STRIPS = 16,           /* strips that a thread takes at a time, at most */
  WEIGHT_WORDS = 128,         /* words of a pass */
  WEIGHT_DEPTH = WEIGHT_WORDS * PER_WORD, /* its rows */
  PACKED_MAX = 1 << 17,                   /* words of x that a thread packs at a time: 512 KiB */
  SEGMENT_ROWS = 384,                     /* rows of a segment at least */
  SEGMENTS = 4,                           /* at most */
  SEGMENTED_MAX = 1 << 18,                /* gradients with more elements have enough strips for all threads */
  SUM_BLOCK = 1024,                       /* elements whose segments a thread adds at a time */
  /* sizes for one pass, padded as PackedPanels explains: */
  X_PANEL = (WEIGHT_WORDS + 1) * TILE_COLS,
  DY_WORDS = WEIGHT_WORDS + (CPU_BF16 ? 16 : 1),
  DY_STRIP = DY_WORDS * STRIP
};
_Static_assert(STRIP % TILE_ROWS == 0 && STRIP % LANES == 0, "tiles and vectors of a strip are whole");

typedef struct WeightGradient {
  int outputs, inputs, rows; /* M, K, N */
  const Element *dy, *x;
  const Microkernel *by;
  float *dw;
  bool accumulate;
  int segments, segment_rows, block_rows; /* a thread packs a block at a time */
  int strips, panels;                     /* of outputs and inputs */
  float *sums;                            /* [segments][M][K]; NULL with one segment */
  Word *packed;                           /* memory of the threads' PackedBlock */
  size_t packed_size, packed_x;           /* words of a thread, and of its x */
  int *packed_first;                      /* [threads] the first row that thread t has packed, -1 = none */
} WeightGradient;

/* The packed arrays of a thread: panels of x, and strips of dy for one pass. */
typedef struct PackedBlock {
  int *first; /* row, -1 = none */
  Word *x;    /* [passes][panels][X_PANEL] */
  Word *dy;   /* [SPAN_STRIPS][DY_STRIP]; in bf16 a strip that is not transposed yet follows */
} PackedBlock;

static void pack_block(const WeightGradient *g, int first, int rows, PackedBlock *packed) {
  if (*packed->first == first) return;
  *packed->first = first;
  for (int n = 0; n < rows; n += WEIGHT_DEPTH)
    pack_columns(TILE_COLS, smaller(WEIGHT_DEPTH, rows - n), g->inputs, g->x + (int64_t)(first + n) * g->inputs,
                 g->inputs, packed->x + (int64_t)(n / WEIGHT_DEPTH) * g->panels * X_PANEL, X_PANEL);
}

/* Packs columns i .. i+cols of dy, rows n .. n+depth, to strips: [words][STRIP] in fp32, [STRIP][words] in bf16. */
static void pack_dy(const WeightGradient *g, int i, int cols, int n, int depth, Word *to) {
  const Element *from = g->dy + (int64_t)n * g->outputs + i;
#if CPU_BF16
  Word *words = to + SPAN_STRIPS * DY_STRIP;
  for (int at = 0; at < cols; at += STRIP, to += DY_STRIP) {
    int some = smaller(cols - at, STRIP);
    pack_columns(STRIP, depth, some, from + at, g->outputs, words, 0);
    CPU(transpose)(words_of(depth), some, (const float *)words, STRIP, (float *)to, DY_WORDS);
  }
#else
  pack_columns(STRIP, depth, cols, from, g->outputs, to, DY_STRIP);
#endif
}

/* dw[i .. i+cols] (+)= dy^T x over `depth` rows from row n on. x: the panels of these rows. */
static void weight_gradient_pass(const WeightGradient *g, float *to, int i, int cols, int n, int depth, const Word *x,
                                 Word *dy, bool add) {
  const int64_t dy_row = CPU_BF16 ? DY_WORDS * PER_WORD : 1, dy_k = CPU_BF16 ? 1 : STRIP;
  pack_dy(g, i, cols, n, depth, dy);
  for (int j = 0; j < g->inputs; j += TILE_COLS, x += X_PANEL)
    for (int strip = 0; strip * STRIP < cols; strip++) {
      float *at = to + (int64_t)(i + strip * STRIP) * g->inputs + j;
      g->by->multiply(smaller(cols - strip * STRIP, STRIP), smaller(g->inputs - j, TILE_COLS), words_of(depth),
                      (const Element *)(dy + strip * DY_STRIP), dy_row, dy_k, x, TILE_COLS, at, g->inputs, add);
    }
}

/* Computes strips first .. last of the outputs over one segment of the rows. */
static void weight_gradient_strips(const WeightGradient *g, int segment, int first, int last, PackedBlock *packed) {
  int begin = segment * g->segment_rows, end = smaller(begin + g->segment_rows, g->rows);
  int i = first * STRIP, cols = smaller(last * STRIP, g->outputs) - i;
  float *to = g->sums ? g->sums + (int64_t)segment * g->outputs * g->inputs : g->dw;
  for (int block = begin; block < end; block += g->block_rows) {
    int rows = smaller(g->block_rows, end - block);
    pack_block(g, block, rows, packed);
    for (int n = 0; n < rows; n += WEIGHT_DEPTH)
      weight_gradient_pass(g, to, i, cols, block + n, smaller(WEIGHT_DEPTH, rows - n),
                           packed->x + (int64_t)(n / WEIGHT_DEPTH) * g->panels * X_PANEL, packed->dy,
                           block + n > begin || (!g->sums && g->accumulate));
  }
}

/* Adds the segments of some blocks of SUM_BLOCK elements. */
static void add_segments(const void *job, int begin, int end, int thread) {
  (void)thread;
  const WeightGradient *g = job;
  int64_t elements = (int64_t)g->outputs * g->inputs, first = (int64_t)begin * SUM_BLOCK;
  int64_t last = (int64_t)end * SUM_BLOCK < elements ? (int64_t)end * SUM_BLOCK : elements;
  const float *from = g->sums;
  if (!g->accumulate) memset(g->dw + first, 0, (size_t)(last - first) * sizeof(float));
  for (int s = 0; s < g->segments; s++, from += elements) {
#pragma omp simd
    for (int64_t i = first; i < last; i++) g->dw[i] += from[i];
  }
}

static void plan_weight_gradient(WeightGradient *g) {
  int64_t elements = (int64_t)g->outputs * g->inputs;
  int most = elements > SEGMENTED_MAX ? 1 : smaller(SEGMENTS, g->rows / SEGMENT_ROWS);
  g->segment_rows = most > 1 ? divide_up(g->rows, most) : g->rows;
  g->segments = divide_up(g->rows, g->segment_rows);
  g->strips = divide_up(g->outputs, STRIP);
  g->panels = divide_up(g->inputs, TILE_COLS);
  int passes = PACKED_MAX / (g->panels * TILE_COLS * WEIGHT_WORDS);
  g->block_rows = smaller(g->segment_rows, (passes < 1 ? 1 : passes) * WEIGHT_DEPTH);
}

/* Computes strips begin .. end of all segments, one segment after the other. */
static void weight_gradient_work(const void *job, int begin, int end, int thread) {
  const WeightGradient *g = job;
  Word *own = g->packed + (size_t)thread * g->packed_size;
  PackedBlock packed = {g->packed_first + thread, own, own + g->packed_x};
  microkernel_begin(g->by);
  while (begin < end) {
    int segment = begin / g->strips, last = smaller(end, (segment + 1) * g->strips);
    weight_gradient_strips(g, segment, begin - segment * g->strips, last - segment * g->strips, &packed);
    begin = last;
  }
  microkernel_end(g->by);
}

static void weight_gradient(Context *c, WeightGradient *g) {
  plan_weight_gradient(g);
  size_t elements = (size_t)g->outputs * (size_t)g->inputs, sums = g->segments > 1 ? (size_t)g->segments * elements : 0;
  sums = (sums + LANES - 1) / LANES * LANES;
  g->packed_x = (size_t)divide_up(g->block_rows, WEIGHT_DEPTH) * (size_t)g->panels * X_PANEL;
  g->packed_size = g->packed_x + SPAN_STRIPS * DY_STRIP + (CPU_BF16 ? WEIGHT_WORDS * STRIP : 0);
  float *memory = CPU(scratch)(c, sums + (g->packed_size + 1) * (size_t)c->threads);
  if (!memory) return;
  g->sums = sums ? memory : NULL;
  g->packed = (Word *)(memory + sums);
  g->packed_first = (void *)(g->packed + g->packed_size * (size_t)c->threads);
  for (int t = 0; t < c->threads; t++) g->packed_first[t] = -1;
  int least = g->block_rows == g->segment_rows ? 1 : 2; /* several blocks are packed again for every task */
  pool_run(c->pool, g->segments * g->strips, least, SPAN_STRIPS, weight_gradient_work, g);
  if (sums) pool_run(c->pool, (int)((elements + SUM_BLOCK - 1) / SUM_BLOCK), 4, 64, add_segments, g);
}

/* ---- the gradient of a bias ---- */

typedef struct BiasGradient {
  float *partial; /* [blocks][cols] */
  const Element *dy;
  int rows, cols;
} BiasGradient;

/* Sums the rows of blocks. */
static void sum_row_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const BiasGradient *s = job;
  memset(s->partial + (int64_t)begin * s->cols, 0, (size_t)(end - begin) * (size_t)s->cols * sizeof(float));
  for (int row = begin * PARTIAL_ROWS; row < smaller(end * PARTIAL_ROWS, s->rows); row++) {
    float *sum = s->partial + (int64_t)(row / PARTIAL_ROWS) * s->cols;
    const Element *from = s->dy + (int64_t)row * s->cols;
#pragma omp simd
    for (int j = 0; j < s->cols; j++) sum[j] += widen(from[j]);
  }
}

/* db = sum of the rows of dy [rows][cols]. */
static void bias_gradient(Context *c, float *db, const Element *dy, int rows, int cols, bool accumulate) {
  const int blocks = divide_up(rows, PARTIAL_ROWS);
  float *partial = CPU(scratch)(c, (size_t)blocks * (size_t)cols);
  if (blocks && !partial) return;
  pool_run(c->pool, blocks, 1, 4, sum_row_blocks, &(BiasGradient){partial, dy, rows, cols});
  CPU(sum_partials)(c, db, partial, blocks, cols, cols, accumulate);
}

void CPU(linear_backward_weight)(Context *c, const Parameters *params, Linear layer, const void *dy, const void *x,
                                 int rows, bool accumulate) {
  if (c->error.code) return;
  Matrix w = layer.weight;
  float *dw = params->grad + w.offset;
  if (rows > 0)
    weight_gradient(c, &(WeightGradient){.outputs = w.rows,
                                         .inputs = w.cols,
                                         .rows = rows,
                                         .dy = dy,
                                         .x = x,
                                         .by = c->microkernel,
                                         .dw = dw,
                                         .accumulate = accumulate});
  else if (!accumulate) memset(dw, 0, (size_t)w.rows * (size_t)w.cols * sizeof(float));
  if (layer.bias.rows) bias_gradient(c, params->grad + layer.bias.offset, dy, rows, w.rows, accumulate);
}

typedef struct CacheProducts {
  const Microkernel *by;
  Word *tiles; /* [threads][words]: a panel, the rows that are multiplied with it, and the sums */
  size_t words;
} CacheProducts;

/* Multiplies tiles that stay in the first-level cache, at the rate of a perfect GEMM. */
static void multiply_in_cache(const void *job, int begin, int end, int thread) {
  const CacheProducts *p = job;
  const Microkernel *by = p->by;
  Word *b = p->tiles + (size_t)thread * p->words, *a = b + DEPTH * TILE_COLS;
  float *sum = (float *)(a + by->rows * DEPTH);
  microkernel_begin(by);
  for (int round = begin; round < end; round++)
    by->multiply(by->rows, TILE_COLS, DEPTH, (const Element *)a, DEPTH * PER_WORD, 1, b, TILE_COLS, sum, TILE_COLS,
                 round > begin);
  microkernel_end(by);
}

double CPU(peak_flops)(Context *c) {
  enum { ROUNDS = 4000, TRIES = 5 };
  const int rows = c->microkernel->rows;
  CacheProducts p = {.by = c->microkernel, .words = (size_t)(DEPTH * TILE_COLS + rows * (DEPTH + TILE_COLS))};
  p.tiles = (Word *)CPU(scratch)(c, p.words * (size_t)c->threads);
  if (!p.tiles) return 0;
  memset(p.tiles, 0x3C, p.words * (size_t)c->threads * sizeof *p.tiles); /* about 0.01; zeros would need less power */
  double best = 0;
  for (int try = 0; try < TRIES; try++) {
    double start = clock_seconds();
    pool_run(c->pool, ROUNDS * c->threads, 16, 256, multiply_in_cache, &p);
    double seconds = clock_seconds() - start;
    int64_t products = (int64_t)ROUNDS * c->threads * rows * TILE_COLS * DEPTH * PER_WORD;
    double flops = 2.0 * (double)products / seconds;
    best = flops > best ? flops : best;
  }
  return best;
}
