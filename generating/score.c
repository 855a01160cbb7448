/* Loss of the model on a text (--score). */
#include "cli/startup.h"
#include "dataset/packing.h"
#include "dataset/pairs.h"
#include "generating/program.h"
#include "inference/answers.h"
#include "inference/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct Scoring {
  Model *model;
  Console *console;
  EvaluationPlan plan;
  int64_t before, all; /* windows: in passes before this one, in all passes */
  Evaluation result;   /* over windows `plan.stride` apart */
  Evaluation disjoint; /* over windows that do not overlap, as in the validation of training */
} Scoring;

static bool keep_scoring(void *context, int64_t windows, Error *error) {
  const Scoring *scoring = context;
  ConsoleProgress numbers = {.step = scoring->before + windows,
                             .steps = scoring->all,
                             .loss = NAN,
                             .val_loss = NAN,
                             .lr = NAN,
                             .tokens_per_s = NAN,
                             .peak = NAN,
                             .seconds_left = NAN};
  if (scoring->console->terminal) console_progress(scoring->console, &numbers, false);
  return startup_go_on("evaluating", error);
}

static bool print_score(Program *p, const Scoring *scoring, const ExactCount *exact, const Pairs *pairs, Error *error) {
  const GenerateSettings *s = &p->command.settings;
  const EvaluationPlan *plan = &scoring->plan;
  const Evaluation *result = &scoring->result;
  if (result->bytes == 0)
    return fail(error, EXIT_INPUT, "%s is too short: a score needs two tokens with text", s->score);
  if (!isfinite(result->nats))
    return fail(error, EXIT_NONFINITE, "the loss on %s is not finite: the model's weights are damaged or it diverged",
                s->score);
  printf("{\"file_tokens\": %" PRId64 ", \"scored_tokens\": %" PRId64 ", \"bytes\": %" PRId64
         ", \"nats_per_token\": %.6f, \"bits_per_byte\": %.6f, \"perplexity\": %.6g, \"ctx\": %d, \"stride\": %d, "
         "\"val_loss\": %.6f, \"val_bits_per_byte\": %.6f",
         plan->windows.range.end, result->tokens, result->bytes, evaluation_loss(result),
         evaluation_bits_per_byte(result), exp(evaluation_loss(result)), plan->windows.ctx, plan->stride,
         evaluation_loss(&scoring->disjoint), evaluation_bits_per_byte(&scoring->disjoint));
  if (s->exact)
    printf(", \"pairs\": %" PRId64 ", \"exact\": %.6f", exact->pairs,
           exact->pairs ? (double)exact->exact / (double)exact->pairs : 0);
  if (pairs->range.file) printf(", \"pairs_left_out\": %" PRId64, pairs->left_out);
  puts("}");
  return stdout_flush_and_check(&p->out, error);
}

/* Windows as in training: of pairs, of packed documents, or of the stream. A packed document is scored from its
 * beginning, without the documents before it. Documents were packed if the tokenizer has a token that begins them. */
typedef struct ScoredWindows {
  Windows windows, pairs; /* pairs: for --exact */
  Packing packing;
  Pairs table;
} ScoredWindows;

static bool open_windows(const LoadedModel *m, const TokenFile *tokens, bool exact, ScoredWindows *out, Error *error) {
  const int ctx = m->config.ctx;
  const bool encoder = m->config.encoder_layers > 0, packed = !encoder && tokenizer_begin(m->tokenizer) >= 0;
  const TokenRange all = {tokens, 0, tokens->info.tokens};
  *out = (ScoredWindows){.windows = {.range = all, .ctx = ctx}};
  const PairTokens tokens_of = pair_tokens(m->tokenizer, m->source_tokenizer);
  if ((encoder || exact) && !pairs_make(&out->table, &all, ctx, tokens_of, (Progress){0}, error)) return false;
  if (packed && !packing_make(&out->packing, &all, ctx, pack_tokens(m->tokenizer), (Progress){0}, error)) return false;
  out->windows.packing = packed ? &out->packing : NULL;
  out->pairs = (Windows){.range = all, .ctx = ctx, .pairs = &out->table};
  if (encoder) out->windows = out->pairs;
  return true;
}

static bool count_exact(LoadedModel *m, Console *console, const Windows *pairs, ExactCount *out, Error *error) {
  StartupWork answering = {.console = console, .name = "answering"};
  const int rows = generation_rows(m->model, OUTPUTS_ROWS);
  bool ok = decoder_open(&m->decoder, m->model, rows, error) &&
            answers_count_exact(m->decoder, rows, m->tokenizer, pairs, 0, startup_progress(&answering), out, error);
  console_work_end(console);
  return ok;
}

/* Windows of packed documents and of pairs do not overlap with any stride. */
static bool measure(Scoring *s, Error *error) {
  const Progress progress = {keep_scoring, s};
  const bool overlap = !s->plan.windows.packing && !s->plan.windows.pairs && s->plan.stride < s->plan.windows.ctx;
  EvaluationPlan disjoint = s->plan;
  disjoint.stride = disjoint.windows.ctx;
  const int64_t first = overlap ? evaluation_windows(&disjoint) : 0;
  s->all = first + evaluation_windows(&s->plan);
  if (overlap && !evaluation_run(s->model, &disjoint, &s->disjoint, progress, error)) return false;
  s->before = first;
  if (!evaluation_run(s->model, &s->plan, &s->result, progress, error)) return false;
  if (!overlap) s->disjoint = s->result;
  return true;
}

static bool score_windows(Program *p, const ScoredWindows *w, int stride, Error *error) {
  enum { BATCH = 8 };
  ExactCount exact = {0};
  LoadedModel *m = &p->model;
  Scoring scoring = {.model = m->model,
                     .console = &p->console,
                     .plan = {.windows = w->windows, .stride = stride, .batch = BATCH, .tokenizer = m->tokenizer}};
  bool ok = model_evaluate_begin(m->model, BATCH, m->config.ctx, error) && measure(&scoring, error) &&
            (!p->command.settings.exact || count_exact(m, &p->console, &w->pairs, &exact, error));
  console_end_line(&p->console);
  return ok && print_score(p, &scoring, &exact, &w->table, error);
}

static bool score_tokens(Program *p, const TokenFile *tokens, int stride, Error *error) {
  ScoredWindows w;
  bool ok =
      open_windows(&p->model, tokens, p->command.settings.exact, &w, error) && score_windows(p, &w, stride, error);
  packing_free(&w.packing);
  pairs_free(&w.table);
  return ok;
}

bool program_score(Program *p, Error *error) {
  const GenerateSettings *s = &p->command.settings;
  const int ctx = p->model.config.ctx, stride = s->stride ? s->stride : ctx > 1 ? ctx / 2 : 1;
  if (stride > ctx) return fail(error, EXIT_USAGE, "--stride %d is larger than the context of %d", stride, ctx);
  TokenFile tokens;
  if (!loaded_encode_file(&p->model, s, &p->console, s->score, &tokens, error)) return false;
  bool ok = tokens.info.tokens >= 2 ? score_tokens(p, &tokens, stride, error)
                                    : fail(error, EXIT_INPUT, "%s has %" PRId64 " tokens; a score needs at least two",
                                           s->score, tokens.info.tokens);
  token_file_close(&tokens);
  return ok;
}
