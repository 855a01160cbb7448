/* Benchmarks of attention, RoPE and storing keys and values. */
#include "bench/bench.h"
#include "kernels/philox.h"

#include <math.h>

typedef struct HeadViews {
  View q, k, v;
} HeadViews;

/* The heads in packed QKV, the layout of the model. */
static HeadViews packed(const Bench *b, const Attention *a, void *qkv) {
  int64_t q = (int64_t)a->heads * a->head_dim, kv = (int64_t)a->kv_heads * a->head_dim, width = q + 2 * kv;
  int64_t batch = width * a->queries, head = a->head_dim;
  char *at = qkv;
  return (HeadViews){{at, batch, width, head},
                     {at + (size_t)q * b->dt, batch, width, head},
                     {at + (size_t)(q + kv) * b->dt, batch, width, head}};
}

static View heads_of(const Attention *a, void *data) {
  int64_t width = (int64_t)a->heads * a->head_dim;
  return (View){data, width * a->queries, width, a->head_dim};
}

static Attention attention_of(const Operands *o) {
  Attention a = o->attention;
  a.dropout = o->dropout.p > 0 ? &o->dropout : NULL;
  return a;
}

/* arrays: qkv, out, lse, dqkv, dout */
static void call_attention(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Attention attention = attention_of(o);
  HeadViews in = packed(b, &attention, a[0]);
  b->ops->attention(b->c, &attention, heads_of(&attention, a[1]), in.q, in.k, in.v, a[2]);
}

static void call_attention_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Attention attention = attention_of(o);
  HeadViews in = packed(b, &attention, a[0]), d = packed(b, &attention, a[3]);
  Rope rope = {o->model ? o->model->rope : NULL, NULL};
  b->ops->attention_backward(b->c, &attention, d.q, d.k, d.v, heads_of(&attention, a[4]), in.q, in.k, in.v,
                             heads_of(&attention, a[1]), a[2], o->model ? &rope : NULL);
}

static void call_rope(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  Rope rope = {o->model->rope, NULL};
  b->ops->rope(b->c, packed(b, a, o->array[set][0]).q, a->batch, a->queries, a->heads + a->kv_heads, a->head_dim,
               &rope);
}

static void call_cache_store(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  HeadViews in = packed(b, a, o->array[set][0]);
  KvCache cache = {o->array[set][1], o->array[set][2], a->queries, a->kv_heads, a->head_dim};
  b->ops->cache_store(b->c, &cache, 0, in.k, in.v, a->queries);
}

/* Times forward and backward. Before the timing of backward, a forward call computes its `out` and `lse`. */
static void attention_pair(Bench *b, BenchModel *m, const char *model, Attention a, float p) {
  const int64_t rows = (int64_t)a.batch * a.queries, q = rows * a.heads * a.head_dim,
                qkv = rows * (a.heads + 2 * a.kv_heads) * a.head_dim;
  const double dt = (double)b->dt;
  /* 4 T^2 D H B, of which the causal mask leaves half */
  const double forward = 2.0 * a.queries * (double)a.queries * a.head_dim * a.heads * a.batch;
  const Need in = {FILL_COMPUTE, qkv}, out = {FILL_COMPUTE, q}, lse = {FILL_FLOATS, rows * a.heads};
  const Case cases[] = {{p > 0 ? "attention, dropout" : "attention", call_attention, dt * (double)(qkv + q), forward,
                         .needs = {in, out, lse}, .dropout = p, .against_gemm = true},
                        {p > 0 ? "attention_backward, dropout" : "attention_backward", call_attention_backward,
                         dt * (double)(2 * qkv + 2 * q), 2.5 * forward, .needs = {in, out, lse, in, out}, .dropout = p,
                         .against_gemm = true, .prepare = call_attention}};
  Operands o = {.model = m, .attention = a, .dropout = {.site = SITE_DROPOUT + 1, .seed = 42}};
  const Group group = bench_group("attention", model, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  bench_rows(b, &group, &o, cases, 2);
}

static Attention causal(int batch, int heads, int head_dim, int length) {
  return (Attention){.batch = batch,
                     .heads = heads,
                     .kv_heads = heads,
                     .head_dim = head_dim,
                     .queries = length,
                     .keys = length,
                     .scale = 1.0f / sqrtf((float)head_dim),
                     .causal = true};
}

void bench_attention(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  Attention a = causal(m->batch, c->heads, c->head_dim, c->ctx);
  attention_pair(b, m, m->name, a, 0);
  const int64_t rows = (int64_t)m->batch * c->ctx, keys = (int64_t)c->ctx * bench_key_width(c);
  Operands o = {.model = m, .attention = a};
  Group group = bench_group("attention", m->name, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  bench_row(b, &group, &o,
            (Case){"rope, queries and keys", call_rope,
                   2.0 * (double)(rows * (bench_query_width(c) + bench_key_width(c))) * (double)b->dt,
                   .needs = {{FILL_COMPUTE, rows * bench_qkv_width(c)}}});
  o.attention.batch = 1;
  group = bench_group("attention", m->name, "T%d H%d D%d", a.queries, a.kv_heads, a.head_dim);
  const Need qkv = {FILL_COMPUTE, (int64_t)c->ctx * bench_qkv_width(c)}, cache = {FILL_COMPUTE, keys};
  bench_row(b, &group, &o,
            (Case){"cache_store", call_cache_store, 4.0 * (double)keys * (double)b->dt, .needs = {qkv, cache, cache}});
}

/* The shapes of the FlashAttention papers: 16384 tokens, width 2048. */
void bench_attention_sweep(Bench *b) {
  const int lengths[] = {256, 1024, 4096}, sizes[] = {64, 128};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < 3; i++) {
      Attention a = causal(16384 / lengths[i], 2048 / sizes[d], sizes[d], lengths[i]);
      if (b->quick) a = causal(1, 2, 8 << d, 8 << i);
      attention_pair(b, NULL, "sweep", a, 0);
      if (i == 1 && d == 0) attention_pair(b, NULL, "sweep", a, 0.1f);
    }
}
