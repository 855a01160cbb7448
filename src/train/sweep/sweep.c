/* A sweep: its directory and its stages. Everything about a run is in its own directory, so that a stopped sweep
 * continues by looking there. */
#include "train/sweep/internal.h"

#include "files/checkpoint/directory.h"
#include "files/checkpoint/state.h"
#include "report/result.h"
#include "report/runs.h"
#include "train/run.h"
#include "base/array.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_FILE "sweep.json"

/* ---- the directory ---- */

bool sweep_is(const char *dir) { return access(path_in(dir, SWEEP_FILE).text, F_OK) == 0; }

static bool write_file(const Sweep *s, Error *error) {
  char *text = json_text(s->file, JSON_INDENT(1), SWEEP_FILE, error);
  const bool ok = text && file_write_in(s->dir, SWEEP_FILE, text, strlen(text), error);
  free(text);
  return ok;
}

static bool make_directory(Sweep *s, Error *error) {
  s->created = mkdir(s->dir, 0777) == 0;
  if (!s->created && errno != EEXIST) return fail(error, EXIT_OUTPUT, "cannot create %s: %s", s->dir, strerror(errno));
  if (sweep_is(s->dir))
    return fail(error, EXIT_USAGE, "%s already holds a sweep; --resume=%s continues it, --out DIR writes elsewhere",
                s->dir, text_shell_word(s->dir, ONE_LINE_BYTES - 1).text);
  if (!file_directory_is_empty(s->dir, CHECKPOINT_LOCK))
    return fail(error, EXIT_USAGE, "%s is no empty directory; choose another one with --out DIR", s->dir);
  return checkpoint_lock_directory(s->dir, &s->lock, error);
}

/* ---- the runs of a sweep ---- */

static void name_run(SweepRun *run, int number, int digits) {
  json_t *value;
  const char *name;
  snprintf(run->name, sizeof run->name, "%0*d", digits, number);
  json_object_foreach(run->settings, name, value) {
    text_append(run->name, sizeof run->name, "-%s=%s", name, json_string_value(value));
  }
  for (char *c = run->name; *c; c++)
    if (strchr("/ \t\\:*?\"<>|", *c)) *c = '_'; /* also what names on Windows cannot have */
}

static PathText path_of(const Sweep *s, const SweepRun *run, const char *ending) {
  char name[SWEEP_NAME_BYTES + 8];
  snprintf(name, sizeof name, "%s%s", run->name, ending);
  return path_in(s->dir, name);
}

static bool is_valid(const json_t *file) {
  size_t i;
  json_t *item, *value, *runs = json_object_get(file, "runs"), *arguments = json_object_get(file, "arguments");
  const char *name;
  if (!json_is_array(arguments) || !json_array_size(runs) || json_array_size(runs) > SWEEP_MAX_RUNS) return false;
  json_array_foreach(arguments, i, item) if (!json_is_string(item)) return false;
  json_array_foreach(runs, i, item) {
    if (!json_is_object(json_object_get(item, "settings"))) return false;
    json_object_foreach(json_object_get(item, "settings"), name, value) if (!json_is_string(value)) return false;
  }
  return true;
}

static bool take_runs(Sweep *s, Error *error) {
  if (!is_valid(s->file)) return fail(error, EXIT_CHECKPOINT, "%s/" SWEEP_FILE " is damaged", s->dir);
  json_t *runs = json_object_get(s->file, "runs");
  s->count = (int)json_array_size(runs);
  s->runs = calloc((size_t)s->count, sizeof *s->runs);
  if (!s->runs) return error_memory(error, "a sweep");
  const int digits = snprintf(NULL, 0, "%d", s->count);
  json_t *groups = json_object();
  for (int i = 0; i < s->count; i++) {
    SweepRun *run = &s->runs[i];
    const json_t *item = json_array_get(runs, (size_t)i);
    run->settings = json_object_get(item, "settings");
    run->steps = json_integer_value(json_object_get(item, "steps"));
    run->eval_every = json_integer_value(json_object_get(item, "eval_every"));
    name_run(run, i + 1, digits);
    run->dir = path_of(s, run, ".run");
    run->out = path_of(s, run, ".out");
    run->messages = path_of(s, run, ".log");
    run->group = seeds_group(groups, run->settings, i, error);
    for (int stage = 0; stage < SWEEP_STAGES; stage++) run->scores[stage] = (double)NAN;
  }
  s->groups = (int)json_object_size(groups);
  json_decref(groups);
  return !error->code && json_memory_ok(error, "a sweep");
}

