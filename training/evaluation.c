/* Validation and samples. */
#include "util/array.h"
#include "cli/startup.h"
#include "model/generation.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Validation {
  Run *r;
  int64_t windows; /* to be evaluated */
} Validation;

/* A stop is not an error here: the run ends after it has saved. */
static bool keep_scoring(void *context, int64_t windows, Error *error) {
  const Validation *v = context;
  const double ctx = v->r->config.ctx;
  (void)error;
  console_work(&v->r->console, &(ConsoleWork){"validating", (double)windows * ctx, (double)v->windows * ctx, false});
  return !stop_signal;
}

/* The part of the validation text that may be read every eval_every steps for 5 % of the time; a forward pass costs a
 * third of a training step. */
static int64_t prefix_windows(const Run *r) {
  double interval = (double)(r->settings.eval_every ? r->settings.eval_every : r->settings.steps);
  double windows = 0.05 * 3.0 * interval * (double)settings_tokens_per_step(&r->settings) / r->config.ctx;
  return windows < r->settings.batch ? r->settings.batch : (int64_t)windows;
}

static EvaluationPlan evaluation_plan(const Run *r, bool whole) {
  return (EvaluationPlan){.windows = r->val_windows,
                          .stride = r->config.ctx,
                          .batch = r->settings.batch,
                          .limit = whole ? 0 : prefix_windows(r),
                          .tokenizer = r->tokenizer};
}

static bool score(Run *r, bool whole, Evaluation *out, Error *error) {
  const EvaluationPlan plan = evaluation_plan(r, whole);
  Validation validation = {r, evaluation_windows(&plan)};
  bool ok = evaluation_run(r->model, &plan, out, (Progress){keep_scoring, &validation}, error);
  console_work_end(&r->console);
  return ok;
}

static bool write_validation(Run *r, const Evaluation *score, Error *error) {
  r->last_val_loss = evaluation_loss(score);
  MetricsLine line = {.step = r->step,
                      .tokens = r->step * settings_tokens_per_step(&r->settings),
                      .measured = METRIC_VAL_LOSS | METRIC_BITS_PER_BYTE | METRIC_SECONDS,
                      .val_loss = evaluation_loss(score),
                      .bits_per_byte = evaluation_bits_per_byte(score),
                      .seconds = run_seconds(r)};
  return metrics_append(r->metrics, &line, error);
}

/* Evaluates on the prefix; the best model so far goes to model.safetensors. Without validation text the newest goes
 * there. */
bool run_evaluate(Run *r, Error *error) {
  if (!run_has_validation(r)) {
    r->best_step = r->evaluated_step = r->step;
    return run_write_weights(r, error);
  }
  Evaluation found;
  if (!score(r, false, &found, error)) return false;
  if (stop_signal) return true; /* what was scored is not comparable; a resumed run scores again */
  if (!found.tokens) {          /* only prompts: nothing was measured */
    r->evaluated_step = r->step;
    return true;
  }
  if (!write_validation(r, &found, error)) return false;
  r->evaluated_step = r->step;
  bool better = !(evaluation_loss(&found) >= r->best_loss);
  r->bad_evals = better ? 0 : r->bad_evals + 1;
  if (!better) return true;
  r->best_loss = evaluation_loss(&found);
  r->best_step = r->step;
  return run_write_weights(r, error);
}

bool run_final_evaluation(Run *r, Error *error) {
  if (!run_has_validation(r)) return true;
  Evaluation found;
  if (!score(r, true, &found, error)) return false;
  if (stop_signal || !found.tokens) return true;
  if (!write_validation(r, &found, error)) return false;
  console_line(&r->console, "validation loss %.4f nats per token, %.4f bits per byte, over all %" PRId64 " tokens",
               evaluation_loss(&found), evaluation_bits_per_byte(&found), found.tokens);
  if (r->best_step < r->step)
    console_note(&r->console,
                 "the best evaluation was at step %" PRId64 " (%.4f); that model is in %s/model.safetensors",
                 r->best_step, r->best_loss, r->dir);
  return true;
}

typedef struct TextBuffer {
  char *text;
  size_t size, capacity;
} TextBuffer;

static bool collect(void *context, const uint8_t *bytes, size_t size) {
  TextBuffer *b = context;
  if (!array_reserve(&b->text, &b->capacity, b->size + size + 1, 1)) return false;
  memcpy(b->text + b->size, bytes, size);
  b->size += size;
  b->text[b->size] = '\0';
  return !stop_signal;
}

static bool append_sample(const Run *r, const TextBuffer *b, Error *error) {
  char *path = run_path(r, "samples.txt");
  FILE *file = path ? fopen(path, "a") : NULL;
  bool ok = file && fprintf(file, "=== step %" PRId64 "\n", r->step) > 0 &&
            fwrite(b->text, 1, b->size, file) == b->size && fputc('\n', file) != EOF;
  if (file) ok = fclose(file) == 0 && ok;
  free(path);
  return ok || fail(error, EXIT_OUTPUT, "cannot write %s/samples.txt: %s", r->dir, strerror(errno));
}

/* Control characters of an untrained model would confuse the terminal. */
static void show_sample(Run *r, TextBuffer *b) {
  for (size_t i = 0; i < b->size; i++)
    if ((unsigned char)b->text[i] < 32 && b->text[i] != '\n' && b->text[i] != '\t') b->text[i] = '?';
  console_line(&r->console, "--- sample after %" PRId64 " steps\n%s\n---", r->step, b->text);
}

bool run_sample(Run *r, Error *error) {
  if (!r->settings.sample_tokens) return true;
  const char *prompt = r->settings.prompt ? r->settings.prompt : "";
  size_t length = strlen(prompt), ctx = (size_t)r->config.ctx;
  BpeIds ids = {0};
  bool ok = generation_prompt(r->tokenizer, run_start_token(r), (const uint8_t *)prompt, length, &ids, error);
  size_t skipped = ids.count > ctx ? ids.count - ctx : 0;
  TextBuffer text = {0};
  GenerationResult result;
  GenerationRequest request = {.decoder = r->decoder,
                               .tokenizer = r->tokenizer,
                               .prompt = ids.ids + skipped,
                               .prompt_tokens = (int)(ids.count - skipped),
                               .max_tokens = r->settings.sample_tokens,
                               .slide = true,
                               .emit = collect,
                               .emit_context = &text,
                               .sampling = generation_sampling()};
  request.sampling.seed = r->settings.seed;
  ok = ok && collect(&text, (const uint8_t *)prompt, length) && generation_run(&request, &result, error) &&
       append_sample(r, &text, error);
  if (ok) show_sample(r, &text);
  free(ids.ids);
  free(text.text);
  if (!ok && !error->code && !stop_signal) return fail(error, EXIT_MEMORY, "out of memory for a sample");
  return ok || !error->code;
}
