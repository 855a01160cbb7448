/* How many of the most likely answers to sources are exactly their targets (--exact). */
#include "generation/answers.h"
#include "model/batch.h"
#include "tokenizer/bpe_encode.h"

#include <stdlib.h>
#include <string.h>

typedef struct Exact {
  Answers batch;
  BpeIds targets[ANSWER_ROWS]; /* without end tokens */
  ExactCount *out;
} Exact;

/* The pair whose target begins at place `at` of a window becomes a row. */
static bool take_pair(Exact *e, const Window *w, int ctx, int at, Error *error) {
  Answers *a = &e->batch;
  const int32_t end = tokenizer_end(a->p->tokenizer);
  const bool encoder = a->p->config.encoder_layers > 0;
  BpeIds *prompt = &a->prompts[a->count], *target = &e->targets[a->count];
  const int begin = w->cross_begin[at], stop = w->cross_end[at] - !encoder; /* a decoder alone reads no end after it */
  int length = 0;
  while (at + length < ctx && w->targets[at + length] != end) length++;
  prompt->count = target->count = 0;
  a->skipped[a->count++] = false;
  return (encoder || bpe_ids_sink(prompt, &end, 1, error)) &&
         bpe_ids_sink(prompt, w->source_tokens + begin, (size_t)(stop - begin), error) &&
         bpe_ids_sink(target, w->targets + at, (size_t)length, error);
}

static bool compare_batch(Exact *e, Error *error) {
  Answers *a = &e->batch;
  size_t longest = 0;
  for (int r = 0; r < a->count; r++) longest = e->targets[r].count > longest ? e->targets[r].count : longest;
  if (!answers_write(a, 0, (int64_t)longest + 1, error)) return false;
  for (int r = 0; r < a->count; r++) {
    const BpeIds *want = &e->targets[r], *got = &a->answers[r];
    e->out->pairs++;
    e->out->exact += a->ended[r] && got->count == want->count &&
                     (want->count == 0 || memcmp(got->ids, want->ids, want->count * sizeof *want->ids) == 0);
  }
  a->count = 0;
  return true;
}

static bool compare_all(Exact *e, const Windows *windows, Batch *room, Progress progress, Error *error) {
  const Window window = batch_window(room, 0);
  const int64_t count = windows_count(windows, 1);
  for (int64_t i = 0; i < count; i++) {
    if (!windows_read(windows, 1, i, &window, error)) return false;
    for (int at = 0; at < windows->ctx; at++) {
      if (window.positions[at] != 0 || window.cross_begin[at] == window.cross_end[at]) continue;
      if (!take_pair(e, &window, windows->ctx, at, error)) return false;
      if (e->batch.count == e->batch.rows && !compare_batch(e, error)) return false;
    }
    if (!progress_report(progress, i + 1, error)) return false;
  }
  return e->batch.count == 0 || compare_batch(e, error);
}

bool program_count_exact(Program *p, const Windows *windows, Progress progress, ExactCount *out, Error *error) {
  Exact e = {.out = out};
  Batch room = {0};
  *out = (ExactCount){0};
  bool ok = batch_make(&room, windows, 1, error) && answers_open(&e.batch, p, error);
  e.batch.sampling = (Sampling){.repeat_penalty = 1, .top_p = 1};
  ok = ok && compare_all(&e, windows, &room, progress, error);
  for (int r = 0; r < ANSWER_ROWS; r++) free(e.targets[r].ids);
  answers_close(&e.batch);
  batch_free(&room);
  return ok;
}
