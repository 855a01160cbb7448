#include "inference/generation.h"

#include "inference/evaluation.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/array.h"
#include "base/system.h"
#include "base/utf8.h"

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

bool generation_encode(const PromptEncoder *e, const uint8_t *text, size_t size, const uint8_t *answer,
                       size_t answer_size, PromptTokens *out, Error *error) {
  if (!e->source) return generation_prompt(e->tokenizer, e->start, text, size, &out->decoder, error);
  const int32_t end = tokenizer_end(e->source);
  return tokenizer_encode(e->source, text, size, &out->source, error) && bpe_ids_sink(&out->source, &end, 1, error) &&
         bpe_ids_sink(&out->decoder, &e->start, 1, error) &&
         tokenizer_encode(e->tokenizer, answer, answer_size, &out->decoder, error);
}

int generation_rows(const Model *model, int most) {
  const int64_t least = 64 << 20, weights = (int64_t)(model_arena_size(model, ARENA_MASTER) * sizeof(float));
  const int64_t fit = (weights > least ? weights : least) / decoder_cache_bytes(model_config(model), sizeof(float));
  return fit < 1 ? 1 : fit < most ? (int)fit : most;
}

/* ---- log-probabilities ---- */

static double log_sum(const float *logits, int vocab) {
  float max = logits[0];
  for (int i = 1; i < vocab; i++) max = logits[i] > max ? logits[i] : max;
  double sum = exp((double)logits[0] - (double)max);
  for (int i = 1; i < vocab; i++) sum += exp((double)logits[i] - (double)max);
  return (double)max + log(sum);
}

/* Orders alternatives: lower logit first, ties by higher id. */
static bool is_worse(TokenAlternative a, TokenAlternative b) {
  return a.logprob != b.logprob ? a.logprob < b.logprob : a.id > b.id;
}

/* Inserts each token into the sorted list of the best ones so far. */
static void select_top(const float *logits, int vocab, TokenAlternative *top, int count) {
  for (int i = 0, used = 0; i < vocab; i++) {
    const TokenAlternative item = {i, logits[i]};
    if (used == count && !is_worse(top[count - 1], item)) continue;
    int at = used < count ? used++ : count - 1;
    for (; at > 0 && is_worse(top[at - 1], item); at--) top[at] = top[at - 1];
    top[at] = item;
  }
}

float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count) {
  const double all = log_sum(logits, vocab);
  if (count > 0) select_top(logits, vocab, top, count);
  for (int i = 0; i < count; i++) top[i].logprob = (float)((double)top[i].logprob - all);
  return (float)((double)logits[id] - all);
}

PredictionMeasures prediction_measure(const float *logits, int vocab, int32_t id) {
  const double all = log_sum(logits, vocab);
  PredictionMeasures out = {.rank = 1};
  for (int i = 0; i < vocab; i++) {
    const double logprob = (double)logits[i] - all, p = exp(logprob);
    if (p > 0) out.entropy -= p * logprob / NATS_PER_BIT;
    out.rank += logits[i] > logits[id];
  }
  return out;
}

/* ---- a text in progress ---- */

typedef struct TextRow {
  GenerationRequest request;
  GenerationResult result;
  double start;
  bool ended;            /* the row is free for another text */
  bool at_start;         /* no token so far has any text */
  PromptTokens began;    /* what the decoder's row began with; decoder.count 0: it was changed since */
  uint8_t *held;         /* bytes not emitted yet: of an incomplete character, or of a possible stop text */
  size_t size, capacity; /* of `held` */
  size_t *matched;       /* [stop texts]: bytes of each that the text ends with, and */
  size_t *banned;        /* [banned texts]: the same for the texts of the rules, in the array of `matched` */
  bool ruled;            /* the decoder's row has the current biases */
  TokenAlternative *top;
  size_t matched_capacity, top_capacity;
} TextRow;

