/* ./train: from a text file to a run directory.
 *
 * main -> run: data -> device and model -> plan -> run directory -> loop -> last evaluation, sample and summary. */
#include "cli/device.h"
#include "cli/metrics.h"
#include "cli/progress.h"
#include "cli/startup.h"
#include "cli/train_settings.h"
#include "store/run.h"
#include "text/generation.h"
#include "text/score.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct Run {
  TrainSettings settings;
  Options options;
  Console console;
  /* text */
  Tokenizer *tokenizer;
  Dataset *data, *val_data; /* val_data: only with --val */
  Split train, tail;
  int32_t *tokens, *targets; /* [grad_accum][batch][ctx] of the step being prepared */
  int32_t *window;           /* [ctx + 1] */
  /* model */
  const Backend *backend;
  Context *context;
  ModelConfig config;
  Model *model;
  Decoder *decoder; /* for samples */
  float *host[3];   /* arenas on their way to a file: master, first and second moments */
  double peak_flops;
  /* run directory */
  char *dir;
  bool made_dir, begun; /* the directory is ours and still holds nothing; it is a model directory */
  int lock;
  Metrics *metrics;
  /* where the run stands; all of it but the clocks is saved with the resume state */
  int64_t step, best_step, bad_evals, evaluated_step;
  double best_loss, last_val_loss, seconds; /* seconds of training before this start of the program */
  double started, saved_at;
  int64_t saved_step;
  /* since the last line of metrics.jsonl */
  double loss_sum, logged_at;
  int64_t loss_steps;
  StepState newest;
} Run;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of this run, those before it was resumed included. */
static double elapsed(const Run *r) { return r->seconds + now() - r->started; }

/* ---- text ---- */

static bool open_data(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->data.count == 0)
    return fail(error, EXIT_USAGE, "no text given; try: ./train book.txt   (./train --help lists everything)");
  if (s->data.count > 1)
    return fail(error, EXIT_USAGE,
                "%d texts given (\"%s\", \"%s\", ...); this version trains on one file: cat them together",
                s->data.count, s->data.items[0], s->data.items[1]);
  r->tokenizer = tokenizer_byte();
  if (!r->tokenizer) return fail(error, EXIT_MEMORY, "out of memory for the tokenizer");
  if (!dataset_open(&r->data, s->data.items[0], r->tokenizer, error)) return false;
  dataset_split(r->data, s->val ? 0 : s->val_frac, 1000000, &r->train, &r->tail);
  if (!s->val) return true;
  Split none;
  if (!dataset_open(&r->val_data, s->val, r->tokenizer, error)) return false;
  dataset_split(r->val_data, 0, 0, &r->tail, &none);
  return true;
}

/* A window is ctx tokens and the one after them. */
static bool check_text_length(const Run *r, Error *error) {
  int64_t train = r->train.end - r->train.begin, tail = r->tail.end - r->tail.begin;
  if (train >= r->config.ctx + 1) return true;
  return fail(error, EXIT_INPUT,
              "%s: %" PRId64 " tokens to train on (and %" PRId64
              " to validate), but a window needs ctx + 1 = %d; give more text%s",
              r->settings.data.items[0], train, tail, r->config.ctx + 1, train < 9 ? "" : ", or a smaller --ctx");
}

static void fill_batch(Run *r, int64_t step) {
  int ctx = r->config.ctx, sequences = r->settings.batch * r->settings.grad_accum;
  for (int i = 0; i < sequences; i++) {
    int64_t begin = split_window(&r->train, r->settings.seed, (uint32_t)step, (uint32_t)i, ctx);
    dataset_read(r->train.dataset, begin, ctx + 1, r->window);
    memcpy(r->tokens + (size_t)i * (size_t)ctx, r->window, (size_t)ctx * sizeof(int32_t));
    memcpy(r->targets + (size_t)i * (size_t)ctx, r->window + 1, (size_t)ctx * sizeof(int32_t));
  }
}

/* ---- model ---- */

/* Everything that the run will need, so that nothing can run out later. The weights are zero. */
static bool start_model(Run *r, Error *error) {
  TrainConfig train = settings_train_config(&r->settings);
  size_t rows = (size_t)settings_tokens_per_step(&r->settings);
  if (!model_open(&r->model, r->backend, r->context, &r->config, error) ||
      !model_train_begin(r->model, &train, error) || !decoder_open(&r->decoder, r->model, 1, error))
    return false;
  r->tokens = malloc(rows * sizeof(int32_t));
  r->targets = malloc(rows * sizeof(int32_t));
  r->window = malloc(((size_t)r->config.ctx + 1) * sizeof(int32_t));
  for (int i = 0; i < 3; i++) r->host[i] = calloc(model_table(r->model)->arena, sizeof(float));
  if (r->tokens && r->targets && r->window && r->host[0] && r->host[1] && r->host[2]) return true;
  return fail(error, EXIT_MEMORY, "out of memory for a batch of %zu tokens and a copy of the weights", rows);
}