/* ---- stages ---- */

/* Returns the step of a run at the end of a stage: one with an evaluation. */
static int64_t step_after(const SweepRun *run, int stage) {
  const int64_t step = (int64_t)((double)run->steps * sweep_stages[stage].part);
  if (stage == SWEEP_LAST) return run->steps;
  return step < run->eval_every ? run->eval_every : step / run->eval_every * run->eval_every;
}

static double score_of(SweepRun *run, const MetricsLine *e) {
  run->in_nats = !isfinite(e->bits_per_byte);
  return run->in_nats ? e->val_loss : e->bits_per_byte;
}

/* Reads what a run has reached. Returns whether it is at the end of the stage. */
static bool look_at(SweepRun *run, int stage, Error *error) {
  Error damage = {0};
  History history = {0};
  const int64_t wanted = step_after(run, stage);
  json_t *result = result_json(run->dir.text, CHECKPOINT_RESULT, &damage);
  const char *state = result_state(run->dir.text, result);
  const bool ended = strcmp(state, run_end_names[RUN_DONE]) == 0 || strcmp(state, run_end_names[RUN_PATIENCE]) == 0;
  /* A run that was interrupted at that step may have been saved before its evaluation. */
  const bool there =
      ended || (wanted < run->steps && checkpoint_find_number(run->dir.text, "evaluated_step") >= (double)wanted);
  run->failed = strcmp(state, run_end_names[RUN_NONFINITE]) == 0;
  run->scores[stage] = there || run->failed ? (double)INFINITY : (double)NAN;
  json_decref(result);
  if (there && history_read(&history, path_in(run->dir.text, CHECKPOINT_METRICS).text, &damage))
    for (size_t i = 0; i < history.evaluation_count; i++) {
      const MetricsLine *e = &history.evaluations[i];
      if (e->step <= wanted) run->scores[stage] = fmin(run->scores[stage], score_of(run, e));
    }
  const MetricsLine *kept = history_kept(&history);
  if (there && stage == SWEEP_LAST && kept && kept->all) run->scores[stage] = score_of(run, kept);
  run->val_text = history.val_text;
  history_free(&history);
  if (damage.code == EXIT_MEMORY) fail(error, EXIT_MEMORY, "%s", damage.text);
  return there;
}

/* Returns whether a process failed as others will, too. */
static bool is_fatal(const SweepRun *run) { return run->status == EXIT_OUTPUT || run->status == EXIT_BUSY; }

static bool tell_end(Sweep *s, SweepRun *run, int done, int count) {
  double *score = &run->scores[s->stage];
  Error unknown = {0};
  run->failed = !look_at(run, s->stage, &unknown) || run->status || !isfinite(*score);
  if (!run->failed) {
    console_line(s->console, "%d/%d  %s: %.4f %s", done, count, run->name, *score, sweep_unit(run));
    return true;
  }
  *score = INFINITY;
  console_line(s->console, "%d/%d  %s failed: %s", done, count, run->name, sweep_message_of(run).text);
  return !is_fatal(run);
}

/* Returns the arguments that bring a run to the end of a stage. */
static json_t *words_for_stage(const Sweep *s, const SweepRun *run, int stage) {
  const int64_t until = step_after(run, stage);
  json_t *words;
  if (checkpoint_find_number(run->dir.text, "step") >= 0) {
    words = json_array();
    sweep_add_word(words, "resume", run->dir.text);
    if (s->threads) sweep_add_count(words, "threads", s->threads);
  } else {
    words = sweep_words(s, run);
    sweep_add_word(words, "out", run->dir.text);
    json_array_append_new(words, json_string("--overwrite"));
    if (s->timed) sweep_add_count(words, "steps", run->steps);
    sweep_add_count(words, "eval-every", run->eval_every);
  }
  if (until < run->steps) sweep_add_count(words, "stop-at", until);
  json_array_append_new(words, json_string("--quiet"));
  return words;
}

/* Refuses scores on different validation texts. */
static bool check_texts(const Sweep *s, Error *error) {
  const SweepRun *first = NULL;
  for (const SweepRun *run = s->runs; run < s->runs + s->count; run++) {
    if (!run->val_text) continue;
    if (!first) first = run;
    if (run->val_text != first->val_text)
      return fail(
          error, EXIT_INPUT,
          "%s and %s were validated on different texts, so their losses cannot be compared; give one with --val FILE",
          first->dir.text, run->dir.text);
  }
  return true;
}

