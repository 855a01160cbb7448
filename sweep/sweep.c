/* A sweep: its plan, and its stages. Everything about a run is in its own directory, so that a stopped sweep continues
 * by looking there. */
#include "sweep/sweep.h"

#include "checkpoint/directory.h"
#include "checkpoint/state.h"
#include "cli/processes.h"
#include "kernels.h"
#include "report/result.h"
#include "report/runs.h"
#include "sweep/findings.h"
#include "sweep/spec.h"
#include "training/auto_settings.h"
#include "training/run.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/path.h"
#include "util/program_name.h"
#include "util/text.h"
#include "util/threads.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_FILE "sweep.json"

enum { FEWEST = 2 /* settings that go on after a stage */ };

typedef struct Sweep {
  const Options *options;
  const TrainSettings *settings;
  Console *console;
  char *dir;
  int lock;     /* file descriptor; -1: none */
  json_t *file; /* sweep.json */
  SweepRuns runs;
  int at_once, threads; /* threads: of a run; 0: the arguments say it */
  bool gpu;             /* runs use a GPU */
  int64_t eval_tokens;  /* of each evaluation of each run; 0: all, or the arguments say it */
  bool created;         /* the directory */
  bool timed;           /* --minutes has set the steps */
} Sweep;

static json_t *arguments_of(const Sweep *s) { return json_object_get(s->file, "arguments"); }

/* ---- processes ---- */

/* Runs of this program with different arguments. */
typedef struct Jobs {
  Process *processes;
  json_t **words; /* [count] arrays of texts, to which the arguments point */
  PathText *out, *messages;
  SweepRun **runs;
  int count;
} Jobs;

static void jobs_free(Jobs *b) {
  for (int i = 0; i < b->count; i++) {
    free((void *)b->processes[i].arguments);
    json_decref(b->words[i]);
    unlink(b->out[i].text);
  }
  free(b->processes);
  free(b->words);
  free(b->out);
  free(b->messages);
  free(b->runs);
}

static bool jobs_make(Jobs *b, int most, Error *error) {
  *b = (Jobs){.processes = calloc((size_t)most, sizeof *b->processes),
              .words = calloc((size_t)most, sizeof(json_t *)),
              .out = calloc((size_t)most, sizeof *b->out),
              .messages = calloc((size_t)most, sizeof *b->messages),
              .runs = calloc((size_t)most, sizeof(SweepRun *))};
  if (b->processes && b->words && b->out && b->messages && b->runs) return true;
  jobs_free(b);
  return error_memory(error, "a sweep");
}

static PathText file_of(const Sweep *s, const SweepRun *run, int copy, const char *ending) {
  char name[SWEEP_NAME_BYTES + 32];
  if (copy) snprintf(name, sizeof name, "%s.%d%s", run->name, copy, ending);
  else snprintf(name, sizeof name, "%s%s", run->name, ending);
  return path_in(s->dir, name);
}

/* Adds a process with these words, which it takes over. `copy`: of the same run, from 0. */
static bool jobs_add(const Sweep *s, Jobs *b, SweepRun *run, int copy, json_t *words, Error *error) {
  const size_t count = json_array_size(words);
  const char **arguments = calloc(count + 1, sizeof *arguments);
  const int i = b->count++;
  b->words[i] = words;
  b->runs[i] = run;
  b->out[i] = file_of(s, run, copy, ".out");
  b->messages[i] = file_of(s, run, copy, ".log");
  b->processes[i] = (Process){.arguments = arguments, .out = b->out[i].text, .messages = b->messages[i].text};
  if (!arguments) return error_memory(error, "a sweep");
  for (size_t k = 0; k < count; k++) arguments[k] = json_string_value(json_array_get(words, k));
  return json_memory_ok(error, "a sweep");
}

/* All words are UTF-8, as JSON needs (check_word). */
static void add_word(json_t *words, const char *name, const char *value) {
  json_array_append_new(words, json_sprintf("--%s=%s", name, value));
}

