/* Validation: measures the loss on text that the model is not trained on, keeps the best model, and measures xz as a
 * baseline. */
#include "train/run.h"

#include "cli/startup.h"
#include "files/formats/model_files.h"
#include "inference/answers.h"
#include "base/system.h"
#include "base/path.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Validation {
  Run *r;
  int64_t windows; /* to be evaluated */
} Validation;

/* A stop is not an error here: the run saves and then ends. */
static bool show_progress(void *context, int64_t windows, Error *error) {
  const Validation *v = context;
  const double ctx = v->r->model.config.ctx;
  console_work(&v->r->console, &(ConsoleWork){"validating", (double)windows * ctx, (double)v->windows * ctx, false});
  return run_agree_on_stop(v->r, error) && !v->r->session.stopping;
}

/* ---- which windows ---- */

static int64_t all_windows(const RunText *text) { return windows_count(&text->val.windows, text->val.windows.ctx); }

/* Returns how many windows take 5 % of the time when read every eval_every steps, and up to twice as much with the mean
 * weights; a forward pass costs a third of a training step. */
static int64_t affordable_windows(const Run *r) {
  const double step = (double)settings_tokens_per_step(&r->settings) / r->model.config.ctx;
  const double windows = 0.05 * 3.0 * step * (double)r->settings.eval_every;
  return windows < r->settings.batch ? r->settings.batch : (int64_t)windows;
}

static int64_t windows_of(const Run *r, int64_t tokens) {
  const int64_t windows = (tokens + r->model.config.ctx - 1) / r->model.config.ctx;
  return windows > 1 ? windows : 1;
}

/* Returns the number of windows per evaluation: all of a validation text that is short for the run. A resumed
 * run keeps its number, because losses on other windows cannot be compared. */
static int64_t part_windows(const Run *r) {
  const int64_t all = all_windows(&r->text);
  const bool whole = auto_evaluates_whole(&r->settings, token_range_size(&r->text.val.range));
  const int64_t asked = r->settings.eval_tokens, kept = r->progress.eval_windows;
  const int64_t part = kept ? kept : asked ? windows_of(r, asked) : whole ? all : affordable_windows(r);
  return part < all ? part : all;
}

bool run_evaluates_all(const Run *r) { return part_windows(r) == all_windows(&r->text); }

/* ---- measuring ---- */

/* Counts how many of the first `limit` validation pairs (0: all) the model answers exactly. */
static bool count_exact(Run *r, int64_t limit, ExactCount *out, Error *error) {
  StartupWork work = {.console = &r->console, .name = "answering", .may_stop = true};
  const double start = clock_seconds();
  bool ok = answers_count_exact(r->model.decoder, r->model.decoder_rows, r->text.tokenizer, &r->text.val.windows, limit,
                                startup_progress(&work), out, error);
  console_work_end(&r->console);
  if (out->pairs) r->budget.answering = (clock_seconds() - start) / (double)out->pairs;
  return ok;
}

/* Returns the number of pairs to count during the run: at most MOST, with about TOKENS tokens of answers. */
static int64_t few_pairs(const Pairs *pairs) {
  enum { TOKENS = 4096, MOST = 128 };
  const int64_t fit = TOKENS / (pairs->longest.target + 1);
  return fit < 1 ? 1 : fit < MOST ? fit : MOST;
}

static bool check_finite(const Run *r, double loss, Error *error) {
  char what[100];
  if (isfinite(loss)) return true;
  snprintf(what, sizeof what, "stopped after step %" PRId64 ": the validation loss (%g) is not finite",
           r->progress.step, loss);
  return run_fail_nonfinite(r, what, error);
}

/* Evaluates the weights on the device on the first `limit` windows. After a stop (RunSession.stopping) the loss is of
 * fewer windows and cannot be compared with others. No tokens: the windows hold only prompts, and nothing was
 * measured. */
