/* The progress of a run: saves it together with weights and moments, and restores it when the run is resumed. */
#include "train/run.h"

#include "cli/startup.h"
#include "files/formats/model_files.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

enum { NOTES = 40, NOTE_BYTES = 128 };

/* The metadata of a state that is written, or of one that is read. */
typedef struct Notes {
  const CheckpointState *from; /* NULL: it is written */
  MetadataEntry entries[NOTES];
  char text[NOTES][NOTE_BYTES];
  int count;
} Notes;

__attribute__((format(printf, 3, 4))) static void note(Notes *n, const char *key, const char *format, ...) {
  va_list arguments;
  assert(n->count < NOTES);
  va_start(arguments, format);
  vsnprintf(n->text[n->count], NOTE_BYTES, format, arguments);
  va_end(arguments);
  n->entries[n->count] = (MetadataEntry){key, n->text[n->count]};
  n->count++;
}

/* Describes what must be equal for equal bits: device and dtype. */
static void describe_machine(const Run *r, char out[NOTE_BYTES]) {
  const ContextInfo *device = &r->device.info;
  snprintf(out, NOTE_BYTES, "%.90s, %s", device->device, dtype_name(device->dtype));
  if (r->peers->size > 1) text_append(out, NOTE_BYTES, ", %d processes", r->peers->size);
}

/* Returns `otherwise` if the state lacks the number, as states of older versions may. */
static int64_t count_of(const CheckpointState *state, const char *key, int64_t otherwise) {
  const double number = checkpoint_state_number(state, key);
  return isnan(number) ? otherwise : number >= 0 && number < 1e18 ? (int64_t)number : 0;
}

static void pass_count(Notes *n, const char *key, int64_t *value, int64_t otherwise) {
  if (n->from) *value = count_of(n->from, key, otherwise);
  else note(n, key, "%" PRId64, *value);
}

static void pass_flag(Notes *n, const char *key, bool *value) {
  if (n->from) *value = count_of(n->from, key, false);
  else note(n, key, "%d", *value);
}

static void pass_number(Notes *n, const char *key, double *value) {
  if (n->from) *value = checkpoint_state_number(n->from, key);
  else note(n, key, "%.17g", *value);
}

/* Writes or reads the progress. */
static void pass_progress(Notes *n, RunProgress *p) {
  pass_count(n, "step", &p->step, 0);
  pass_flag(n, "finished", &p->finished);
  pass_count(n, "best_step", &p->best_step, 0);
  pass_count(n, "bad_evals", &p->bad_evals, 0);
  pass_count(n, "val_part", &p->eval_windows, 0);
  pass_count(n, "in_mean", &p->in_mean, 0);
  pass_count(n, "mean_step", &p->mean_step, 0);
  pass_flag(n, "best_is_mean", &p->best_is_mean);
  pass_flag(n, "evaluated_mean", &p->evaluated_mean);
  pass_number(n, "newest_val_loss", &p->newest_val_loss);
  pass_count(n, "evaluated_step", &p->evaluated_step, 0);
  pass_count(n, "sampled_step", &p->sampled_step, p->step);
  pass_count(n, "metrics_bytes", &p->metrics_bytes, INT64_MAX);
  pass_count(n, "samples_bytes", &p->samples_bytes, INT64_MAX);
  pass_count(n, "loss_steps", &p->loss_steps, 0);
  pass_number(n, "loss_sum", &p->loss_sum);
  pass_number(n, "best_loss", &p->best_loss);
  pass_number(n, "val_loss", &p->last_val_loss);
  pass_number(n, "seconds", &p->seconds);
}

static uint64_t sum_of_shares(const Mixture *m) {
  return checksum_xxh64(m->shares, (size_t)m->count * sizeof *m->shares, 0);
}

