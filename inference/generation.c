#include "inference/generation.h"

#include "inference/logprobs.h"
#include "model/decoder.h"
#include "tokenizer/bpe_encode.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *generation_stop_name(StopReason reason) {
  static const char *const names[] = {"length", "end of text", "stop text", "context full", "interrupted"};
  return names[reason];
}

bool generation_prompt(Tokenizer *tokenizer, int32_t start, const uint8_t *text, size_t size, BpeIds *ids,
                       Error *error) {
  const int32_t begin = tokenizer_begin(tokenizer);
  return (begin < 0 || bpe_ids_sink(ids, &begin, 1, error)) && tokenizer_encode(tokenizer, text, size, ids, error) &&
         (ids->count > 0 || bpe_ids_sink(ids, &start, 1, error));
}

int generation_rows(const Model *model, int most) {
  enum { CACHE_BYTES = 64 << 20 };
  const ModelConfig *c = model_config(model);
  const int64_t stacks = c->encoder_layers ? 2 : 1; /* keys and values of the text, and of its source */
  const int64_t row = 2 * stacks * c->layers * c->ctx * c->kv_heads * c->head_dim * (int64_t)sizeof(float);
  const int64_t fit = CACHE_BYTES / row;
  return fit < 1 ? 1 : fit < most ? (int)fit : most;
}

/* ---- a text that is being written ---- */

typedef struct Row {
  GenerationRequest request;
  GenerationResult result;
  double start;
  bool ended;            /* another may take its place */
  bool at_start;         /* neither the prompt nor what was written has bytes */
  BpeIds prompt, source; /* what the decoder's row began with; prompt.count 0: it no longer does */
  uint8_t *held; /* bytes that are not out: of a character that is not whole, or that a stop text may begin with */
  size_t size, capacity;
  size_t *matched; /* of each stop text */
  size_t *banned;  /* of each text of the rules: as much as the text ends with */
  bool ruled;      /* the decoder's row has the biases that follow from them */
  TokenAlternative *top;
  size_t matched_room, banned_room, top_room;
} Row;

typedef struct Writer {
  const Generation *g;
  Row *rows;
  int active; /* rows that the decoder goes on with */
  int32_t *drawn;
  int32_t *ids;   /* [vocab] and */
  float *values;  /* [vocab]: of biases, where there are any; first those of the unused ids */
  int unused;     /* ids that stand for no token, which are never drawn */
  float *logits;  /* [rows][vocab], where a text wants log-probabilities */
  int64_t tokens; /* drawn in all texts */
  bool stopped;   /* by the caller */
} Writer;

static void emit(Writer *w, Row *row, size_t size) {
  const Generation *g = w->g;
  if (size == 0) return;
  row->result.bytes += (int64_t)size;
  if (g->emit && !g->emit(g->context, row->request.text, row->held, size)) w->stopped = true;
  memmove(row->held, row->held + size, row->size - size);
  row->size -= size;
}

/* What can no longer become part of a stop text, in whole characters. */
static void emit_ready(Writer *w, Row *row) {
  size_t longest = 0;
  for (int i = 0; i < row->request.stops.count; i++) longest = row->matched[i] > longest ? row->matched[i] : longest;
  if (row->size > longest) emit(w, row, utf8_complete(row->held, row->size - longest));
}

/* One more byte. True when a stop text ends with it: what is held is then cut before the one that begins first. */
static bool hold_byte(Row *row, uint8_t byte) {
  const StopTexts *stops = &row->request.stops;
  size_t longest = 0;
  row->held[row->size++] = byte;
  for (int i = 0; i < stops->count; i++) {
    const Pattern *pattern = &stops->patterns[i];
    row->matched[i] = pattern_advance(pattern, row->matched[i], byte);
    if (row->matched[i] == pattern->size && pattern->size > longest) longest = pattern->size;
  }
  row->size -= longest;
  return longest > 0;
}

