#include "inference/answers.h"

#include "text/tokenizer/bpe_encode.h"

#include <stdlib.h>

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

GenerationRequest answer_request(const PairReader *reader, const BpeIds *prompt, int64_t limit) {
  GenerationRequest request = {.sampling = sampling_greedy(), .max_tokens = limit, .alternatives = -1};
  if (reader->encoder)
    request.prompt = (PromptTokens){.source = *prompt, .decoder = {.ids = (int32_t *)&reader->end, .count = 1}};
  else request.prompt.decoder = *prompt;
  return request;
}

/* ---- exact responses ---- */

typedef struct Answer {
  BpeIds prompt, target;
  size_t right; /* number of leading tokens that equal the target's; target.count + 1 after a wrong token */
  bool busy;
} Answer;

typedef struct Counting {
  PairReader reader;
  Answer *answers; /* [rows] */
  int64_t begun, limit;
  Progress progress;
  ExactCount *count;
} Counting;

static bool next_pair(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Counting *c = context;
  Answer *answer = c->answers;
  (void)wait;
  *given = false;
  if (c->limit && c->begun >= c->limit) return true;
  while (answer->busy) answer++; /* `next` is called only when a row is free */
  if (!pair_reader_next(&c->reader, &answer->prompt, &answer->target, given, error) || !*given) return !error->code;
  answer->right = 0;
  answer->busy = true;
  c->begun++;
  *out = answer_request(&c->reader, &answer->prompt, (int64_t)answer->target.count + 1);
  out->text = answer;
  return true;
}

static bool compare_token(void *context, void *text, const GeneratedToken *token, Error *error) {
  Answer *answer = text;
  (void)context, (void)error;
  const bool right = answer->right < answer->target.count && answer->target.ids[answer->right] == token->id;
  answer->right = right ? answer->right + 1 : answer->target.count + 1;
  return true;
}

static bool count_answer(void *context, void *text, const GenerationResult *result, Error *error) {
  Counting *c = context;
  Answer *answer = text;
  (void)error;
  answer->busy = false;
  if (result->reason == STOP_CALLER) return true;
  c->count->pairs++;
  c->count->exact += result->reason == STOP_END && answer->right == answer->target.count;
  return true;
}

static bool keep_answering(void *context, int64_t tokens, Error *error) {
  const Counting *c = context;
  (void)tokens;
  return progress_report(c->progress, c->count->pairs, error);
}

bool answers_count_exact(Decoder *decoder, int rows, const Tokenizer *tokenizer, const Windows *windows, int64_t limit,
                         Progress progress, ExactCount *out, Error *error) {
  Counting c = {.limit = limit, .progress = progress, .count = out};
  const Generation generation = {.decoder = decoder,
                                 .rows = rows,
                                 .tokenizer = tokenizer,
                                 .context = &c,
                                 .next = next_pair,
                                 .token = compare_token,
                                 .done = count_answer,
                                 .progress = {keep_answering, &c}};
  *out = (ExactCount){0};
  c.answers = calloc((size_t)rows, sizeof *c.answers);
  bool ok = (c.answers || error_memory(error, "answers")) &&
            pair_reader_open(&c.reader, windows, decoder_model(decoder), tokenizer, error) &&
            generation_run(&generation, error);
  for (int r = 0; c.answers && r < rows; r++) {
    free(c.answers[r].prompt.ids);
    free(c.answers[r].target.ids);
  }
  free(c.answers);
  pair_reader_close(&c.reader);
  return ok;
}
