#include "model/answers.h"

#include "model/batch.h"
#include "model/generation.h"
#include "tokenizer/bpe_encode.h"

#include <stdlib.h>
#include <string.h>

/* A decoder alone starts its rows from the same prompt. Above an encoder as many as their caches are no burden. */
static int rows_for(const Model *model) {
  const ModelConfig *c = model_config(model);
  const int64_t caches = 4 * (int64_t)c->layers * c->ctx * c->kv_heads * c->head_dim * (int64_t)sizeof(float);
  const int64_t fit = ((int64_t)64 << 20) / caches;
  if (!c->encoder_layers || fit < 1) return 1;
  return fit < ANSWER_ROWS ? (int)fit : ANSWER_ROWS;
}

bool answers_open(Answers *a, Model *model, const Tokenizer *tokenizer, const Tokenizer *source, Error *error) {
  *a = (Answers){.encoder = model_config(model)->encoder_layers > 0,
                 .end = tokenizer_end(tokenizer),
                 .source_end = tokenizer_end(source ? source : tokenizer)};
  a->rows = rows_for(model);
  return (!a->encoder || bpe_ids_sink(&a->begin, &a->end, 1, error)) &&
         decoder_open(&a->decoder, model, a->rows, error);
}

void answers_close(Answers *a) {
  decoder_close(a->decoder);
  free(a->begin.ids);
  for (int r = 0; r < ANSWER_ROWS; r++) {
    free(a->prompts[r].ids);
    free(a->answers[r].ids);
  }
  *a = (Answers){0};
}

/* Rows without a prompt answer an empty one. */
static bool begin_rows(Answers *a, uint32_t first_stream, Error *error) {
  const BpeIds *begin = a->encoder ? &a->begin : &a->prompts[0];
  decoder_use_rows(a->decoder, a->count);
  for (int r = 0; a->encoder && r < a->count; r++) {
    const BpeIds *prompt = &a->prompts[r];
    const bool given = !a->skipped[r];
    if (!decoder_source(a->decoder, r, given ? prompt->ids : &a->source_end, given ? (int)prompt->count : 1, error))
      return false;
  }
  return decoder_prompt(a->decoder, begin->ids, (int)begin->count, first_stream, error);
}

/* Draws a token for every row; *busy: whether any answer goes on. */
static bool draw(Answers *a, const AnswerRequest *request, bool *busy, Error *error) {
  int32_t next[ANSWER_ROWS];
  if (!decoder_next(a->decoder, &request->sampling, next, error)) return false;
  *busy = false;
  for (int r = 0; r < a->count; r++) {
    if (a->ended[r]) continue;
    const bool end = next[r] == a->end;
    a->ended[r] = end && !request->ignore_end;
    a->tokens++;
    if (!end && !bpe_ids_sink(&a->answers[r], &next[r], 1, error)) return false;
    *busy = *busy || !a->ended[r];
  }
  return true;
}

bool answers_write(Answers *a, const AnswerRequest *request, Error *error) {
  bool busy = false;
  for (int r = 0; r < a->count; r++) {
    a->answers[r].count = 0;
    a->ended[r] = a->skipped[r];
    busy = busy || !a->ended[r];
  }
  if (!busy) return true;
  if (!begin_rows(a, request->first_stream, error)) return false;
  for (int64_t n = 0; busy && (request->limit < 0 || n < request->limit) && decoder_room(a->decoder) > 0; n++)
    if (!progress_report(request->progress, n, error) || !draw(a, request, &busy, error)) return false;
  return true;
}

/* ---- pairs ---- */

bool answers_pairs_begin(PairReader *reader, const Windows *windows, Error *error) {
  *reader = (PairReader){.windows = windows, .place = windows->ctx};
  reader->room = calloc(1, sizeof *reader->room);
  return reader->room ? batch_make(reader->room, windows, 1, error) : error_memory(error, "a window of pairs");
}