static void initialise_weights(Run *r) {
  parameters_init(model_table(r->model), r->host[0], r->settings.seed);
  model_upload(r->model, ARENA_MASTER, r->host[0]);
}

static void stop_model(Run *r) {
  decoder_close(r->decoder);
  model_close(r->model);
  r->decoder = NULL;
  r->model = NULL;
  void *memory[] = {r->tokens, r->targets, r->window, r->host[0], r->host[1], r->host[2]};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) free(memory[i]);
  r->tokens = r->targets = r->window = NULL;
  r->host[0] = r->host[1] = r->host[2] = NULL;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of `steps` training steps after a warm-up, ascending; the caller frees them. */
static double *time_steps(Run *r, int64_t steps, Error *error) {
  enum { WARM_UP = 3 };
  double *seconds = malloc((size_t)steps * sizeof *seconds);
  if (!seconds) fail(error, EXIT_MEMORY, "out of memory for %" PRId64 " timings", steps);
  for (int64_t i = -WARM_UP; seconds && i < steps && !stop_signal; i++) {
    double start = now();
    fill_batch(r, WARM_UP + i + 1);
    model_train_step(r->model, r->tokens, r->targets);
    StepState reports[8];
    if (model_reports(r->model, reports, 8, true, error) < 0) {
      free(seconds);
      return NULL;
    }
    if (i >= 0) seconds[i] = now() - start;
  }
  if (seconds && stop_signal) {
    free(seconds);
    fail(error, (ExitCode)(128 + stop_signal), "stopped while timing");
    return NULL;
  }
  if (seconds) qsort(seconds, (size_t)steps, sizeof *seconds, compare_doubles);
  return seconds;
}

/* For --minutes: what this machine does, leaving 7 % for evaluation and saving. */
static bool measure_steps_per_minute(Run *r, double *out, Error *error) {
  enum { STEPS = 20 };
  TrainSettings kept = r->settings;
  r->settings.steps = STEPS + 4;
  r->settings.warmup = 0;
  bool ok = start_model(r, error);
  if (ok) initialise_weights(r);
  double *seconds = ok ? time_steps(r, STEPS, error) : NULL;
  if (seconds) *out = 0.93 * 60.0 / seconds[STEPS / 2];
  ok = seconds != NULL;
  free(seconds);
  stop_model(r);
  r->settings = kept;
  return ok;
}

static bool bench(Run *r, Error *error) {
  int64_t n = r->settings.bench;
  double *seconds = time_steps(r, n, error);
  if (!seconds) return false;
  ContextInfo info;
  r->backend->info(r->context, &info);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  double median = seconds[n / 2];
  printf("{\"tokens_per_s\": %.1f, \"step_ms\": %.4f, \"step_ms_p10\": %.4f, \"step_ms_p90\": %.4f, "
         "\"peak_memory_bytes\": %zu, "
         "\"device\": \"%s\", \"dtype\": \"f32\", \"params\": %" PRId64
         ", \"threads\": %d, \"batch\": %d, \"grad_accum\": %d, \"ctx\": %d, "
         "\"steps\": %" PRId64 ", \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g}\n",
         (double)settings_tokens_per_step(&r->settings) / median, 1e3 * median, 1e3 * seconds[n / 10],
         1e3 * seconds[n - 1 - n / 10], info.accelerator ? info.peak_bytes : (size_t)usage.ru_maxrss * 1024,
         info.device, model_table(r->model)->parameters, info.threads, r->settings.batch, r->settings.grad_accum,
         r->config.ctx, n, model_step_flops(&r->config, settings_tokens_per_step(&r->settings)) / median,
         r->peak_flops);
  free(seconds);
  if (fflush(stdout) != 0) return fail(error, EXIT_OUTPUT, "cannot write to stdout: %s", strerror(errno));
  return true;
}

/* ---- plan ---- */