static bool measure(Run *r, int64_t limit, Evaluation *out, Error *error) {
  const EvaluationPlan plan = {.windows = r->text.val.windows,
                               .stride = r->model.config.ctx,
                               .batch = run_sequence_share(r).batch,
                               .limit = limit,
                               .rank = r->peers->rank,
                               .ranks = r->peers->size,
                               .tokenizer = r->text.tokenizer};
  Validation validation = {r, evaluation_windows(&plan)};
  const double start = clock_seconds();
  const bool ok = evaluation_run(r->model.on_device, &plan, out, (Progress){show_progress, &validation}, error);
  console_work_end(&r->console);
  if (!run_agree(r->peers, error)) return false;
  if (!ok || r->session.stopping) return ok;
  double sums[] = {out->nats, (double)out->tokens, (double)out->bytes};
  collective_sum(r->peers, sums, 3);
  *out = (Evaluation){sums[0], (int64_t)sums[1], (int64_t)sums[2]};
  r->budget.evaluating = (clock_seconds() - start) / (double)validation.windows;
  return true;
}

static MetricsLine line_of(const Run *r, MetricsKind kind, int64_t step, const Evaluation *e, const ExactCount *exact) {
  return (MetricsLine){.kind = kind,
                       .step = step,
                       .tokens = step * settings_tokens_per_step(&r->settings),
                       .seconds = run_seconds(r),
                       .val_loss = evaluation_loss(e),
                       .bits_per_byte = evaluation_bits_per_byte(e),
                       .exact = exact->pairs ? (double)exact->exact / (double)exact->pairs : (double)NAN,
                       .accuracy = NAN,
                       .chance = NAN,
                       .xz_bits_per_byte = NAN,
                       .val_text = r->text.val_text,
                       .all = kind == METRICS_KEPT};
}

/* ---- compression ---- */

enum { BEFORE = 2 << 20, MEASURED = 256 << 10, BLOCK = 4096 }; /* bytes, bytes, tokens */

/* Appends the bytes of the range to `out`, up to `most` bytes. */
static bool add_text(const Tokenizer *tokenizer, TokenRange range, uint8_t *out, size_t *used, size_t most,
                     Error *error) {
  int32_t ids[BLOCK], before = -1;
  for (int64_t at = range.begin, count; at < range.end && *used < most; at += count) {
    count = range.end - at < BLOCK ? range.end - at : BLOCK;
    if (!token_file_read(range.file, at, count, ids, error)) return false;
    for (int64_t i = 0; i < count; i++) {
      size_t size;
      const uint8_t *bytes = tokenizer_decode_after(tokenizer, before, ids[i], &size);
      before = ids[i];
      if (size > most - *used) size = most - *used;
      if (size) memcpy(out + *used, bytes, size);
      *used += size;
    }
  }
  return true;
}

/* Returns approximately the last BEFORE bytes of the training text. */
static TokenRange last_part(TokenRange train) {
  const TokenFileInfo *info = &train.file->info;
  const double tokens = (double)BEFORE * (double)info->tokens / fmax(1, (double)info->bytes);
  if (tokens < (double)token_range_size(&train)) train.begin = train.end - (int64_t)tokens;
  return train;
}

/* Begins to compress the beginning of the validation text after the end of the training text, a baseline in the report
 * that a model should beat. It takes half a second of a processor, so the run does not wait for it. */
static bool begin_compression(Run *r, Error *error) {
  const RunText *text = &r->text;
  uint8_t *bytes = malloc(BEFORE + MEASURED);
  size_t before = 0, size;
  bool ok = bytes || error_memory(error, "a comparison with xz");
  ok = ok && add_text(text->tokenizer, last_part(text->train.range), bytes, &before, BEFORE, error);
  size = before;
  ok = ok && add_text(text->tokenizer, text->val.range, bytes, &size, before + MEASURED, error);
  if (ok) return (r->session.xz = xz_begin(bytes, before, size, error));
  free(bytes);
  return false;
}

