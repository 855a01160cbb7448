/* States: saving where a run stands, and going on from there. */
#include "util/file.h"
#include "util/path.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATE_STRINGS = 14, STATE_STRING_SIZE = 128 };

/* What has to be the same for the same bits: device and dtype. */
static void describe_machine(const Run *r, char out[STATE_STRING_SIZE]) {
  ContextInfo info;
  r->backend->info(r->context, &info);
  snprintf(out, STATE_STRING_SIZE, "%.100s, %s", info.device, dtype_name(info.dtype));
}

bool run_save_state(Run *r, Error *error) {
  char text[STATE_STRINGS][STATE_STRING_SIZE];
  const struct {
    const char *key;
    int64_t number;
  } whole[] = {{"step", r->step},
               {"steps", r->settings.steps},
               {"best_step", r->best_step},
               {"bad_evals", r->bad_evals},
               {"evaluated_step", r->evaluated_step},
               {"train_tokens", token_range_size(&r->train)},
               {"val_tokens", token_range_size(&r->val)}};
  const struct {
    const char *key;
    double number;
  } real[] = {{"best_loss", r->best_loss}, {"val_loss", r->last_val_loss}, {"seconds", run_seconds(r)}};
  const struct {
    const char *key;
    uint64_t sum;
  } sums[] = {{"tokenizer", tokenizer_fingerprint(r->tokenizer)},
              {"text", r->tokens_file.info.sum},
              {"val_text", r->val_file.info.sum}};
  MetadataEntry strings[STATE_STRINGS];
  int count = 0;
  for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++, count++) {
    snprintf(text[count], STATE_STRING_SIZE, "%" PRId64, whole[i].number);
    strings[count] = (MetadataEntry){whole[i].key, text[count]};
  }
  for (size_t i = 0; i < sizeof real / sizeof real[0]; i++, count++) {
    snprintf(text[count], STATE_STRING_SIZE, "%.17g", real[i].number);
    strings[count] = (MetadataEntry){real[i].key, text[count]};
  }
  for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++, count++) {
    snprintf(text[count], STATE_STRING_SIZE, "%016" PRIx64, sums[i].sum);
    strings[count] = (MetadataEntry){sums[i].key, text[count]};
  }
  describe_machine(r, text[count]);
  strings[count] = (MetadataEntry){"machine", text[count]};
  count++;
  if (!model_download(r->model, ARENA_MASTER, r->host[0], error) ||
      !model_download(r->model, ARENA_MOMENT1, r->host[1], error) ||
      !model_download(r->model, ARENA_MOMENT2, r->host[2], error) ||
      !checkpoint_write_state(r->dir, model_table(r->model), r->host[0], r->host[1], r->host[2], strings, count, error))
    return false;
  if (!run_save_tuning(r, error)) return false;
  r->saved_step = r->step;
  r->saved_at = clock_seconds();
  return run_has_validation(r) || run_write_weights(r, error);
}

static double state_number(const CheckpointState *state, const char *key) {
  const char *text = checkpoint_state_get(state, key);
  return text ? strtod(text, NULL) : NAN;
}

/* False where the state says another one. */
static bool same_sum(const CheckpointState *state, const char *key, uint64_t sum) {
  const char *text = checkpoint_state_get(state, key);
  return !text || strtoull(text, NULL, 16) == sum;
}

/* The text must be the one that the run started with, or the rest of the run is not the rest of that run. */
static void compare_texts(Run *r, const CheckpointState *state) {
  int64_t train = token_range_size(&r->train), val = token_range_size(&r->val);
  if (state_number(state, "train_tokens") != (double)train)
    console_warning(&r->console,
                    "there are %" PRId64 " tokens to train on and were %.0f: the run will not continue exactly", train,
                    state_number(state, "train_tokens"));
  else if (!same_sum(state, "text", r->tokens_file.info.sum))
    console_warning(&r->console, "the text has changed: the run will not continue exactly");
  const char *val_text = r->settings.val ? "val_text" : "text";
  const uint64_t val_sum = r->settings.val ? r->val_file.info.sum : r->tokens_file.info.sum;
  if (state_number(state, "val_tokens") == (double)val && same_sum(state, val_text, val_sum)) return;
  console_warning(&r->console,
                  "what is validated on has changed, and has %" PRId64 " tokens: the best loss so far is forgotten",
                  val);
  r->best_loss = INFINITY;
  r->bad_evals = 0;
}

static void compare_machines(Run *r, const CheckpointState *state) {
  char now_on[STATE_STRING_SIZE];
  const char *before = checkpoint_state_get(state, "machine");
  describe_machine(r, now_on);
  if (before && strcmp(before, now_on) != 0)
    console_warning(&r->console, "the run was on %.127s and goes on with %s: it will not continue exactly", before,
                    now_on);
}

