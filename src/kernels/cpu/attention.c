/* Attention, forward and backward (Dao et al., "FlashAttention", 2022: blocks of keys with a
 * running maximum; the forward pass stores no probabilities beyond a block, and the backward pass recomputes them from
 * the log-sum-exp).
 * One thread works on one (sequence, head), so the results do not depend on the number of threads. It packs keys
 * transposed, so that scores, weighted values and all gradients are tile products over contiguous rows. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tile.h"

enum {
  KEY_BLOCK = 128, /* keys whose scores are held at a time; a multiple of 32 (the dropout map) and of TILE_COLS */
  FORWARD_QUERIES = 2 * TILE_ROWS, /* small, so that a causal block wastes little */
  BACKWARD_QUERIES = 5 * TILE_ROWS
};

/* The keys that query i of sequence b attends to: [begin, end); none when begin >= end. */
typedef struct Visible {
  int begin, end;
} Visible;

static Visible visible_keys(const Attention *a, int b, int i) {
  int64_t at = (int64_t)b * a->queries + i;
  Visible v = {a->key_begin ? a->key_begin[at] : 0, a->key_end ? a->key_end[at] : a->keys};
  if (a->causal) {
    int64_t last = (int64_t)i + 1;
    if (last < v.end) v.end = (int)last;
  }
  if (v.begin < 0) v.begin = 0;
  if (v.end > a->keys) v.end = a->keys;
  return v;
}

/* The union of the visible keys of queries i0 .. i0+count. */
static Visible visible_block(const Attention *a, int b, int i0, int count) {
  Visible all = {a->keys, 0};
  for (int i = i0; i < i0 + count; i++) {
    Visible v = visible_keys(a, b, i);
    if (v.begin >= v.end) continue;
    if (v.begin < all.begin) all.begin = v.begin;
    if (v.end > all.end) all.end = v.end;
  }
  return all;
}

/* The visible keys of query i among keys j0 .. j0+width, relative to j0. */
static Visible visible_in_block(const Attention *a, int b, int i, int j0, int width) {
  Visible v = visible_keys(a, b, i);
  v.begin = v.begin < j0 ? 0 : v.begin - j0;
  v.end = v.end - j0 > width ? width : v.end - j0;
  return v.begin < v.end ? v : (Visible){0, 0};
}

/* Packs `count` rows of one head, times `factor`, to packed[count][width], zero beyond head_dim. */
static void pack_rows(View v, int b, int64_t row0, int count, int head, int head_dim, int width, float factor,
                      float *packed) {
  for (int t = 0; t < count; t++) {
    const Element *from = view_row(v, b, row0 + t, head);
    float *to = packed + (int64_t)t * width;
#pragma omp simd
    for (int d = 0; d < head_dim; d++) to[d] = factor * widen(from[d]);
    for (int d = head_dim; d < width; d++) to[d] = 0.0f;
  }
}

/* Packs all rows of one head to packed[head_dim][width], zero beyond `rows`. */
static void pack_transposed(View v, int b, int rows, int head, int head_dim, int width, float *packed) {
  for (int t = 0; t < rows; t += LANES) {
    int count = smaller(rows - t, LANES);
#if CPU_BF16
    float from[LANES * HEAD_DIM_LIMIT];
    const int64_t stride = head_dim;
    for (int i = 0; i < count; i++) wide_row(view_row(v, b, t + i, head), from + i * stride, head_dim);
#else
    const float *from = view_row(v, b, t, head);
    const int64_t stride = v.row;
#endif
    CPU(transpose)(count, head_dim, from, stride, packed + t, width);
  }
  for (int d = 0; d < head_dim; d++)
    for (int t = rows; t < width; t++) packed[(int64_t)d * width + t] = 0.0f;
}

/* factor[j - j0] = 0 or 1/(1-p) for keys j0 .. j0+count of query i; j0 a multiple of 32 (map: attention() in
 * kernels.h). */