static void add_count(json_t *words, const char *name, int64_t value) {
  json_array_append_new(words, json_sprintf("--%s=%" JSON_INTEGER_FORMAT, name, (json_int_t)value));
}

/* Returns the arguments of a new run. */
static json_t *words_of(const Sweep *s, const SweepRun *run) {
  json_t *words = json_array(), *value;
  const char *name;
  size_t i;
  json_array_foreach(arguments_of(s), i,
                     value) if (!s->threads || strncmp(json_string_value(value), "--threads=", 10) != 0)
      json_array_append(words, value);
  json_object_foreach(run->settings, name, value) add_word(words, name, json_string_value(value));
  if (s->threads) add_count(words, "threads", s->threads);
  if (s->eval_tokens) add_count(words, "eval-tokens", s->eval_tokens);
  return words;
}

/* Copies the last line that a process has printed, without the name of the program; "": none. */
static OneLine last_message(const char *path) {
  OneLine out = {""};
  char line[1024], last[1024] = "";
  FILE *file = fopen(path, "r");
  if (!file) return out;
  while (fgets(line, sizeof line, file))
    if (line[strspn(line, " \n")]) memcpy(last, line, sizeof line);
  fclose(file);
  last[strcspn(last, "\n")] = 0;
  return text_one_line(strncmp(last, "train: ", 7) == 0 ? last + 7 : last, ONE_LINE_BYTES - 1);
}

/* Says why a process failed. */
static OneLine message_of(const Process *process) {
  OneLine message = last_message(process->messages);
  const int number = process->status - EXIT_SIGNALS;
  const bool says_why = number <= 0 || number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1;
  if (!says_why) snprintf(message.text, sizeof message.text, "ended by signal %d", number);
  else if (!*message.text) snprintf(message.text, sizeof message.text, "status %d", process->status);
  return message;
}

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
                s->dir, s->dir);
  if (!file_directory_is_empty(s->dir, CHECKPOINT_LOCK))
    return fail(error, EXIT_USAGE, "%s is no empty directory; choose another one with --out DIR", s->dir);
  return checkpoint_lock_directory(s->dir, &s->lock, error);
}

/* ---- the runs of a sweep ---- */

static void name_run(SweepRun *run, int number, int digits) {
  json_t *value;
  const char *name;
  int used = snprintf(run->name, sizeof run->name, "%0*d", digits, number);
  json_object_foreach(run->settings, name, value) {
    const int left = (int)sizeof run->name - used;
    const int more = snprintf(run->name + used, (size_t)left, "-%s=%s", name, json_string_value(value));
    used = more < left ? used + more : (int)sizeof run->name - 1;
  }
  run->name[utf8_complete((const uint8_t *)run->name, strlen(run->name))] = 0;
  for (char *c = run->name; *c; c++)
    if (strchr("/ \t", *c)) *c = '_';
}

/* Returns the first run that differs from run i only in the seed. `known`: {settings: run}. */
static int group_of(const Sweep *s, int i, json_t *known, Error *error) {
  json_t *settings = json_copy(s->runs.items[i].settings);
  json_object_del(settings, "seed");
  char *key = json_text(settings, JSON_SORT_KEYS, "a sweep", error);
  json_decref(settings);
  if (!key) return i;
  if (!json_object_get(known, key)) json_object_set_new(known, key, json_integer(i));
  const int group = (int)json_integer_value(json_object_get(known, key));
  free(key);
  return group;
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
  s->runs.count = (int)json_array_size(runs);
  s->runs.items = calloc((size_t)s->runs.count, sizeof *s->runs.items);
  if (!s->runs.items) return error_memory(error, "a sweep");
  const int digits = snprintf(NULL, 0, "%d", s->runs.count);
  json_t *groups = json_object();
  for (int i = 0; i < s->runs.count; i++) {
    SweepRun *run = &s->runs.items[i];
    const json_t *item = json_array_get(runs, (size_t)i);
    char name[SWEEP_NAME_BYTES + sizeof ".run"];
    run->settings = json_object_get(item, "settings");
    run->steps = json_integer_value(json_object_get(item, "steps"));
    run->eval_every = json_integer_value(json_object_get(item, "eval_every"));
    name_run(run, i + 1, digits);
    snprintf(name, sizeof name, "%s.run", run->name);
    run->dir = path_in(s->dir, name);
    run->group = group_of(s, i, groups, error);
    for (int stage = 0; stage < SWEEP_STAGES; stage++) run->scores[stage] = (double)NAN;
  }
  s->runs.groups = (int)json_object_size(groups);
  json_decref(groups);
  return !error->code && json_memory_ok(error, "a sweep");
}

