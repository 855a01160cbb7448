#include "inference/longest_match.h"

#include <stdlib.h>

enum { CHUNK = 1 << 16 };

/* ---- the automaton ---- */

/* A set of passages of the short text that all end at the same positions; each is a suffix of the longest of them.
 * State 0 is the empty passage. */
typedef struct State {
  int32_t length; /* of the longest passage */
  int32_t suffix; /* suffix link: the state of the longest suffix that also ends at other positions; state 0: -1 */
  int32_t edges;  /* the first of its edges, -1: none */
  int32_t seen;   /* the length of its longest passage that is in the long text; 0: none */
} State;

/* A transition between states, in a hash table; `to` 0: the slot is free, as no transition leads to state 0. */
typedef struct Slot {
  int32_t from, id, to;
} Slot;

/* A list of the ids of a state's transitions. */
typedef struct Edge {
  int32_t id, next;
} Edge;

typedef struct Automaton {
  State *states; /* at most 2 per token */
  Edge *edges;   /* at most 3 per token */
  Slot *slots;
  int32_t state_count, edge_count, last;
  uint32_t mask; /* number of slots, a power of two, minus 1 */
} Automaton;

static Slot *slot_of(const Automaton *a, int32_t from, int32_t id) {
  const uint64_t hash = (uint64_t)(uint32_t)from * 0x9E3779B97F4A7C15u + (uint64_t)(uint32_t)id * 0xC2B2AE3D27D4EB4Fu;
  uint32_t at = (uint32_t)(hash >> 40) & a->mask;
  while (a->slots[at].to && (a->slots[at].from != from || a->slots[at].id != id)) at = (at + 1) & a->mask;
  return a->slots + at;
}

static void connect(Automaton *a, int32_t from, int32_t id, int32_t to) {
  Slot *slot = slot_of(a, from, id);
  if (!slot->to) {
    a->edges[a->edge_count] = (Edge){id, a->states[from].edges};
    a->states[from].edges = a->edge_count++;
  }
  *slot = (Slot){from, id, to};
}

static int32_t add_state(Automaton *a, int32_t length) {
  a->states[a->state_count] = (State){.length = length, .suffix = 0, .edges = -1};
  return a->state_count++;
}

/* Moves the shorter passages of a state, which end at one more position than the others, to a new state. */
static int32_t split(Automaton *a, int32_t from, int32_t id, int32_t state) {
  const int32_t shorter = add_state(a, a->states[from].length + 1);
  for (int32_t w = a->states[state].edges; w >= 0; w = a->edges[w].next)
    connect(a, shorter, a->edges[w].id, slot_of(a, state, a->edges[w].id)->to);
  a->states[shorter].suffix = a->states[state].suffix;
  a->states[state].suffix = shorter;
  for (Slot *slot; from >= 0 && (slot = slot_of(a, from, id))->to == state; from = a->states[from].suffix)
    slot->to = shorter;
  return shorter;
}

static void add_id(Automaton *a, int32_t id) {
  const int32_t now = add_state(a, a->states[a->last].length + 1);
  int32_t from = a->last;
  a->last = now;
  for (; from >= 0 && !slot_of(a, from, id)->to; from = a->states[from].suffix) connect(a, from, id, now);
  if (from < 0) return;
  const int32_t to = slot_of(a, from, id)->to;
  a->states[now].suffix = a->states[to].length == a->states[from].length + 1 ? to : split(a, from, id, to);
}

static void automaton_free(Automaton *a) {
  free(a->states);
  free(a->edges);
  free(a->slots);
}

static bool automaton_make(Automaton *a, const int32_t *ids, size_t count, Error *error) {
  size_t slots = 64;
  while (slots < 6 * count) slots *= 2; /* at most half full */
  *a = (Automaton){.states = malloc((2 * count + 1) * sizeof *a->states),
                   .edges = calloc(3 * count + 1, sizeof *a->edges),
                   .slots = calloc(slots, sizeof *a->slots),
                   .mask = (uint32_t)slots - 1};
  if (!a->states || !a->edges || !a->slots) return error_memory(error, "a comparison of texts");
  a->states[add_state(a, 0)].suffix = -1;
  for (size_t i = 0; i < count; i++) add_id(a, ids[i]);
  return true;
}

/* ---- reading the long text ---- */

/* The state of the automaton after some of the long text, and the length of the longest suffix of it that is in the
 * short text. */
typedef struct Match {
  int32_t state, length;
} Match;