static void print_plan(Run *r) {
  const TrainSettings *s = &r->settings;
  Console *c = &r->console;
  if (s->quiet) return;
  TrainConfig train = settings_train_config(s);
  MemoryPlan memory = model_memory(&r->config, &train, DTYPE_F32);
  ContextInfo info;
  r->backend->info(r->context, &info);
  int64_t train_tokens = r->train.end - r->train.begin, per_step = settings_tokens_per_step(s);
  double parameters = (double)memory.parameters, tokens = (double)per_step * (double)s->steps;
  double flops = model_step_flops(&r->config, per_step) * (double)s->steps;
  message_line(c, "text     %s: %s tokens to train on, %s to validate, %" PRId64 " document%s", s->data.items[0],
               human_count((double)train_tokens).text, human_count((double)(r->tail.end - r->tail.begin)).text,
               dataset_documents(r->data), dataset_documents(r->data) == 1 ? "" : "s");
  message_line(c, "model    %s parameters: %d layers x %d, %d heads%s, ffn %d, context %d, vocabulary %d (%s)%s",
               human_count(parameters).text, r->config.layers, r->config.dim, r->config.heads,
               r->config.kv_heads < r->config.heads ? " (grouped)" : "", r->config.ffn, r->config.ctx, r->config.vocab,
               tokenizer_name(r->tokenizer), r->config.tie ? ", tied" : "");
  message_line(c,
               "run      %" PRId64 " steps of %" PRId64 " tokens: %s tokens, %.2f epochs; lr %.2g, %" PRId64
               " steps of warm-up; dropout %g; seed %" PRIu64,
               s->steps, per_step, human_count(tokens).text, tokens / (double)train_tokens, (double)s->lr, s->warmup,
               (double)train.dropout, s->seed);
  message_line(
      c, "memory   %s: weights %s, gradients %s, moments %s, activations %s, logits %s, copies %s; on disk up to %s",
      human_bytes((double)memory.total).text, human_bytes((double)memory.weights).text,
      human_bytes((double)memory.gradients).text, human_bytes((double)memory.moments).text,
      human_bytes((double)memory.activations).text, human_bytes((double)memory.logits).text,
      human_bytes((double)memory.copies).text, human_bytes(10.0 * (double)memory.gradients).text);
  message_line(c, "device   %s, %.0f GFLOP/s at best; about %s for the run", info.device, 1e-9 * r->peak_flops,
               human_duration(2.0 * flops / r->peak_flops).text);
  if (!s->bench) message_line(c, "output   %s", r->dir);
}

/* ---- run directory ---- */

/* FILE.run in the current directory, from the last part of the text's path without its extension. */
static char *default_directory(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  char *out = malloc(length + 5);
  if (out) {
    memcpy(out, name, length);
    memcpy(out + length, ".run", 5);
  }
  return out;
}

static char *in_run(const Run *r, const char *name) { return path_join(r->dir, name); }

static bool holds_run(const Run *r) {
  char *path = in_run(r, "config.json");
  bool there = path && access(path, F_OK) == 0;
  free(path);
  return there;
}

/* Removes what a run wrote, so that nothing of the old one can be taken for the new one. */
static void remove_old_run(const Run *r) {
  static const char *const names[] = {
      "config.json", "last/state.safetensors", "prev/state.safetensors", "metrics.jsonl", "samples.txt", "config.txt"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *path = in_run(r, names[i]);
    if (path) unlink(path);
    free(path);
  }
}

static bool take_directory(Run *r, Error *error) {
  r->made_dir = mkdir(r->dir, 0777) == 0;
  if (!r->made_dir && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the run directory %s: %s; choose another with --out DIR", r->dir,
                strerror(errno));
  if (!run_lock(r->dir, &r->lock, error)) return false;
  if (r->settings.resume || !holds_run(r)) return true;
  if (!r->settings.overwrite)
    return fail(
        error, EXIT_USAGE,
        "%s already holds a run; --resume=%s goes on with it, --overwrite replaces it, --out DIR goes elsewhere",
        r->dir, r->dir);
  return true;
}

static bool write_settings(Run *r, Error *error) {
  char *text = NULL, *path = in_run(r, "config.txt"), *data = realpath(r->settings.data.items[0], NULL);
  char *val = r->settings.val ? realpath(r->settings.val, NULL) : NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  bool ok = stream && path && data && (val || !r->settings.val);
  if (ok) { /* the run can be resumed from any directory */
    const char *given = r->settings.data.items[0], *given_val = r->settings.val;
    r->settings.data.items[0] = data;
    r->settings.val = val;
    ok = options_write(&r->options, stream);
    r->settings.data.items[0] = given;
    r->settings.val = given_val;
  }
  if (stream) ok = fclose(stream) == 0 && ok;
  ok = ok ? file_write(path, text, size, error) : fail(error, EXIT_MEMORY, "out of memory for config.txt");
  free(text);
  free(path);
  free(data);
  free(val);
  return ok;
}