/* Sets the bits per byte of xz in the first line after they are known, or in this one with `wait`. */
static bool compare_with_xz(Run *r, bool wait, MetricsLine *line, Error *error) {
  XzMeasurement **xz = &r->session.xz;
  if (r->model.config.encoder_layers || r->files.history.xz_bits_per_byte > 0 || r->session.compared) return true;
  if (!*xz && !begin_compression(r, error)) return false;
  if (!wait && !xz_has_finished(*xz)) return true;
  line->xz_bits_per_byte = xz_end(*xz);
  *xz = NULL;
  r->session.compared = true;
  return true;
}

/* ---- diagnoses ---- */

DiagnosisFacts run_diagnosis_facts(const Run *r) {
  const TrainSettings *s = &r->settings;
  const TokenFileInfo *info = &r->text.train.file.info;
  const double trained = (double)token_range_size(&r->text.train.range) / (double)info->tokens;
  return (DiagnosisFacts){.steps = run_planned_steps(r),
                          .warmup = s->warmup,
                          .chance = log(r->model.config.vocab),
                          .train_bytes = trained * (double)info->bytes,
                          .train_tokens = (double)run_epoch_tokens(r),
                          .lr = (double)s->lr,
                          .muon_lr = s->optimizer == OPTIMIZER_MUON ? (double)s->muon_lr : (double)NAN,
                          .usual_lr = auto_learning_rate(s, &r->model.config),
                          .usual_muon_lr = auto_muon_rate(s, &r->model.config),
                          .dropout = (double)s->dropout,
                          .early_stopping = s->patience > 0};
}

static bool judge(Run *r, bool at_end, Error *error) {
  const DiagnosisFacts facts = run_diagnosis_facts(r);
  MetricsLine line = {0};
  if (!(at_end ? diagnosis_at_end : diagnosis_at_evaluation)(&r->files.history, &facts, &line)) return true;
  return run_log_diagnosis(r, &line, error);
}

bool run_has_learned(const Run *r) {
  const DiagnosisFacts facts = run_diagnosis_facts(r);
  return !diagnosis_worse_than_chance(&r->files.history, &facts);
}

/* ---- the mean of weights ---- */

/* Adds the newest weights, which run_download_weights() has copied, to the mean, once for each step. The weight of
 * evaluation k of n is about (k/n)^MEAN_POWER: the mean covers the last part of a run of any length (polynomial-decay
 * averaging, Shamir & Zhang 2013). */
static void add_to_mean(Run *r) {
  enum { MEAN_POWER = 4 };
  if (r->progress.mean_step == r->progress.step) return; /* its evaluation was stopped */
  r->progress.mean_step = r->progress.step;
  const size_t count = model_arena_size(r->model.on_device, ARENA_MASTER);
  const float share = (MEAN_POWER + 1) / (float)(++r->progress.in_mean + MEAN_POWER);
  const float *newest = r->model.host[0];
  float *mean = r->model.host[CHECKPOINT_MEAN];
  for (size_t i = 0; mean && i < count; i++) mean[i] += share * (newest[i] - mean[i]);
}

/* Loads the mean weights to the device until run_load_newest(); the newest ones are in RunModel.host[0]. */
static void load_mean(Run *r) {
  model_upload(r->model.on_device, ARENA_MASTER, r->model.host[CHECKPOINT_MEAN]);
  r->session.holds_kept = true;
}

void run_load_newest(const RunModel *model, RunSession *session) {
  if (session->holds_kept) model_upload(model->on_device, ARENA_MASTER, model->host[0]);
  session->holds_kept = false;
}

/* Copies the newest weights to RunModel.host[0], before other ones are loaded. */
static bool save_newest(Run *r, Error *error) {
  run_download_weights(&r->model, error);
  return run_agree(r->peers, error);
}

