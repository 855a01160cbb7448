/* The three products of a linear layer with weight W [M][K]: y = x W^T, dx = dy W, dW = dy^T x. In fp32 the compute copy
 * of a weight is the master weight.
 *
 * y and dx: the weight is packed into panels of TILE_COLS columns (a few hundredths of the work), which all threads
 * share; then the rows are shared out, each thread the ones it has in its cache. dW: the rows are cut into segments,
 * of which a thread packs what it needs by itself and sums the products; the segments' sums are added in their order.
 * Every element of a result is summed in an order that follows from the shape alone, not from the number of threads. */
#include "kernels/cpu/share.h"
#include "kernels/cpu/tile.h"

enum {
  DEPTH = TILE_COLS > 32 ? 128 : 256, /* of a pass over a panel, which stays in L1 meanwhile */
  GROUP = 1 << 18,                    /* numbers packed before the rows are gone through: 1 MiB */
  SPAN_TILES = 16                     /* of rows that go through a panel together, at most */
};

static int divide_up(int n, int by) { return (n + by - 1) / by; }
static int smaller(int a, int b) { return a < b ? a : b; }

/* from[depth][cols], rows `stride` apart -> panels of `width` columns: to[panel * size + k * width], zero up to the next
 * multiple of LANES. Rows are read from end to end, as memory likes it. */
static inline __attribute__((always_inline)) void pack_columns(int width, int depth, int cols, const float *from,
                                                               int64_t stride, float *to, int64_t size) {
  for (int k = 0; k < depth; k++, from += stride, to += width) {
    float *panel = to;
    int j = 0;
    for (; j + width <= cols; j += width, panel += size)
      UNROLL for (int l = 0; l < width; l += LANES) *(UnalignedVector *)(panel + l) =
          *(const UnalignedVector *)(from + j + l);
    if (j == cols) continue;
    memcpy(panel, from + j, (size_t)(cols - j) * sizeof(float));
    for (int l = cols - j; l < round_up(cols - j, LANES); l++) panel[l] = 0.0f;
  }
}

/* c[rows][cols] = a[rows][depth] b, where b is stored [depth][cols], or [cols][depth] when `transposed`. */
typedef struct Product {
  int rows, cols, depth;
  const float *a, *b;
  bool transposed;
  float *c;
} Product;

/* Thread t's part of panels first .. last. A panel is [depth][TILE_COLS]. */
static void pack_panels(const Product *p, int first, int last, int t, int threads, float *to) {
  int64_t size = (int64_t)(p->depth + 1) * TILE_COLS;
  int j = first * TILE_COLS, cols = smaller(last * TILE_COLS, p->cols) - j;
  if (!p->transposed) {
    int begin = (int)((int64_t)p->depth * t / threads), end = (int)((int64_t)p->depth * (t + 1) / threads);
    pack_columns(TILE_COLS, end - begin, cols, p->b + (int64_t)begin * p->cols + j, p->cols,
                 to + (int64_t)begin * TILE_COLS, size);
    return;
  }
  for (int panel = first + t; panel < last; panel += threads) {
    float *into = to + (panel - first) * size;
    j = panel * TILE_COLS;
    cols = smaller(p->cols - j, TILE_COLS);
    for (int k = 0; k < p->depth && cols % LANES; k++)
      for (int l = cols; l < round_up(cols, LANES); l++) into[k * TILE_COLS + l] = 0.0f;
    CPU(transpose)(cols, p->depth, p->b + (int64_t)j * p->depth, p->depth, into, TILE_COLS);
  }
}

/* Rows i .. i+rows of c in the columns of the packed panels first .. last. The depth is gone through in equal passes. */
static void multiply_rows(const Product *p, int i, int rows, int first, int last, const float *packed) {
  int passes = divide_up(p->depth, DEPTH), each = divide_up(p->depth, passes);
  int64_t size = (int64_t)(p->depth + 1) * TILE_COLS;
  for (int k = 0; k < p->depth; k += each)
    for (int panel = first; panel < last; panel++) {
      int j = panel * TILE_COLS;
      CPU(tile_multiply)(rows, smaller(p->cols - j, TILE_COLS), smaller(each, p->depth - k),
                         p->a + (int64_t)i * p->depth + k, p->depth, 1,
                         packed + (panel - first) * size + (int64_t)k * TILE_COLS, TILE_COLS,
                         p->c + (int64_t)i * p->cols + j, p->cols, k > 0);
    }
}