/* The token that text without a prompt starts from: the end of a document where the text has several, else a newline.
 */
static int start_token(const Run *r) {
  int32_t newline = 0;
  if (dataset_documents(r->data) > 1) return tokenizer_end(r->tokenizer);
  tokenizer_encode(r->tokenizer, (const uint8_t *)"\n", 1, &newline, 1);
  return newline;
}

static bool write_weights(Run *r, Error *error) {
  if (!model_download(r->model, ARENA_MASTER, r->host[0], error)) return false;
  char *path = in_run(r, "model.safetensors");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = run_write_weights(path, model_table(r->model), r->host[0], NULL, 0, error);
  free(path);
  return ok;
}

static bool open_metrics(Run *r, Error *error) {
  char *path = in_run(r, "metrics.jsonl");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = metrics_open(&r->metrics, path, r->settings.resume ? r->step : -1, error);
  free(path);
  return ok;
}

/* From here on DIR is a model directory that transformers and ./generate can read. */
static bool begin_directory(Run *r, Error *error) {
  if (!r->settings.resume) remove_old_run(r);
  if (!write_settings(r, error) || !open_metrics(r, error)) return false;
  r->begun = r->settings.resume != NULL;
  if (r->begun) return true;
  SpecialTokens special = {start_token(r), tokenizer_end(r->tokenizer)};
  r->begun = tokenizer_save(r->tokenizer, r->dir, r->config.ctx, error) && write_weights(r, error) &&
             run_write_config(r->dir, &r->config, special, error);
  return r->begun;
}

/* A run that failed before it began leaves no directory. */
static void give_up_directory(const Run *r) {
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "model.safetensors", ".lock"};
  if (r->begun || !r->made_dir || r->lock < 0) return;
  remove_old_run(r);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *path = in_run(r, names[i]);
    if (path) unlink(path);
    free(path);
  }
  rmdir(r->dir);
}

/* ---- resume ---- */

enum { STATE_STRINGS = 10, STATE_STRING_SIZE = 32 };

static int64_t split_tokens(const Split *split) { return split->end - split->begin; }

/* Without validation text the newest model is the one to use. */
static bool has_validation(const Run *r) { return split_tokens(&r->tail) >= 2; }

static bool save_state(Run *r, Error *error) {
  char text[STATE_STRINGS][STATE_STRING_SIZE];
  const struct {
    const char *key;
    int64_t number;
  } whole[] = {{"step", r->step},
               {"steps", r->settings.steps},
               {"best_step", r->best_step},
               {"bad_evals", r->bad_evals},
               {"evaluated_step", r->evaluated_step},
               {"train_tokens", split_tokens(&r->train)},
               {"val_tokens", split_tokens(&r->tail)}};
  const struct {
    const char *key;
    double number;
  } real[] = {{"best_loss", r->best_loss}, {"val_loss", r->last_val_loss}, {"seconds", elapsed(r)}};
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
  if (!model_download(r->model, ARENA_MASTER, r->host[0], error) ||
      !model_download(r->model, ARENA_MOMENT1, r->host[1], error) ||
      !model_download(r->model, ARENA_MOMENT2, r->host[2], error) ||
      !run_write_state(r->dir, model_table(r->model), r->host[0], r->host[1], r->host[2], strings, count, error))
    return false;
  r->saved_step = r->step;
  r->saved_at = now();
  return has_validation(r) || write_weights(r, error);
}

static double state_number(const RunState *state, const char *key) {
  const char *text = run_state_get(state, key);
  return text ? strtod(text, NULL) : NAN;
}

/* The text must be the one that the run started with, or the rest of the run is not the rest of that run. */
static void compare_texts(Run *r, const RunState *state) {
  int64_t train = split_tokens(&r->train), val = split_tokens(&r->tail);
  if (state_number(state, "train_tokens") != (double)train)
    message_warning(&r->console,
                    "there are %" PRId64 " tokens to train on and were %.0f: the run will not continue exactly", train,
                    state_number(state, "train_tokens"));
  if (state_number(state, "val_tokens") == (double)val) return;
  message_warning(&r->console,
                  "there are %" PRId64 " tokens to validate on and were %.0f: the best loss so far is forgotten", val,
                  state_number(state, "val_tokens"));
  r->best_loss = INFINITY;
  r->bad_evals = 0;
}

