/* The layout of a model's tensors in a file: names, concatenation and transposition of the class that it is written
 * as. */
#include "files/formats/classes.h"
#include "model/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names: [STACK.LAYER.]MODULE[.KIND] ---- */

/* The parts of a name: "model.layers", "3", "self_attn.q_proj", ".weight". Stack and layer are "" outside of layers. */
typedef struct TensorName {
  char stack[64], layer[16], module[64], kind[16];
} TensorName;

static TensorName split(const char *name) {
  TensorName n = {.stack = ""};
  const char *module = name;
  for (const char *dot = strchr(name, '.'); dot && !*n.layer; dot = strchr(dot + 1, '.')) {
    const int digits = (int)strspn(dot + 1, "0123456789");
    if (!digits || dot[1 + digits] != '.') continue;
    snprintf(n.stack, sizeof n.stack, "%.*s", (int)(dot - name), name);
    snprintf(n.layer, sizeof n.layer, "%.*s", digits, dot + 1);
    module = dot + digits + 2;
  }
  const char *kind = strrchr(module, '.');
  if (!kind) kind = module + strlen(module);
  snprintf(n.module, sizeof n.module, "%.*s", (int)(kind - module), module);
  snprintf(n.kind, sizeof n.kind, "%s", kind);
  return n;
}

static bool is_module(const TensorName *n, const char *module) { return strcmp(n->module, module) == 0; }

static const char *renamed(const ModelClass *a, const char *native) {
  for (const Rename *r = a->names; r && r->native; r++)
    if (strcmp(r->native, native) == 0) return r->file;
  return native;
}

static void file_name(char *out, size_t size, const ModelClass *a, const TensorName *n, const char *kind) {
  const char *module = renamed(a, n->module);
  if (*n->layer) snprintf(out, size, "%s.%s.%s%s", renamed(a, n->stack), n->layer, module, kind);
  else snprintf(out, size, "%s%s", module, kind);
}

/* Returns the flag of the product that a weight or bias belongs to; 0: none. */
static unsigned bias_kind(const TensorName *n) {
  if (!*n->layer) return is_module(n, "lm_head") ? BIAS_HEAD : 0;
  if (is_module(n, "self_attn.o_proj") || is_module(n, "cross_attn.o_proj")) return BIAS_OUTPUT;
  if (strncmp(n->module, "self_attn.", 10) == 0 || strncmp(n->module, "cross_attn.", 11) == 0) return BIAS_QKV;
  return strncmp(n->module, "mlp.", 4) == 0 ? BIAS_MLP : 0;
}

/* ---- the layout ---- */

/* Adds a tensor, or its rows to a tensor of the same name among the last two. `row`: its row of the table; -1:
 * zeros. */
static void add(FileLayout *layout, const FileTensor *t, int row) {
  for (int back = 1; back <= 2 && back <= layout->count; back++) {
    FileTensor *last = &layout->tensors[layout->count - back];
    if (strcmp(last->name, t->name) != 0) continue;
    last->rows += t->rows;
    last->count += row >= 0;
    return;
  }
  FileTensor *added = &layout->tensors[layout->count++];
  *added = *t;
  added->first = row;
  added->count = row >= 0;
}

static FileTensor bias_of(const ModelClass *a, const TensorName *n, int count) {
  FileTensor t = {.rank = 1, .rows = count, .cols = 1};
  if (a->head_bias && bias_kind(n) == BIAS_HEAD) {
    t = (FileTensor){.rank = 2, .rows = 1, .cols = count, .optional = true};
    snprintf(t.name, sizeof t.name, "%s", a->head_bias);
  } else file_name(t.name, sizeof t.name, a, n, ".bias");
  return t;
}

static FileTensor tensor_of(const ModelClass *a, const ParameterTensor *p, const TensorName *n) {
  if (strcmp(n->kind, ".bias") == 0) return bias_of(a, n, p->cols);
  FileTensor t = {.rank = p->rank, .rows = p->rank == 1 ? p->cols : p->rows, .cols = p->rank == 1 ? 1 : p->cols};
  file_name(t.name, sizeof t.name, a, n, n->kind);
  t.transposed = a->transposed && p->rank == 2 && *n->layer;
  t.optional = a->sinusoids && p->role == ROLE_SINUSOIDS;
  if (is_module(n, "model.embed_positions")) t.unused = a->unused_positions;
  return t;
}