struct GenerationRun {
  const Generation *g;
  const GenerationRequest *only; /* generation_run_one(): the request, NULL after it was taken */
  GenerationResult *only_result; /* NULL: generation_run() */
  TextRow *rows;
  int active;     /* number of rows that the decoder computes */
  int32_t *drawn; /* [rows]: the drawn tokens */
  int vocab;
  int32_t *ids;   /* [vocab]: tokens with a bias, and */
  float *values;  /* [vocab]: their biases. The first `unused` are always -INFINITY */
  int unused;     /* number of ids without a token */
  float *logits;  /* [rows][vocab]; NULL: no text needs log-probabilities */
  int64_t tokens; /* drawn in all texts */
  bool stopped;   /* by the caller */
};

static bool emit(GenerationRun *w, TextRow *row, size_t size, Error *error) {
  const Generation *g = w->g;
  if (size == 0) return true;
  row->result.bytes += (int64_t)size;
  if (g->emit && !g->emit(g->context, row->request.text, row->held, size, error)) w->stopped = true;
  memmove(row->held, row->held + size, row->size - size);
  row->size -= size;
  return !error->code;
}

/* Emits the characters that cannot become part of a stop text. */
static bool emit_ready(GenerationRun *w, TextRow *row, Error *error) {
  size_t longest = 0;
  for (int i = 0; i < row->request.stops.count; i++) longest = row->matched[i] > longest ? row->matched[i] : longest;
  return row->size <= longest || emit(w, row, utf8_complete(row->held, row->size - longest), error);
}