/* Weights, moments and place of a stopped run. */
static bool load_state(Run *r, RunState *state, Error *error) {
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
  if (state->warning[0]) message_warning(&r->console, "%s", state->warning);
  compare_texts(r, state);
  if (r->step >= r->settings.steps && r->evaluated_step >= r->step)
    return fail(error, EXIT_USAGE, "%s is finished at step %" PRId64 "; give --steps with a larger number to go on",
                r->dir, r->step);
  model_upload(r->model, ARENA_MASTER, r->host[0]);
  model_upload(r->model, ARENA_MOMENT1, r->host[1]);
  model_upload(r->model, ARENA_MOMENT2, r->host[2]);
  model_set_step(r->model, r->step);
  return true;
}

static bool resume_state(Run *r, Error *error) {
  RunState state = {0};
  bool ok = run_read_state(r->dir, model_table(r->model), r->host[0], r->host[1], r->host[2], &state, error) &&
            load_state(r, &state, error);
  run_state_free(&state);
  return ok;
}

static bool is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Flags that would make another model of the weights than the run's config.json says. */
static bool same_model(const Run *r, Error *error) {
  ModelConfig saved;
  SpecialTokens special;
  if (!run_read_config(r->dir, &saved, &special, error)) return false;
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
static bool resume_settings(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && is_directory(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a directory; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume) r->dir = strdup(s->resume);
  else if (s->out) r->dir = strdup(s->out);
  else if (s->data.count) r->dir = default_directory(s->data.items[0]);
  else if (!run_newest(&r->dir, error)) return false;
  if (!r->dir) return fail(error, EXIT_MEMORY, "out of memory for a path");
  char *path = in_run(r, "config.txt");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool there = access(path, R_OK) == 0;
  bool ok = there ? options_load(&r->options, path, EXIT_CHECKPOINT, error)
                  : fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no config.txt in it)", r->dir);
  free(path);
  return ok;
}

/* A run whose length was measured (--minutes) goes on with the number of steps that it was given then; NaN when no
 * state says. */
static double resume_steps(const Run *r) {
  static const char *const names[] = {"last/state.safetensors", "prev/state.safetensors"};
  double steps = NAN;
  for (int i = 0; i < 2 && isnan(steps); i++) {
    Error ignored = {0}; /* what is wrong with a state is said when it is read */
    SafeTensors file = {0};
    char *path = in_run(r, names[i]);
    if (path && safetensors_open(&file, path, &ignored)) {
      const char *text = safetensors_metadata(&file, "steps");
      steps = text ? strtod(text, NULL) : NAN;
    }
    safetensors_close(&file);
    free(path);
  }
  return steps;
}

/* ---- evaluation, samples, metrics ---- */

static bool keep_scoring(void *argument, int64_t done, int64_t all) {
  (void)argument, (void)done, (void)all;
  return !stop_signal;
}

/* The part of the validation text that may be read every eval_every steps for 5 % of the time; a forward pass costs a
 * third of a training step. */
static int64_t prefix_windows(const Run *r) {
  double interval = (double)(r->settings.eval_every ? r->settings.eval_every : r->settings.steps);
  double windows = 0.05 * 3.0 * interval * (double)settings_tokens_per_step(&r->settings) / r->config.ctx;
  return windows < r->settings.batch ? r->settings.batch : (int64_t)windows;
}

static ScorePlan evaluation_plan(const Run *r, bool whole) {
  return (ScorePlan){r->tail, r->settings.batch, r->config.ctx, r->config.ctx, whole ? 0 : prefix_windows(r)};
}

static bool write_validation(Run *r, const Score *score, Error *error) {
  r->last_val_loss = score_loss(score);
  MetricsLine line = {.step = r->step,
                      .tokens = r->step * settings_tokens_per_step(&r->settings),
                      .measured = METRIC_VAL_LOSS | METRIC_BITS_PER_BYTE | METRIC_SECONDS,
                      .val_loss = score_loss(score),
                      .bits_per_byte = score_bits_per_byte(score),
                      .seconds = elapsed(r)};
  return metrics_append(r->metrics, &line, error);
}

/* Evaluates on the prefix; the best model so far goes to model.safetensors. Without validation text the newest goes
 * there. */