static void add_zero_bias(FileLayout *layout, const ModelClass *a, const TensorName *n, int count) {
  FileTensor t = bias_of(a, n, count);
  t.zeros = KEY_MISSING_BIASES;
  add(layout, &t, -1);
}

static void add_zero_positions(FileLayout *layout, const ModelClass *a, const ModelConfig *config) {
  const TensorName name = split("model.embed_positions.weight");
  FileTensor t = {
      .rank = 2, .rows = config->ctx, .cols = config->dim, .unused = a->unused_positions, .zeros = KEY_POSITIONS};
  file_name(t.name, sizeof t.name, a, &name, name.kind);
  add(layout, &t, -1);
}

/* Adds a copy of the encoder's embedding under the name of the table that tied models share. */
static void add_shared(FileLayout *layout, const ModelClass *a) {
  const TensorName name = split("model.embed_tokens.weight");
  char shared[sizeof layout->tensors->name];
  file_name(shared, sizeof shared, a, &name, name.kind);
  file_layout_add_copy(layout, shared);
}

bool file_layout_make(FileLayout *out, const ModelClass *a, unsigned biases, const ModelConfig *config,
                      const ParameterTable *table, Error *error) {
  const unsigned missing = biases & ~class_model_biases(config);
  *out = (FileLayout){.tensors = calloc(2 * (size_t)table->count + 4, sizeof *out->tensors)};
  if (!out->tensors) return error_memory(error, "the names of tensors");
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *p = &table->tensors[i];
    const TensorName name = split(p->name);
    const unsigned kind = bias_kind(&name);
    if (p->role == ROLE_BIAS && !(biases & kind)) continue;
    FileTensor t = tensor_of(a, p, &name);
    if (a->interleaved && (is_module(&name, "self_attn.q_proj") || is_module(&name, "self_attn.k_proj")))
      t.interleaved = config->head_dim;
    if (a->by_head && kind == BIAS_QKV) t.by_head = config->head_dim;
    add(out, &t, i);
    if (p->rank == 2 && missing & kind & BIAS_LAYERS) add_zero_bias(out, a, &name, t.rows);
  }
  if (missing & BIAS_HEAD) {
    const TensorName head = split("lm_head.bias");
    add_zero_bias(out, a, &head, config->vocab);
  }
  if (a->shared && !config->tie) add_shared(out, a);
  if (a->position_table && config->positions == POSITIONS_NONE) add_zero_positions(out, a, config);
  return true;
}

void file_layout_add_copy(FileLayout *layout, const char *name) {
  FileTensor *copy = &layout->tensors[layout->count++]; /* file_layout_make() has allocated it */
  *copy = layout->tensors[0];
  copy->copy = true;
  snprintf(copy->name, sizeof copy->name, "%s", name);
}

void file_layout_lengthen(FileLayout *layout, const ParameterTable *table, int ctx) {
  for (FileTensor *t = layout->tensors; t < layout->tensors + layout->count; t++) {
    const TensorRole role = t->count ? table->tensors[t->first].role : ROLE_WEIGHT;
    const bool zeros = !t->count && t->zeros && strcmp(t->zeros, KEY_POSITIONS) == 0;
    if (role == ROLE_POSITIONS || role == ROLE_SINUSOIDS || zeros) t->longer = ctx > t->rows ? ctx - t->rows : 0;
  }
}

void file_layout_free(FileLayout *layout) {
  free(layout->tensors);
  *layout = (FileLayout){0};
}

SafeTensor file_tensor_shape(const FileTensor *t) {
  SafeTensor out = {.name = t->name, .type = TENSOR_F32, .rank = t->rank};
  const int64_t rows = (int64_t)t->rows + t->unused + t->longer;
  safetensors_set_shape(&out, t->transposed ? t->cols : rows, t->transposed ? rows : t->cols);
  return out;
}