static bool run_stage(Sweep *s, int stage, Error *error) {
  int count = 0;
  s->stage = stage;
  for (int i = 0; !error->code && i < s->count; i++) {
    SweepRun *run = &s->runs[i];
    run->status = 0;
    if (run->stopped || run->failed || look_at(run, stage, error) || run->failed) continue;
    run->words = words_for_stage(s, run, stage);
    count++;
  }
  if (!error->code && count)
    console_line(s->console, "%s of the steps: %s, %d at a time; loss on validation text:", sweep_stages[stage].name,
                 text_plural(count, "run").text, s->at_once);
  sweep_run_processes(s, tell_end, error);
  for (const SweepRun *run = s->runs; run < s->runs + s->count; run++) {
    if (!error->code && is_fatal(run)) fail(error, (ExitCode)run->status, "%s", sweep_message_of(run).text);
    unlink(run->out.text);
    if (!run->failed) unlink(run->messages.text);
  }
  return !error->code && check_texts(s, error);
}

/* Stops the runs whose settings are not among the best. */
static bool choose(Sweep *s, int stage, Error *error) {
  double *sorted = malloc((size_t)s->count * sizeof *sorted);
  int groups = 0;
  if (!sorted) return error_memory(error, "a sweep");
  for (int i = 0; i < s->count; i++) {
    const double score = sweep_group_score(s, i, stage);
    if (s->runs[i].group == i && isfinite(score)) sorted[groups++] = score;
  }
  qsort(sorted, (size_t)groups, sizeof *sorted, array_compare_doubles);
  const int left = sweep_left_after(&sweep_stages[stage], groups);
  for (SweepRun *run = s->runs; run < s->runs + s->count; run++)
    if (groups && !(sweep_group_score(s, run->group, stage) <= sorted[left - 1])) run->stopped = true;
  free(sorted);
  return true;
}

/* ---- the result ---- */

static bool print_table(const Sweep *s, Error *error) {
  const char *const dirs[] = {s->dir};
  const RunsTable table = {.dirs = dirs,
                           .count = 1,
                           .by_seed = s->settings->by_seed,
                           .options = s->options,
                           .format = isatty(STDOUT_FILENO) ? TABLE_TEXT : TABLE_MARKDOWN,
                           .width = console_width(stdout) > 0 ? console_width(stdout) : 100,
                           .console = s->console};
  return runs_print(&table, stdout, error);
}

/* ---- main ---- */

static bool check_word(const char *word, Error *error) {
  json_t *text = json_string(word);
  json_decref(text);
  return text ||
         (json_memory_ok(error, "a sweep") &&
          fail(error, EXIT_USAGE, "\"%s\" is not UTF-8, which the arguments and the directory of a sweep must be",
               text_one_line(word, 200).text));
}

/* Returns {"--tokenizer=a.json": "--tokenizer=/home/me/a.json"} for the paths among the settings of the runs. */
static json_t *absolute_words(const Sweep *s, const json_t *runs, Error *error) {
  json_t *words = json_object(), *run, *value;
  const char *name;
  size_t i;
  json_array_foreach(runs, i, run) {
    json_object_foreach(run, name, value) {
      const Option *row = options_check(s->options, name, json_string_value(value), error);
      char *path = row ? run_absolute_path(s->settings, row, json_string_value(value), error) : NULL;
      json_t *word = path ? json_sprintf("--%s=%s", name, json_string_value(value)) : NULL;
      if (word && check_word(path, error))
        json_object_set_new(words, json_string_value(word), json_sprintf("--%s=%s", name, path));
      json_decref(word);
      free(path);
    }
  }
  return words;
}

