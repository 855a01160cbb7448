/* Attention maps: the weights of every attention in a pass. */
#include "model/attention_maps.h"
#include "model/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct AttentionMaps {
  float *device, *host; /* [heads][length][length] */
  int source_count, count;
  AttentionSeen *seen;
  void *context;
  Error *error;
  bool ok;
} AttentionMaps;

/* Crops [heads][length][length] to [heads][queries][keys]: a pass is as long as the longer of its two texts. */
static void crop(float *weights, int heads, int length, int queries, int keys) {
  float *to = weights;
  for (int h = 0; h < heads; h++)
    for (int i = 0; i < queries; i++, to += keys)
      memmove(to, weights + ((size_t)h * (size_t)length + (size_t)i) * (size_t)length, (size_t)keys * sizeof *to);
}

void model_take_map(const Pass *p, AttentionKind kind, int layer, const Attention *shape, View q, View k,
                    const float *lse) {
  AttentionMaps *maps = p->maps;
  const Model *m = p->model;
  const size_t count = (size_t)shape->heads * (size_t)shape->queries * (size_t)shape->keys;
  const int queries = kind == ATTENTION_ENCODER ? maps->source_count : maps->count;
  const int keys = kind == ATTENTION_SELF ? maps->count : maps->source_count;
  if (!maps->ok) return;
  m->ops->attention_map(m->context, shape, maps->device, q, k, lse);
  m->ops->download(m->context, maps->host, maps->device, count * sizeof *maps->host);
  crop(maps->host, shape->heads, shape->queries, queries, keys);
  maps->ok = maps->seen(maps->context, kind, layer, maps->host, queries, keys, maps->error);
}

/* Makes the two texts the only pair of a packed window of `length`; padding attends to itself alone. `rows`:
 * [8][length]. */
static TokenBatch pair_batch(int32_t *rows, const int32_t *from, int from_count, const int32_t *tokens, int count,
                             int length) {
  const size_t n = (size_t)length;
  int32_t *text = rows, *source_text = rows + n, *positions = rows + 2 * n, *targets = rows + 3 * n;
  int32_t *begin = rows + 4 * n, *end = rows + 5 * n, *cross_begin = rows + 6 * n, *cross_end = rows + 7 * n;
  for (int i = 0; i < length; i++) {
    text[i] = i < count ? tokens[i] : 0;
    source_text[i] = from && i < from_count ? from[i] : 0;
    positions[i] = i;
    targets[i] = IGNORE_INDEX;
    begin[i] = i < from_count ? 0 : i;
    end[i] = i < from_count ? from_count : i + 1;
    cross_begin[i] = 0;
    cross_end[i] = from_count;
  }
  return (TokenBatch){text, targets, positions, source_text, positions, begin, end, cross_begin, cross_end};
}

static bool run_pass(Model *m, AttentionMaps *maps, const TokenBatch *batch, int length, Error *error) {
  if (!model_evaluate_begin(m, 1, length, error)) return false;
  Pass pass = model_evaluation_pass(m, 1, length);
  pass.packed = true;
  pass.maps = maps;
  model_upload_tokens(m, batch, 0, length, length);
  model_forward(&pass);
  return maps->ok && model_check_backend(m, error);
}

bool model_attention(Model *m, const int32_t *source, int source_count, const int32_t *tokens, int count,
                     AttentionSeen *seen, void *context, Error *error) {
  const int length = source && source_count > count ? source_count : count;
  const size_t weights = (size_t)m->config.heads * (size_t)length * (size_t)length * sizeof(float);
  AttentionMaps maps = {
      .source_count = source_count, .count = count, .seen = seen, .context = context, .error = error, .ok = true};
  int32_t *rows = malloc(8 * (size_t)length * sizeof *rows);
  maps.host = malloc(weights);
  maps.device = m->ops->alloc(m->context, "attention weights", weights);
  bool ok = rows && maps.host ? model_check_backend(m, error) : error_memory(error, "attention weights");
  if (ok) {
    const TokenBatch batch = pair_batch(rows, source, source_count, tokens, count, length);
    ok = run_pass(m, &maps, &batch, length, error);
  }
  m->ops->release(m->context, maps.device);
  free(maps.host);
  free(rows);
  return ok;
}
