#include "inference/answers.h"

#include "text/tokenizer/bpe_encode.h"

#include <stdlib.h>
#include <string.h>

/* ---- pairs ---- */

bool pair_reader_open(PairReader *out, const Windows *windows, const Model *model, const Tokenizer *tokenizer,
                      Error *error) {
  *out = (PairReader){.windows = windows,
                      .encoder = model_config(model)->encoder_layers > 0,
                      .before = tokenizer_before(tokenizer),
                      .end = tokenizer_end(tokenizer),
                      .position = windows->ctx};
  return batch_make(&out->batch, windows, 1, error);
}

void pair_reader_close(PairReader *reader) {
  batch_free(&reader->batch);
  *reader = (PairReader){0};
}

/* Copies the pair whose target begins at position `at` of the window. */
static bool take_pair(const PairReader *reader, const Window *w, int at, BpeIds *prompt, BpeIds *target, Error *error) {
  const int begin = w->cross_begin[at], ctx = reader->windows->ctx;
  /* Without an encoder the prompt has a token before it instead of an end token. */
  const int stop = w->cross_end[at] - !reader->encoder;
  int length = 0;
  while (at + length < ctx && w->targets[at + length] != reader->end) length++;
  prompt->count = target->count = 0;
  return (reader->encoder || bpe_ids_sink(prompt, &reader->before, 1, error)) &&
         bpe_ids_sink(prompt, w->source_tokens + begin, (size_t)(stop - begin), error) &&
         bpe_ids_sink(target, w->targets + at, (size_t)length, error);
}

bool pair_reader_next(PairReader *reader, BpeIds *prompt, BpeIds *target, bool *given, Error *error) {
  const Windows *windows = reader->windows;
  const Window w = batch_window(&reader->batch, 0);
  for (*given = false; !*given; reader->position++) {
    if (reader->position >= windows->ctx) {
      if (reader->window == windows_count(windows, 1)) return true;
      if (!windows_read(windows, 1, reader->window++, &w, error)) return false;
      reader->position = 0;
    }
    *given = w.positions[reader->position] == 0 && w.cross_begin[reader->position] < w.cross_end[reader->position];
    if (*given && !take_pair(reader, &w, reader->position, prompt, target, error)) return false;
  }
  return true;
}

Text answer_text(const PairReader *reader, const BpeIds *prompt, int64_t limit) {
  Text text = {.sampling = sampling_greedy(), .max_tokens = limit, .alternatives = -1, .keep_tokens = true};
  if (reader->encoder)
    text.prompt = (PromptTokens){.source = *prompt, .decoder = {.ids = (int32_t *)&reader->end, .count = 1}};
  else text.prompt.decoder = *prompt;
  return text;
}

/* ---- exact responses ---- */

typedef struct Answer {
  BpeIds prompt, target;
  Text text;
  bool busy;
} Answer;

typedef struct Counting {
  PairReader reader;
  Generation *generation;
  Answer *answers; /* [rows] */
  int rows;
  int64_t begun, limit;
  ExactCount *count;
} Counting;

/* Begins answers while there is room; *more false: there are no more pairs. */
static bool begin_answers(Counting *c, bool *more, Error *error) {
  while (*more && generation_has_room(c->generation)) {
    Answer *answer = c->answers;
    while (answer->busy) answer++;
    *more = !c->limit || c->begun < c->limit;
    if (*more && !pair_reader_next(&c->reader, &answer->prompt, &answer->target, more, error)) return false;
    if (!*more) break;
    answer->text = answer_text(&c->reader, &answer->prompt, (int64_t)answer->target.count + 1);
    answer->busy = true;
    c->begun++;
    if (!generation_add(c->generation, &answer->text, error)) return false;
  }
  return true;
}

static void count_answers(Counting *c) {
  for (int i = 0; i < c->rows; i++) {
    Answer *answer = &c->answers[i];
    const BpeIds *got = &answer->text.ids, *target = &answer->target;
    if (!answer->busy || !answer->text.ended) continue;
    c->count->pairs++;
    c->count->exact += answer->text.reason == STOP_END && got->count == target->count &&
                       (!got->count || memcmp(got->ids, target->ids, got->count * sizeof *got->ids) == 0);
    generation_free_text(&answer->text);
    answer->busy = false;
  }
}

static bool count_all(Counting *c, Progress progress, Error *error) {
  for (bool more = true;;) {
    if (!begin_answers(c, &more, error)) return false;
    if (!generation_count(c->generation)) return true;
    if (!progress_report(progress, c->count->pairs, error)) return !error->code;
    if (!generation_step(c->generation, error)) return false;
    count_answers(c);
  }
}

bool answers_count_exact(Decoder *decoder, int rows, const Tokenizer *tokenizer, const Windows *windows, int64_t limit,
                         Progress progress, ExactCount *out, Error *error) {
  Counting c = {.rows = rows, .limit = limit, .count = out};
  *out = (ExactCount){0};
  c.answers = calloc((size_t)rows, sizeof *c.answers);
  const bool ok = (c.answers || error_memory(error, "answers")) &&
                  pair_reader_open(&c.reader, windows, decoder_model(decoder), tokenizer, error) &&
                  generation_open(&c.generation, decoder, rows, tokenizer, error) && count_all(&c, progress, error);
  generation_close(c.generation);
  for (int r = 0; c.answers && r < rows; r++) {
    free(c.answers[r].prompt.ids);
    free(c.answers[r].target.ids);
    if (c.answers[r].busy) generation_free_text(&c.answers[r].text);
  }
  free(c.answers);
  pair_reader_close(&c.reader);
  return ok;
}
