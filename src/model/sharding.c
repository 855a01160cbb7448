/* Divides the updates and the optimizer state among the processes that train together. */
#include "model/internal.h"

#include "base/array.h"

#include <stdlib.h>

static bool no_memory(Error *error) { return error_memory(error, "the processes' shares of the model"); }

/* ---- the bucket of a group ---- */

/* Gradients go to their owners in buckets, as the backward finishes them: a bucket for each layer, the last for the
 * rest of the model. */
static int bucket_count(const ParameterTable *t) {
  int layers = 0;
  const Stack *const stacks[] = {&t->encoder, &t->decoder};
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < stacks[s]->count; i++) {
      const int layer = stacks[s]->first_layer + stacks[s]->sublayers[i].layer;
      layers = layer >= layers ? layer + 1 : layers;
    }
  return layers + 1;
}

static int bucket_of(const ParameterTable *t, const ParameterGroup *group) {
  const ParameterTensor *first = t->tensors;
  while (first->offset < group->matrix.offset) first++;
  return first->layer < 0 ? bucket_count(t) - 1 : first->layer;
}

/* ---- the owners ---- */

typedef struct Costly {
  double cost;
  int matrix;
} Costly;

static int by_falling_cost(const void *a, const void *b) {
  const Costly *x = a, *y = b;
  return x->cost > y->cost ? -1 : x->cost < y->cost ? 1 : x->matrix - y->matrix;
}

/* Assigns Muon's matrices, the costliest first, each to the process with the least work so far. */
static bool assign_matrices(const ParameterTable *t, int ranks, int *owners, Error *error) {
  Costly *order = calloc((size_t)t->muon_count + 1, sizeof *order);
  double *busy = calloc((size_t)ranks, sizeof *busy);
  const bool ok = order && busy;
  for (int i = 0; ok && i < t->muon_count; i++)
    order[i] = (Costly){muon_flops(t->matrices[i].rows, t->matrices[i].cols, false), i};
  if (ok) qsort(order, (size_t)t->muon_count, sizeof *order, by_falling_cost);
  for (int i = 0; ok && i < t->muon_count; i++) {
    int least = 0;
    for (int rank = 1; rank < ranks; rank++) least = busy[rank] < busy[least] ? rank : least;
    owners[order[i].matrix] = least;
    busy[least] += order[i].cost;
  }
  free(order);
  free(busy);
  return ok || no_memory(error);
}

static bool add_span(SpanList *list, Span span, Error *error) {
  if (!span.count) return true;
  if (!array_reserve(&list->items, &list->capacity, (size_t)list->count + 1, sizeof span)) return no_memory(error);
  list->items[list->count++] = span;
  return true;
}

enum { SPAN_BLOCKS = 16 }; /* of TENSOR_ALIGNMENT: smaller spans are not worth a message */

/* Divides [begin, end), whole blocks of TENSOR_ALIGNMENT, into equal spans: one for each rank in turn, so that one
 * operation can transfer them all. The remainder, or a range too small for all ranks, goes to the next ranks in
 * turn. */
static bool add_equal_spans(SpanList *list, size_t begin, size_t end, int ranks, int *next, Error *error) {
  const size_t blocks = (end - begin) / TENSOR_ALIGNMENT, most = blocks / SPAN_BLOCKS;
  const bool all_ranks = most >= (size_t)ranks;
  const size_t spans = all_ranks ? (size_t)ranks : most < 1 ? 1 : most, size = blocks / spans * TENSOR_ALIGNMENT;
  bool ok = true;
  for (size_t i = 0; ok && begin < end; i++) {
    const bool of_rank = all_ranks && i < spans;
    const size_t count = of_rank || i + 1 < spans ? size : end - begin;
    ok = add_span(list, (Span){begin, count, of_rank ? (int)i : *next, 0}, error);
    begin += count;
    if (!of_rank) *next = (*next + 1) % ranks;
  }
  return ok;
}

static size_t end_of_group(const ParameterTable *t, int group) {
  return group + 1 < t->group_count ? t->groups[group + 1].matrix.offset : t->arena;
}

/* Adds the spans of a bucket: Muon's matrices, and AdamW's groups, of which consecutive ones are divided as one
 * range. */
static bool add_bucket(ParameterTable *t, int bucket, const int *buckets, const int *owners, int ranks, int *next,
                       Error *error) {
  int matrix = 0;
  for (int g = 0; g < t->group_count; g++) {
    const bool here = buckets[g] == bucket, adamw = t->groups[g].rule == UPDATE_ADAMW;
    for (; matrix < t->muon_count && t->matrices[matrix].group == g; matrix++) {
      const MuonMatrix *m = &t->matrices[matrix];
      const Span span = {m->offset, (size_t)m->rows * (size_t)m->cols, owners[matrix], 0};
      if (here && !add_span(&t->spans, span, error)) return false;
    }
    if (!here || !adamw) continue;
    const size_t begin = t->groups[g].matrix.offset;
    while (g + 1 < t->group_count && buckets[g + 1] == bucket && t->groups[g + 1].rule == UPDATE_ADAMW) g++;
    if (!add_equal_spans(&t->spans, begin, end_of_group(t, g), ranks, next, error)) return false;
  }
  return true;
}