/* The rows are shared out in tiles, or where there are few of them the panels of each group. */
static void multiply(Context *c, const Product *p) {
  int64_t size = (int64_t)(p->depth + 1) * TILE_COLS;
  int panels = divide_up(p->cols, TILE_COLS), group = smaller(panels, size < GROUP ? (int)(GROUP / size) : 1);
  float *packed = CPU(scratch)(c, (size_t)(2 * group * size)); /* one group is packed while another is in use */
  if (!packed) return;
  int threads = c->threads, tiles = divide_up(p->rows, TILE_ROWS);
  bool by_rows = tiles >= group || tiles >= 4 * threads;
  share_set(c, 0, by_rows ? tiles : group);
#pragma omp parallel num_threads(threads)
  {
    int t = omp_get_thread_num(), team = omp_get_num_threads();
    for (int first = 0, turn = 0; first < panels; first += group, turn++) {
      float *to = packed + turn % 2 * group * size;
      int last = smaller(first + group, panels), next = smaller(last + group, panels);
      pack_panels(p, first, last, t, team, to);
      if (t == 0) share_set(c, (turn + 1) % SHARES, by_rows ? tiles : next - last);
#pragma omp barrier
      for (Span s; share_take(c, turn % SHARES, 1, SPAN_TILES, &s);)
        if (by_rows)
          multiply_rows(p, s.begin * TILE_ROWS, smaller(s.end * TILE_ROWS, p->rows) - s.begin * TILE_ROWS, first, last,
                        to);
        else multiply_rows(p, 0, p->rows, first + s.begin, first + s.end, to + s.begin * size);
    }
  }
}

void CPU(linear)(Context *c, void *y, const void *x, const Parameters *params, Matrix w, int rows) {
  if (c->error.code || rows == 0) return;
  multiply(c, &(Product){.rows = rows,
                         .cols = w.rows,
                         .depth = w.cols,
                         .a = x,
                         .b = (const float *)params->compute + w.offset,
                         .transposed = true,
                         .c = y});
}

void CPU(linear_backward_input)(Context *c, void *dx, const void *dy, const Parameters *params, Matrix w, int rows) {
  if (c->error.code || rows == 0) return;
  multiply(c, &(Product){.rows = rows,
                         .cols = w.cols,
                         .depth = w.rows,
                         .a = dy,
                         .b = (const float *)params->compute + w.offset,
                         .c = dx});
}

/* ---- the gradient of a weight ---- */

enum {
  STRIP = 48,              /* columns of dy packed side by side: whole tiles of rows, whole vectors */
  SPAN_STRIPS = 16,        /* strips that a thread takes at a time, at most */
  WEIGHT_DEPTH = 128,      /* rows of a pass */
  PACKED_MAX = 1 << 17,    /* numbers of x that a thread packs at a time: 512 KiB */
  SEGMENT_ROWS = 384,      /* a segment has at least so many */
  SEGMENTS = 4,            /* at most */
  SEGMENTED_MAX = 1 << 18, /* gradients with more elements have enough strips to share out */
  SUM_BLOCK = 1024         /* elements whose segments a thread adds at a time */
};
_Static_assert(STRIP % TILE_ROWS == 0 && STRIP % LANES == 0, "tiles and vectors of a strip are whole");

typedef struct WeightGradient {
  int outputs, inputs, rows; /* M, K, N */
  const float *dy, *x;
  float *dw;
  bool accumulate;
  int segments, segment_rows, block_rows; /* a block is what a thread packs at a time */
  int strips, panels;                     /* of outputs and inputs */
  float *sums;                            /* [segments][M][K] where there are several segments */
} WeightGradient;

