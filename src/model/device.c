/* Copies of weights, gradients and moments between host and device; memory for the tokens of a batch. */
#include "model/internal.h"

#include <stdlib.h>
#include <string.h>

static float *arena_of(Model *m, ArenaKind which) {
  float *arenas[] = {m->params.master, m->params.grad, m->params.m, m->params.v};
  return arenas[which];
}

size_t model_arena_size(const Model *m, ArenaKind which) {
  return which == ARENA_MOMENT2 ? m->table.v_arena : m->table.arena;
}

/* Whether every process has only its own spans of the arena; finds the spans. */
static bool is_distributed(const Model *m, ArenaKind which, const SpanList **spans) {
  *spans = which == ARENA_MOMENT2 ? &m->table.v_spans : &m->table.spans;
  if (which == ARENA_MASTER) return m->params.vectors;
  return is_sharded(&m->settings.sharding) && which != ARENA_GRADIENT;
}

void model_upload(Model *m, ArenaKind which, const float *host) {
  const SpanList *spans;
  const bool by_gradients = which == ARENA_MASTER && m->params.vectors;
  float *arena = by_gradients ? m->params.grad : arena_of(m, which);
  const size_t bytes = model_arena_size(m, which) * sizeof(float);
  if (!by_gradients && is_distributed(m, which, &spans)) {
    m->ops->peers_deal(m->context, arena, host, spans->items, spans->count);
  } else {
    if (host) m->ops->upload(m->context, arena, host, bytes);
    m->ops->peers_broadcast(m->context, arena, bytes);
  }
  if (which == ARENA_MASTER) model_weights_written(m);
}

float *model_host_weights(Model *m) {
  ContextInfo info;
  m->ops->info(m->context, &info);
  return info.accelerator ? NULL : m->params.master;
}

void model_weights_written(Model *m) { m->ops->refresh_parameters(m->context, &m->params); }

bool model_download(Model *m, ArenaKind which, float *host, Error *error) {
  const SpanList *spans;
  if (is_distributed(m, which, &spans))
    m->ops->peers_collect(m->context, host, arena_of(m, which), spans->items, spans->count);
  else if (host) m->ops->download(m->context, host, arena_of(m, which), model_arena_size(m, which) * sizeof(float));
  return model_check_backend(m, error);
}

/* The count of targets and all arrays are one block, so that one upload fills them. */
bool model_reserve_tokens(Model *m, int64_t rows, Error *error) {
  StackInput *text = &m->inputs[DECODER_STACK], *source = &m->inputs[ENCODER_STACK];
  int32_t **arrays[TOKEN_ARRAYS] = {&text->tokens,   &m->targets,        &text->positions,   &text->key_begin,
                                    &source->tokens, &source->positions, &source->key_begin, &source->key_end,
                                    &m->cross_begin, &m->cross_end};
  const int count = has_encoder(&m->config) ? TOKEN_ARRAYS : TEXT_ARRAYS;
  if (rows <= m->token_capacity) return true;
  rows = round_up64(rows, 64);
  const size_t bytes = ((size_t)count * (size_t)rows + TOKENS_AT) * sizeof(int32_t);
  for (int i = 0; i < GRAPH_UPDATE; i++) m->ops->drop(m->context, &m->graphs[i]);
  m->ops->release(m->context, m->target_count);
  m->target_count = m->ops->alloc(m->context, "tokens of a batch", bytes);
  for (int i = 0; i < count; i++) *arrays[i] = m->target_count ? m->target_count + TOKENS_AT + i * rows : NULL;
  free(m->host_tokens);
  m->host_tokens = calloc(1, bytes);
  if (!m->host_tokens) return fail(error, EXIT_MEMORY, "out of memory for %lld tokens", (long long)rows);
  m->token_capacity = rows;
  return model_check_backend(m, error);
}