void answers_pairs_end(PairReader *reader) {
  if (reader->room) batch_free(reader->room);
  free(reader->room);
  *reader = (PairReader){0};
}

/* The pair whose target begins at place `at` of a window becomes a row. */
static bool take_pair(Answers *a, const Window *w, int ctx, int at, BpeIds *target, Error *error) {
  BpeIds *prompt = &a->prompts[a->count];
  const int begin = w->cross_begin[at];
  const int stop = w->cross_end[at] - !a->encoder; /* a decoder alone reads no end token after it, but one before */
  int length = 0;
  while (at + length < ctx && w->targets[at + length] != a->end) length++;
  prompt->count = target->count = 0;
  a->skipped[a->count++] = false;
  return (a->encoder || bpe_ids_sink(prompt, &a->end, 1, error)) &&
         bpe_ids_sink(prompt, w->source_tokens + begin, (size_t)(stop - begin), error) &&
         bpe_ids_sink(target, w->targets + at, (size_t)length, error);
}

bool answers_pairs_next(PairReader *reader, Answers *a, BpeIds targets[ANSWER_ROWS], Error *error) {
  const Windows *windows = reader->windows;
  const Window w = batch_window(reader->room, 0);
  for (a->count = 0; a->count < a->rows; reader->place++) {
    if (reader->place >= windows->ctx) {
      if (reader->window == windows_count(windows, 1)) return true;
      if (!windows_read(windows, 1, reader->window++, &w, error)) return false;
      reader->place = 0;
    }
    const bool begins = w.positions[reader->place] == 0 && w.cross_begin[reader->place] < w.cross_end[reader->place];
    if (begins && !take_pair(a, &w, windows->ctx, reader->place, &targets[a->count], error)) return false;
  }
  return true;
}

/* A caller that counts pairs is asked before every token. */
typedef struct CountedPairs {
  Progress progress;
  int64_t pairs;
} CountedPairs;

static bool keep_answering(void *context, int64_t tokens, Error *error) {
  const CountedPairs *counted = context;
  (void)tokens;
  return progress_report(counted->progress, counted->pairs, error);
}

static bool compare_batch(Answers *a, const BpeIds *targets, Progress progress, ExactCount *out, Error *error) {
  size_t longest = 0;
  for (int r = 0; r < a->count; r++) longest = targets[r].count > longest ? targets[r].count : longest;
  const CountedPairs counted = {progress, out->pairs};
  const AnswerRequest likeliest = {
      .sampling = generation_greedy(), .limit = (int64_t)longest + 1, .progress = {keep_answering, (void *)&counted}};
  if (!answers_write(a, &likeliest, error)) return false;
  for (int r = 0; r < a->count; r++) {
    const BpeIds *want = &targets[r], *got = &a->answers[r];
    out->pairs++;
    out->exact += a->ended[r] && got->count == want->count &&
                  (want->count == 0 || memcmp(got->ids, want->ids, want->count * sizeof *want->ids) == 0);
  }
  return true;
}

bool answers_count_exact(Answers *a, const Windows *windows, int64_t limit, Progress progress, ExactCount *out,
                         Error *error) {
  BpeIds targets[ANSWER_ROWS] = {{0}};
  PairReader reader;
  *out = (ExactCount){0};
  bool ok = answers_pairs_begin(&reader, windows, error);
  while (ok && (limit == 0 || out->pairs < limit)) {
    ok = answers_pairs_next(&reader, a, targets, error);
    if (!ok || a->count == 0) break;
    if (limit && a->count > limit - out->pairs) a->count = (int)(limit - out->pairs);
    if (compare_batch(a, targets, progress, out, error)) continue;
    ok = !error->code; /* stopped */
    break;
  }
  for (int r = 0; r < ANSWER_ROWS; r++) free(targets[r].ids);
  answers_pairs_end(&reader);
  return ok;
}
