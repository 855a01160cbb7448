/* Loss of the model on each line of a file (--score FILE --per-line). */
#include "generating/program.h"

#include "cli/startup.h"
#include "generating/line_input.h"
#include "tokenizer/bpe_encode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* What scoring a text needs: ids holds what comes before it, then its tokens. */
typedef struct Scored {
  Program *p;
  BpeIds ids;
  int32_t *targets; /* [ctx] */
  float *logits;    /* [ctx][vocab]; NULL: nobody asks for them */
  TokenSink *take;
  void *context;
} Scored;

/* The targets of a window, those before `scored` as context alone. */
static bool score_window(Scored *s, int64_t first, int length, int64_t scored, double *nats, Error *error) {
  const TokenBatch batch = {s->ids.ids + first, s->targets, NULL, NULL};
  const size_t vocab = (size_t)s->p->config.vocab;
  int64_t counted = 0;
  for (int i = 0; i < length; i++) s->targets[i] = first + i < scored ? IGNORE_INDEX : s->ids.ids[first + i + 1];
  if (!model_evaluate(s->p->model, &batch, 1, length, nats, &counted, s->logits, error)) return false;
  for (int64_t i = scored - first; s->logits && i < length; i++)
    if (!s->take(s->context, s->targets[i], s->logits + (size_t)i * vocab, error)) return false;
  return true;
}

/* Windows of at most ctx tokens, each but the first half old ones. */
static bool score_ids(Scored *s, double *nats, Error *error) {
  const int ctx = s->p->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)s->ids.count - 1; /* of targets */
  int64_t scored = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    console_work(&s->p->console, &(ConsoleWork){"scoring", (double)scored, (double)count, false});
    if (!startup_go_on("scoring", error) || !score_window(s, first, length, scored, nats, error)) return false;
    scored = first + length;
  }
  return isfinite(*nats) ||
         fail(error, EXIT_NONFINITE, "the loss is not finite: the model's weights are damaged or it diverged");
}

bool program_score_text(Program *p, const uint8_t *text, size_t size, TokenSink *take, void *context, TextScore *out,
                        Error *error) {
  const int32_t begin = tokenizer_begin(p->tokenizer), start = p->special.start >= 0 ? p->special.start : 0;
  const size_t ctx = (size_t)p->config.ctx;
  Scored s = {.p = p, .take = take, .context = context, .targets = malloc(ctx * sizeof *s.targets)};
  s.logits = take ? malloc(ctx * (size_t)p->config.vocab * sizeof *s.logits) : NULL;
  *out = (TextScore){.bytes = (int64_t)size};
  const bool ok = ((s.targets && (s.logits || !take)) || error_memory(error, "the logits of a window")) &&
                  bpe_ids_sink(&s.ids, begin >= 0 ? &begin : &start, 1, error) &&
                  tokenizer_encode(p->tokenizer, text, size, &s.ids, error) &&
                  model_evaluate_begin(p->model, 1, p->config.ctx, error) && score_ids(&s, &out->nats, error);
  console_work_end(&p->console);
  out->tokens = (int64_t)s.ids.count - 1;
  free(s.ids.ids);
  free(s.targets);
  free(s.logits);
  return ok;
}

static bool score_line(Program *p, int64_t number, const uint8_t *line, size_t size, Error *error) {
  TextScore score;
  if (!program_score_text(p, line, size, NULL, NULL, &score, error))
    return error_append(error, " (line %" PRId64 ")", number);
  printf("{\"line\": %" PRId64 ", \"nats\": %.6f, \"tokens\": %" PRId64 ", \"bytes\": %" PRId64 "}\n", number,
         score.nats, score.tokens, score.bytes);
  program_flush(p);
  return program_report_output(p, error);
}

bool program_score_lines(Program *p, Error *error) {
  LineInput input = {.fd = -1};
  if (p->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--per-line is for models without an encoder; --score FILE scores pairs");
  bool ok = line_input_open(&input, p->settings.score, error);
  while (ok && !p->write_error) {
    const uint8_t *line;
    size_t size;
    ok = line_input_next(&input, true, &line, &size, error);
    if (!ok || !line) break;
    ok = startup_go_on("scoring", error) && score_line(p, input.taken, line, size, error);
  }
  line_input_close(&input);
  return ok;
}
