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

/* ---- a text ---- */

void generation_free_text(Text *t) {
  free(t->bytes.bytes);
  free(t->ids.ids);
  free(t->tokens);
  free(t->top);
  free(t->matched);
}

void generation_drop_ready(Text *t) {
  if (!t->ready) return;
  t->bytes.size -= t->ready;
  memmove(t->bytes.bytes, t->bytes.bytes + t->ready, t->bytes.size);
  t->ready = 0;
}

bool generation_add_token(Text *t, int32_t id, float logprob, const TokenAlternative *top, Error *error) {
  const size_t count = t->ids.count, alternatives = t->alternatives > 0 ? (size_t)t->alternatives : 0;
  if (!t->keep_tokens && t->alternatives < 0) return true;
  if (!array_reserve(&t->tokens, &t->tokens_capacity, count + 1, sizeof *t->tokens) ||
      (alternatives && !array_reserve(&t->top, &t->top_capacity, (count + 1) * alternatives, sizeof *t->top)))
    return error_memory(error, "a text");
  t->tokens[count] = (TextToken){t->bytes.size, logprob};
  if (alternatives) memcpy(t->top + count * alternatives, top, alternatives * sizeof *t->top);
  return bpe_ids_sink(&t->ids, &id, 1, error);
}

/* Adds a byte. Returns true when a stop text ends with it, and then removes the longest such stop text. */
static bool add_byte(Text *t, uint8_t byte) {
  size_t longest = 0;
  t->bytes.bytes[t->bytes.size++] = byte;
  for (int i = 0; i < t->stops.count; i++) {
    const Pattern *pattern = &t->stops.patterns[i];
    t->matched[i] = pattern_advance(pattern, t->matched[i], byte);
    if (t->matched[i] == pattern->size && pattern->size > longest) longest = pattern->size;
  }
  t->bytes.size -= longest;
  return longest > 0;
}

/* Makes the characters ready that cannot become part of a stop text. */
static void make_ready(Text *t) {
  size_t longest = 0;
  for (int i = 0; i < t->stops.count; i++) longest = t->matched[i] > longest ? t->matched[i] : longest;
  const size_t waiting = t->bytes.size - t->ready;
  if (waiting > longest) t->ready += utf8_complete(t->bytes.bytes + t->ready, waiting - longest);
}

/* ---- texts in progress ---- */

/* A row of the decoder. */
typedef struct Row {
  Text *text;         /* NULL: the row is free */
  PromptTokens began; /* what the decoder's row began with; decoder.count 0: it was changed since */
  bool ruled;         /* the decoder's row has the current biases */
} Row;

struct Generation {
  Decoder *decoder;
  const Tokenizer *tokenizer;
  Row *rows; /* [row_count] */
  int row_count, vocab;
  int active;            /* number of rows that the decoder computes */
  int count;             /* of these, those with a text */
  int32_t *drawn;        /* [row_count]: the drawn tokens */
  int32_t *ids;          /* [vocab]: tokens with a bias, and */
  float *values;         /* [vocab]: their biases. The first `unused` are always -INFINITY */
  int unused;            /* number of ids without a token */
  float *logits;         /* [row_count][vocab]; NULL: no text needs log-probabilities */
  TokenAlternative *top; /* [vocab] */
};

/* Ends the text of a row, which becomes free. Returns true. */
static bool end_text(Generation *g, Row *row, StopReason reason) {
  Text *t = row->text;
  t->ready = t->bytes.size;
  t->ended = true;
  t->reason = reason;
  t->seconds = clock_seconds() - t->start;
  row->text = NULL;
  g->count--;
  return true;
}

static bool keep_token(Generation *g, int r, int32_t id, Error *error) {
  Text *t = g->rows[r].text;
  float logprob = NAN;
  if (t->alternatives >= 0)
    logprob = logprobs_of(g->logits + (int64_t)r * g->vocab, g->vocab, id, g->top, t->alternatives);
  return generation_add_token(t, id, logprob, g->top, error);
}

