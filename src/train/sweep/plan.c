/* The plan of a sweep: how many runs are made at a time, with how many threads, for how many steps. */
#include "train/sweep/internal.h"

#include "kernels.h"
#include "report/result.h"
#include "train/auto_settings.h"
#include "base/system.h"
#include "base/json.h"
#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Plan {
  double steps, epochs, eval_every, flops, tokens, val_tokens, memory, free_memory;
  bool muon;
  bool untimed; /* equal runs are timed instead, as many as go on at a time */
} Plan;

static Plan plan_of(const json_t *answer) {
  json_t *settings = json_object_get(answer, "settings");
  const json_t *memory = json_object_get(answer, "memory_bytes");
  const char *optimizer = json_string_value(json_object_get(settings, "optimizer"));
  return (Plan){.steps = fmax(1, result_value(answer, "steps")),
                .epochs = result_value(answer, "epochs"),
                .eval_every = result_value(settings, "eval-every"),
                .flops = result_value(answer, "flops_per_step"),
                .tokens = result_value(answer, "tokens_per_step"),
                .val_tokens = result_value(json_object_get(answer, "text"), "val_tokens"),
                .memory = result_value(memory, "total"),
                .free_memory = result_value(memory, "free"),
                .muon = optimizer && strcmp(optimizer, "muon") == 0};
}

/* Runs a process of each run but the untimed ones, with these words, which it takes over, after those of the run.
 * Returns the JSON that they print, null for others: [count]. NULL: a process has failed. */
static json_t *ask(Sweep *s, const Plan *plans, json_t *words, Error *error) {
  json_t *answers = json_array();
  for (int i = 0; i < s->count; i++) {
    if (plans[i].untimed) continue;
    s->runs[i].words = sweep_words(s, &s->runs[i]);
    json_array_extend(s->runs[i].words, words);
    sweep_add_word(s->runs[i].words, "out", s->runs[i].dir.text);
  }
  sweep_run_processes(s, NULL, error);
  for (int i = 0; i < s->count; i++) {
    const SweepRun *run = &s->runs[i];
    if (!error->code && run->status)
      fail(error, (ExitCode)run->status, "the run %s: %s", run->name, sweep_message_of(run).text);
    json_t *answer = error->code || plans[i].untimed ? NULL : result_json(s->dir, path_base(run->out.text), error);
    json_array_append_new(answers, answer ? answer : json_null());
    unlink(run->messages.text);
    unlink(run->out.text);
  }
  json_decref(words);
  if (!error->code) return answers;
  json_decref(answers);
  return NULL;
}

/* Asks a process of each run what it would do: plans is [count], zeroed. */
static bool make_plans(Sweep *s, Plan *plans, Error *error) {
  json_t *answers = ask(s, plans, json_pack("[s,s]", "--dry-run", "--json"), error);
  for (int i = 0; answers && i < s->count; i++) plans[i] = plan_of(json_array_get(answers, (size_t)i));
  json_decref(answers);
  return answers &&
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
  for (int i = 0; s->settings->jobs < 1 && i < s->count; i++)
    s->at_once = (int)fmax(1, fmin(s->at_once, plans[i].free_memory / (plans[i].memory + OF_PROCESS)));
}

/* Returns whether a step of two runs is the same work. */
static bool is_same_work(const Plan *a, const Plan *b) { return a->flops == b->flops && a->tokens == b->tokens; }

/* Returns the first run with the same work in a step. */
static int first_equal(const Plan *plans, int run) {
  int first = 0;
  while (!is_same_work(&plans[first], &plans[run])) first++;
  return first;
}

/* Times steps of at most `at_once` runs of each model, side by side in the order of the sweep. Stores the seconds of a
 * step of each model at its first run: seconds is [count], zeroed. */
static bool time_steps(Sweep *s, Plan *plans, double *seconds, Error *error) {
  for (int i = 0; i < s->count; i++) {
    int equal = 0;
    for (int k = 0; k < i && equal < s->at_once; k++) equal += is_same_work(&plans[k], &plans[i]);
    plans[i].untimed = equal == s->at_once;
  }
  json_t *answers = ask(s, plans, json_pack("[s]", "--bench=10"), error);
  for (int i = 0; answers && i < s->count; i++) {
    double *slowest = &seconds[first_equal(plans, i)];
    *slowest = fmax(*slowest, result_value(json_array_get(answers, (size_t)i), "step_ms") / 1000);
  }
  json_decref(answers);
  return answers;
}

/* Returns the number of full runs that cost as much as the sweep. */
static double full_runs(const Sweep *s) {
  double sum = 0, before = 0;
  int groups = s->groups;
  for (const SweepStage *stage = sweep_stages; stage < sweep_stages + SWEEP_STAGES; stage++) {
    sum += groups * (stage->part - before);
    before = stage->part;
    groups = sweep_left_after(stage, groups);
  }
  return sum * s->count / s->groups;
}

/* Sets the steps of all runs so that each trains for the same time, and all of them for the minutes of the sweep. Runs
 * with the same number of operations get the same number of steps. */