static void dropout_factors(const Attention *a, int b, int h, int i, int j0, int count, float *factor) {
  const Dropout *dropout = a->dropout;
  uint32_t threshold = dropout_threshold(dropout->p, 16), step = dropout_step(dropout);
  uint32_t stream = (uint32_t)(dropout->state->sequence + b);
  float scale = 1.0f / (1.0f - dropout->p);
  int64_t group = ((int64_t)h * a->queries + i) * ((a->keys + 31) / 32) + j0 / 32;
  for (int j = 0; j < count; j += 32, group++)
    for (int call = 0; call < 4; call++) {
      PhiloxWords words = philox(dropout->seed, (uint32_t)(group * 4 + call), dropout->site, step, stream);
      for (int lane = 0; lane < 8; lane++) {
        uint32_t bits = (words.word[lane / 2] >> (16 * (lane % 2))) & 0xFFFFu;
        factor[j + 8 * (lane / 2) + 2 * call + lane % 2] = bits >= threshold ? scale : 0.0f;
      }
    }
}

/* An operation's operands; those that it does not use are not set. */
typedef struct AttentionJob {
  const Attention *attention;
  View q, k, v, out, dq, dk, dv, dout;
  float *lse;
  const Rope *rope; /* NULL: dq and dk are not rotated back */
  float *memory;    /* `each` numbers for each thread */
  size_t each;
  float *map;
} AttentionJob;

static int64_t query_number(const Attention *a, int b, int h, int i) {
  return ((int64_t)b * a->heads + h) * a->queries + i;
}

/* ---- forward ---- */

typedef struct ForwardScratch {
  float *keys;   /* [D][key_width] transposed */
  float *values; /* [Tk][dim_width] */
  float *query;  /* [FORWARD_QUERIES][D], scaled */
  float *scores; /* [FORWARD_QUERIES][KEY_BLOCK] */
  float *sum;    /* [FORWARD_QUERIES][dim_width] unnormalized output */
} ForwardScratch;

static size_t forward_scratch(const Attention *a, ForwardScratch *out, float *memory) {
  size_t key_width = (size_t)round_up(a->keys, TILE_COLS), dim_width = (size_t)round_up(a->head_dim, LANES);
  size_t keys = (size_t)a->head_dim * key_width, values = (size_t)a->keys * dim_width;
  size_t query = (size_t)round_up(FORWARD_QUERIES * a->head_dim, LANES), scores = FORWARD_QUERIES * KEY_BLOCK;
  if (out)
    *out = (ForwardScratch){memory, memory + keys, memory + keys + values, memory + keys + values + query,
                            memory + keys + values + query + scores};
  return keys + values + query + scores + FORWARD_QUERIES * dim_width;
}

static void forward_block(const AttentionJob *job, const ForwardScratch *s, int b, int h, int i0, int count) {
  const Attention *a = job->attention;
  int key_width = round_up(a->keys, TILE_COLS), dim_width = round_up(a->head_dim, LANES), dim = a->head_dim;
  Softmax softmax[FORWARD_QUERIES];
  for (int i = 0; i < count; i++) softmax[i] = (Softmax){-INFINITY, 0};
  memset(s->sum, 0, (size_t)count * (size_t)dim_width * sizeof(float));
  pack_rows(job->q, b, i0, count, h, dim, dim, a->scale, s->query);
  Visible all = visible_block(a, b, i0, count);
  for (int j0 = all.begin / KEY_BLOCK * KEY_BLOCK; j0 < all.end; j0 += KEY_BLOCK) {
    int keys = smaller(all.end - j0, KEY_BLOCK), width = round_up(keys, LANES);
    CPU(tile_multiply)(count, width, dim, s->query, dim, 1, s->keys + j0, key_width, s->scores, KEY_BLOCK, false);
    for (int i = 0; i < count; i++) {
      Visible visible = visible_in_block(a, b, i0 + i, j0, width);
      float *row = s->scores + i * KEY_BLOCK;
      softmax_row(row, visible.begin, visible.end, width, &softmax[i], s->sum + i * dim_width, dim_width);
      if (!dropout_active(a->dropout)) continue;
      float factor[KEY_BLOCK];
      dropout_factors(a, b, h, i0 + i, j0, keys, factor);
#pragma omp simd
      for (int j = 0; j < keys; j++) row[j] *= factor[j];
    }
    CPU(tile_multiply)
    (count, dim_width, keys, s->scores, KEY_BLOCK, 1, s->values + (int64_t)j0 * dim_width, dim_width, s->sum, dim_width,
     true);
  }
  for (int i = 0; i < count; i++) {
    Element *to = view_row(job->out, b, i0 + i, h);
    const float *from = s->sum + i * dim_width;
    float total = softmax[i].total, factor = total == 0.0f ? 0.0f : 1.0f / total; /* NaN stays NaN */
#pragma omp simd
    for (int d = 0; d < dim; d++) to[d] = narrow(from[d] * factor);
    if (job->lse) job->lse[query_number(a, b, h, i0 + i)] = total == 0.0f ? -INFINITY : softmax[i].max + logf(total);
  }
}

