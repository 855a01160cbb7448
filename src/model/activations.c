/* The size of a pass: the layout of its activations in one allocation, the memory plan, floating-point operations. */
#include "model/internal.h"

#include <stdlib.h>

/* The default size of the logits in bytes: on a GPU at most an eighth of its memory. The memory that happens to be free
 * must not count, because sums of chunks depend on their size. On a GPU the time to add a chunk to the head's gradient
 * is 245 / rows of the time of its matrix products: 2 % at GPT-2's vocabulary in bf16. */
static int64_t logits_budget(const ContextInfo *device) {
  enum { CPU = 64 << 20, GPU = 1 << 30 };
  if (!device->accelerator) return CPU;
  return device->total_bytes / 8 < GPU ? (int64_t)(device->total_bytes / 8) : GPU;
}

/* Divides one allocation into aligned pieces; base NULL: only measures. */
typedef struct Arena {
  char *base;
  size_t used;
} Arena;

static void *take(Arena *arena, int64_t elements, size_t size) {
  void *piece = arena->base ? arena->base + arena->used : NULL;
  arena->used += (size_t)round_up64(elements * (int64_t)size, 256);
  return piece;
}

static void layout_norm(SublayerActivations *p, Arena *arena, const ModelConfig *c, int64_t rows, size_t dt) {
  p->x = take(arena, rows * c->dim, dt);
  p->n = take(arena, rows * c->dim, dt);
  p->stats.rstd = take(arena, rows, sizeof(float));
  p->stats.mean = norm_has_mean(c->norm) ? take(arena, rows, sizeof(float)) : NULL;
}

/* Elements of a row of SublayerActivations.in and middle. */
typedef struct Widths {
  int in, middle;
} Widths;

static Widths widths_of(const ModelConfig *c, SublayerKind kind) {
  const MlpShape mlp = mlp_of(c);
  switch (kind) {
  case SUBLAYER_CONVOLUTION: return (Widths){3 * c->dim, c->dim};
  case SUBLAYER_CROSS: return (Widths){query_width(c), query_width(c)};
  case SUBLAYER_MLP: return (Widths){mlp_width(&mlp), c->ffn};
  default: return (Widths){qkv_width(c), query_width(c)};
  }
}

/* The widths of the gradients dmiddle and din, which the sublayers share. An MLP writes that of `in` in place. */
static Widths widest(const ModelConfig *c) {
  Widths out = {0, 0};
  for (SublayerKind kind = 0; kind < SUBLAYER_KINDS; kind++) {
    const Widths widths = widths_of(c, kind);
    if (kind == SUBLAYER_CONVOLUTION && !model_count_mixers(c, MIXER_CONVOLUTION)) continue;
    if (widths.in > out.in && kind != SUBLAYER_MLP) out.in = widths.in;
    if (widths.middle > out.middle) out.middle = widths.middle;
  }
  return out;
}

static void layout_sublayer(SublayerActivations *p, SublayerKind kind, Arena *arena, const ModelConfig *c, int64_t rows,
                            size_t dt) {
  const Widths widths = widths_of(c, kind);
  const bool self = kind == SUBLAYER_SELF, attention = self || kind == SUBLAYER_CROSS, qk_norm = self && c->qk_norm;
  layout_norm(p, arena, c, rows, dt);
  p->in = take(arena, rows * widths.in, dt);
  p->middle = take(arena, rows * widths.middle, dt);
  p->lse = attention ? take(arena, rows * c->heads, sizeof(float)) : NULL;
  p->memory = kind == SUBLAYER_CROSS ? take(arena, rows * 2 * key_width(c), dt) : NULL;
  p->heads = qk_norm ? take(arena, rows * (query_width(c) + key_width(c)), dt) : NULL;
  p->heads_rstd = qk_norm ? take(arena, rows * (c->heads + c->kv_heads), sizeof(float)) : NULL;
}

/* `out` NULL: only measures. */
static void layout_stack(SublayerActivations *out, Arena *arena, const ModelConfig *c, const Stack *stack, int64_t rows,
                         bool train, size_t dt) {
  SublayerActivations of_kind[SUBLAYER_KINDS] = {{0}}, last = {0};
  bool made[SUBLAYER_KINDS] = {false};
  for (int i = 0; i < stack->count; i++) {
    SublayerKind kind = stack->sublayers[i].kind;
    if (train || !made[kind]) layout_sublayer(&of_kind[kind], kind, arena, c, rows, dt);
    made[kind] = true;
    if (out) out[i] = of_kind[kind];
  }
  layout_norm(&last, arena, c, rows, dt);
  if (out) out[stack->count] = last;
}