/* Adds a byte. Returns true when a stop text ends with it, and then removes the longest such stop text. */
static bool hold_byte(TextRow *row, uint8_t byte) {
  const PatternList *stops = &row->request.stops;
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

static bool end_text(GenerationRun *w, TextRow *row, StopReason reason, Error *error) {
  const Generation *g = w->g;
  if (reason != STOP_CALLER && !emit(w, row, row->size, error)) return false;
  row->ended = true;
  row->result.reason = reason;
  row->result.seconds = clock_seconds() - row->start;
  if (w->only_result) *w->only_result = row->result;
  return w->only_result || !g->done || g->done(g->context, row->request.text, &row->result, error);
}

static bool pass_token(GenerationRun *w, TextRow *row, int32_t id, Error *error) {
  const Generation *g = w->g;
  const int vocab = w->vocab, count = row->request.alternatives;
  GeneratedToken token = {.id = id, .begin = row->result.bytes + (int64_t)row->size, .logprob = NAN, .top = row->top};
  if (!g->token) return true;
  if (count >= 0) token.logprob = logprobs_of(w->logits + (row - w->rows) * (int64_t)vocab, vocab, id, row->top, count);
  return g->token(g->context, row->request.text, &token, error);
}

/* Adds a drawn token to the text. */
static bool take_token(GenerationRun *w, TextRow *row, int32_t id, Error *error) {
  const GenerationRequest *r = &row->request;
  size_t size;
  w->tokens++;
  if (row->result.tokens++ == 0) row->result.first_token_seconds = clock_seconds() - row->start;
  if (!r->ignore_end && tokenizer_is_end(w->g->tokenizer, id)) return end_text(w, row, STOP_END, error);
  if (!pass_token(w, row, id, error)) return false;
  if (r->rules && r->rules->bans.count) {
    token_rules_advance(r->rules, row->banned, id);
    row->ruled = false;
  }
  const uint8_t *bytes = tokenizer_decode_next(w->g->tokenizer, id, &row->at_start, &size);
  if (size == 0) return true;
  if (!array_reserve(&row->held, &row->capacity, row->size + size, 1)) return error_memory(error, "the text");
  for (size_t i = 0; i < size; i++)
    if (hold_byte(row, bytes[i])) return end_text(w, row, STOP_TEXT, error);
  return emit_ready(w, row, error);
}

static bool apply_rules(GenerationRun *w, int r, Error *error) {
  TextRow *row = &w->rows[r];
  int count = 0;
  if (row->request.rules &&
      !token_rules_list(row->request.rules, row->banned, w->ids + w->unused, w->values + w->unused, &count, error))
    return false;
  row->ruled = true;
  return decoder_bias(w->g->decoder, r, w->ids, w->values, w->unused + count, error);
}

/* Ends a text that has no next token, because of max_tokens or of the context. */
static bool prepare_token(GenerationRun *w, int r, Error *error) {
  TextRow *row = &w->rows[r];
  const GenerationRequest *request = &row->request;
  if (request->max_tokens >= 0 && row->result.tokens >= request->max_tokens)
    return end_text(w, row, STOP_LENGTH, error);
  if (decoder_capacity_left(w->g->decoder, r) > 0) return true;
  if (!request->keep) return end_text(w, row, STOP_CONTEXT, error);
  row->began.decoder.count = 0;
  return decoder_slide(w->g->decoder, r, request->keep, error);
}

/* ---- beginning a text ---- */

static bool same_ids(const BpeIds *a, const BpeIds *b) {
  return a->count == b->count && (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

/* Returns a row of the decoder that began with the same prompt and source, or -1. */
static int find_same(const GenerationRun *w, const PromptTokens *prompt) {
  for (int i = 0; i < w->g->rows; i++)
    if (same_ids(&w->rows[i].began.decoder, &prompt->decoder) && same_ids(&w->rows[i].began.source, &prompt->source))
      return i;
  return -1;
}

static bool keep_ids(BpeIds *to, const BpeIds *ids, Error *error) {
  to->count = 0;
  return bpe_ids_sink(to, ids->ids, ids->count, error);
}

/* Computes prompt and source in row `r` of the decoder, or copies them from another row. */
static bool begin_row(GenerationRun *w, int r, Error *error) {
  TextRow *row = &w->rows[r];
  const BpeIds *source = &row->request.prompt.source, *prompt = &row->request.prompt.decoder;
  Decoder *d = w->g->decoder;
  const int same = find_same(w, &row->request.prompt);
  if (same >= 0) decoder_begin_as(d, r, same);
  row->began.decoder.count = 0;
  if (same < 0 && ((source->count && !decoder_source(d, r, source->ids, (int)source->count, error)) ||
                   !decoder_prompt(d, r, prompt->ids, (int)prompt->count, error)))
    return false;
  decoder_sampling(d, r, &row->request.sampling, row->request.stream);
  return keep_ids(&row->began.source, source, error) && keep_ids(&row->began.decoder, prompt, error);
}

/* Gives ids without a token a bias of -INFINITY, in each row. */
static void mask_unused(GenerationRun *w) {
  if (tokenizer_tokens(w->g->tokenizer) == w->vocab) return;
  for (int32_t id = 0; id < w->vocab; id++)
    if (!tokenizer_has_id(w->g->tokenizer, id)) {
      w->ids[w->unused] = id;
      w->values[w->unused++] = -INFINITY;
    }
}

static bool row_buffers(GenerationRun *w, TextRow *row, Error *error) {
  const GenerationRequest *r = &row->request;
  const size_t stops = (size_t)r->stops.count, patterns = stops + (r->rules ? (size_t)r->rules->bans.count : 0);
  const size_t alternatives = r->alternatives > 0 ? (size_t)r->alternatives : 0;
  if (r->alternatives >= 0 && !w->logits) {
    w->logits = malloc((size_t)w->g->rows * (size_t)w->vocab * sizeof *w->logits);
    if (!w->logits) return error_memory(error, "log-probabilities");
  }
  if (!array_reserve(&row->matched, &row->matched_capacity, patterns + 1, sizeof *row->matched) ||
      !array_reserve(&row->top, &row->top_capacity, alternatives + 1, sizeof *row->top))
    return error_memory(error, "the text");
  for (size_t i = 0; i < patterns; i++) row->matched[i] = 0;
  row->banned = row->matched + stops;
  row->ruled = false;
  return true;
}

static bool next_request(GenerationRun *w, bool wait, GenerationRequest *out, bool *given, Error *error) {
  if (!w->only_result) return w->g->next(w->g->context, wait, out, given, error);
  *given = w->only != NULL;
  if (*given) *out = *w->only;
  w->only = NULL;
  return true;
}

/* Begins the next text in row r; *given false: there is none. */
static bool take_text(GenerationRun *w, int r, bool wait, bool *given, Error *error) {
  TextRow *row = &w->rows[r];
  *given = false;
  if (!next_request(w, wait, &row->request, given, error)) return false;
  if (!*given) return true;
  row->start = clock_seconds();
  row->result = (GenerationResult){0};
  row->ended = false;
  row->size = 0;
  row->at_start =
      tokenizer_at_start(w->g->tokenizer, row->request.prompt.decoder.ids, row->request.prompt.decoder.count);
  return row_buffers(w, row, error) && begin_row(w, r, error);
}

static void move_row(GenerationRun *w, int to, int from) {
  const TextRow ended = w->rows[to];
  decoder_copy(w->g->decoder, to, from);
  w->rows[to] = w->rows[from];
  w->rows[from] = ended;
  w->rows[from].began.decoder.count = 0; /* the decoder's row has the other text now */
}

/* Begins new texts in free rows. When there are no more texts, moves the last rows into free ones. */
static bool refill(GenerationRun *w, Error *error) {
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

/* ---- the loop ---- */

static bool wants_logits(const GenerationRun *w) {
  for (int r = 0; r < w->active; r++)
    if (w->rows[r].request.alternatives >= 0) return true;
  return false;
}

/* Draws a token for every row. */
static bool draw(GenerationRun *w, Error *error) {
  Decoder *d = w->g->decoder;
  for (int r = 0; r < w->active; r++)
    if (!w->rows[r].ruled && !apply_rules(w, r, error)) return false;
  if (w->g->token && wants_logits(w) && !decoder_logits(d, w->logits, error)) return false;
  if (!decoder_next(d, w->drawn, error)) return false;
  for (int r = 0; r < w->active; r++)
    if (!take_token(w, &w->rows[r], w->drawn[r], error)) return false;
  return true;
}

static bool end_all(GenerationRun *w, Error *error) {
  for (int r = 0; r < w->active; r++)
    if (!w->rows[r].ended && !end_text(w, &w->rows[r], STOP_CALLER, error)) return false;
  return true;
}

bool generation_step(GenerationRun *w, bool *more, Error *error) {
  *more = false;
  if (!refill(w, error)) return false;
  if (w->active == 0) return true;
  if (!progress_report(w->g->progress, w->tokens, error)) w->stopped = true;
  if (error->code) return false;
  bool all = !w->stopped; /* no row has ended */
  for (int r = 0; r < w->active && !w->stopped; r++) {
    if (!prepare_token(w, r, error)) return false;
    all = all && !w->rows[r].ended;
  }
  if (all && !draw(w, error)) return false;
  *more = !w->stopped;
  return *more || end_all(w, error);
}

bool generation_begin(GenerationRun **out, const Generation *g, Error *error) {
  GenerationRun *w = *out = calloc(1, sizeof *w);
  if (!w) return error_memory(error, "the texts");
  w->g = g;
  w->vocab = model_config(decoder_model(g->decoder))->vocab;
  w->rows = calloc((size_t)g->rows, sizeof *w->rows);
  w->drawn = calloc((size_t)g->rows, sizeof *w->drawn);
  w->ids = malloc((size_t)w->vocab * sizeof *w->ids);
  w->values = malloc((size_t)w->vocab * sizeof *w->values);
  if (w->rows && w->drawn && w->ids && w->values) {
    mask_unused(w);
    return true;
  }
  generation_end(w);
  *out = NULL;
  return error_memory(error, "the texts");
}

void generation_end(GenerationRun *w) {
  if (!w) return;
  for (int r = 0; w->rows && r < w->g->rows; r++) {
    free(w->rows[r].began.source.ids);
    free(w->rows[r].began.decoder.ids);
    free(w->rows[r].held);
    free(w->rows[r].matched);
    free(w->rows[r].top);
  }
  free(w->rows);
  free(w->drawn);
  free(w->logits);
  free(w->ids);
  free(w->values);
  free(w);
}

static bool run(const Generation *g, const GenerationRequest *only, GenerationResult *result, Error *error) {
  GenerationRun *w;
  bool ok = generation_begin(&w, g, error);
  if (ok) w->only = only, w->only_result = result;
  for (bool more = ok; more;) ok = generation_step(w, &more, error);
  generation_end(w);
  return ok;
}

bool generation_run(const Generation *generation, Error *error) { return run(generation, NULL, NULL, error); }

bool generation_run_one(const Generation *generation, const GenerationRequest *request, GenerationResult *result,
                        Error *error) {
  Generation g = *generation;
  g.rows = 1;
  *result = (GenerationResult){0};
  return run(&g, request, result, error);
}