/* Computes heads begin .. end of all sequences. */
static void forward_heads(const void *job, int begin, int end, int thread) {
  const AttentionJob *s = job;
  const Attention *a = s->attention;
  int key_width = round_up(a->keys, TILE_COLS), dim_width = round_up(a->head_dim, LANES);
  ForwardScratch scratch;
  forward_scratch(a, &scratch, s->memory + s->each * (size_t)thread);
  for (int piece = begin; piece < end; piece++) {
    int b = piece / a->heads, h = piece % a->heads, kv_head = h / (a->heads / a->kv_heads);
    pack_transposed(s->k, b, a->keys, kv_head, a->head_dim, key_width, scratch.keys);
    pack_rows(s->v, b, 0, a->keys, kv_head, a->head_dim, dim_width, 1.0f, scratch.values);
    for (int i = 0; i < a->queries; i += FORWARD_QUERIES)
      forward_block(s, &scratch, b, h, i, smaller(a->queries - i, FORWARD_QUERIES));
  }
}

/* Runs job->attention->batch * heads pieces; a thread has `size` numbers of scratch space. */
static void run_heads(Context *c, AttentionJob *job, int heads, size_t size, PoolWork work) {
  job->each = (size + LANES - 1) / LANES * LANES;
  job->memory = CPU(scratch)(c, job->each * (size_t)c->threads);
  if (job->memory) pool_run(c->pool, job->attention->batch * heads, 1, 1, work, job);
}

void CPU(attention)(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  AttentionJob job = {.attention = a, .q = q, .k = k, .v = v, .out = out, .lse = lse};
  run_heads(c, &job, a->heads, forward_scratch(a, NULL, NULL), forward_heads);
}

/* ---- backward ---- */

typedef struct BackwardScratch {
  float *keys_t, *values_t; /* [D][key_width] transposed */
  float *keys;              /* [key_width][dim_width] */
  float *dkeys, *dvalues;   /* [key_width][dim_width] sums over queries and heads of the group */
  float *query, *dout, *dq; /* [BACKWARD_QUERIES][dim_width]; query is scaled */
  float *p, *ds;            /* [BACKWARD_QUERIES][KEY_BLOCK] probabilities after dropout, gradient of the scores */
} BackwardScratch;

static size_t backward_scratch(const Attention *a, BackwardScratch *out, float *memory) {
  size_t key_width = (size_t)round_up(a->keys, KEY_BLOCK), dim_width = (size_t)round_up(a->head_dim, LANES);
  size_t transposed = (size_t)a->head_dim * key_width, rows = key_width * dim_width;
  size_t queries = BACKWARD_QUERIES * dim_width, scores = BACKWARD_QUERIES * KEY_BLOCK;
  if (out) {
    float **arrays[] = {&out->keys_t, &out->values_t, &out->keys, &out->dkeys, &out->dvalues,
                        &out->query,  &out->dout,     &out->dq,   &out->p,     &out->ds};
    size_t sizes[] = {transposed, transposed, rows, rows, rows, queries, queries, queries, scores, scores};
    for (int i = 0; i < 10; i++, memory += sizes[i - 1]) *arrays[i] = memory;
  }
  return 2 * transposed + 3 * rows + 3 * queries + 2 * scores;
}

/* Replaces scores and gradients of probabilities of one query over one block by p (with dropout) and ds, zero for
 * invisible keys. factor: of dropout, or NULL. */