/* If the mean weights are better than the newest ones, they stay on the device, and RunSession.evaluated is theirs. */
static bool try_mean(Run *r, Error *error) {
  Evaluation of_mean = {0};
  if (r->settings.no_mean || !r->progress.step) return true;
  if (!save_newest(r, error)) return false;
  add_to_mean(r);
  if (r->progress.in_mean < 2 || 2 * r->progress.step < run_planned_steps(r)) return true;
  load_mean(r);
  if (!measure(r, r->progress.eval_windows, &of_mean, error)) return false;
  const bool better = evaluation_loss(&of_mean) < evaluation_loss(&r->session.evaluated);
  r->progress.evaluated_mean = run_broadcast_flag(r->peers, better && !r->session.stopping);
  if (r->progress.evaluated_mean) r->session.evaluated = of_mean;
  else run_load_newest(&r->model, &r->session);
  return true;
}

/* ---- during the run ---- */

/* A file that the next evaluation may replace is written at most once a second. */
static bool is_due(double written_at) { return clock_seconds() - written_at >= 1; }

static bool write_waiting(Run *r, Error *error) {
  RunModel *model = &r->model;
  if (!r->session.kept_waits) return true;
  r->session.kept_waits = false;
  r->session.kept_at = clock_seconds();
  return model_files_write_weights(r->files.dir, &model->config, model_table(model->on_device), model->host[1], error);
}

bool run_write_kept(Run *r, Error *error) { return run_in_phase(r, PHASE_FILES, write_waiting, error); }

/* Writes the best model, or lets it wait if the file was written just before. */
static bool write_or_wait(Run *r, Error *error) {
  const RunModel *model = &r->model;
  const size_t count = model_arena_size(model->on_device, ARENA_MASTER);
  r->session.kept_waits = !is_due(r->session.kept_at);
  if (r->session.kept_waits)
    memcpy(model->host[1], model->host[r->progress.best_is_mean ? CHECKPOINT_MEAN : 0], count * sizeof(float));
  else if (!run_write_weights(r->files.dir, model, r->progress.best_is_mean, error)) return false;
  else r->session.kept_at = clock_seconds();
  return true;
}

static bool keep_weights(Run *r, Error *error) {
  r->progress.best_step = r->progress.step;
  r->progress.best_is_mean = r->progress.evaluated_mean;
  r->session.of_kept = r->session.evaluated;
  return (r->progress.best_is_mean || run_download_weights(&r->model, error)) && run_alone(r, write_or_wait, error);
}

/* Keeps the mean weights if they are better (RunProgress.evaluated_mean), else the newest ones. */
static bool keep(Run *r, Error *error) { return run_in_phase(r, PHASE_FILES, keep_weights, error); }

static bool log_evaluation(Run *r, Error *error) {
  ExactCount exact = {0};
  if (r->model.config.encoder_layers && !count_exact(r, few_pairs(&r->text.val.pairs), &exact, error)) return false;
  if (stop_signal) exact = (ExactCount){0}; /* the count is incomplete */
  MetricsLine line = line_of(r, METRICS_EVALUATION, r->progress.step, &r->session.evaluated, &exact);
  line.all = run_evaluates_all(r);
  line.best = r->progress.last_val_loss < r->progress.best_loss;
  line.mean = r->progress.evaluated_mean;
  return compare_with_xz(r, false, &line, error) && run_measure_choices(r, false, &line, error) &&
         run_log(r, &line, error) && check_finite(r, r->progress.last_val_loss, error);
}

static bool write_report(Run *r, Error *error) {
  if (!is_due(r->session.reported_at)) return true;
  if (!run_write_report(&r->files, error)) return false;
  r->session.reported_at = clock_seconds();
  return true;
}

static bool report_evaluation(Run *r, Error *error) {
  return judge(r, false, error) && (!is_due(r->session.kept_at) || run_write_kept(r, error)) &&
         run_in_phase(r, PHASE_FILES, write_report, error);
}