static bool open_new(Sweep *s, Error *error) {
  const TrainSettings *t = s->settings;
  char *arguments = NULL;
  size_t size = 0;
  const char *config = s->options->config;
  if (!t->data.count)
    return fail(error, EXIT_USAGE, "no text given%s%s; try: %s book.txt --sweep '...'%s%s",
                config ? ", nor a line `data = FILE` in " : "", config ? config : "", program_name("train").text,
                config ? " --config " : "", config ? config : "");
  for (int i = 0; i < t->data.count; i++)
    if (path_is_stdin(settings_text(t->data.items[i]).path.text))
      return fail(error, EXIT_USAGE, "each run of a sweep reads the text; give a file in place of standard input");
  if (options_typed(s->options, "stop-at"))
    return fail(error, EXIT_USAGE, "--stop-at does not go with --sweep, which stops runs itself");
  s->dir = run_directory(t, ".sweep", error);
  json_t *runs = s->dir && check_word(s->dir, error) ? sweep_spec_read(s->options, t, error) : NULL;
  bool ok = runs && run_arguments_text(s->options, t, &arguments, &size, error);
  json_t *words = json_array(), *items = json_array();
  for (const char *at = arguments; ok && at < arguments + size; at += strlen(at) + 1)
    if (!check_word(at, error)) ok = false;
    else if (strncmp(at, "--out=", 6) != 0 && strncmp(at, "--minutes=", 10) != 0)
      json_array_append_new(words, json_string(at));
  if (!options_typed(s->options, "teacher-steps")) json_array_append_new(words, json_string("--teacher-steps=0"));
  free(arguments);
  json_t *absolute = absolute_words(s, runs, error);
  ok = ok && !error->code;
  for (size_t i = 0; i < json_array_size(runs); i++)
    json_array_append_new(items, json_pack("{s:O}", "settings", json_array_get(runs, i)));
  json_decref(runs);
  s->timed = !isnan(t->minutes);
  s->file = json_pack("{s:o,s:o,s:b,s:o}", "arguments", words, "absolute", absolute, "timed", s->timed, "runs", items);
  return ok && json_memory_ok(error, "a sweep") && make_directory(s, error);
}

static bool open_old(Sweep *s, const char *dir, Error *error) {
  const char *other = options_typed_beside(s->options, "resume jobs threads quiet by-seed");
  if (other)
    return fail(error, EXIT_USAGE, "--resume of a sweep continues it as it was begun; leave out %s%s",
                strcmp(other, "data") == 0 ? "the text" : "--", strcmp(other, "data") == 0 ? "" : other);
  s->dir = strdup(dir);
  if (!s->dir) return error_memory(error, "a path");
  if (!checkpoint_lock_directory(dir, &s->lock, error)) return false;
  s->file = result_json(dir, SWEEP_FILE, error);
  if (!s->file && error->code != EXIT_MEMORY) fail(error, EXIT_CHECKPOINT, "%s/" SWEEP_FILE " is damaged", dir);
  s->eval_tokens = json_integer_value(json_object_get(s->file, "eval_tokens"));
  s->timed = json_is_true(json_object_get(s->file, "timed"));
  return s->file != NULL;
}

static bool make_runs(Sweep *s, Error *error) {
  sweep_choose_processes(s);
  console_line(s->console, "sweep    %s in %s", text_plural(s->count, "run").text, s->dir);
  if (!sweep_has_plan(s) && !(sweep_make_plan(s, error) && write_file(s, error))) {
    if (s->created) unlink(path_in(s->dir, CHECKPOINT_LOCK).text);
    if (s->created) rmdir(s->dir); /* empty, unless the plan could not be written */
    return false;
  }
  for (int stage = 0; stage < SWEEP_STAGES; stage++)
    if (!run_stage(s, stage, error) || !choose(s, stage, error) || !sweep_page_write(s, error)) return false;
  if (!sweep_tell(s, error)) return false;
  console_line(s->console, "report: %s", path_in(s->dir, CHECKPOINT_REPORT).text);
  return print_table(s, error) &&
         (sweep_best(s) || fail(error, EXIT_NONFINITE, "no run of the sweep has reached its end"));
}

bool sweep_run(const Options *options, const TrainSettings *settings, Console *console, Error *error) {
  Sweep s = {.options = options, .settings = settings, .console = console, .lock = -1};
  const bool resumes = settings->resume && *settings->resume;
  bool ok = (resumes ? open_old(&s, settings->resume, error) : open_new(&s, error)) && take_runs(&s, error);
  ok = ok && make_runs(&s, error);
  if (error->code > EXIT_SIGNALS && sweep_is(s.dir))
    error_append(error, "; continue with: %s --resume=%s", program_name("train").text,
                 text_shell_word(s.dir, ONE_LINE_BYTES - 1).text);
  json_decref(s.file);
  free(s.runs);
  if (s.lock >= 0) close(s.lock);
  free(s.dir);
  return ok;
}
