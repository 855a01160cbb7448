/* How well the model predicts each line of a file by itself (--score FILE --per-line). */
#include "generation/program.h"

#include "cli/startup.h"
#include "generation/line_input.h"
#include "tokenizer/bpe_encode.h"
#include "util/array.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct LineScores {
  Program *p;
  LineInput input;
  BpeIds ids;       /* what comes before a line, then its tokens */
  int32_t *targets; /* [ctx] */
} LineScores;

/* Windows of at most ctx tokens, each but the first half old ones. */
static bool score_ids(LineScores *s, double *nats, Error *error) {
  Model *model = s->p->model;
  const int ctx = s->p->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)s->ids.count - 1; /* of targets */
  int64_t scored = 0, all = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    for (int i = 0; i < length; i++) s->targets[i] = first + i < scored ? IGNORE_INDEX : s->ids.ids[first + i + 1];
    const TokenBatch batch = {s->ids.ids + first, s->targets, NULL, NULL};
    if (!model_evaluate(model, &batch, 1, length, nats, &all, NULL, error)) return false;
    scored = first + length;
  }
  return isfinite(*nats) ||
         fail(error, EXIT_NONFINITE,
              "the loss on line %" PRId64 " is not finite: the model's weights are damaged or it diverged",
              s->input.taken);
}

static bool score_line(LineScores *s, const uint8_t *line, size_t size, Error *error) {
  Program *p = s->p;
  const int32_t end = tokenizer_end(p->tokenizer), start = p->special.start >= 0 ? p->special.start : 0;
  double nats = 0;
  s->ids.count = 0;
  if (!bpe_ids_sink(&s->ids, tokenizer_begins_with_end(p->tokenizer) ? &end : &start, 1, error) ||
      !tokenizer_encode(p->tokenizer, line, size, &s->ids, error) || !score_ids(s, &nats, error))
    return false;
  printf("{\"line\": %" PRId64 ", \"nats\": %.6f, \"tokens\": %zu, \"bytes\": %zu}\n", s->input.taken, nats,
         s->ids.count - 1, size);
  program_flush(p);
  return program_report_output(p, error);
}

bool program_score_lines(Program *p, Error *error) {
  LineScores s = {.p = p, .input.fd = -1};
  if (p->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--per-line is for models without an encoder; --score FILE scores pairs");
  s.targets = malloc((size_t)p->config.ctx * sizeof *s.targets);
  bool ok = (s.targets || error_memory(error, "a line")) && line_input_open(&s.input, p->settings.score, error) &&
            model_evaluate_begin(p->model, 1, p->config.ctx, error);
  while (ok && !p->write_error) {
    const uint8_t *line;
    size_t size;
    ok = line_input_next(&s.input, true, &line, &size, error);
    if (!ok || !line) break;
    ok = startup_go_on("scoring", error) && score_line(&s, line, size, error);
  }
  line_input_close(&s.input);
  free(s.ids.ids);
  free(s.targets);
  return ok;
}