/* ---- the plan ---- */

typedef struct Plan {
  double steps, epochs, eval_every, flops, tokens, val_tokens, memory, free_memory;
  bool muon;
} Plan;

static bool read_plan(const char *path, Plan *out, Error *error) {
  MappedFile file;
  if (!file_map(&file, path, EXIT_INTERNAL, error)) return false;
  json_t *plan = json_parse(file.bytes, file.size, 0, NULL, "a plan", error);
  file_unmap(&file);
  json_t *settings = json_object_get(plan, "settings");
  const json_t *memory = json_object_get(plan, "memory_bytes");
  const char *optimizer = json_string_value(json_object_get(settings, "optimizer"));
  *out = (Plan){.steps = result_value(plan, "steps"),
                .epochs = result_value(plan, "epochs"),
                .eval_every = result_value(settings, "eval-every"),
                .flops = result_value(plan, "flops_per_step"),
                .tokens = result_value(plan, "tokens_per_step"),
                .val_tokens = result_value(json_object_get(plan, "text"), "val_tokens"),
                .memory = result_value(memory, "total"),
                .free_memory = result_value(memory, "free"),
                .muon = optimizer && strcmp(optimizer, "muon") == 0};
  json_decref(plan);
  return !error->code && (out->steps >= 1 || fail(error, EXIT_INTERNAL, "%s: no plan", path));
}

static bool fail_run(const Jobs *b, int i, Error *error) {
  return fail(error, (ExitCode)b->processes[i].status, "the run %s: %s", b->runs[i]->name,
              message_of(&b->processes[i]).text);
}

/* Runs all processes of a list, which must succeed. */
static bool run_jobs(const Sweep *s, Jobs *b, Error *error) {
  processes_run(b->processes, b->count, s->at_once, NULL, NULL, error);
  for (int i = 0; i < b->count; i++) {
    if (!error->code && b->processes[i].status) fail_run(b, i, error);
    unlink(b->messages[i].text);
  }
  return !error->code;
}

