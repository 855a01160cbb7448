/* How large a pass is: activations laid out in one allocation, the memory plan, floating-point operations. */
#include "model/internal.h"

#include <stdlib.h>

/* What the head may hold at a time unless told otherwise. On a GPU adding a chunk's part to the head's gradient costs
 * 245 / rows of its matrix products: 2 % at GPT-2's vocabulary in bf16. */
static int64_t logits_budget(const ContextInfo *device) { return (int64_t)(device->accelerator ? 1024 : 64) << 20; }

/* Cuts one allocation into aligned pieces; with base NULL it only measures. */
typedef struct Arena {
  char *base;
  size_t used;
} Arena;

static void *take(Arena *arena, int64_t elements, size_t size) {
  void *piece = arena->base ? arena->base + arena->used : NULL;
  arena->used += (size_t)round_up64(elements * (int64_t)size, 256);
  return piece;
}

static void layout_layer(LayerActivations *l, Arena *arena, const ModelConfig *c, int64_t rows, size_t dt) {
  l->x_attention = take(arena, rows * c->dim, dt);
  l->n_attention = take(arena, rows * c->dim, dt);
  l->qkv = take(arena, rows * qkv_width(c), dt);
  l->attention = take(arena, rows * query_width(c), dt);
  l->x_mlp = take(arena, rows * c->dim, dt);
  l->n_mlp = take(arena, rows * c->dim, dt);
  l->gate_up = take(arena, rows * 2 * c->ffn, dt);
  l->h = take(arena, rows * c->ffn, dt);
  l->rstd_attention = take(arena, rows, sizeof(float));
  l->rstd_mlp = take(arena, rows, sizeof(float));
  l->lse = take(arena, rows * c->heads, sizeof(float));
}

/* Lays out everything a pass over `rows` rows needs; `layers` (c->layers entries) may be NULL when only measuring. */
static void layout_activations(Activations *a, Arena *arena, const ModelConfig *c, int64_t rows, bool train,
                               bool dropout, size_t dt) {
  LayerActivations one = {0};
  for (int layer = 0; layer < c->layers; layer++) {
    if (layer == 0 || train) layout_layer(&one, arena, c, rows, dt);
    if (a->layers) a->layers[layer] = one;
  }
  a->rows = rows;
  a->branch = take(arena, rows * c->dim, dt);
  a->x_final = take(arena, rows * c->dim, dt);
  a->n_final = take(arena, rows * c->dim, dt);
  a->rstd_final = take(arena, rows, sizeof(float));
  a->losses = take(arena, rows, sizeof(float));
  if (!train) return;
  a->dx = take(arena, rows * c->dim, dt);
  a->dn = take(arena, rows * c->dim, dt);
  a->dbranch = dropout ? take(arena, rows * c->dim, dt) : NULL;
  a->dh = take(arena, rows * c->ffn, dt);
  a->dattention = take(arena, rows * query_width(c), dt);
  a->dqkv = take(arena, rows * qkv_width(c), dt);
}

static int choose_head_rows(const ModelConfig *c, int64_t rows, int wanted, const ContextInfo *device) {
  size_t dt = dtype_bytes(device->dtype);
  int64_t fit = wanted > 0 ? wanted : logits_budget(device) / ((int64_t)padded_vocab(c) * (int64_t)dt);
  if (wanted <= 0 && fit > 128) fit -= fit % 128; /* whole tiles of a GEMM */
  if (fit < 1) fit = 1;
  return (int)(fit < rows ? fit : rows);
}

MemoryPlan model_memory(const ModelConfig *c, const TrainConfig *train, const ContextInfo *device) {
  MemoryPlan plan = {0};
  ParameterTable table;
  if (!parameter_table_make(&table, c, NULL)) return plan;
  size_t dt = dtype_bytes(device->dtype), copy = device->dtype == DTYPE_F32 ? 0 : dt;
  int64_t rows = (int64_t)train->batch * c->ctx;
  Activations a = {0};
  Arena arena = {0};
  layout_activations(&a, &arena, c, rows, true, train->dropout > 0, dt);
  plan.weights = table.arena * (sizeof(float) + copy);
  plan.gradients = table.arena * sizeof(float);
  plan.moments = 2 * table.arena * sizeof(float);
  plan.activations = arena.used;
  plan.logits = (size_t)choose_head_rows(c, rows, train->head_rows, device) * (size_t)padded_vocab(c) * dt;
  plan.copies = 3 * table.arena * sizeof(float);
  plan.total = plan.weights + plan.gradients + plan.moments + plan.activations + plan.logits;
  if (!device->accelerator) plan.total += plan.copies;
  parameter_table_free(&table);
  return plan;
}

double model_step_flops(const ModelConfig *c, int64_t tokens) {
  double per_layer = (double)c->dim * qkv_width(c) + (double)query_width(c) * c->dim + 3.0 * c->dim * c->ffn;
  double linear = 6.0 * (c->layers * per_layer + (double)c->dim * c->vocab);
  double attention =
      7.0 * c->layers * (double)c->ctx * query_width(c); /* forward 2, backward 5; half the square is seen */
  return (double)tokens * (linear + attention);
}

bool activations_allocate(Model *m, Activations *a, void **memory, int64_t rows, bool train, int head_rows,
                          Error *error) {
  const ModelConfig *c = &m->config;
  size_t dt = m->dt;
  a->layers = calloc((size_t)c->layers, sizeof *a->layers);
  if (!a->layers) return error_memory(error, "the activations");
  bool dropout = train && m->settings.dropout > 0;
  ContextInfo device;
  m->ops->info(m->context, &device);
  a->head_rows = choose_head_rows(c, rows, head_rows, &device);
  Arena arena = {0};
  for (int pass = 0; pass < 2; pass++) { /* measure, then cut */
    arena.used = 0;
    layout_activations(a, &arena, c, rows, train, dropout, dt);
    a->logits = take(&arena, (int64_t)a->head_rows * padded_vocab(c), dt);
    if (pass == 0)
      arena.base = *memory = m->ops->alloc(m->context, train ? "activations" : "evaluation buffers", arena.used);
    if (!arena.base) break;
  }
  return model_check_backend(m, error);
}