/* Adds a drawn token to the text. */
static bool take_token(Generation *g, int r, int32_t id, Error *error) {
  Row *row = &g->rows[r];
  Text *t = row->text;
  size_t size;
  t->seconds = clock_seconds() - t->start;
  if (t->count++ == 0) t->first_token_seconds = t->seconds;
  t->last = id;
  if (!t->ignore_end && tokenizer_is_end(g->tokenizer, id)) return end_text(g, row, STOP_END);
  if (!keep_token(g, r, id, error)) return false;
  if (t->rules && t->rules->bans.count) {
    token_rules_advance(t->rules, t->matched + t->stops.count, id);
    row->ruled = false;
  }
  const uint8_t *bytes = tokenizer_decode_next(g->tokenizer, id, &t->at_start, &size);
  if (size == 0) return true;
  if (!array_reserve(&t->bytes.bytes, &t->bytes.capacity, t->bytes.size + size + 1, 1))
    return error_memory(error, "the text");
  for (size_t i = 0; i < size; i++)
    if (add_byte(t, bytes[i])) return end_text(g, row, STOP_TEXT);
  make_ready(t);
  return true;
}

static bool apply_rules(Generation *g, int r, Error *error) {
  Row *row = &g->rows[r];
  const Text *t = row->text;
  int count = 0;
  if (t->rules && !token_rules_list(t->rules, t->matched + t->stops.count, g->ids + g->unused, g->values + g->unused,
                                    &count, error))
    return false;
  row->ruled = true;
  return decoder_bias(g->decoder, r, g->ids, g->values, g->unused + count, error);
}

/* Ends a text that has no next token, because of max_tokens or of the context. */
static bool prepare_token(Generation *g, int r, Error *error) {
  Row *row = &g->rows[r];
  const Text *t = row->text;
  if (t->max_tokens >= 0 && t->count >= t->max_tokens) return end_text(g, row, STOP_LENGTH);
  if (decoder_capacity_left(g->decoder, r) > 0) return true;
  if (!t->keep) return end_text(g, row, STOP_CONTEXT);
  row->began.decoder.count = 0;
  return decoder_slide(g->decoder, r, t->keep, error);
}

/* ---- beginning a text ---- */