static bool end_text(Writer *w, Row *row, StopReason reason, Error *error) {
  const Generation *g = w->g;
  if (reason != STOP_CALLER) emit(w, row, row->size);
  row->ended = true;
  row->result.reason = reason;
  row->result.seconds = clock_seconds() - row->start;
  return !g->done || g->done(g->context, row->request.text, &row->result, error);
}

static bool tell_token(Writer *w, Row *row, int32_t id, Error *error) {
  const Generation *g = w->g;
  const int vocab = model_config(decoder_model(g->decoder))->vocab, count = row->request.alternatives;
  GeneratedToken token = {.id = id, .begin = row->result.bytes + (int64_t)row->size, .logprob = NAN, .top = row->top};
  if (!g->token) return true;
  if (count >= 0) token.logprob = logprobs_of(w->logits + (row - w->rows) * (int64_t)vocab, vocab, id, row->top, count);
  return g->token(g->context, row->request.text, &token, error);
}

/* What was drawn for a row. */
static bool take_token(Writer *w, Row *row, int32_t id, Error *error) {
  const GenerationRequest *r = &row->request;
  size_t size;
  w->tokens++;
  if (row->result.tokens++ == 0) row->result.first_token_seconds = clock_seconds() - row->start;
  if (id == tokenizer_end(w->g->tokenizer)) return r->ignore_end || end_text(w, row, STOP_END, error);
  if (!tell_token(w, row, id, error)) return false;
  if (r->rules && r->rules->ban_count) {
    token_rules_advance(r->rules, row->banned, id);
    row->ruled = false;
  }
  const uint8_t *bytes = tokenizer_decode_next(w->g->tokenizer, id, &row->at_start, &size);
  if (size == 0) return true;
  if (!array_reserve(&row->held, &row->capacity, row->size + size, 1)) return error_memory(error, "the text");
  for (size_t i = 0; i < size; i++)
    if (hold_byte(row, bytes[i])) return end_text(w, row, STOP_TEXT, error);
  emit_ready(w, row);
  return true;
}

static bool apply_rules(Writer *w, int r, Error *error) {
  Row *row = &w->rows[r];
  int count = 0;
  if (row->request.rules &&
      !token_rules_list(row->request.rules, row->banned, w->ids + w->unused, w->values + w->unused, &count, error))
    return false;
  row->ruled = true;
  return decoder_bias(w->g->decoder, r, w->ids, w->values, w->unused + count, error);
}

/* Whether there is a next token, or the text ends without one. */
static bool make_room(Writer *w, int r, Error *error) {
  Row *row = &w->rows[r];
  const GenerationRequest *request = &row->request;
  if (request->max_tokens >= 0 && row->result.tokens >= request->max_tokens)
    return end_text(w, row, STOP_LENGTH, error);
  if (decoder_capacity_left(w->g->decoder, r) > 0) return true;
  if (!request->keep) return end_text(w, row, STOP_CONTEXT, error);
  row->prompt.count = 0;
  return decoder_slide(w->g->decoder, r, request->keep, error);
}

/* ---- beginning a text ---- */

static bool same_ids(const BpeIds *ids, const int32_t *other, int count) {
  return ids->count == (size_t)count && (count == 0 || memcmp(ids->ids, other, ids->count * sizeof *ids->ids) == 0);
}

/* A row of the decoder that began as this text does, or -1. */
static int find_same(const Writer *w, const GenerationRequest *r) {
  for (int i = 0; i < w->g->rows; i++)
    if (same_ids(&w->rows[i].prompt, r->prompt, r->prompt_tokens) &&
        same_ids(&w->rows[i].source, r->source, r->source ? r->source_tokens : 0))
      return i;
  return -1;
}

static bool keep_ids(BpeIds *to, const int32_t *ids, int count, Error *error) {
  to->count = 0;
  return bpe_ids_sink(to, ids, (size_t)count, error);
}