/* What a thread has packed: panels of x, and strips of dy for one pass. */
typedef struct PackedBlock {
  int first; /* row, -1 = nothing */
  float *x;  /* [passes][panels][WEIGHT_DEPTH][TILE_COLS] */
  float *dy; /* [SPAN_STRIPS][WEIGHT_DEPTH][STRIP] */
} PackedBlock;

static void pack_block(const WeightGradient *g, int first, int rows, PackedBlock *packed) {
  if (packed->first == first) return;
  packed->first = first;
  enum { SIZE = (WEIGHT_DEPTH + 1) * TILE_COLS };
  for (int n = 0; n < rows; n += WEIGHT_DEPTH)
    pack_columns(TILE_COLS, smaller(WEIGHT_DEPTH, rows - n), g->inputs, g->x + (int64_t)(first + n) * g->inputs,
                 g->inputs, packed->x + (int64_t)(n / WEIGHT_DEPTH) * g->panels * SIZE, SIZE);
}

/* dw[i .. i+cols] (+)= dy^T x over `depth` rows from row n on. x: the panels of these rows. */
static void weight_gradient_pass(const WeightGradient *g, float *to, int i, int cols, int n, int depth, const float *x,
                                 float *dy, bool add) {
  enum { SIZE = (WEIGHT_DEPTH + 1) * STRIP };
  pack_columns(STRIP, depth, cols, g->dy + (int64_t)n * g->outputs + i, g->outputs, dy, SIZE);
  for (int j = 0; j < g->inputs; j += TILE_COLS, x += (WEIGHT_DEPTH + 1) * TILE_COLS)
    for (int strip = 0; strip * STRIP < cols; strip++)
      CPU(tile_multiply)(smaller(cols - strip * STRIP, STRIP), smaller(g->inputs - j, TILE_COLS), depth,
                         dy + strip * SIZE, 1, STRIP, x, TILE_COLS,
                         to + (int64_t)(i + strip * STRIP) * g->inputs + j, g->inputs, add);
}

/* Strips first .. last of the outputs over one segment of the rows. */
static void weight_gradient_strips(const WeightGradient *g, int segment, int first, int last, PackedBlock *packed) {
  int begin = segment * g->segment_rows, end = smaller(begin + g->segment_rows, g->rows);
  int i = first * STRIP, cols = smaller(last * STRIP, g->outputs) - i;
  float *to = g->sums ? g->sums + (int64_t)segment * g->outputs * g->inputs : g->dw;
  for (int block = begin; block < end; block += g->block_rows) {
    int rows = smaller(g->block_rows, end - block);
    pack_block(g, block, rows, packed);
    for (int n = 0; n < rows; n += WEIGHT_DEPTH)
      weight_gradient_pass(g, to, i, cols, block + n, smaller(WEIGHT_DEPTH, rows - n),
                           packed->x + (int64_t)(n / WEIGHT_DEPTH) * g->panels * (WEIGHT_DEPTH + 1) * TILE_COLS, packed->dy,
                           block + n > begin || (!g->sums && g->accumulate));
  }
}

static void add_segments(const WeightGradient *g, int block) {
  int64_t elements = (int64_t)g->outputs * g->inputs, first = (int64_t)block * SUM_BLOCK;
  int count = elements - first < SUM_BLOCK ? (int)(elements - first) : SUM_BLOCK;
  const float *from = g->sums + first;
  float *restrict to = g->dw + first;
  if (!g->accumulate) memset(to, 0, (size_t)count * sizeof(float));
  for (int s = 0; s < g->segments; s++, from += elements) {
#pragma omp simd
    for (int i = 0; i < count; i++) to[i] += from[i];
  }
}

static void plan_weight_gradient(WeightGradient *g) {
  int64_t elements = (int64_t)g->outputs * g->inputs;
  int most = elements > SEGMENTED_MAX ? 1 : smaller(SEGMENTS, g->rows / SEGMENT_ROWS);
  g->segment_rows = most > 1 ? divide_up(g->rows, most) : g->rows;
  g->segments = divide_up(g->rows, g->segment_rows);
  g->strips = divide_up(g->outputs, STRIP);
  g->panels = divide_up(g->inputs, TILE_COLS);
  int passes = PACKED_MAX / (g->panels * TILE_COLS * WEIGHT_DEPTH);
  g->block_rows = smaller(g->segment_rows, (passes < 1 ? 1 : passes) * WEIGHT_DEPTH);
}