static bool evaluate(Run *r, Error *error) {
  if (!has_validation(r)) {
    r->best_step = r->evaluated_step = r->step;
    return write_weights(r, error);
  }
  ScorePlan plan = evaluation_plan(r, false);
  Score score;
  if (!score_split(r->model, &plan, &score, keep_scoring, NULL, error)) return false;
  if (stop_signal) return true; /* what was scored is not comparable; a resumed run scores again */
  if (!write_validation(r, &score, error)) return false;
  r->evaluated_step = r->step;
  bool better = !(score_loss(&score) >= r->best_loss);
  r->bad_evals = better ? 0 : r->bad_evals + 1;
  if (!better) return true;
  r->best_loss = score_loss(&score);
  r->best_step = r->step;
  return write_weights(r, error);
}

typedef struct TextBuffer {
  char *text;
  size_t size;
} TextBuffer;

static bool collect(void *argument, const uint8_t *bytes, size_t size) {
  TextBuffer *b = argument;
  char *grown = realloc(b->text, b->size + size + 1);
  if (!grown) return false;
  memcpy(grown + b->size, bytes, size);
  b->text = grown;
  b->size += size;
  b->text[b->size] = '\0';
  return !stop_signal;
}

static bool append_sample(const Run *r, const TextBuffer *b, Error *error) {
  char *path = in_run(r, "samples.txt");
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
  message_line(&r->console, "--- sample after %" PRId64 " steps\n%s\n---", r->step, b->text);
}

static bool sample(Run *r, Error *error) {
  enum { SAMPLE_TOKENS = 256 };
  const char *prompt = r->settings.prompt ? r->settings.prompt : "";
  size_t length = strlen(prompt), room = length ? length : 1;
  int32_t *ids = malloc(room * sizeof *ids);
  if (!ids) return fail(error, EXIT_MEMORY, "out of memory for the prompt");
  size_t count = tokenizer_encode(r->tokenizer, (const uint8_t *)prompt, length, ids, room);
  if (count == 0) ids[count++] = start_token(r);
  size_t ctx = (size_t)r->config.ctx, skipped = count > ctx ? count - ctx : 0;
  TextBuffer text = {0};
  GenerationResult result;
  GenerationRequest request = {.decoder = r->decoder,
                               .tokenizer = r->tokenizer,
                               .prompt = ids + skipped,
                               .prompt_tokens = (int)(count - skipped),
                               .max_tokens = SAMPLE_TOKENS,
                               .slide = true,
                               .emit = collect,
                               .argument = &text,
                               .sampling = {.repeat_penalty = 1,
                                            .top_k = 40,
                                            .top_p = 0.95f,
                                            .min_p = 0.05f,
                                            .temperature = 0.8f,
                                            .seed = r->settings.seed}};
  bool ok = collect(&text, (const uint8_t *)prompt, length) && generation_run(&request, &result, error) &&
            append_sample(r, &text, error);
  if (ok) show_sample(r, &text);
  free(ids);
  free(text.text);
  if (!ok && !error->code && !stop_signal) return fail(error, EXIT_MEMORY, "out of memory for a sample");
  return ok || !error->code;
}

/* ---- the loop ---- */

static bool log_step(Run *r, Error *error) {
  double seconds = now() - r->logged_at;
  double speed = (double)(r->loss_steps * settings_tokens_per_step(&r->settings)) / seconds;
  MetricsLine line = {.step = r->newest.step,
                      .tokens = r->newest.step * settings_tokens_per_step(&r->settings),
                      .measured = METRIC_LOSS | METRIC_LR | METRIC_GRAD_NORM | METRIC_TOKENS_PER_S | METRIC_SECONDS,
                      .loss = r->loss_sum / (double)r->loss_steps,
                      .lr = (double)r->newest.lr,
                      .grad_norm = (double)r->newest.grad_norm,
                      .tokens_per_s = speed,
                      .seconds = elapsed(r)};
  return metrics_append(r->metrics, &line, error);
}

static void show_progress(Run *r, bool logged) {
  int64_t per_step = settings_tokens_per_step(&r->settings);
  double seconds = now() - r->logged_at, speed = (double)(r->loss_steps * per_step) / seconds;
  double left = (double)((r->settings.steps - r->newest.step) * per_step) / speed;
  ProgressNumbers numbers = {.step = r->newest.step,
                             .steps = r->settings.steps,
                             .loss = r->loss_sum / (double)r->loss_steps,
                             .val_loss = r->last_val_loss,
                             .lr = (double)r->newest.lr,
                             .tokens_per_s = speed,
                             .peak = model_step_flops(&r->config, per_step) / (double)per_step * speed / r->peak_flops,
                             .seconds_left = left};
  progress_update(&r->console, &numbers, logged);
}