/* Weights, moments and place of a stopped run. */
static bool load_state(Run *r, CheckpointState *state, Error *error) {
  if (!same_sum(state, "tokenizer", tokenizer_fingerprint(r->tokenizer)))
    return fail(error, EXIT_CHECKPOINT, "%s/tokenizer.json is not the tokenizer that the run was trained with", r->dir);
  double step = state_number(state, "step");
  if (!(step >= 0 && step <= 1e9))
    return fail(error, EXIT_CHECKPOINT, "%s/last: the state has no valid step number", r->dir);
  r->step = r->saved_step = (int64_t)step;
  r->best_loss = state_number(state, "best_loss");
  r->best_step = (int64_t)fmax(0, state_number(state, "best_step"));
  r->bad_evals = (int64_t)fmax(0, state_number(state, "bad_evals"));
  r->evaluated_step = (int64_t)fmax(0, state_number(state, "evaluated_step"));
  r->last_val_loss = state_number(state, "val_loss");
  r->seconds = fmax(0, state_number(state, "seconds"));
  if (state->warning[0]) console_warning(&r->console, "%s", state->warning);
  compare_texts(r, state);
  compare_machines(r, state);
  if (r->step >= r->settings.steps && r->evaluated_step >= r->step)
    return fail(error, EXIT_USAGE, "%s is finished at step %" PRId64 "; give --steps with a larger number to go on",
                r->dir, r->step);
  run_upload_state(r);
  return true;
}

bool run_resume_state(Run *r, Error *error) {
  CheckpointState state = {0};
  bool ok = checkpoint_read_state(r->dir, model_table(r->model), r->host[0], r->host[1], r->host[2], &state, error) &&
            load_state(r, &state, error);
  checkpoint_state_free(&state);
  return ok;
}

static bool holds_settings(const char *dir) {
  char *path = path_join(dir, "config.txt");
  bool there = path && access(path, F_OK) == 0;
  free(path);
  return there;
}

/* Flags that would make another model of the weights than the run's config.json says. */
bool run_check_same_model(const Run *r, Error *error) {
  ModelConfig saved;
  SpecialTokens special;
  if (!checkpoint_read_config(r->dir, &saved, &special, error)) return false;
  const ModelConfig *now_asked = &r->config;
  const struct {
    const char *flag;
    int asked, saved;
  } fields[] = {{"layers", now_asked->layers, saved.layers},
                {"heads", now_asked->heads, saved.heads},
                {"kv-heads", now_asked->kv_heads, saved.kv_heads},
                {"dim", now_asked->dim, saved.dim},
                {"ffn", now_asked->ffn, saved.ffn},
                {"ctx", now_asked->ctx, saved.ctx},
                {"tie", now_asked->tie, saved.tie},
                {"tokenizer (vocabulary)", now_asked->vocab, saved.vocab}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].asked != fields[i].saved)
      return fail(error, EXIT_USAGE, "--%s is %d but %s was trained with %d; a resumed run keeps its model",
                  fields[i].flag, fields[i].asked, r->dir, fields[i].saved);
  return true;
}

/* Settings of the run that --resume names: its config.txt, under what the command line says. */
bool run_resume_settings(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && holds_settings(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a run; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume && s->out && strcmp(s->resume, s->out) != 0)
    return fail(error, EXIT_USAGE, "--resume=%s goes on in that directory, not in --out %s; leave --out away",
                s->resume, s->out);
  const void *const fixed[] = {&s->tokenizer,   &s->vocab_size,   &s->pack,
                               &s->jsonl_field, &s->prompt_field, &s->response_field};
  for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
    if (options_origin(&r->options, fixed[i]) == ORIGIN_COMMAND_LINE)
      return fail(error, EXIT_USAGE,
                  "a resumed run keeps its tokenizer and how it reads its text; leave --tokenizer, --vocab-size, "
                  "--pack and the fields away");
  if (*s->resume) r->dir = strdup(s->resume);
  else if (!s->out && !s->data.count && !checkpoint_newest(&r->dir, error)) return false;
  if (!r->dir && !run_name_directory(r, error)) return false;
  char *path = run_path(r, "config.txt");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool there = access(path, R_OK) == 0;
  bool ok = there ? options_load(&r->options, path, EXIT_CHECKPOINT, error)
                  : fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no config.txt in it)", r->dir);
  free(path);
  return ok;
}

/* A run whose length was measured (--minutes) goes on with the number of steps that it was given then; NaN when no
 * state says. */
double run_resume_steps(const Run *r) {
  static const char *const names[] = {"last/state.safetensors", "prev/state.safetensors"};
  double steps = NAN;
  for (int i = 0; i < 2 && isnan(steps); i++) {
    Error ignored = {0}; /* what is wrong with a state is said when it is read */
    SafeTensors file = {0};
    char *path = run_path(r, names[i]);
    if (path && safetensors_open(&file, path, &ignored)) {
      const char *text = safetensors_metadata(&file, "steps");
      steps = text ? strtod(text, NULL) : NAN;
    }
    safetensors_close(&file);
    free(path);
  }
  return steps;
}