static void make_notes(const Run *r, Notes *n) {
  char machine[NOTE_BYTES];
  RunProgress now = r->progress;
  now.metrics_bytes = file_size(path_in(r->files.dir, CHECKPOINT_METRICS).text);
  now.samples_bytes = file_size(path_in(r->files.dir, CHECKPOINT_SAMPLES).text);
  now.seconds = run_seconds(r);
  describe_machine(r, machine);
  pass_progress(n, &now);
  note(n, "steps", "%" PRId64, r->settings.steps);
  note(n, "train_tokens", "%" PRId64, token_range_size(&r->text.train.range));
  note(n, "val_tokens", "%" PRId64, token_range_size(&r->text.val.range));
  note(n, "tokenizer", "%016" PRIx64, tokenizer_fingerprint(r->text.tokenizer));
  if (r->text.source_tokenizer)
    note(n, "source_tokenizer", "%016" PRIx64, tokenizer_fingerprint(r->text.source_tokenizer));
  note(n, "text", "%016" PRIx64, r->text.train.file.info.sum);
  if (!r->text.cut_by_tokens) note(n, "val_bytes", "%" PRId64, r->text.val.file.info.bytes);
  note(n, "shares", "%016" PRIx64, sum_of_shares(&r->text.mixture));
  note(n, "val_sum", "%016" PRIx64, r->text.val_text);
  note(n, "teacher_steps", "%" PRId64, r->settings.teacher_steps);
  if (r->teacher.weights) note(n, "teacher", "%016" PRIx64, r->teacher.weights);
  note(n, "machine", "%s", machine);
}

/* ---- saving ---- */

bool run_download_weights(RunModel *model, Error *error) {
  return model_download(model->on_device, ARENA_MASTER, model->host[0], error);
}

bool run_write_weights(const char *dir, const RunModel *model, bool mean, Error *error) {
  const float *weights = model->host[mean ? CHECKPOINT_MEAN : 0];
  return model_files_write_weights(dir, &model->config, model_table(model->on_device), weights, error);
}

static bool write_state(Run *r, Error *error) {
  Notes n = {.count = 0};
  make_notes(r, &n);
  float *arenas[CHECKPOINT_ARENAS];
  memcpy(arenas, r->model.host, sizeof arenas);
  if (!r->progress.in_mean) arenas[CHECKPOINT_MEAN] = NULL;
  return checkpoint_write_state(r->files.dir, model_table(r->model.on_device), arenas, n.entries, n.count, error) &&
         run_save_tuning(&r->device, r->files.dir, error) &&
         (run_has_validation(&r->text) || run_write_weights(r->files.dir, &r->model, false, error));
}

static bool save_state(Run *r, Error *error) {
  if (!run_alone(r, run_write_kept, error)) return false; /* its place in memory is needed */
  run_download_state(&r->model, error);
  if (!run_agree(r->peers, error) || !run_alone(r, write_state, error)) return false;
  r->session.saved_step = r->progress.step;
  r->session.saved_at = clock_seconds();
  startup_unsaved_steps = 0;
  return true;
}

bool run_save_state(Run *r, Error *error) { return run_in_phase(r, PHASE_FILES, save_state, error); }

/* ---- restoring ---- */

/* Returns false if the state has another sum. */
static bool same_sum(const CheckpointState *state, const char *key, uint64_t sum) {
  const char *text = checkpoint_state_text(state, key);
  return !text || strtoull(text, NULL, 16) == sum;
}

/* With other text, the run would not be the continuation of the saved one. */
static void compare_texts(Console *console, const RunText *text, RunProgress *progress, const CheckpointState *state) {
  const int64_t train = token_range_size(&text->train.range), val = token_range_size(&text->val.range);
  const double train_before = checkpoint_state_number(state, "train_tokens");
  if (train_before != (double)train)
    console_warning(console,
                    "there are %" PRId64 " training tokens, previously %.0f: the run will not continue exactly", train,
                    train_before);
  else if (!same_sum(state, "text", text->train.file.info.sum))
    console_warning(console, "the text has changed: the run will not continue exactly");
  else if (!same_sum(state, "shares", sum_of_shares(&text->mixture)))
    console_warning(console, "the shares of the texts have changed: the run will not continue exactly");
  if (checkpoint_state_number(state, "val_tokens") == (double)val && same_sum(state, "val_sum", text->val_text)) return;
  console_warning(console, "the validation text has changed and now has %s: the best loss so far is discarded",
                  text_plural((double)val, "token").text);
  progress->best_loss = INFINITY;
  progress->bad_evals = 0;
  progress->eval_windows = 0;
}