static Match advance(Automaton *a, Match at, const int32_t *text, int count) {
  for (int i = 0; i < count; i++) {
    int32_t to = slot_of(a, at.state, text[i])->to;
    while (!to && at.state) {
      at.state = a->states[at.state].suffix;
      at.length = a->states[at.state].length;
      to = slot_of(a, at.state, text[i])->to;
    }
    if (!to) continue;
    at = (Match){to, at.length + 1};
    if (a->states[to].seen < at.length) a->states[to].seen = at.length;
  }
  return at;
}

static bool read_all(Automaton *a, const TokenRange *range, Progress progress, Error *error) {
  const int64_t all = token_range_size(range);
  int32_t *chunk = malloc(CHUNK * sizeof *chunk);
  bool ok = chunk || error_memory(error, "a comparison of texts");
  Match at = {0, 0};
  for (int64_t done = 0; ok && done < all;) {
    const int count = (int)(all - done < CHUNK ? all - done : CHUNK);
    ok = token_file_read(range->file, range->begin + done, count, chunk, error);
    if (ok) at = advance(a, at, chunk, count);
    done += count;
    ok = ok && progress_report(progress, done, error);
  }
  free(chunk);
  return ok;
}

/* Marks the suffixes of all passages that were seen: they are in the long text, too. */
static void mark_suffixes(Automaton *a) {
  for (int32_t i = 1; i < a->state_count; i++) {
    if (!a->states[i].seen) continue;
    for (int32_t s = a->states[i].suffix; s > 0 && a->states[s].seen < a->states[s].length; s = a->states[s].suffix)
      a->states[s].seen = a->states[s].length;
  }
}

/* Returns the first state on the path of suffix links that was seen. It then links all states of the path directly to
 * that state, because in a text that repeats itself the path is long for every token. */
static int32_t seen_suffix(Automaton *a, int32_t state) {
  int32_t seen = state;
  while (seen > 0 && !a->states[seen].seen) seen = a->states[seen].suffix;
  for (int32_t next; state != seen; state = next) {
    next = a->states[state].suffix;
    a->states[state].suffix = seen;
  }
  return seen;
}

/* Fills `lengths` from the states of the short text's prefixes. */
static void collect(Automaton *a, const int32_t *ids, size_t count, int32_t *lengths) {
  int32_t state = 0;
  for (size_t i = 0; i < count; i++) {
    state = slot_of(a, state, ids[i])->to;
    lengths[i] = a->states[seen_suffix(a, state)].seen;
  }
}

bool longest_match_lengths(const TokenRange *range, const int32_t *ids, size_t count, int32_t *lengths,
                           Progress progress, Error *error) {
  Automaton a;
  if (count > LONGEST_MATCH_TOKENS)
    return fail(error, EXIT_INTERNAL, "%zu tokens to compare, more than %d", count, LONGEST_MATCH_TOKENS);
  bool ok = automaton_make(&a, ids, count, error) && read_all(&a, range, progress, error);
  if (ok) {
    mark_suffixes(&a);
    collect(&a, ids, count, lengths);
  }
  automaton_free(&a);
  return ok;
}

/* ---- passages ---- */

/* Lists all maximal passages that are long enough, ordered by begin and thereby also by end. */
static size_t list_passages(const int32_t *lengths, const int64_t *offsets, size_t count, int tokens, int64_t bytes,
                            MatchSpan *spans) {
  size_t found = 0;
  for (size_t end = 1; end <= count; end++) {
    const size_t begin = end - (size_t)lengths[end - 1];
    if (end < count && lengths[end] > lengths[end - 1]) continue; /* not maximal */
    if (lengths[end - 1] < tokens || offsets[end] - offsets[begin] < bytes) continue;
    spans[found++] = (MatchSpan){begin, end};
  }
  return found;
}

size_t longest_match_spans(const int32_t *lengths, const int64_t *offsets, size_t count, int tokens, int64_t bytes,
                           MatchSpan *spans, size_t *longest) {
  const size_t found = list_passages(lengths, offsets, count, tokens, bytes, spans);
  size_t best = 0, kept = 0, covered = 0;
  for (size_t i = 1; i < found; i++)
    if (offsets[spans[i].end] - offsets[spans[i].begin] > offsets[spans[best].end] - offsets[spans[best].begin])
      best = i;
  *longest = 0;
  for (size_t i = 0; i < found; i++) {
    const MatchSpan span = spans[i];
    const size_t first = span.begin > covered ? span.begin : covered; /* first token that is not covered yet */
    const bool next_has_it = i + 1 < found && spans[i + 1].begin <= first;
    if (i != best && (first >= span.end || next_has_it)) continue;
    if (i == best) *longest = kept;
    spans[kept++] = span;
    covered = span.end;
  }
  return kept;
}