/* The strips of a span may belong to several segments. */
static void weight_gradient_span(const WeightGradient *g, Span s, PackedBlock *packed) {
  while (s.begin < s.end) {
    int segment = s.begin / g->strips, end = smaller(s.end, (segment + 1) * g->strips);
    weight_gradient_strips(g, segment, s.begin - segment * g->strips, end - segment * g->strips, packed);
    s.begin = end;
  }
}

static void weight_gradient(Context *c, WeightGradient *g) {
  plan_weight_gradient(g);
  size_t elements = (size_t)g->outputs * (size_t)g->inputs, sums = g->segments > 1 ? (size_t)g->segments * elements : 0;
  sums = (sums + LANES - 1) / LANES * LANES;
  int passes = divide_up(g->block_rows, WEIGHT_DEPTH);
  size_t packed_x = (size_t)passes * (size_t)g->panels * (WEIGHT_DEPTH + 1) * TILE_COLS;
  size_t each = packed_x + SPAN_STRIPS * (WEIGHT_DEPTH + 1) * STRIP;
  float *memory = CPU(scratch)(c, sums + each * (size_t)c->threads);
  if (!memory) return;
  g->sums = sums ? memory : NULL;
  int threads = c->threads, blocks = sums ? (int)((elements + SUM_BLOCK - 1) / SUM_BLOCK) : 0;
  bool packs_once = g->block_rows == g->segment_rows;
  share_set(c, 0, g->segments * g->strips);
  share_set(c, 1, blocks);
#pragma omp parallel num_threads(threads)
  {
    int t = omp_get_thread_num();
    float *own = memory + sums + (size_t)t * each;
    PackedBlock packed = {-1, own, own + packed_x};
    for (Span s; share_take(c, 0, packs_once ? 1 : 2, SPAN_STRIPS, &s);)
      weight_gradient_span(g, s, &packed);
    if (g->sums) {
#pragma omp barrier
      for (Span s; share_take(c, 1, 1, blocks, &s);)
        for (int block = s.begin; block < s.end; block++) add_segments(g, block);
    }
  }
}

void CPU(linear_backward_weight)(Context *c, const Parameters *params, Matrix w, const void *dy, const void *x,
                                 int rows, bool accumulate) {
  if (c->error.code) return;
  float *dw = params->grad + w.offset;
  if (rows > 0)
    weight_gradient(c, &(WeightGradient){.outputs = w.rows,
                                         .inputs = w.cols,
                                         .rows = rows,
                                         .dy = dy,
                                         .x = x,
                                         .dw = dw,
                                         .accumulate = accumulate});
  else if (!accumulate) memset(dw, 0, (size_t)w.rows * (size_t)w.cols * sizeof(float));
}

/* Tiles that stay in the first-level cache: what a perfect GEMM would reach. */
double CPU(peak_flops)(Context *c) {
  enum { ROUNDS = 2000, TRIES = 5 };
  double best = 0;
  for (int try = 0; try < TRIES; try++) {
    double start = omp_get_wtime();
#pragma omp parallel num_threads(c->threads)
    {
      _Alignas(64) float a[TILE_ROWS * DEPTH], b[DEPTH * TILE_COLS], sum[TILE_ROWS * TILE_COLS];
      for (int i = 0; i < TILE_ROWS * DEPTH; i++) a[i] = 1e-3f * (float)i;
      for (int i = 0; i < DEPTH * TILE_COLS; i++) b[i] = 1e-3f * (float)i;
      for (int round = 0; round < ROUNDS; round++)
        CPU(tile_multiply)(TILE_ROWS, TILE_COLS, DEPTH, a, DEPTH, 1, b, TILE_COLS, sum, TILE_COLS, round > 0);
    }
    double seconds = omp_get_wtime() - start;
    double flops = 2.0 * TILE_ROWS * TILE_COLS * DEPTH * ROUNDS * c->threads / seconds;
    best = flops > best ? flops : best;
  }
  return best;
}