static void compare_machines(Run *r, const CheckpointState *state) {
  char now_on[NOTE_BYTES];
  const char *before = checkpoint_state_text(state, "machine");
  describe_machine(r, now_on);
  if (before && strcmp(before, now_on) != 0)
    console_warning(&r->console, "the run was on %.127s and resumes on %s: it will not continue exactly", before,
                    now_on);
}

/* A run that was stopped during its last evaluation is at its last step, but not finished. */
static void find_finished(Run *r, const CheckpointState *state) {
  RunProgress *progress = &r->progress;
  progress->finished = false;
  if (!count_of(state, "finished", progress->evaluated_step == progress->step)) return;
  const bool patience = r->settings.patience && progress->bad_evals >= r->settings.patience;
  if (progress->step >= r->settings.steps)
    console_note(&r->console, "%s is finished at step %" PRId64 "; give --steps with a larger number to continue",
                 r->files.dir, progress->step);
  else if (patience)
    console_note(&r->console,
                 "%s is finished at step %" PRId64 ", after %s no better than step %" PRId64
                 "; give --patience with a larger number to continue",
                 r->files.dir, progress->step, text_plural((double)progress->bad_evals, "evaluation").text,
                 progress->best_step);
  progress->finished = progress->step >= r->settings.steps || patience;
}

static bool read_notes(Run *r, const CheckpointState *state, Error *error) {
  if (!same_sum(state, "tokenizer", tokenizer_fingerprint(r->text.tokenizer)))
    return fail(error, EXIT_CHECKPOINT, "%s/" TOKENIZER_JSON " is not the tokenizer that the run was trained with",
                r->files.dir);
  if (!same_sum(state, "source_tokenizer", tokenizer_fingerprint(run_source_tokenizer(&r->text))))
    return fail(error, EXIT_CHECKPOINT,
                "%s/" MODEL_FILE_SOURCE_TOKENIZER " is not the tokenizer that the run's prompts were trained with",
                r->files.dir);
  const double step = checkpoint_state_number(state, "step");
  if (!(step >= 0 && step <= 1e9))
    return fail(error, EXIT_CHECKPOINT, "%s/" CHECKPOINT_LAST ": the state has no valid step number", r->files.dir);
  pass_progress(&(Notes){.from = state}, &r->progress);
  if (!r->progress.loss_steps) r->progress.loss_sum = 0;
  r->progress.seconds = fmax(0, r->progress.seconds);
  if (state->warning[0]) console_warning(&r->console, "%s", state->warning);
  compare_texts(&r->console, &r->text, &r->progress, state);
  const char *teachers = checkpoint_state_text(state, "teacher");
  r->teacher.expected = teachers ? strtoull(teachers, NULL, 16) : 0;
  compare_machines(r, state);
  find_finished(r, state);
  return true;
}

static bool read_state(Run *r, Error *error) {
  CheckpointState state = {0};
  if (!checkpoint_read_state(r->files.dir, model_table(r->model.on_device), r->model.host, &state, error)) {
    if (error->code != EXIT_CHECKPOINT) return false;
    return error_append(error, "; start it again: %s --config %s --out %s --overwrite", program_name("train").text,
                        text_shell_word(path_in(r->files.dir, CHECKPOINT_SETTINGS).text, ONE_LINE_BYTES - 1).text,
                        text_shell_word(r->files.dir, ONE_LINE_BYTES - 1).text);
  }
  bool ok = read_notes(r, &state, error);
  checkpoint_state_free(&state);
  return ok;
}

bool run_restore_state(Run *r, Error *error) {
  if (!run_load_teacher(r, error) || !run_alone(r, read_state, error)) return false;
  collective_broadcast(r->peers, &r->progress, sizeof r->progress);
  r->session.saved_step = r->progress.step;
  run_upload_state(&r->model, r->progress.step);
  return true;
}