static bool same_ids(const BpeIds *a, const BpeIds *b) {
  return a->count == b->count && (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

/* Returns a row of the decoder that began with the same prompt and source, or -1. */
static int find_same(const Generation *g, const PromptTokens *prompt) {
  for (int i = 0; i < g->row_count; i++)
    if (same_ids(&g->rows[i].began.decoder, &prompt->decoder) && same_ids(&g->rows[i].began.source, &prompt->source))
      return i;
  return -1;
}

static bool keep_ids(BpeIds *to, const BpeIds *ids, Error *error) {
  to->count = 0;
  return bpe_ids_sink(to, ids->ids, ids->count, error);
}

/* Computes prompt and source in row `r` of the decoder, or copies them from another row. */
static bool begin_row(Generation *g, int r, const Text *t, Error *error) {
  Row *row = &g->rows[r];
  const BpeIds *source = &t->prompt.source, *prompt = &t->prompt.decoder;
  Decoder *d = g->decoder;
  const int same = t->cached ? -1 : find_same(g, &t->prompt);
  if (same >= 0) decoder_begin_as(d, r, same);
  row->began.decoder.count = 0;
  if (t->cached) {
    decoder_sampling(d, r, &t->sampling, t->stream);
    return decoder_extend(d, prompt->ids + t->cached, (int)(prompt->count - t->cached), error);
  }
  if (same < 0 && ((source->count && !decoder_source(d, r, source->ids, (int)source->count, error)) ||
                   !decoder_prompt(d, r, prompt->ids, (int)prompt->count, error)))
    return false;
  decoder_sampling(d, r, &t->sampling, t->stream);
  return keep_ids(&row->began.source, source, error) && keep_ids(&row->began.decoder, prompt, error);
}

static bool begin_text(Generation *g, Text *t, Error *error) {
  const size_t patterns = (size_t)t->stops.count + (t->rules ? (size_t)t->rules->bans.count : 0);
  t->start = clock_seconds();
  t->reason = STOP_CALLER;
  t->at_start = tokenizer_at_start(g->tokenizer, t->prompt.decoder.ids, t->prompt.decoder.count);
  t->matched = calloc(patterns + 1, sizeof *t->matched);
  if (t->alternatives >= 0 && !g->logits)
    g->logits = malloc((size_t)g->row_count * (size_t)g->vocab * sizeof *g->logits);
  return (t->matched && (g->logits || t->alternatives < 0)) || error_memory(error, "the text");
}

int generation_count(const Generation *g) { return g->count; }

bool generation_has_room(const Generation *g) { return g->count < g->row_count; }

bool generation_add(Generation *g, Text *t, Error *error) {
  int r = 0;
  while (g->rows[r].text) r++;
  if (!begin_text(g, t, error) || !begin_row(g, r, t, error)) return false;
  g->rows[r].text = t;
  g->rows[r].ruled = false;
  g->count++;
  if (r >= g->active) g->active = r + 1;
  return true;
}

void generation_interrupt(Generation *g) {
  for (int r = 0; g && r < g->row_count; r++) g->rows[r].text = NULL;
  if (g) g->count = 0;
}

/* ---- steps ---- */

/* Moves the last texts into free rows, so that the decoder computes no row without a text. */
static void close_gaps(Generation *g) {
  for (int r = 0; g->active > g->count; g->active--) {
    Row *last = &g->rows[g->active - 1];
    if (!last->text) continue;
    while (g->rows[r].text) r++;
    const Row free_one = g->rows[r];
    decoder_copy(g->decoder, r, g->active - 1);
    g->rows[r] = *last;
    *last = free_one;
    last->began.decoder.count = 0; /* the decoder's row has the other text now */
  }
  if (g->active > 0) decoder_use_rows(g->decoder, g->active);
}

static bool wants_logits(const Generation *g) {
  for (int r = 0; r < g->active; r++)
    if (g->rows[r].text->alternatives >= 0) return true;
  return false;
}

bool generation_step(Generation *g, Error *error) {
  close_gaps(g);
  const int active = g->active;
  bool all = active > 0; /* no text has ended */
  for (int r = 0; r < active; r++) {
    if (!prepare_token(g, r, error)) return false;
    all = all && g->rows[r].text;
  }
  if (!all) return true;
  for (int r = 0; r < active; r++)
    if (!g->rows[r].ruled && !apply_rules(g, r, error)) return false;
  if (wants_logits(g) && !decoder_logits(g->decoder, g->logits, error)) return false;
  if (!decoder_next(g->decoder, g->drawn, error)) return false;
  for (int r = 0; r < active; r++)
    if (!take_token(g, r, g->drawn[r], error)) return false;
  return true;
}

/* ---- opening ---- */

/* Gives ids without a token a bias of -INFINITY, in each row. */
static void mask_unused(Generation *g) {
  if (tokenizer_tokens(g->tokenizer) == g->vocab) return;
  for (int32_t id = 0; id < g->vocab; id++)
    if (!tokenizer_has_id(g->tokenizer, id)) {
      g->ids[g->unused] = id;
      g->values[g->unused++] = -INFINITY;
    }
}

bool generation_open(Generation **out, Decoder *decoder, int rows, const Tokenizer *tokenizer, Error *error) {
  const size_t vocab = (size_t)model_config(decoder_model(decoder))->vocab;
  Generation *g = *out = calloc(1, sizeof *g);
  if (!g) return error_memory(error, "the texts");
  g->decoder = decoder;
  g->tokenizer = tokenizer;
  g->row_count = rows;
  g->vocab = (int)vocab;
  g->rows = calloc((size_t)rows, sizeof *g->rows);
  g->drawn = calloc((size_t)rows, sizeof *g->drawn);
  g->ids = malloc(vocab * sizeof *g->ids);
  g->values = malloc(vocab * sizeof *g->values);
  g->top = malloc(vocab * sizeof *g->top);
  if (g->rows && g->drawn && g->ids && g->values && g->top) {
    mask_unused(g);
    return true;
  }
  generation_close(g);
  *out = NULL;
  return error_memory(error, "the texts");
}

void generation_close(Generation *g) {
  if (!g) return;
  for (int r = 0; g->rows && r < g->row_count; r++) {
    free(g->rows[r].began.source.ids);
    free(g->rows[r].began.decoder.ids);
  }
  free(g->rows);
  free(g->drawn);
  free(g->logits);
  free(g->ids);
  free(g->values);
  free(g->top);
  free(g);
}