static bool evaluate(Run *r, Error *error) {
  r->progress.evaluated_mean = false;
  if (!run_has_validation(&r->text)) {
    r->progress.evaluated_step = r->progress.step;
    return keep(r, error);
  }
  r->progress.eval_windows = part_windows(r);
  if (!measure(r, r->progress.eval_windows, &r->session.evaluated, error)) return false;
  r->progress.newest_val_loss = evaluation_loss(&r->session.evaluated);
  if (!r->session.stopping && r->session.evaluated.tokens && !try_mean(r, error)) return false;
  if (r->session.stopping) return true; /* a resumed run evaluates again */
  r->progress.evaluated_step = r->progress.step;
  if (!r->session.evaluated.tokens) return keep(r, error);
  r->progress.last_val_loss = evaluation_loss(&r->session.evaluated);
  const bool better = run_broadcast_flag(r->peers, r->progress.last_val_loss < r->progress.best_loss);
  if (!run_alone(r, log_evaluation, error)) return false;
  run_load_newest(&r->model, &r->session);
  r->progress.bad_evals = better ? 0 : r->progress.bad_evals + 1;
  if (better) r->progress.best_loss = r->progress.last_val_loss;
  return (!better || keep(r, error)) && run_alone(r, report_evaluation, error);
}

bool run_evaluate(Run *r, Error *error) { return run_in_phase(r, PHASE_EVALUATIONS, evaluate, error); }

bool run_evaluate_base(Run *r, Error *error) {
  if (!run_together(r, run_evaluate, error) || r->session.stopping || !run_has_validation(&r->text))
    return !error->code;
  console_line(&r->console, "before: %.4f nats per token: %s, unchanged, on %sthe validation text",
               r->progress.last_val_loss, r->settings.init, run_evaluates_all(r) ? "" : "the beginning of ");
  return true;
}

/* ---- at the end: one model is kept, and its loss over all validation text is what is said of the run ---- */

/* Reads model.safetensors into RunModel.host[1], unless the file was removed (RunSession.holds_kept). */
static bool read_kept(Run *r, Error *error) {
  RunModel *model = &r->model;
  const PathText path = path_in(r->files.dir, MODEL_FILE_WEIGHTS);
  if (!run_write_kept(r, error)) return false;
  if (access(path.text, F_OK) != 0 && errno == ENOENT) {
    console_warning(&r->console, "%s was removed; the newest model is kept", path.text);
    return true;
  }
  memcpy(model->host[1], model->host[0],
         model_arena_size(model->on_device, ARENA_MASTER) * sizeof(float)); /* keeps the padding */
  ModelFiles *kept;
  r->session.holds_kept = model_files_open(&kept, r->files.dir, error) &&
                          model_files_read_weights(kept, &model->config, model_table(model->on_device), model->host[1],
                                                   r->text.threads, error);
  model_files_close(kept);
  return r->session.holds_kept ||
         error_append(error, "; the run is saved. To keep its newest model instead, remove that file and type: %s",
                      run_resume_command(&r->files).text);
}

/* Loads the best model so far to the device, if there is a file (RunSession.holds_kept); the newest weights stay in
 * RunModel.host[0]. */
static bool load_kept(Run *r, Error *error) {
  if (!save_newest(r, error) || !run_alone(r, read_kept, error)) return false;
  r->session.holds_kept = run_broadcast_flag(r->peers, r->session.holds_kept);
  if (r->session.holds_kept) model_upload(r->model.on_device, ARENA_MASTER, r->model.host[1]);
  return true;
}

/* Evaluates the newest or the mean weights, whichever are better, on the whole validation text. The mean stays on the
 * device (RunSession.holds_kept). */
static bool measure_newest(Run *r, Evaluation *out, Error *error) {
  const bool mean = r->progress.evaluated_mean;
  *out = r->session.evaluated;
  if (mean) {
    if (!save_newest(r, error)) return false;
    load_mean(r);
  }
  if (run_evaluates_all(r) && r->session.evaluated.tokens) return true;
  if (!measure(r, 0, out, error) || r->session.stopping) return !error->code;
  if (run_evaluates_all(r) || !out->tokens) return true;
  MetricsLine line = line_of(r, METRICS_EVALUATION, r->progress.step, out, &(ExactCount){0});
  line.all = true;
  line.mean = mean;
  run_log(r, &line, error);
  return run_agree(r->peers, error);
}

