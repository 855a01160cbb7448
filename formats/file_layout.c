/* The layout of a model's tensors in a file: names, concatenation and transposition of the class that it is written
 * as. */
#include "formats/classes.h"
#include "model/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names: [STACK.LAYER.]MODULE[.KIND] ---- */

typedef struct TensorName {
  const char *stack, *layer, *module, *kind;     /* kind: "", ".weight" or ".bias" */
  int stack_length, layer_length, module_length; /* layer_length 0: not in a layer */
} TensorName;

static TensorName split(const char *name) {
  TensorName n = {.stack = name, .module = name};
  for (const char *dot = strchr(name, '.'); dot && !n.layer_length; dot = strchr(dot + 1, '.')) {
    const int digits = (int)strspn(dot + 1, "0123456789");
    if (!digits || dot[1 + digits] != '.') continue;
    n.stack_length = (int)(dot - name);
    n.layer = dot + 1;
    n.layer_length = digits;
    n.module = dot + digits + 2;
  }
  n.kind = strrchr(n.module, '.');
  if (!n.kind) n.kind = n.module + strlen(n.module);
  n.module_length = (int)(n.kind - n.module);
  return n;
}

static bool is_module(const TensorName *n, const char *module) {
  return (size_t)n->module_length == strlen(module) && memcmp(n->module, module, (size_t)n->module_length) == 0;
}

static bool module_begins(const TensorName *n, const char *beginning) {
  return strncmp(n->module, beginning, strlen(beginning)) == 0;
}

typedef struct Piece {
  char text[64];
} Piece;

static Piece renamed(const ModelClass *a, const char *piece, int length) {
  Piece out;
  snprintf(out.text, sizeof out.text, "%.*s", length, piece);
  for (const Rename *r = a->names; r && r->native; r++)
    if (strcmp(r->native, out.text) == 0) {
      snprintf(out.text, sizeof out.text, "%s", r->file);
      break;
    }
  return out;
}

static void file_name(char *out, size_t size, const ModelClass *a, const TensorName *n, const char *kind) {
  const Piece stack = renamed(a, n->stack, n->stack_length), module = renamed(a, n->module, n->module_length);
  if (n->layer_length) snprintf(out, size, "%s.%.*s.%s%s", stack.text, n->layer_length, n->layer, module.text, kind);
  else snprintf(out, size, "%s%s", module.text, kind);
}

/* Returns the flag of the product that a weight or bias belongs to; 0: none. */
static unsigned bias_kind(const TensorName *n) {
  if (!n->layer_length) return is_module(n, "lm_head") ? BIAS_HEAD : 0;
  if (is_module(n, "self_attn.o_proj") || is_module(n, "cross_attn.o_proj")) return BIAS_OUTPUT;
  if (module_begins(n, "self_attn.") || module_begins(n, "cross_attn.")) return BIAS_QKV;
  return module_begins(n, "mlp.") ? BIAS_MLP : 0;
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
  t.transposed = a->transposed && p->rank == 2 && n->layer_length;
  t.optional = a->sinusoids && p->role == ROLE_SINUSOIDS;
  if (is_module(n, "model.embed_positions")) t.unused = a->unused_places;
  return t;
}

static void add_zero_bias(FileLayout *layout, const ModelClass *a, const TensorName *n, int count) {
  FileTensor t = bias_of(a, n, count);
  t.zeros = KEY_MISSING_BIASES;
  add(layout, &t, -1);
}

static void add_zero_places(FileLayout *layout, const ModelClass *a, const ModelConfig *config) {
  const TensorName name = split("model.embed_positions.weight");
  FileTensor t = {
      .rank = 2, .rows = config->ctx, .cols = config->dim, .unused = a->unused_places, .zeros = KEY_POSITIONS};
  file_name(t.name, sizeof t.name, a, &name, name.kind);
  add(layout, &t, -1);
}

/* Adds a copy of the encoder's embedding under the name of the table that tied models share. */
static void add_shared(FileLayout *layout, const ModelClass *a) {
  const TensorName name = split("model.embed_tokens.weight");
  FileTensor t = layout->tensors[0];
  t.copy = true;
  file_name(t.name, sizeof t.name, a, &name, name.kind);
  add(layout, &t, t.first);
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
    if (kind && p->rank == 1 && !(biases & kind)) continue;
    FileTensor t = tensor_of(a, p, &name);
    if (a->interleaved && (is_module(&name, "self_attn.q_proj") || is_module(&name, "self_attn.k_proj")))
      t.interleaved = config->head_dim;
    add(out, &t, i);
    if (p->rank == 2 && missing & kind & BIAS_LAYERS) add_zero_bias(out, a, &name, t.rows);
  }
  if (missing & BIAS_HEAD) {
    const TensorName head = split("lm_head.bias");
    add_zero_bias(out, a, &head, config->vocab);
  }
  if (a->shared && !config->tie) add_shared(out, a);
  if (a->places && config->positions == POSITIONS_NONE) add_zero_places(out, a, config);
  return true;
}

void file_layout_add_copy(FileLayout *layout, const char *name) {
  FileTensor *copy = &layout->tensors[layout->count++]; /* file_layout_make() has allocated it */
  *copy = layout->tensors[0];
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
  out.shape[0] = t->transposed ? t->cols : rows;
  out.shape[1] = t->rank == 1 ? 0 : t->transposed ? rows : t->cols;
  return out;
}