static void restart_log(Run *r) {
  r->loss_sum = 0;
  r->loss_steps = 0;
  r->logged_at = now();
}

static bool diverged(const Run *r, const StepState *report, Error *error) {
  char saved[64] = "no state was saved yet";
  if (r->saved_step >= 0) snprintf(saved, sizeof saved, "last/ holds step %" PRId64, r->saved_step);
  return fail(error, EXIT_NONFINITE,
              "stopped at step %" PRId64
              ": the loss (%g) or the gradient norm (%g) is not finite; the update was not made. "
              "In %s %s, and model.safetensors is from step %" PRId64 ". Try --lr %.1g",
              report->step + 1, (double)report->loss, (double)report->grad_norm, r->dir, saved, r->best_step,
              (double)r->settings.lr / 3);
}

/* Takes the reports that have arrived: sums the losses, writes metrics. */
static bool take_reports(Run *r, bool wait, Error *error) {
  StepState reports[64];
  int count;
  while ((count = model_reports(r->model, reports, 64, wait, error)) > 0)
    for (int i = 0; i < count; i++) {
      if (reports[i].halted) return diverged(r, &reports[i], error);
      r->newest = reports[i];
      r->loss_sum += (double)reports[i].loss;
      r->loss_steps++;
      bool logged = reports[i].step % r->settings.log_every == 0 || reports[i].step == r->settings.steps;
      if (logged && !log_step(r, error)) return false;
      show_progress(r, logged);
      if (logged) restart_log(r);
    }
  return count == 0;
}

static bool every(int64_t interval, int64_t step) { return interval > 0 && step % interval == 0; }

static bool save_due(const Run *r) {
  const Interval *interval = &r->settings.save_every;
  return every(interval->steps, r->step) || (interval->seconds > 0 && now() - r->saved_at >= interval->seconds);
}

static bool evaluation_due(const Run *r) {
  return r->evaluated_step < r->step && (r->step == r->settings.steps || every(r->settings.eval_every, r->step));
}

/* Saving, evaluating and sampling do not count as training time. Saving comes first: what follows may be killed, and
 * then the resumed run makes that evaluation. */
static bool pause_training(Run *r, Error *error) {
  bool last = r->step == r->settings.steps, sampled = !last && every(r->settings.sample_every, r->step);
  bool saved = save_due(r) || last || stop_signal;
  if (!saved && !evaluation_due(r) && !sampled) return true;
  if (!take_reports(r, true, error)) return false;
  double start = now();
  if (saved && !save_state(r, error)) return false;
  if (!stop_signal && evaluation_due(r) && !evaluate(r, error)) return false;
  if (!stop_signal && sampled && !sample(r, error)) return false;
  r->logged_at += now() - start;
  return true;
}

static bool out_of_patience(Run *r) {
  if (!r->settings.patience || r->bad_evals < r->settings.patience) return false;
  message_note(&r->console,
               "no better validation loss for %" PRId64 " evaluations: stopping; the best was step %" PRId64,
               r->bad_evals, r->best_step);
  return true;
}

static bool train_loop(Run *r, Error *error) {
  r->started = r->saved_at = now();
  restart_log(r);
  if (!stop_signal && evaluation_due(r) && !evaluate(r, error)) return false; /* saved, then stopped before it */
  while (r->step < r->settings.steps && !stop_signal && !out_of_patience(r)) {
    fill_batch(r, r->step + 1);
    model_train_step(r->model, r->tokens, r->targets);
    r->step++;
    if (!take_reports(r, false, error) || !pause_training(r, error)) return false;
  }
  return take_reports(r, true, error);
}

/* ---- the end ---- */

static bool interrupted(Run *r, Error *error) {
  progress_finish(&r->console);
  return fail(error, (ExitCode)(128 + stop_signal),
              "stopped after step %" PRId64 " of %" PRId64 ", saved. Go on with: ./train --resume=%s", r->step,
              r->settings.steps, r->dir);
}

static bool final_evaluation(Run *r, Error *error) {
  if (!has_validation(r)) return true;
  ScorePlan plan = evaluation_plan(r, true);
  Score score;
  if (!score_split(r->model, &plan, &score, keep_scoring, NULL, error)) return false;
  if (stop_signal || !write_validation(r, &score, error)) return stop_signal;
  message_line(&r->console, "validation loss %.4f nats per token, %.4f bits per byte, over all %" PRId64 " tokens",
               score_loss(&score), score_bits_per_byte(&score), score.tokens);
  if (r->best_step < r->step)
    message_note(&r->console,
                 "the best evaluation was at step %" PRId64 " (%.4f); that model is in %s/model.safetensors",
                 r->best_step, r->best_loss, r->dir);
  return true;
}