static void score_gradient_row(float *p, float *ds, Visible visible, int width, float lse, float delta,
                               const float *factor) {
  const int padded = round_up(visible.end, LANES);
  for (int j = 0; j < visible.begin; j++) p[j] = -INFINITY;
  for (int j = visible.end; j < padded; j++) p[j] = -INFINITY;
  if (lse == -INFINITY) lse = INFINITY; /* avoids e^(-inf + inf) */
  if (factor) {
#pragma omp simd
    for (int j = 0; j < padded; j++) {
      float probability = exp_f32(p[j] - lse);
      p[j] = probability * factor[j];
      ds[j] = probability * (ds[j] * factor[j] - delta);
    }
  } else {
#pragma omp simd
    for (int j = 0; j < padded; j++) {
      p[j] = exp_f32(p[j] - lse);
      ds[j] = p[j] * (ds[j] - delta);
    }
  }
  for (int j = padded; j < width; j++) p[j] = ds[j] = 0.0f;
}

/* Stores the gradient of a rotated head of row t as that of the head before the rotation. */
static void rotate_back(Element *to, const float *from, const Rope *rope, int b, int length, int t, int dim) {
  rope_head(to, from, rope_row(rope, b, length, t, dim), rope_dims(rope, dim), dim, -1.0f);
}

/* Computes queries i0 .. i0+count of head h with their visible keys: adds to dkeys and dvalues, writes dq. */
static void backward_block(const AttentionJob *job, const BackwardScratch *s, int b, int h, int i0, int count) {
  const Attention *a = job->attention;
  int key_width = round_up(a->keys, KEY_BLOCK), dim_width = round_up(a->head_dim, LANES), dim = a->head_dim;
  float delta[BACKWARD_QUERIES];
  pack_rows(job->q, b, i0, count, h, dim, dim_width, a->scale, s->query);
  pack_rows(job->dout, b, i0, count, h, dim, dim_width, 1.0f, s->dout);
  memset(s->dq, 0, (size_t)count * (size_t)dim_width * sizeof(float));
  for (int i = 0; i < count; i++) {
    const Element *out = view_row(job->out, b, i0 + i, h);
    const float *dout = s->dout + i * dim_width;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int d = 0; d < dim; d++) dot += widen(out[d]) * dout[d];
    delta[i] = dot;
  }
  Visible all = visible_block(a, b, i0, count);
  for (int j0 = all.begin / KEY_BLOCK * KEY_BLOCK; j0 < all.end; j0 += KEY_BLOCK) {
    int keys = smaller(all.end - j0, KEY_BLOCK), width = round_up(keys, LANES);
    CPU(tile_multiply)(count, width, dim, s->query, dim_width, 1, s->keys_t + j0, key_width, s->p, KEY_BLOCK, false);
    CPU(tile_multiply)(count, width, dim, s->dout, dim_width, 1, s->values_t + j0, key_width, s->ds, KEY_BLOCK, false);
    for (int i = 0; i < count; i++) {
      Visible visible = visible_in_block(a, b, i0 + i, j0, width);
      float factor[KEY_BLOCK];
      const bool dropped = dropout_active(a->dropout);
      if (dropped) dropout_factors(a, b, h, i0 + i, j0, keys, factor);
      score_gradient_row(s->p + i * KEY_BLOCK, s->ds + i * KEY_BLOCK, visible, width,
                         job->lse[query_number(a, b, h, i0 + i)], delta[i], dropped ? factor : NULL);
    }
    int64_t at = (int64_t)j0 * dim_width;
    CPU(tile_multiply)(count, dim_width, keys, s->ds, KEY_BLOCK, 1, s->keys + at, dim_width, s->dq, dim_width, true);
    CPU(tile_multiply)
    (width, dim_width, count, s->ds, 1, KEY_BLOCK, s->query, dim_width, s->dkeys + at, dim_width, true);
    CPU(tile_multiply)
    (width, dim_width, count, s->p, 1, KEY_BLOCK, s->dout, dim_width, s->dvalues + at, dim_width, true);
  }
  for (int i = 0; i < count; i++) {
    float *from = s->dq + i * dim_width;
    Element *to = view_row(job->dq, b, i0 + i, h);
#pragma omp simd
    for (int d = 0; d < dim; d++) from[d] *= a->scale;
    if (job->rope) rotate_back(to, from, job->rope, b, a->queries, i0 + i, dim);
    else narrow_row(to, from, dim);
  }
}

