/* Loss of the model on a text (--score). */
#include "generating/program.h"

#include "cli/startup.h"
#include "dataset/packing.h"
#include "dataset/pairs.h"
#include "inference/answers.h"
#include "inference/evaluation.h"
#include "model/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct Scoring {
  Program *p;
  EvaluationPlan plan;
  int64_t before, all; /* windows: of passes before this one, of all of them */
  Evaluation result;   /* over windows `plan.stride` apart */
  Evaluation disjoint; /* over windows that do not overlap, as training validates */
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
  if (scoring->p->console.terminal) console_progress(&scoring->p->console, &numbers, false);
  return startup_go_on("evaluating", error);
}

static bool print_score(Program *p, const Scoring *scoring, const ExactCount *exact, const Pairs *pairs, Error *error) {
  const EvaluationPlan *plan = &scoring->plan;
  const Evaluation *result = &scoring->result;
  if (result->bytes == 0)
    return fail(error, EXIT_INPUT, "%s is too short: a score needs two tokens that stand for text", p->settings.score);
  if (!isfinite(result->nats))
    return fail(error, EXIT_NONFINITE, "the loss on %s is not finite: the model's weights are damaged or it diverged",
                p->settings.score);
  printf("{\"file_tokens\": %" PRId64 ", \"scored_tokens\": %" PRId64 ", \"bytes\": %" PRId64
         ", \"nats_per_token\": %.6f, \"bits_per_byte\": %.6f, \"perplexity\": %.6g, \"ctx\": %d, \"stride\": %d"
         ", \"val_loss\": %.6f, \"val_bits_per_byte\": %.6f",
         plan->windows.range.end, result->tokens, result->bytes, evaluation_loss(result),
         evaluation_bits_per_byte(result), exp(evaluation_loss(result)), plan->windows.ctx, plan->stride,
         evaluation_loss(&scoring->disjoint), evaluation_bits_per_byte(&scoring->disjoint));
  if (p->settings.exact)
    printf(", \"pairs\": %" PRId64 ", \"exact\": %.6f", exact->pairs,
           exact->pairs ? (double)exact->exact / (double)exact->pairs : 0);
  if (pairs->range.file) printf(", \"pairs_left_out\": %" PRId64, pairs->left_out);
  puts("}");
  program_flush(p);
  return program_report_output(p, error);
}

/* Windows that the model was trained on: of pairs, of packed documents, each from its beginning and without those
 * before it, or of the stream. That documents were packed is known from the tokenizer alone: prompts begin with a token
 * of their own. */
typedef struct ScoredWindows {
  Windows windows, pairs; /* pairs: for --exact */
  Packing packing;
  Pairs table;
} ScoredWindows;

static bool open_windows(const Program *p, const TokenFile *tokens, ScoredWindows *out, Error *error) {
  const int ctx = p->config.ctx;
  const bool encoder = p->config.encoder_layers > 0, packed = !encoder && tokenizer_begin(p->tokenizer) >= 0;
  const TokenRange all = {tokens, 0, tokens->info.tokens};
  *out = (ScoredWindows){.windows = {.range = all, .ctx = ctx}};
  const PairTokens tokens_of = pair_tokens(p->tokenizer, p->source_tokenizer);
  if ((encoder || p->settings.exact) && !pairs_make(&out->table, &all, ctx, tokens_of, (Progress){0}, error))
    return false;
  if (packed && !packing_make(&out->packing, &all, ctx, pack_tokens(p->tokenizer), (Progress){0}, error)) return false;
  out->windows.packing = packed ? &out->packing : NULL;
  out->pairs = (Windows){.range = all, .ctx = ctx, .pairs = &out->table};
  if (encoder) out->windows = out->pairs;
  return true;
}

static bool count_exact(Program *p, const Windows *pairs, ExactCount *out, Error *error) {
  StartupWork answering = {.console = &p->console, .name = "answering"};
  const int rows = generation_rows(p->model, GENERATE_ROWS);
  bool ok = decoder_open(&p->decoder, p->model, rows, error) &&
            answers_count_exact(p->decoder, rows, p->tokenizer, pairs, 0, startup_progress(&answering), out, error);
  console_work_end(&p->console);
  return ok;
}

/* Windows of packed documents and of pairs do not overlap, whatever the stride. */
static bool measure(Scoring *s, Error *error) {
  const Progress progress = {keep_scoring, s};
  const bool overlap = !s->plan.windows.packing && !s->plan.windows.pairs && s->plan.stride < s->plan.windows.ctx;
  EvaluationPlan disjoint = s->plan;
  disjoint.stride = disjoint.windows.ctx;
  const int64_t first = overlap ? evaluation_windows(&disjoint) : 0;
  s->all = first + evaluation_windows(&s->plan);
  if (overlap && !evaluation_run(s->p->model, &disjoint, &s->disjoint, progress, error)) return false;
  s->before = first;
  if (!evaluation_run(s->p->model, &s->plan, &s->result, progress, error)) return false;
  if (!overlap) s->disjoint = s->result;
  return true;
}

static bool score_windows(Program *p, const ScoredWindows *w, int stride, Error *error) {
  enum { BATCH = 8 };
  ExactCount exact = {0};
  Scoring scoring = {.p = p,
                     .plan = {.windows = w->windows, .stride = stride, .batch = BATCH, .tokenizer = p->tokenizer}};
  bool ok = model_evaluate_begin(p->model, BATCH, p->config.ctx, error) && measure(&scoring, error) &&
            (!p->settings.exact || count_exact(p, &w->pairs, &exact, error));
  console_end_line(&p->console);
  return ok && print_score(p, &scoring, &exact, &w->table, error);
}

static bool score_tokens(Program *p, const TokenFile *tokens, int stride, Error *error) {
  ScoredWindows w;
  bool ok = open_windows(p, tokens, &w, error) && score_windows(p, &w, stride, error);
  packing_free(&w.packing);
  pairs_free(&w.table);
  return ok;
}

bool program_score(Program *p, Error *error) {
  int ctx = p->config.ctx, stride = p->settings.stride ? p->settings.stride : ctx > 1 ? ctx / 2 : 1;
  if (stride > ctx) return fail(error, EXIT_USAGE, "--stride %d is larger than the context of %d", stride, ctx);
  TokenFile tokens;
  if (!program_open_tokens(p, p->settings.score, &tokens, error)) return false;
  bool ok = tokens.info.tokens >= 2 ? score_tokens(p, &tokens, stride, error)
                                    : fail(error, EXIT_INPUT, "%s has %" PRId64 " tokens; a score needs at least two",
                                           p->settings.score, tokens.info.tokens);
  token_file_close(&tokens);
  return ok;
}