/* The state is saved once more when the last evaluation is in it: only then the run is finished. */
static bool finish(Run *r, Error *error) {
  if (stop_signal) return (r->saved_step == r->step || save_state(r, error)) && interrupted(r, error);
  progress_finish(&r->console);
  if (!final_evaluation(r, error) || (!stop_signal && !sample(r, error))) return false;
  if (stop_signal) return interrupted(r, error);
  if (!save_state(r, error)) return false;
  message_line(&r->console, "trained %" PRId64 " steps in %s. More text: ./generate %s -n 500", r->step,
               human_duration(elapsed(r)).text, r->dir);
  return true;
}

/* ---- main ---- */

/* A dry run and a benchmark have no directory. */
static bool has_directory(const TrainSettings *s) { return !s->dry_run && !s->bench; }

static bool resolve_length(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  double steps_per_minute = 0;
  if (s->bench) {
    s->steps = s->bench + 8;
    s->epochs = s->minutes = NAN;
  }
  if (!isnan(s->minutes)) {
    bool asked = options_origin(&r->options, &s->minutes) == ORIGIN_COMMAND_LINE;
    double known = s->resume && !asked ? resume_steps(r) : NAN;
    if (known >= 1) steps_per_minute = (known + 0.5) / s->minutes;
    else if (!measure_steps_per_minute(r, &steps_per_minute, error)) return false;
  }
  return settings_resolve_length(s, split_tokens(&r->train), r->config.ctx, steps_per_minute, error);
}

/* Everything that can be refused is refused here, before anything is computed or written. */
static bool prepare(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->resume && !resume_settings(r, error)) return false;
  if (!open_data(r, error)) return false;
  if (!r->dir) r->dir = s->out ? strdup(s->out) : default_directory(s->data.items[0]);
  if (!r->dir) return fail(error, EXIT_MEMORY, "out of memory for a path");
  if (!device_open((DeviceChoice)s->device, s->threads, &r->backend, &r->context, error)) return false;
  ContextInfo info;
  r->backend->info(r->context, &info);
  if (!settings_resolve_model(s, tokenizer_vocab(r->tokenizer), info.accelerator, &r->config, error) ||
      !check_text_length(r, error))
    return false;
  if (s->resume && !same_model(r, error)) return false;
  if (s->patience && !has_validation(r))
    return fail(error, EXIT_USAGE, "--patience %d needs validation text, and there is none", s->patience);
  if (has_directory(s) && !take_directory(r, error)) return false;
  if (!resolve_length(r, error)) return false;
  r->peak_flops = r->backend->peak_flops(r->context);
  return true;
}

static bool run(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (!prepare(r, error)) return false;
  print_plan(r);
  if (s->dry_run) return true;
  if (!start_model(r, error)) return false;
  if (!s->resume) initialise_weights(r);
  if (s->bench) return bench(r, error);
  if (s->resume && !resume_state(r, error)) return false;
  return begin_directory(r, error) && train_loop(r, error) && finish(r, error);
}

static void close_run(Run *r) {
  metrics_close(r->metrics);
  if (r->dir) give_up_directory(r);
  stop_model(r);
  if (r->backend) r->backend->close(r->context);
  dataset_close(r->data);
  dataset_close(r->val_data);
  tokenizer_free(r->tokenizer);
  if (r->lock >= 0) close(r->lock);
  free(r->dir);
  options_free(&r->options);
}

int main(int argc, char **argv) {
  startup(argv);
  Run r = {.lock = -1, .saved_step = -1, .best_loss = INFINITY, .last_val_loss = NAN};
  Option rows[TRAIN_OPTIONS];
  Error error = {0};
  train_options(&r.options, rows, &r.settings);
  bool ok = options_parse(&r.options, argc, argv, &error);
  r.console = console_stderr("train", r.settings.quiet);
  if (ok && r.options.help) options_help(&r.options, stdout);
  else if (ok && r.options.version) print_version("train", INKLING_VERSION);
  else ok = ok && run(&r, &error);
  progress_finish(&r.console);
  if (!ok) message_error(&r.console, &error);
  close_run(&r);
  return ok ? EXIT_DONE : (int)error.code;
}
