/* Loss of the model on each line of a file (--score FILE --per-line). */
#include "cli/startup.h"
#include "generating/line_input.h"
#include "generating/program.h"
#include "tokenizer/bpe_encode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Scoring {
  LoadedModel *m;
  Console *console;
  BpeIds ids;       /* the token that starts a text, then those of the text */
  int32_t *targets; /* [ctx] */
  float *logits;    /* [ctx][vocab]; NULL: `take` is NULL */
  TokenSink *take;
  void *context;
} Scoring;

/* Adds the loss of the targets from `scored` on in a window that begins at `first`; the tokens before are context. */
static bool score_window(Scoring *s, int64_t first, int length, int64_t scored, double *nats, Error *error) {
  const TokenBatch batch = {s->ids.ids + first, s->targets, NULL, NULL};
  const size_t vocab = (size_t)s->m->config.vocab;
  int64_t counted = 0;
  for (int i = 0; i < length; i++) s->targets[i] = first + i < scored ? IGNORE_INDEX : s->ids.ids[first + i + 1];
  if (!model_evaluate(s->m->model, &batch, 1, length, nats, &counted, s->logits, error)) return false;
  for (int64_t i = scored - first; s->logits && i < length; i++)
    if (!s->take(s->context, s->targets[i], s->logits + (size_t)i * vocab, error)) return false;
  return true;
}

/* Scores windows of at most ctx tokens; the first half of each but the first window is context. */
static bool score_ids(Scoring *s, double *nats, Error *error) {
  const int ctx = s->m->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)s->ids.count - 1; /* of targets */
  int64_t scored = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    console_work(s->console, &(ConsoleWork){"scoring", (double)scored, (double)count, false});
    if (!startup_go_on("scoring", error) || !score_window(s, first, length, scored, nats, error)) return false;
    scored = first + length;
  }
  return isfinite(*nats) ||
         fail(error, EXIT_NONFINITE, "the loss is not finite: the model's weights are damaged or it diverged");
}

bool score_text(LoadedModel *m, Console *console, const uint8_t *text, size_t size, TokenSink *take, void *context,
                TextScore *out, Error *error) {
  const int32_t begin = tokenizer_begin(m->tokenizer), start = m->special.start >= 0 ? m->special.start : 0;
  const size_t ctx = (size_t)m->config.ctx;
  Scoring s = {
      .m = m, .console = console, .take = take, .context = context, .targets = malloc(ctx * sizeof *s.targets)};
  s.logits = take ? malloc(ctx * (size_t)m->config.vocab * sizeof *s.logits) : NULL;
  *out = (TextScore){.bytes = (int64_t)size};
  const bool ok = ((s.targets && (s.logits || !take)) || error_memory(error, "the logits of a window")) &&
                  bpe_ids_sink(&s.ids, begin >= 0 ? &begin : &start, 1, error) &&
                  tokenizer_encode(m->tokenizer, text, size, &s.ids, error) &&
                  model_evaluate_begin(m->model, 1, m->config.ctx, error) && score_ids(&s, &out->nats, error);
  console_work_end(console);
  out->tokens = (int64_t)s.ids.count - 1;
  free(s.ids.ids);
  free(s.targets);
  free(s.logits);
  return ok;
}

static bool score_line(Program *p, int64_t number, const uint8_t *line, size_t size, Error *error) {
  TextScore score;
  if (!score_text(&p->model, &p->console, line, size, NULL, NULL, &score, error))
    return error_append(error, " (line %" PRId64 ")", number);
  printf("{\"line\": %" PRId64 ", \"nats\": %.6f, \"tokens\": %" PRId64 ", \"bytes\": %" PRId64 "}\n", number,
         score.nats, score.tokens, score.bytes);
  return stdout_flush_and_check(&p->out, error);
}

bool program_score_lines(Program *p, Error *error) {
  LineInput input = {.fd = -1};
  if (p->model.config.encoder_layers)
    return fail(error, EXIT_USAGE, "--per-line is for models without an encoder; --score FILE scores pairs");
  bool ok = line_input_open(&input, p->command.settings.score, error);
  while (ok && !p->out.error) {
    const uint8_t *line;
    size_t size;
    ok = line_input_next(&input, true, &line, &size, error);
    if (!ok || !line) break;
    ok = startup_go_on("scoring", error) && score_line(p, input.taken, line, size, error);
  }
  line_input_close(&input);
  return ok;
}
