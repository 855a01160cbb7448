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

/* Windows of at most ctx tokens, each but the first half old ones. `targets`: [ctx]. */
static bool score_ids(Program *p, const BpeIds *ids, int32_t *targets, double *nats, Error *error) {
  const int ctx = p->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)ids->count - 1; /* of targets */
  int64_t scored = 0, all = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    for (int i = 0; i < length; i++) targets[i] = first + i < scored ? IGNORE_INDEX : ids->ids[first + i + 1];
    const TokenBatch batch = {ids->ids + first, targets, NULL, NULL};
    if (!model_evaluate(p->model, &batch, 1, length, nats, &all, NULL, error)) return false;
    scored = first + length;
  }
  return isfinite(*nats) ||
         fail(error, EXIT_NONFINITE, "the loss is not finite: the model's weights are damaged or it diverged");
}

bool program_score_text(Program *p, const uint8_t *text, size_t size, TextScore *out, Error *error) {
  const int32_t end = tokenizer_end(p->tokenizer), start = p->special.start >= 0 ? p->special.start : 0;
  BpeIds ids = {.count = 0};
  int32_t *targets = malloc((size_t)p->config.ctx * sizeof *targets);
  *out = (TextScore){.bytes = (int64_t)size};
  const bool ok = (targets || error_memory(error, "a line")) &&
                  bpe_ids_sink(&ids, tokenizer_begins_with_end(p->tokenizer) ? &end : &start, 1, error) &&
                  tokenizer_encode(p->tokenizer, text, size, &ids, error) &&
                  model_evaluate_begin(p->model, 1, p->config.ctx, error) &&
                  score_ids(p, &ids, targets, &out->nats, error);
  out->tokens = (int64_t)ids.count - 1;
  free(ids.ids);
  free(targets);
  return ok;
}

static bool score_line(Program *p, int64_t number, const uint8_t *line, size_t size, Error *error) {
  TextScore score;
  if (!program_score_text(p, line, size, &score, error)) return error_append(error, " (line %" PRId64 ")", number);
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
