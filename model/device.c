/* Copies between host and device: weights, gradients and moments; the tokens of a batch and their order. */
#include "model/internal.h"

#include <stdlib.h>
#include <string.h>

void model_source_arrays(Model *m, int32_t **out[SOURCE_ARRAYS]) {
  SourceTokens *s = &m->source;
  int32_t **all[] = {&s->tokens, &s->positions, &s->begin, &s->end, &s->cross_begin, &s->cross_end};
  for (int i = 0; i < SOURCE_ARRAYS; i++) out[i] = all[i];
}

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

bool model_reserve_tokens(Model *m, int64_t rows, Error *error) {
  if (rows <= m->token_capacity) return true;
  m->ops->drop(m->context, &m->evaluation);
  m->ops->drop(m->context, &m->first);
  m->ops->drop(m->context, &m->middle);
  m->ops->drop(m->context, &m->last);
  int32_t **arrays[4 + SOURCE_ARRAYS] = {&m->tokens, &m->targets, &m->positions, &m->key_begin};
  model_source_arrays(m, arrays + 4);
  for (int i = 0; i < 4 + (has_encoder(&m->config) ? SOURCE_ARRAYS : 0); i++) {
    m->ops->release(m->context, *arrays[i]);
    *arrays[i] = m->ops->alloc(m->context, "tokens of a batch", (size_t)rows * sizeof(int32_t));
  }
  free(m->first_keys);
  m->first_keys = malloc((size_t)rows * sizeof(int32_t));
  if (!m->first_keys)
    return fail(error, EXIT_MEMORY, "out of memory for the positions of %lld tokens", (long long)rows);
  m->token_capacity = rows;
  return model_check_backend(m, error);
}

void model_upload_tokens(Model *m, const TokenBatch *batch, int64_t from, int64_t rows, int length) {
  size_t bytes = (size_t)rows * sizeof(int32_t);
  m->ops->upload(m->context, m->tokens, batch->tokens + from, bytes);
  m->ops->upload(m->context, m->targets, batch->targets + from, bytes);
  if (!batch->positions) return;
  const int32_t *positions = batch->positions + from;
  for (int64_t i = 0; i < rows; i++) m->first_keys[i] = (int32_t)(i % length) - positions[i];
  m->ops->upload(m->context, m->positions, positions, bytes);
  m->ops->upload(m->context, m->key_begin, m->first_keys, bytes);
  if (!has_encoder(&m->config)) return;
  const SourceBatch *source = batch->source;
  const int32_t *host[SOURCE_ARRAYS] = {source->tokens, source->positions,   source->begin,
                                        source->end,    source->cross_begin, source->cross_end};
  int32_t **device[SOURCE_ARRAYS];
  model_source_arrays(m, device);
  for (int i = 0; i < SOURCE_ARRAYS; i++) m->ops->upload(m->context, *device[i], host[i] + from, bytes);
}

/* Writes the indices of token v, ascending, to order[offsets[v] .. offsets[v+1]). */
static void counting_sort(const int32_t *tokens, int64_t count, int vocab, int32_t *offsets, int32_t *order) {
  memset(offsets, 0, ((size_t)vocab + 1) * sizeof *offsets);
  for (int64_t i = 0; i < count; i++) offsets[tokens[i] + 1]++;
  for (int v = 0; v < vocab; v++) offsets[v + 1] += offsets[v];
  for (int64_t i = 0; i < count; i++) order[offsets[tokens[i]]++] = (int32_t)i;
  memmove(offsets + 1, offsets, (size_t)vocab * sizeof *offsets); /* filling moved each start to its end */
  offsets[0] = 0;
}

void model_upload_order(Model *m, const int32_t *numbers, int64_t rows, int kinds, RowOrder out) {
  size_t count = (size_t)kinds + 1;
  counting_sort(numbers, rows, kinds, m->sorted, m->sorted + count);
  m->ops->upload(m->context, out.offsets, m->sorted, count * sizeof(int32_t));
  m->ops->upload(m->context, out.order, m->sorted + count, (size_t)rows * sizeof(int32_t));
}
