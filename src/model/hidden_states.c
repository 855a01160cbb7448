/* Hidden states: residual stream, queries, keys, values, and what sublayers compute, copied to the host in a pass. */
#include "model/hidden_states.h"
#include "model/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct HiddenStates {
  float *rows; /* host [length][widest row] */
  HiddenSeen *seen;
  void *context;
  Error *error;
  bool ok;
} HiddenStates;

/* ---- what there is ---- */

static int width_of(const ModelConfig *c, HiddenKind kind) {
  switch (kind) {
  case HIDDEN_QUERIES: return query_width(c);
  case HIDDEN_KEYS:
  case HIDDEN_VALUES: return key_width(c);
  case HIDDEN_MLP_INNER: return c->ffn;
  default: return c->dim;
  }
}

static void add(const ModelConfig *c, HiddenState *out, int *count, HiddenKind kind, int layer) {
  if (out) out[*count] = (HiddenState){kind, layer, width_of(c, kind)};
  (*count)++;
}

int model_hidden_states(const Model *m, HiddenState *out) {
  const ModelConfig *c = &m->config;
  const Stack *stack = &m->table.decoder;
  int count = 0;
  add(c, out, &count, HIDDEN_RESIDUAL, 0);
  for (const Sublayer *w = stack->sublayers; w < stack->sublayers + stack->count; w++) {
    if (w->kind == SUBLAYER_CROSS) continue;
    for (HiddenKind kind = HIDDEN_QUERIES; w->kind == SUBLAYER_SELF && kind <= HIDDEN_VALUES; kind++)
      add(c, out, &count, kind, w->layer);
    if (w->kind == SUBLAYER_MLP) add(c, out, &count, HIDDEN_MLP_INNER, w->layer);
    add(c, out, &count, model_branch_kind(w), w->layer);
    if (w->kind == SUBLAYER_MLP) add(c, out, &count, HIDDEN_RESIDUAL, w->layer + 1);
  }
  add(c, out, &count, HIDDEN_HEAD, c->layers);
  return count;
}

/* ---- reading ---- */

void model_take_hidden(const Pass *p, HiddenKind kind, int layer, const void *from, int row) {
  HiddenStates *h = p->hidden;
  const Model *m = p->model;
  const HiddenState state = {kind, layer, width_of(p->config, kind)};
  const int64_t numbers = (int64_t)(p->rows - 1) * row + state.width;
  if (!h->ok) return;
  m->ops->download(m->context, h->rows, from, (size_t)numbers * m->dt);
  model_widen(m, h->rows, numbers);
  for (int64_t i = 1; i < p->rows && row > state.width; i++)
    memmove(h->rows + i * state.width, h->rows + i * row, (size_t)state.width * sizeof *h->rows);
  h->ok = h->seen(h->context, &state, h->rows, p->rows, h->error);
}

/* The numbers of the widest row that is downloaded. */
static int widest(const ModelConfig *c) {
  const int packed = qkv_width(c), plain = c->dim > c->ffn ? c->dim : c->ffn;
  return packed > plain ? packed : plain;
}

bool model_read_hidden_states(Model *m, const int32_t *tokens, int count, HiddenSeen *seen, void *context,
                              Error *error) {
  if (!model_prefill_begin(m, count, error)) return false;
  HiddenStates hidden = {.seen = seen, .context = context, .error = error, .ok = true};
  hidden.rows = malloc((size_t)count * (size_t)widest(&m->config) * sizeof *hidden.rows);
  if (!hidden.rows) return error_memory(error, "the hidden states of a window");
  Pass pass = model_evaluation_pass(m, 1, count);
  pass.hidden = &hidden;
  m->ops->upload(m->context, m->inputs[DECODER_STACK].tokens, tokens, (size_t)count * sizeof *tokens);
  model_forward(&pass);
  free(hidden.rows);
  return hidden.ok && model_check_backend(m, error);
}
