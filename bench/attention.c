/* Benchmarks of attention, RoPE and storing keys and values. */
#include "bench/bench.h"
#include "kernels/philox.h"

#include <math.h>

typedef struct HeadViews {
  View q, k, v;
} HeadViews;

/* Packed QKV, as the model has it. */
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

/* arrays: qkv, out, lse, dqkv, dout */
static void call_attention(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  HeadViews in = packed(b, &o->attention, a[0]);
  b->ops->attention(b->c, &o->attention, heads_of(&o->attention, a[1]), in.q, in.k, in.v, a[2]);
}

static void call_attention_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  HeadViews in = packed(b, &o->attention, a[0]), d = packed(b, &o->attention, a[3]);
  Rope rope = {o->model ? o->model->rope : NULL, NULL};
  b->ops->attention_backward(b->c, &o->attention, d.q, d.k, d.v, heads_of(&o->attention, a[4]), in.q, in.k, in.v,
                             heads_of(&o->attention, a[1]), a[2], o->model ? &rope : NULL);
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
  b->ops->cache_store(b->c, &cache, 0, 0, in.k, in.v, a->queries);
}

/* Forward, then backward of what the forward left (its lse has to belong to the scores). The backward's arrays are made
 * at once with the forward's, and lse and out come from a call before the timing. */
static void attention_pair(Bench *b, BenchModel *m, const char *model, Attention a, float p) {
  static char names[2][32];
  int64_t rows = (int64_t)a.batch * a.queries, q = rows * a.heads * a.head_dim,
          qkv = rows * (a.heads + 2 * a.kv_heads) * a.head_dim;
  double forward = 2.0 * a.queries * (double)a.queries * a.head_dim * a.heads * a.batch; /* 4 T^2 D H B, half seen */
  Dropout dropout = {p, SITE_DROPOUT + 1, 42, b->state};
  Operands o = {.model = m, .attention = a};
  Case k = {.group = "attention", .model = model, .against_gemm = true};
  k.operands = &o;
  snprintf(k.shape, sizeof k.shape, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  Need needs[] = {
      {FILL_COMPUTE, qkv}, {FILL_COMPUTE, q}, {FILL_FLOATS, rows * a.heads}, {FILL_COMPUTE, qkv}, {FILL_COMPUTE, q}};
  for (int backward = 0; backward < 2; backward++) {
    snprintf(names[backward], sizeof names[0], "%s%s", backward ? "attention_backward" : "attention",
             p > 0 ? ", dropout" : "");
    k.operation = names[backward];
    k.run = backward ? call_attention_backward : call_attention;
    k.flops = backward ? 2.5 * forward : forward;
    k.bytes = (double)b->dt * (double)(backward ? 2 * qkv + 2 * q : qkv + q);
    if (m && !bench_model_ready(b, m)) {
      bench_skip(b, &k, "the model does not fit");
      continue;
    }
    dropout.state = b->state;
    o.attention.dropout = p > 0 ? &dropout : NULL;
    if (!bench_sets(b, &o, needs, backward ? 5 : 3)) bench_skip(b, &k, "skipped: does not fit");
    else {
      for (int set = 0; backward && set < o.sets; set++) call_attention(b, &o, set);
      bench_case(b, &k);
    }
    bench_free(b);
  }
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
  int64_t rows = (int64_t)m->batch * c->ctx, qkv = rows * bench_qkv_width(c);
  Operands o = {.model = m, .attention = a};
  Case k = bench_case_of("attention", m->name, "rope, queries and keys", call_rope);
  snprintf(k.shape, sizeof k.shape, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  k.bytes = 2.0 * (double)(rows * (bench_query_width(c) + bench_key_width(c))) * (double)b->dt;
  Need needs[] = {{FILL_COMPUTE, qkv}, {FILL_COMPUTE, 0}, {FILL_COMPUTE, 0}};
  bench_row(b, k, &o, needs, 1);
  k.operation = "cache_store";
  k.run = call_cache_store;
  k.bytes = 4.0 * c->ctx * bench_key_width(c) * (double)b->dt;
  o.attention.batch = 1;
  needs[0].count = (int64_t)c->ctx * bench_qkv_width(c);
  needs[1].count = needs[2].count = (int64_t)c->ctx * bench_key_width(c);
  snprintf(k.shape, sizeof k.shape, "T%d H%d D%d", a.queries, a.kv_heads, a.head_dim);
  bench_row(b, k, &o, needs, 3);
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