/* Lays out the activations of a pass over `rows` rows; a->all NULL: only measures. */
static void layout_activations(Activations *a, Arena *arena, const ModelConfig *c, const ParameterTable *table,
                               int64_t rows, bool train, bool branch_dropout, size_t dt) {
  const Stack *encoder = &table->encoder;
  a->encoder = a->all;
  a->decoder = a->all && encoder->count ? a->all + encoder->count + 1 : a->all;
  if (encoder->count) layout_stack(a->encoder, arena, c, encoder, rows, train, dt);
  layout_stack(a->decoder, arena, c, &table->decoder, rows, train, dt);
  a->rows = rows;
  a->branch = take(arena, rows * c->dim, dt);
  a->losses = take(arena, rows, sizeof(float));
  if (!train) return;
  a->dx = take(arena, rows * c->dim, dt);
  a->dn = norms_inputs(c) ? take(arena, rows * c->dim, dt) : NULL;
  const bool separate = c->norm_place == NORM_ON_BRANCH || c->norm_place == NORM_PARALLEL;
  a->dbranch = branch_dropout || separate ? take(arena, rows * c->dim, dt) : NULL;
  a->dmiddle = take(arena, rows * widest(c).middle, dt);
  a->din = take(arena, rows * widest(c).in, dt);
  a->dkeys = encoder->count ? take(arena, rows * 2 * key_width(c), dt) : NULL;
  a->dmemory = encoder->count ? take(arena, rows * c->dim, dt) : NULL;
}

static int choose_head_rows(const ModelConfig *c, int64_t rows, int wanted, const ContextInfo *device) {
  size_t dt = dtype_bytes(device->dtype);
  int64_t fit = wanted > 0 ? wanted : logits_budget(device) / ((int64_t)padded_vocab(c->vocab) * (int64_t)dt);
  if (wanted <= 0 && fit > 128) fit -= fit % 128; /* whole tiles of a GEMM */
  if (fit < 1) fit = 1;
  return (int)(fit < rows ? fit : rows);
}

/* The number of Muon's matrices with the shape of matrix i. */
static size_t count_shape(const ParameterTable *table, int i) {
  const MuonMatrix *a = &table->matrices[i];
  size_t count = 0;
  for (int j = 0; j < table->muon_count; j++)
    count += table->matrices[j].rows == a->rows && table->matrices[j].cols == a->cols;
  return count;
}

/* The approximate scratch space of Muon's iteration: on a GPU twice X of all matrices of a shape, and their squares, and
 * as much again if shapes run beside others; on a CPU a matrix and six squares for each thread that has a matrix. */
static size_t iteration_bytes(const ParameterTable *table, const ContextInfo *device) {
  const size_t threads = (size_t)(device->threads < table->muon_count ? device->threads : table->muon_count);
  size_t matrix = 0, square = 0;
  for (int i = 0; i < table->muon_count; i++) {
    const MuonMatrix *a = &table->matrices[i];
    const size_t side = (size_t)(a->rows < a->cols ? a->rows : a->cols), size = (size_t)a->rows * (size_t)a->cols;
    const size_t count = device->accelerator ? count_shape(table, i) : 1;
    matrix = count * size > matrix ? count * size : matrix;
    square = count * side * side > square ? count * side * side : square;
  }
  if (!device->accelerator) return threads * (matrix + 6 * square) * sizeof(float);
  const size_t bytes = (2 * matrix + square) * dtype_bytes(device->dtype);
  const bool several = table->muon_count && count_shape(table, 0) < (size_t)table->muon_count;
  return several && bytes <= MUON_BESIDE ? 2 * bytes : bytes;
}

MemoryPlan model_memory(const ModelConfig *c, const TrainConfig *train, const ContextInfo *device) {
  MemoryPlan plan = {0};
  ParameterTable table;
  if (!parameter_table_count(&table, c)) return plan;
  parameter_table_set_optimizer(&table, train->optimizer);
  size_t dt = dtype_bytes(device->dtype), copy = device->dtype == DTYPE_F32 ? 0 : dt;
  int64_t rows = (int64_t)train->batch * c->ctx;
  Activations a = {0};
  Arena arena = {0};
  layout_activations(&a, &arena, c, &table, rows, true, train->dropout.branch > 0, dt);
  const size_t owners = is_sharded(&train->sharding) ? (size_t)train->sharding.ranks : 1;
  plan.weights = table.arena * copy + table.arena * sizeof(float) / (device->copies ? owners : 1);
  plan.gradients = table.arena * sizeof(float);
  const size_t moments = (table.arena + table.v_arena) * sizeof(float);
  plan.moments = moments / owners;
  plan.iteration = iteration_bytes(&table, device);
  plan.backend = device->own_bytes;
  plan.activations = arena.used;
  plan.logits = (size_t)choose_head_rows(c, rows, train->head_rows, device) * (size_t)padded_vocab(c->vocab) * dt;
  plan.copies = train->sharding.rank ? 0 : 2 * table.arena * sizeof(float) + moments;
  plan.total = plan.weights + plan.gradients + plan.moments + plan.iteration + plan.backend + plan.activations;
  plan.total += plan.logits;
  if (!device->accelerator) plan.total += plan.copies;
  parameter_table_free(&table);
  return plan;
}