/* The prompt and its source in row `r` of the decoder, computed or copied. */
static bool begin_row(Writer *w, int r, Error *error) {
  Row *row = &w->rows[r];
  const GenerationRequest *request = &row->request;
  Decoder *d = w->g->decoder;
  const int same = find_same(w, request);
  if (same >= 0) decoder_begin_as(d, r, same, request->prompt_tokens);
  row->prompt.count = 0;
  if (same < 0 && ((request->source && !decoder_source(d, r, request->source, request->source_tokens, error)) ||
                   !decoder_prompt(d, r, request->prompt, request->prompt_tokens, error)))
    return false;
  decoder_sampling(d, r, &request->sampling, request->stream);
  return keep_ids(&row->source, request->source, request->source ? request->source_tokens : 0, error) &&
         keep_ids(&row->prompt, request->prompt, request->prompt_tokens, error);
}

static int vocab_of(const Writer *w) { return model_config(decoder_model(w->g->decoder))->vocab; }

static bool bias_buffers(Writer *w, Error *error) {
  const size_t vocab = (size_t)vocab_of(w);
  if (w->ids) return true;
  w->ids = malloc(vocab * sizeof *w->ids);
  w->values = malloc(vocab * sizeof *w->values);
  return (w->ids && w->values) || error_memory(error, "rules for tokens");
}

/* In each row, whatever else its rules are. */
static bool mask_unused(Writer *w, Error *error) {
  const Tokenizer *t = w->g->tokenizer;
  const int vocab = vocab_of(w);
  if (tokenizer_tokens(t) == vocab) return true;
  if (!bias_buffers(w, error)) return false;
  for (int32_t id = 0; id < vocab; id++)
    if (!tokenizer_has_id(t, id)) {
      w->ids[w->unused] = id;
      w->values[w->unused++] = -INFINITY;
    }
  return true;
}

static bool row_buffers(Writer *w, Row *row, Error *error) {
  const GenerationRequest *r = &row->request;
  const size_t stops = (size_t)r->stops.count, bans = r->rules ? (size_t)r->rules->ban_count : 0;
  const size_t vocab = (size_t)model_config(decoder_model(w->g->decoder))->vocab,
               alternatives = r->alternatives > 0 ? (size_t)r->alternatives : 0;
  if (r->alternatives >= 0 && !w->logits) {
    w->logits = malloc((size_t)w->g->rows * vocab * sizeof *w->logits);
    if (!w->logits) return error_memory(error, "log-probabilities");
  }
  if (r->rules && !bias_buffers(w, error)) return false;
  if ((stops && !array_reserve(&row->matched, &row->matched_room, stops, sizeof *row->matched)) ||
      (bans && !array_reserve(&row->banned, &row->banned_room, bans, sizeof *row->banned)) ||
      (alternatives && !array_reserve(&row->top, &row->top_room, alternatives, sizeof *row->top)))
    return error_memory(error, "the text");
  for (size_t i = 0; i < stops; i++) row->matched[i] = 0;
  for (size_t i = 0; i < bans; i++) row->banned[i] = 0;
  row->ruled = false;
  return true;
}

/* The next text into row r; *given false: there is none. */
static bool take_text(Writer *w, int r, bool wait, bool *given, Error *error) {
  Row *row = &w->rows[r];
  *given = false;
  if (!w->g->next(w->g->context, wait, &row->request, given, error)) return false;
  if (!*given) return true;
  row->start = clock_seconds();
  row->result = (GenerationResult){0};
  row->ended = false;
  row->size = 0;
  row->at_start = !tokenizer_has_text(w->g->tokenizer, row->request.prompt, (size_t)row->request.prompt_tokens);
  return row_buffers(w, row, error) && begin_row(w, r, error);
}

static void move_row(Writer *w, int to, int from) {
  const Row ended = w->rows[to];
  decoder_copy(w->g->decoder, to, from);
  w->rows[to] = w->rows[from];
  w->rows[from] = ended;
  w->rows[from].prompt.count = 0; /* what it began with was in the other row */
}