static bool make_spans(ParameterTable *t, int ranks, Error *error) {
  const int count = bucket_count(t);
  int next = 0;
  int *buckets = calloc((size_t)t->group_count, sizeof *buckets);
  int *owners = calloc((size_t)t->muon_count + 1, sizeof *owners);
  t->bucket_ends = calloc((size_t)count, sizeof *t->bucket_ends);
  bool ok = (buckets && owners && t->bucket_ends) || no_memory(error);
  ok = ok && assign_matrices(t, ranks, owners, error);
  for (int g = 0; ok && g < t->group_count; g++) buckets[g] = bucket_of(t, &t->groups[g]);
  for (int bucket = 0; ok && bucket < count; bucket++) {
    ok = add_bucket(t, bucket, buckets, owners, ranks, &next, error);
    t->bucket_ends[bucket] = t->spans.count;
  }
  t->bucket_count = count;
  free(buckets);
  free(owners);
  return ok;
}

/* ---- the state of a process ---- */

/* The offset of the second moment of element `offset`, of AdamW, in an arena of all second moments. */
static size_t second_moment(const ParameterTable *t, size_t offset) {
  int tensor = 0;
  while (tensor + 1 < t->count && t->tensors[tensor + 1].offset <= offset) tensor++;
  return (size_t)t->tensors[tensor].v_offset + offset - t->tensors[tensor].offset;
}

static bool of_adamw(const ParameterTable *t, size_t offset) {
  int group = 0;
  while (group + 1 < t->group_count && t->groups[group + 1].matrix.offset <= offset) group++;
  return t->groups[group].rule == UPDATE_ADAMW;
}

static bool add_run(ParameterTable *t, AdamwRun run, Error *error) {
  if (!array_reserve(&t->runs, &t->run_capacity, (size_t)t->run_count + 1, sizeof run)) return no_memory(error);
  t->runs[t->run_count++] = run;
  return true;
}

/* Adds the runs of AdamW's groups within [begin, end), whose moments begin at m and v. */
static bool add_runs(ParameterTable *t, size_t begin, size_t end, size_t m, size_t v, Error *error) {
  bool ok = true;
  for (int g = 0; ok && g < t->group_count; g++) {
    const Matrix *matrix = &t->groups[g].matrix;
    const size_t group_end = matrix->offset + (size_t)matrix->rows * (size_t)matrix->cols;
    const size_t from = begin > matrix->offset ? begin : matrix->offset, to = end < group_end ? end : group_end;
    if (from < to)
      ok = add_run(t, (AdamwRun){g, from - matrix->offset, to - from, m + from - begin, v + from - begin}, error);
  }
  return ok;
}

/* Adds the matrix of Muon at the offset of a span. */
static void take_matrix(ParameterTable *t, const Span *span) {
  for (int i = 0; i < t->muon_count; i++) {
    if (t->matrices[i].offset != span->offset) continue;
    t->own[t->own_count] = t->matrices[i];
    t->own[t->own_count++].m_offset = span->own;
  }
}

/* Sets the offsets of the spans in the moments of their owners, and takes those of `rank`. */
static bool take_own(ParameterTable *t, int rank, int ranks, Error *error) {
  size_t *m = calloc(2 * (size_t)ranks, sizeof *m), *v = m ? m + ranks : NULL;
  if (!m) return no_memory(error);
  bool ok = true;
  t->own_count = 0;
  for (Span *s = t->spans.items; ok && s < t->spans.items + t->spans.count; s++) {
    const size_t aligned = (size_t)round_up64((int64_t)s->count, TENSOR_ALIGNMENT);
    const Span second = {second_moment(t, s->offset), s->count, s->owner, v[s->owner]};
    const bool adamw = of_adamw(t, s->offset), own = s->owner == rank;
    s->own = m[s->owner];
    m[s->owner] += aligned;
    if (!adamw && own) take_matrix(t, s);
    if (!adamw) continue;
    v[s->owner] += aligned;
    ok = add_span(&t->v_spans, second, error) &&
         (!own || add_runs(t, s->offset, s->offset + s->count, s->own, second.own, error));
  }
  t->m_kept = m[rank];
  t->v_kept = v[rank];
  free(m);
  return ok;
}

static bool take_all(ParameterTable *t, Error *error) {
  bool ok = true;
  for (int g = 0; ok && g < t->group_count; g++) {
    const Matrix *m = &t->groups[g].matrix;
    if (t->groups[g].rule == UPDATE_ADAMW)
      ok = add_runs(t, m->offset, end_of_group(t, g), m->offset, second_moment(t, m->offset), error);
  }
  t->own_count = t->muon_count;
  for (int i = 0; i < t->muon_count; i++) {
    t->own[i] = t->matrices[i];
    t->own[i].m_offset = t->own[i].offset;
  }
  t->m_kept = t->arena;
  t->v_kept = t->v_arena;
  return ok;
}

bool parameter_table_partition(ParameterTable *t, const Sharding *sharding, Error *error) {
  free(t->own);
  free(t->bucket_ends);
  t->bucket_ends = NULL;
  t->bucket_count = t->spans.count = t->v_spans.count = t->run_count = 0;
  t->own = calloc((size_t)t->muon_count + 1, sizeof *t->own);
  if (!t->own) return no_memory(error);
  if (sharding->ranks > 1 && !make_spans(t, sharding->ranks, error)) return false;
  if (!is_sharded(sharding)) return take_all(t, error);
  return take_own(t, sharding->rank, sharding->ranks, error);
}