MemoryPlan model_evaluation_memory(const ModelConfig *c, int64_t rows, const ContextInfo *device) {
  MemoryPlan plan = {0};
  ParameterTable table;
  if (!parameter_table_count(&table, c)) return plan;
  const size_t dt = dtype_bytes(device->dtype), copy = device->dtype == DTYPE_F32 ? 0 : dt;
  Activations a = {0};
  Arena arena = {0};
  layout_activations(&a, &arena, c, &table, rows, false, false, dt);
  plan.weights = table.arena * (copy + sizeof(float));
  plan.activations = arena.used;
  plan.logits = (size_t)choose_head_rows(c, rows, 0, device) * (size_t)padded_vocab(c->vocab) * dt;
  plan.total = plan.weights + plan.activations + plan.logits;
  parameter_table_free(&table);
  return plan;
}

/* A GPU computes whole products, a CPU half of the symmetric ones. For a matrix that is clearly longer than wide the
 * CPU iterates on the square alone, in two steps and then three (kernels/cpu/muon.c). */
double muon_flops(int rows, int cols, bool accelerator) {
  const double small = rows < cols ? rows : cols, large = rows < cols ? cols : rows;
  const double product = small * small * large, square = small * small * small;
  const double steps = MUON_STEPS;
  if (accelerator) return steps * (4 * product + 2 * square);
  return 2 * large >= 3 * small ? 6 * product + 14 * square : steps * (3 * product + square);
}

/* The operations of Muon's iteration on all its matrices. */
static double iteration_flops(const ModelConfig *c, bool accelerator) {
  double sum = 0;
  ParameterTable table;
  if (!parameter_table_count(&table, c)) return 0;
  for (int i = 0; i < table.matrix_count; i++)
    sum += muon_flops(table.matrices[i].rows, table.matrices[i].cols, accelerator);
  parameter_table_free(&table);
  return sum;
}

double model_step_flops(const ModelConfig *c, int64_t tokens, OptimizerKind optimizer, bool accelerator) {
  const MlpShape shape = mlp_of(c);
  double mlp = (double)c->dim * mlp_width(&shape) + (double)c->ffn * c->dim;
  double out = (double)query_width(c) * c->dim, self = (double)c->dim * qkv_width(c) + out;
  double cross = has_encoder(c) ? (double)c->dim * (query_width(c) + 2.0 * key_width(c)) + out : 0;
  double convolution = 4.0 * c->dim * c->dim;
  const int convolutions = model_count_mixers(c, MIXER_CONVOLUTION), attentions = c->layers - convolutions;
  double linear = 6.0 * (attentions * self + convolutions * convolution + c->layers * (cross + mlp) +
                         c->encoder_layers * (self + mlp) + (double)c->dim * c->vocab);
  /* forward 2 products, backward 5; causal attention computes half of its square */
  double squares = attentions + (has_encoder(c) ? 2.0 * c->layers : 0) + 2.0 * c->encoder_layers;
  return (double)tokens * (linear + 7.0 * squares * (double)c->ctx * query_width(c)) +
         (optimizer == OPTIMIZER_MUON ? iteration_flops(c, accelerator) : 0);
}

double model_forward_flops(const ModelConfig *c, int64_t tokens) {
  return model_step_flops(c, tokens, OPTIMIZER_ADAMW, false) / 3; /* the backward takes twice as many */
}

bool activations_allocate(Model *m, Activations *a, void **memory, int64_t rows, bool train, int head_rows,
                          Error *error) {
  const ModelConfig *c = &m->config;
  size_t dt = m->dt;
  a->all = calloc((size_t)m->table.encoder.count + (size_t)m->table.decoder.count + 2, sizeof *a->all);
  if (!a->all) return error_memory(error, "the activations");
  bool dropout = train && m->settings.dropout.branch > 0;
  ContextInfo device;
  m->ops->info(m->context, &device);
  a->head_rows = head_rows == NO_LOGITS ? 0 : choose_head_rows(c, rows, head_rows, &device);
  Arena arena = {0};
  for (int pass = 0; pass < 2; pass++) { /* measure, then divide */
    arena.used = 0;
    layout_activations(a, &arena, c, &m->table, rows, train, dropout, dt);
    a->logits = take(&arena, (int64_t)a->head_rows * padded_vocab(c->vocab), dt);
    if (pass == 0)
      arena.base = *memory = m->ops->alloc(m->context, train ? "activations" : "evaluation buffers", arena.used);
    if (!arena.base) break;
  }
  return model_check_backend(m, error);
}