/* New texts take the places of those that have ended, and what is left over at the end moves together. */
static bool refill(Writer *w, Error *error) {
  bool more = true;
  int busy = 0;
  for (int r = 0; r < w->active; r++) busy += !w->rows[r].ended;
  for (int r = 0; r < w->active || (more && r < w->g->rows); r++) {
    if (r < w->active && !w->rows[r].ended) continue;
    if (more && !take_text(w, r, busy == 0, &more, error)) return false;
    if (more) {
      busy++;
      w->active = r < w->active ? w->active : r + 1;
      continue;
    }
    while (w->active > r && w->rows[w->active - 1].ended) w->active--;
    if (w->active > r) move_row(w, r, --w->active);
  }
  if (w->active > 0) decoder_use_rows(w->g->decoder, w->active);
  return true;
}

/* ---- all of it ---- */

static bool wants_logits(const Writer *w) {
  for (int r = 0; r < w->active; r++)
    if (w->rows[r].request.alternatives >= 0) return true;
  return false;
}

/* A token for every row. */
static bool draw(Writer *w, Error *error) {
  Decoder *d = w->g->decoder;
  for (int r = 0; r < w->active; r++)
    if (!w->rows[r].ruled && !apply_rules(w, r, error)) return false;
  if (w->g->token && wants_logits(w) && !decoder_logits(d, w->logits, error)) return false;
  if (!decoder_next(d, w->drawn, error)) return false;
  for (int r = 0; r < w->active; r++)
    if (!take_token(w, &w->rows[r], w->drawn[r], error)) return false;
  return true;
}

static bool write_texts(Writer *w, Error *error) {
  while (!w->stopped) {
    if (!refill(w, error)) return false;
    if (w->active == 0) return true;
    if (!progress_report(w->g->progress, w->tokens, error)) w->stopped = true;
    if (error->code) return false;
    bool all = !w->stopped; /* rows go on */
    for (int r = 0; r < w->active && !w->stopped; r++) {
      if (!make_room(w, r, error)) return false;
      all = all && !w->rows[r].ended;
    }
    if (all && !draw(w, error)) return false;
  }
  for (int r = 0; r < w->active; r++)
    if (!w->rows[r].ended && !end_text(w, &w->rows[r], STOP_CALLER, error)) return false;
  return true;
}

bool generation_run(const Generation *g, Error *error) {
  Writer w = {
      .g = g, .rows = calloc((size_t)g->rows, sizeof *w.rows), .drawn = calloc((size_t)g->rows, sizeof *w.drawn)};
  bool ok = (w.rows && w.drawn) || error_memory(error, "the texts");
  ok = ok && mask_unused(&w, error) && write_texts(&w, error);
  for (int r = 0; w.rows && r < g->rows; r++) {
    free(w.rows[r].prompt.ids);
    free(w.rows[r].source.ids);
    free(w.rows[r].held);
    free(w.rows[r].matched);
    free(w.rows[r].banned);
    free(w.rows[r].top);
  }
  free(w.rows);
  free(w.drawn);
  free(w.logits);
  free(w.ids);
  free(w.values);
  return ok;
}

/* ---- one text ---- */

typedef struct OneText {
  const Generation *generation;
  const GenerationRequest *request;
  GenerationResult *result;
} OneText;

static bool one_next(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  OneText *one = context;
  (void)wait, (void)error;
  *given = one->request != NULL;
  if (*given) *out = *one->request;
  one->request = NULL;
  return true;
}

static bool one_emit(void *context, void *text, const uint8_t *bytes, size_t size) {
  const Generation *g = ((OneText *)context)->generation;
  return !g->emit || g->emit(g->context, text, bytes, size);
}

static bool one_token(void *context, void *text, const GeneratedToken *token, Error *error) {
  const Generation *g = ((OneText *)context)->generation;
  return g->token(g->context, text, token, error);
}

static bool one_done(void *context, void *text, const GenerationResult *result, Error *error) {
  (void)text, (void)error;
  *((OneText *)context)->result = *result;
  return true;
}

bool generation_run_one(const Generation *generation, const GenerationRequest *request, GenerationResult *result,
                        Error *error) {
  OneText one = {generation, request, result};
  Generation g = *generation;
  g.rows = 1;
  g.context = &one;
  g.next = one_next;
  g.emit = one_emit;
  g.token = generation->token ? one_token : NULL;
  g.done = one_done;
  *result = (GenerationResult){0};
  return generation_run(&g, error);
}