static void backward_group(const AttentionJob *job, const BackwardScratch *s, int b, int kv_head) {
  const Attention *a = job->attention;
  int key_width = round_up(a->keys, KEY_BLOCK), dim_width = round_up(a->head_dim, LANES), dim = a->head_dim;
  int group = a->heads / a->kv_heads;
  size_t bytes = (size_t)round_up(a->keys, LANES) * (size_t)dim_width * sizeof(float);
  pack_transposed(job->k, b, a->keys, kv_head, dim, key_width, s->keys_t);
  pack_transposed(job->v, b, a->keys, kv_head, dim, key_width, s->values_t);
  pack_rows(job->k, b, 0, a->keys, kv_head, dim, dim_width, 1.0f, s->keys);
  memset(s->dkeys, 0, bytes);
  memset(s->dvalues, 0, bytes);
  for (int h = kv_head * group; h < (kv_head + 1) * group; h++)
    for (int i = 0; i < a->queries; i += BACKWARD_QUERIES)
      backward_block(job, s, b, h, i, smaller(a->queries - i, BACKWARD_QUERIES));
  for (int j = 0; j < a->keys; j++) {
    const float *dk = s->dkeys + (int64_t)j * dim_width;
    Element *to = view_row(job->dk, b, j, kv_head);
    if (job->rope) rotate_back(to, dk, job->rope, b, a->keys, j, dim);
    else narrow_row(to, dk, dim);
    narrow_row(view_row(job->dv, b, j, kv_head), s->dvalues + (int64_t)j * dim_width, dim);
  }
}

/* Computes key/value heads begin .. end of all sequences. */
static void backward_groups(const void *job, int begin, int end, int thread) {
  const AttentionJob *s = job;
  const Attention *a = s->attention;
  BackwardScratch scratch;
  backward_scratch(a, &scratch, s->memory + s->each * (size_t)thread);
  for (int piece = begin; piece < end; piece++) backward_group(s, &scratch, piece / a->kv_heads, piece % a->kv_heads);
}

void CPU(attention_backward)(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                             View v, View out, const float *lse, const Rope *rope) {
  AttentionJob job = {a, q, k, v, out, dq, dk, dv, dout, (float *)lse, rope, NULL, 0, NULL};
  run_heads(c, &job, a->kv_heads, backward_scratch(a, NULL, NULL), backward_groups);
}

/* ---- map ---- */

/* Computes queries begin .. end of all heads of all sequences. */
static void map_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const AttentionJob *s = job;
  const Attention *a = s->attention;
  for (int n = begin; n < end; n++) {
    int i = n % a->queries, h = n / a->queries % a->heads, b = n / a->queries / a->heads;
    float *to = s->map + (int64_t)n * a->keys, lse = s->lse[n], wide_query[HEAD_DIM_LIMIT], wide_key[HEAD_DIM_LIMIT];
    Visible visible = visible_in_block(a, b, i, 0, a->keys);
    if (lse == -INFINITY) visible = (Visible){0, 0};
    const float *query = wide_row(view_row(s->q, b, i, h), wide_query, a->head_dim);
    memset(to, 0, (size_t)a->keys * sizeof *to);
    for (int j = visible.begin; j < visible.end; j++) {
      const float *key = wide_row(view_row(s->k, b, j, h / (a->heads / a->kv_heads)), wide_key, a->head_dim);
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int d = 0; d < a->head_dim; d++) dot += query[d] * key[d];
      to[j] = a->scale * dot;
    }
#pragma omp simd
    for (int j = visible.begin; j < visible.end; j++) to[j] = exp_f32(to[j] - lse);
  }
}

void CPU(attention_map)(Context *c, const Attention *a, float *map, View q, View k, const float *lse) {
  if (c->error.code) return;
  const AttentionJob job = {.attention = a, .q = q, .k = k, .lse = (float *)lse, .map = map};
  pool_run(c->pool, a->batch * a->heads * a->queries, 1, SPAN_ROWS, map_rows, &job);
}