/* Evaluates the weights of load_kept() on the whole validation text, if the evaluations so far were not of all of it. */
static bool measure_kept_weights(Run *r, Evaluation *out, Error *error) {
  *out = r->session.of_kept;
  return (run_evaluates_all(r) && out->tokens) || measure(r, 0, out, error);
}

/* Keeps the newest or mean weights if they are at least as good on the whole validation text as the weights that were
 * best on its beginning. Equal ones are kept too, because an earlier start of this program may have replaced the file
 * before it was killed. The kept weights are on the device then (RunSession.holds_kept: other ones than the newest). */
static bool choose(Run *r, Evaluation *newest, Evaluation *kept, Error *error) {
  if (!measure_newest(r, newest, error) || r->session.stopping) return !error->code;
  *kept = *newest;
  if (r->progress.best_step == r->progress.step) return true;
  run_load_newest(&r->model, &r->session);
  if (!load_kept(r, error)) return false;
  if (r->session.holds_kept) {
    if (!measure_kept_weights(r, kept, error) || r->session.stopping) return !error->code;
    if (run_broadcast_flag(r->peers, evaluation_loss(kept) < evaluation_loss(newest) || isnan(newest->nats)))
      return true;
  }
  *kept = *newest;
  run_load_newest(&r->model, &r->session);
  r->progress.best_loss = r->progress.last_val_loss;
  if (!keep(r, error) || !r->progress.best_is_mean) return !error->code;
  load_mean(r);
  return true;
}

static void print_kept(Console *console, const RunProgress *progress, const Evaluation *newest, const Evaluation *kept,
                       const ExactCount *exact) {
  char bits[48] = ""; /* end tokens alone have no bytes */
  if (kept->bytes) snprintf(bits, sizeof bits, ", %.4f bits per byte", evaluation_bits_per_byte(kept));
  console_line(console, "validation loss %.4f nats per token%s, over all %s", evaluation_loss(kept), bits,
               text_plural((double)kept->tokens, "token").text);
  if (exact->pairs)
    console_line(console, "%.1f %% of %" PRId64 " answers are exactly right",
                 100 * (double)exact->exact / (double)exact->pairs, exact->pairs);
  static const char *const what[] = {"model of", "mean of the weights up to"};
  if (progress->best_step < progress->step)
    console_note(console, "the %s step %" PRId64 " is kept; the %s the last step, %" PRId64 ", has a loss of %.4f",
                 what[progress->best_is_mean], progress->best_step, what[progress->evaluated_mean], progress->step,
                 evaluation_loss(newest));
  else if (progress->best_is_mean)
    console_note(console, "the mean of the weights at the last evaluations is kept, which is better than the newest");
}

static bool measure_kept(Run *r, Error *error) {
  Evaluation newest = {0}, kept = {0};
  ExactCount exact = {0};
  if (!run_has_validation(&r->text)) return true;
  if (!choose(r, &newest, &kept, error) || r->session.stopping || !kept.tokens) return !error->code;
  if (!check_finite(r, evaluation_loss(&kept), error)) return false;
  if (!run_leads(r->peers)) return true;
  if (r->model.config.encoder_layers && !count_exact(r, 0, &exact, error)) return false;
  MetricsLine line = line_of(r, METRICS_KEPT, r->progress.best_step, &kept, &exact);
  line.mean = r->progress.best_is_mean;
  if (!compare_with_xz(r, true, &line, error) || !run_measure_choices(r, true, &line, error)) return false;
  if (stop_signal) return true; /* the counts are incomplete; a resumed run measures again */
  if (!run_log(r, &line, error)) return false;
  print_kept(&r->console, &r->progress, &newest, &kept, &exact);
  if (isfinite(line.accuracy))
    console_line(&r->console, "%.1f %% of %s are answered right, %.1f %% by guessing", 100 * line.accuracy,
                 text_plural((double)r->text.choices.count, "question").text, 100 * line.chance);
  return judge(r, true, error);
}

bool run_measure_kept(Run *r, Error *error) { return run_in_phase(r, PHASE_EVALUATIONS, measure_kept, error); }