static bool fit_minutes(Sweep *s, Plan *plans, double ends, Error *error) {
  const double PAUSES = 0.15; /* evaluations, samples and starts */
  double *seconds = calloc((size_t)s->count, sizeof *seconds);
  bool ok = (seconds || error_memory(error, "a sweep")) && time_steps(s, plans, seconds, error);
  const double each = (ends - clock_seconds()) * (1 - PAUSES) * s->at_once / full_runs(s);
  if (ok && each <= 0)
    ok = fail(error, EXIT_USAGE, "--minutes is too short for %d runs: planning alone took longer", s->count);
  for (int i = 0; ok && i < s->count; i++) {
    const double most = plans[i].steps / plans[i].epochs * (plans[i].muon ? AUTO_MUON_EPOCHS : AUTO_ADAMW_EPOCHS);
    s->runs[i].steps = (int64_t)fmax(1, fmin(each / seconds[first_equal(plans, i)], ceil(most)));
    s->runs[i].eval_every = (s->runs[i].steps + AUTO_EVALUATIONS - 1) / AUTO_EVALUATIONS;
  }
  free(seconds);
  return ok;
}

/* Returns how many tokens each evaluation of each run reads, so that all read the same ones: as many as each can
 * afford, and all if tokenizers differ. 0: the arguments say it. */
static int64_t choose_eval_tokens(const Sweep *s, const Plan *plans) {
  /* Evaluations may take 5 % of the time, and a pass forward costs a third of a step. */
  const double OF_TRAINING = 0.05 * 3;
  const double FEWEST_TOKENS = 16384;
  double fewest = INFINITY, all = plans[0].val_tokens;
  bool differ = false;
  for (int i = 0; i < s->count; i++) {
    differ = differ || plans[i].val_tokens != plans[0].val_tokens;
    all = fmax(all, plans[i].val_tokens);
    fewest = fmin(fewest, OF_TRAINING * (double)s->runs[i].eval_every * plans[i].tokens);
  }
  if (options_typed(s->options, "eval-tokens")) return 0;
  return (int64_t)(differ ? all : fmin(all, fmax(fewest, FEWEST_TOKENS)));
}

bool sweep_make_plan(Sweep *s, Error *error) {
  const double began = clock_seconds(), minutes = s->settings->minutes;
  Plan *plans = calloc((size_t)s->count, sizeof *plans);
  bool ok = (plans || error_memory(error, "a sweep")) && make_plans(s, plans, error);
  for (int i = 0; ok && i < s->count; i++) {
    s->runs[i].steps = (int64_t)plans[i].steps;
    s->runs[i].eval_every = plans[i].eval_every >= 1 ? (int64_t)plans[i].eval_every : (int64_t)plans[i].steps;
  }
  if (ok) {
    fit_memory(s, plans);
    choose_threads(s);
  }
  if (ok && !isnan(minutes)) ok = fit_minutes(s, plans, began + 60 * minutes, error);
  if (ok) s->eval_tokens = choose_eval_tokens(s, plans);
  for (int i = 0; ok && i < s->count && !options_typed(s->options, "eval-every"); i++) {
    const double rarest = (double)s->runs[i].steps / 8, tenth = 10 * (double)s->eval_tokens / 3 / plans[i].tokens;
    s->runs[i].eval_every = (int64_t)fmax((double)s->runs[i].eval_every, floor(fmin(rarest, tenth)));
  }
  free(plans);
  for (int i = 0; ok && i < s->count; i++) {
    json_t *item = json_array_get(json_object_get(s->file, "runs"), (size_t)i);
    json_object_set_new(item, "run", json_string(s->runs[i].name));
    json_object_set_new(item, "steps", json_integer(s->runs[i].steps));
    json_object_set_new(item, "eval_every", json_integer(s->runs[i].eval_every));
  }
  json_object_set_new(s->file, "at_once", json_integer(s->at_once));
  json_object_set_new(s->file, "threads", json_integer(s->threads));
  json_object_set_new(s->file, "eval_tokens", json_integer(s->eval_tokens));
  return ok && json_memory_ok(error, "a sweep");
}

bool sweep_has_plan(const Sweep *s) {
  for (int i = 0; i < s->count; i++)
    if (s->runs[i].steps < 1 || s->runs[i].eval_every < 1) return false;
  return true;
}

void sweep_choose_processes(Sweep *s) {
  enum { ON_GPU = 4 };
  const TrainSettings *t = s->settings;
  s->gpu = strcmp(device_choices[t->machine.device > 0 ? t->machine.device : 0], "cpu") != 0 && backend_gpus();
  const int processors = threads_count(0), threads = t->machine.threads;
  s->at_once = processors / (threads > 0 && !s->gpu ? threads : 1);
  if (s->gpu && s->at_once > ON_GPU) s->at_once = ON_GPU;
  if (sweep_has_plan(s)) { /* it is continued as it was begun */
    s->at_once = (int)json_integer_value(json_object_get(s->file, "at_once"));
    s->threads = threads > 0 ? threads : (int)json_integer_value(json_object_get(s->file, "threads"));
  }
  if (t->jobs > 0) s->at_once = t->jobs;
  if (s->at_once < 1) s->at_once = 1;
  if (s->at_once > s->count) s->at_once = s->count;
  if (!sweep_has_plan(s)) choose_threads(s);
}