/* Asks a process of each run what it would do: plans is [count]. */
static bool make_plans(const Sweep *s, Plan *plans, Error *error) {
  Jobs b;
  if (!jobs_make(&b, s->runs.count, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < s->runs.count; i++) {
    json_t *words = words_of(s, &s->runs.items[i]);
    add_word(words, "out", s->runs.items[i].dir.text);
    json_array_append_new(words, json_string("--dry-run"));
    json_array_append_new(words, json_string("--json"));
    ok = jobs_add(s, &b, &s->runs.items[i], 0, words, error);
  }
  ok = ok && run_jobs(s, &b, error);
  for (int i = 0; ok && i < s->runs.count; i++) ok = read_plan(b.out[i].text, &plans[i], error);
  jobs_free(&b);
  return ok &&
         (plans[0].val_tokens > 0 ||
          fail(error, EXIT_USAGE, "a sweep compares runs by their validation loss, and there is no validation text"));
}

/* Chooses the threads of a run for the number of runs at a time. */
static void choose_threads(Sweep *s) {
  const int given = s->settings->machine.threads, each = threads_count(0) / s->at_once;
  s->threads = given > 0 || s->gpu ? 0 : each > 0 ? each : 1;
}

/* Lowers the number of runs at a time to that for which the memory suffices. */
static void fit_memory(Sweep *s, const Plan *plans) {
  const double OF_PROCESS = s->gpu ? 1 << 29 : 1 << 26; /* for the program itself */
  for (int i = 0; s->settings->jobs < 1 && i < s->runs.count; i++)
    s->at_once = (int)fmax(1, fmin(s->at_once, plans[i].free_memory / (plans[i].memory + OF_PROCESS)));
}

/* Times steps of a run in as many processes as will run together; stores seconds per step. */
static bool time_run(const Sweep *s, SweepRun *run, double *seconds, Error *error) {
  enum { STEPS = 10 };
  Jobs b;
  if (!jobs_make(&b, s->at_once, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < s->at_once; i++) {
    json_t *words = words_of(s, run);
    add_count(words, "bench", STEPS);
    ok = jobs_add(s, &b, run, i, words, error);
  }
  ok = ok && run_jobs(s, &b, error);
  *seconds = 0;
  for (int i = 0; ok && i < s->at_once; i++) {
    MappedFile file;
    if (!(ok = file_map(&file, b.out[i].text, EXIT_INTERNAL, error))) break;
    json_t *line = json_parse(file.bytes, file.size, JSON_DISABLE_EOF_CHECK, NULL, "a benchmark", error);
    *seconds = fmax(*seconds, result_value(line, "step_ms") / 1000);
    json_decref(line);
    file_unmap(&file);
  }
  jobs_free(&b);
  return ok && !error->code;
}

/* Returns how many settings go on after a stage. */
static int left_after(const SweepStage *stage, int groups) {
  const int left = groups / stage->of;
  return left > FEWEST ? left : groups < FEWEST ? groups : FEWEST;
}

/* Returns the number of full runs that cost as much as the sweep. */
static double full_runs(const Sweep *s) {
  double sum = 0, before = 0;
  int groups = s->runs.groups;
  for (const SweepStage *stage = sweep_stages; stage < sweep_stages + SWEEP_STAGES; stage++) {
    sum += groups * (stage->part - before);
    before = stage->part;
    groups = left_after(stage, groups);
  }
  return sum * s->runs.count / s->runs.groups;
}

/* Sets the steps of all runs so that each trains for the same time, and all of them for the minutes of the sweep. Runs
 * with the same number of operations get the same number of steps. */
static bool fit_minutes(Sweep *s, const Plan *plans, double seconds_left, Error *error) {
  const double PAUSES = 0.15; /* evaluations, samples and starts */
  double *seconds = calloc((size_t)s->runs.count, sizeof *seconds);
  bool ok = seconds || error_memory(error, "a sweep");
  const double began = clock_seconds();
  for (int i = 0; ok && i < s->runs.count; i++) {
    int same = 0;
    while (same < i && (plans[same].flops != plans[i].flops || plans[same].tokens != plans[i].tokens)) same++;
    if (same < i) seconds[i] = seconds[same];
    else ok = time_run(s, &s->runs.items[i], &seconds[i], error);
  }
  const double each = (seconds_left - (clock_seconds() - began)) * (1 - PAUSES) * s->at_once / full_runs(s);
  if (ok && each <= 0)
    ok = fail(error, EXIT_USAGE, "--minutes is too short for %d runs: planning alone took longer", s->runs.count);
  for (int i = 0; ok && i < s->runs.count; i++) {
    const double most = plans[i].steps / plans[i].epochs * (plans[i].muon ? AUTO_MUON_EPOCHS : AUTO_ADAMW_EPOCHS);
    s->runs.items[i].steps = (int64_t)fmax(1, fmin(each / seconds[i], ceil(most)));
    s->runs.items[i].eval_every = (s->runs.items[i].steps + AUTO_EVALUATIONS - 1) / AUTO_EVALUATIONS;
  }
  free(seconds);
  return ok;
}

/* Returns how many tokens each evaluation of each run reads, so that all read the same ones: as many as each can
 * afford, and all if tokenizers differ. 0: the runs read all anyway. */
static int64_t choose_eval_tokens(const Sweep *s, const Plan *plans) {
  /* Evaluations may take 5 % of the time, and a pass forward costs a third of a step. */
  const double OF_TRAINING = 0.05 * 3;
  const double FEWEST_TOKENS = 16384;
  double fewest = INFINITY, all = plans[0].val_tokens;
  bool differ = false;
  for (int i = 0; i < s->runs.count; i++) {
    differ = differ || plans[i].val_tokens != plans[0].val_tokens;
    all = fmax(all, plans[i].val_tokens);
    fewest = fmin(fewest, OF_TRAINING * (double)s->runs.items[i].eval_every * plans[i].tokens);
  }
  const double tokens = differ ? all : fmin(all, fmax(fewest, FEWEST_TOKENS));
  return auto_evaluate_whole((int64_t)all) || options_typed(s->options, "eval-tokens") ? 0 : (int64_t)tokens;
}

static bool make_plan(Sweep *s, Error *error) {
  const double began = clock_seconds(), minutes = s->settings->minutes;
  Plan *plans = calloc((size_t)s->runs.count, sizeof *plans);
  bool ok = (plans || error_memory(error, "a sweep")) && make_plans(s, plans, error);
  for (int i = 0; ok && i < s->runs.count; i++) {
    s->runs.items[i].steps = (int64_t)plans[i].steps;
    s->runs.items[i].eval_every = plans[i].eval_every >= 1 ? (int64_t)plans[i].eval_every : (int64_t)plans[i].steps;
  }
  if (ok) {
    fit_memory(s, plans);
    choose_threads(s);
  }
  if (ok && !isnan(minutes)) ok = fit_minutes(s, plans, 60 * minutes - (clock_seconds() - began), error);
  if (ok) s->eval_tokens = choose_eval_tokens(s, plans);
  free(plans);
  for (int i = 0; ok && i < s->runs.count; i++) {
    json_t *item = json_array_get(json_object_get(s->file, "runs"), (size_t)i);
    json_object_set_new(item, "run", json_string(s->runs.items[i].name));
    json_object_set_new(item, "steps", json_integer(s->runs.items[i].steps));
    json_object_set_new(item, "eval_every", json_integer(s->runs.items[i].eval_every));
  }
  json_object_set_new(s->file, "at_once", json_integer(s->at_once));
  json_object_set_new(s->file, "threads", json_integer(s->threads));
  json_object_set_new(s->file, "eval_tokens", json_integer(s->eval_tokens));
  return ok && json_memory_ok(error, "a sweep") && write_file(s, error);
}

/* ---- stages ---- */

/* Returns the step of a run at the end of a stage: one with an evaluation. */
static int64_t step_after(const SweepRun *run, int stage) {
  const int64_t step = (int64_t)((double)run->steps * sweep_stages[stage].part);
  if (stage == SWEEP_STAGES - 1) return run->steps;
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
  if (there && stage == SWEEP_STAGES - 1 && kept && kept->all) run->scores[stage] = score_of(run, kept);
  run->val_text = history.val_text;
  history_free(&history);
  if (damage.code == EXIT_MEMORY) fail(error, EXIT_MEMORY, "%s", damage.text);
  return there;
}

/* The processes of a stage. */
typedef struct StageWork {
  Console *console;
  int stage;
  ExitCode fatal; /* a failure that other runs will have, too; EXIT_DONE: none */
  OneLine why;
  Jobs jobs;
  int done;
} StageWork;

static bool tell_end(void *context, int which) {
  StageWork *work = context;
  const Process *process = &work->jobs.processes[which];
  SweepRun *run = work->jobs.runs[which];
  Error unknown = {0};
  work->done++;
  run->failed = !look_at(run, work->stage, &unknown) || process->status || !isfinite(run->scores[work->stage]);
  if (!run->failed) {
    console_line(work->console, "%d/%d  %s: %.4f", work->done, work->jobs.count, run->name, run->scores[work->stage]);
    return true;
  }
  const OneLine message = message_of(process);
  run->scores[work->stage] = INFINITY;
  console_line(work->console, "%d/%d  %s failed: %s", work->done, work->jobs.count, run->name, message.text);
  if (process->status != EXIT_OUTPUT && process->status != EXIT_BUSY) return true;
  work->fatal = (ExitCode)process->status;
  work->why = message;
  return false;
}

/* Returns the arguments that bring a run to the end of a stage. */
static json_t *words_for_stage(const Sweep *s, const SweepRun *run, int stage) {
  const int64_t until = step_after(run, stage);
  json_t *words;
  if (checkpoint_find_number(run->dir.text, "step") >= 0) {
    words = json_array();
    add_word(words, "resume", run->dir.text);
    if (s->threads) add_count(words, "threads", s->threads);
  } else {
    words = words_of(s, run);
    add_word(words, "out", run->dir.text);
    json_array_append_new(words, json_string("--overwrite"));
    if (s->timed) add_count(words, "steps", run->steps);
    add_count(words, "eval-every", run->eval_every);
  }
  if (until < run->steps) add_count(words, "stop-at", until);
  json_array_append_new(words, json_string("--quiet"));
  return words;
}

/* Refuses scores on different validation texts. */
static bool check_texts(const Sweep *s, Error *error) {
  const SweepRun *first = NULL;
  for (const SweepRun *run = s->runs.items; run < s->runs.items + s->runs.count; run++) {
    if (!run->val_text) continue;
    if (!first) first = run;
    if (run->val_text != first->val_text)
      return fail(error, EXIT_INPUT, "%s and %s were validated on different texts, so their losses cannot be compared",
                  first->dir.text, run->dir.text);
  }
  return true;
}

static bool run_stage(Sweep *s, int stage, Error *error) {
  StageWork work = {.console = s->console, .stage = stage};
  Jobs *b = &work.jobs;
  if (!jobs_make(b, s->runs.count, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < s->runs.count; i++) {
    SweepRun *run = &s->runs.items[i];
    if (run->stopped || run->failed || look_at(run, stage, error) || run->failed) continue;
    ok = !error->code && jobs_add(s, b, run, 0, words_for_stage(s, run, stage), error);
  }
  if (ok && b->count)
    console_line(s->console, "%s of the steps: %s, %d at a time; validation losses:", sweep_stages[stage].name,
                 text_plural(b->count, "run").text, s->at_once);
  ok = ok && processes_run(b->processes, b->count, s->at_once, tell_end, &work, error);
  for (int i = 0; i < b->count; i++)
    if (!b->processes[i].status && !b->runs[i]->failed) unlink(b->messages[i].text);
  jobs_free(b);
  if (ok && work.fatal) fail(error, work.fatal, "%s", work.why.text);
  return ok && !error->code && check_texts(s, error);
}

/* Stops the runs whose settings are not among the best. */
static bool choose(Sweep *s, int stage, Error *error) {
  double *sorted = malloc((size_t)s->runs.count * sizeof *sorted);
  int groups = 0;
  if (!sorted) return error_memory(error, "a sweep");
  for (int i = 0; i < s->runs.count; i++) {
    const double score = sweep_group_score(&s->runs, i, stage);
    if (s->runs.items[i].group == i && isfinite(score)) sorted[groups++] = score;
  }
  qsort(sorted, (size_t)groups, sizeof *sorted, array_compare_doubles);
  const int left = left_after(&sweep_stages[stage], groups);
  for (SweepRun *run = s->runs.items; run < s->runs.items + s->runs.count; run++)
    if (groups && !(sweep_group_score(&s->runs, run->group, stage) <= sorted[left - 1])) run->stopped = true;
  free(sorted);
  return true;
}

/* ---- the result ---- */

static bool print_table(const Sweep *s, Error *error) {
  const char *const dirs[] = {s->dir};
  const RunsTable table = {.dirs = dirs,
                           .count = 1,
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

static bool open_new(Sweep *s, Error *error) {
  const TrainSettings *t = s->settings;
  const SweepSpec spec = {t->sweep, t->draws, t->seed, !isnan(t->minutes)};
  char *arguments = NULL;
  size_t size = 0;
  if (!t->data.count)
    return fail(error, EXIT_USAGE, "no text given; try: %s book.txt --sweep '...'", program_name("train").text);
  for (int i = 0; i < t->data.count; i++)
    if (path_is_stdin(t->data.items[i]))
      return fail(error, EXIT_USAGE, "each run of a sweep reads the text; give a file in place of standard input");
  if (options_typed(s->options, "stop-at"))
    return fail(error, EXIT_USAGE, "--stop-at does not go with --sweep, which stops runs itself");
  s->dir = run_directory(t, ".sweep", error);
  json_t *runs = s->dir && check_word(s->dir, error) ? sweep_spec_read(s->options, &spec, error) : NULL;
  bool ok = runs && run_arguments_text(s->options, t, &arguments, &size, error);
  json_t *words = json_array(), *items = json_array();
  for (const char *at = arguments; ok && at < arguments + size; at += strlen(at) + 1)
    if (!check_word(at, error)) ok = false;
    else if (strncmp(at, "--out=", 6) != 0 && strncmp(at, "--minutes=", 10) != 0)
      json_array_append_new(words, json_string(at));
  free(arguments);
  for (size_t i = 0; i < json_array_size(runs); i++)
    json_array_append_new(items, json_pack("{s:O}", "settings", json_array_get(runs, i)));
  json_decref(runs);
  s->timed = !isnan(t->minutes);
  s->file = json_pack("{s:o,s:b,s:o}", "arguments", words, "timed", s->timed, "runs", items);
  return ok && json_memory_ok(error, "a sweep") && make_directory(s, error);
}

static bool open_old(Sweep *s, const char *dir, Error *error) {
  const char *other = options_typed_beside(s->options, "resume jobs threads quiet");
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

static bool has_plan(const Sweep *s) {
  for (int i = 0; i < s->runs.count; i++)
    if (s->runs.items[i].steps < 1 || s->runs.items[i].eval_every < 1) return false;
  return true;
}

/* Chooses how many runs are made at a time: on a CPU, one for each processor, with one thread each. A GPU that steps of
 * one small model leave idle is shared by a few. */
static void choose_processes(Sweep *s) {
  enum { ON_GPU = 4 };
  const TrainSettings *t = s->settings;
  s->gpu = strcmp(device_choices[t->machine.device > 0 ? t->machine.device : 0], "cpu") != 0 && backend_gpus();
  const int processors = threads_count(0), threads = t->machine.threads;
  s->at_once = processors / (threads > 0 && !s->gpu ? threads : 1);
  if (s->gpu && s->at_once > ON_GPU) s->at_once = ON_GPU;
  if (has_plan(s)) { /* it is continued as it was begun */
    s->at_once = (int)json_integer_value(json_object_get(s->file, "at_once"));
    s->threads = threads > 0 ? threads : (int)json_integer_value(json_object_get(s->file, "threads"));
  }
  if (t->jobs > 0) s->at_once = t->jobs;
  if (s->at_once < 1) s->at_once = 1;
  if (s->at_once > s->runs.count) s->at_once = s->runs.count;
  if (!has_plan(s)) choose_threads(s);
}

static bool make_runs(Sweep *s, Error *error) {
  choose_processes(s);
  console_line(s->console, "sweep    %s in %s", text_plural(s->runs.count, "run").text, s->dir);
  if (!has_plan(s) && !make_plan(s, error)) {
    if (s->created) unlink(path_in(s->dir, CHECKPOINT_LOCK).text);
    if (s->created) rmdir(s->dir); /* empty, unless the plan could not be written */
    return false;
  }
  for (int stage = 0; stage < SWEEP_STAGES; stage++)
    if (!run_stage(s, stage, error) || !choose(s, stage, error) ||
        !sweep_page_write(&s->runs, s->dir, path_in(s->dir, CHECKPOINT_REPORT).text, error))
      return false;
  if (!sweep_tell(&s->runs, s->console, error)) return false;
  console_line(s->console, "report: %s", path_in(s->dir, CHECKPOINT_REPORT).text);
  return print_table(s, error) &&
         (sweep_best(&s->runs) || fail(error, EXIT_NONFINITE, "no run of the sweep has reached its end"));
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
  free(s.runs.items);
  if (s.lock >= 0) close(s.lock);
  free(s.dir);
  return ok;
}
