/* ./train: from a text file to a run directory.
 *
 * main -> run: prepare (whatever can be refused is refused), plan, loop, finish. The parts are in src/train/.
 * Several processes may train together (src/train/peers.c). Rank 0, the first, makes the choices and writes the files;
 * a process that runs alone is rank 0. */
#include "cli/bench_line.h"
#include "cli/processes.h"
#include "cli/startup.h"
#include "report/page.h"
#include "report/run_charts.h"
#include "train/sweep/sweep.h"
#include "train/architecture.h"
#include "train/run.h"
#include "train/verify.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- prepare: rank 0 ---- */

static bool fail_without_text(const Run *r, Error *error) {
  const ShellWord train = program_name("train");
  const char *config = r->options.config, *dir = r->files.dir;
  if (r->settings.resume)
    return fail(error, EXIT_USAGE,
                "no text given, nor a line `data = FILE` in %s/" CHECKPOINT_SETTINGS "; try: %s book.txt --resume=%s",
                dir, train.text, dir);
  if (config)
    return fail(error, EXIT_USAGE, "no text given, nor a line `data = FILE` in %s; try: %s book.txt --config %s",
                config, train.text, config);
  return fail(error, EXIT_USAGE, "no text given; try: %s book.txt   (--help lists the common options)", train.text);
}

static bool take_settings(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->resume && !run_resume_settings(r, error)) return false;
  device_limit_threads(&s->machine, &r->console);
  /* A resumed run keeps its model, so options that name that model again do not change how it is trained. */
  options_follow(&r->options, s->resume);
  if (s->data.count == 0) return fail_without_text(r, error);
  return settings_read_shares(s, &r->text.mixture, error) && run_name_directory(s, &r->files, error) &&
         run_read_base(r, error) && settings_read_minutes(s, error);
}

static bool check_device(const Run *r, const ModelConfig *model, Error *error) {
  return model_check_device(model, &r->device.info, error) || error_append(error, ", or --device cpu");
}

static bool no_validation(const TrainSettings *s, Error *error) {
  return fail(error, EXIT_USAGE, "--patience %d needs validation text, and there is none", s->patience);
}

/* Checks flags that are wrong for any text, before gigabytes of it are read. */
static bool check_flags(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  ModelConfig model;
  if (s->patience && !s->val && s->val_frac <= 0) return no_validation(s, error);
  if (!architecture_check_sources(s, true, error) || !run_read_earlier_steps(&r->settings, error) ||
      !run_read_series(s, &r->series, error))
    return false;
  if (s->optimizer == OPTIMIZER_ADAMW && !isnan(s->muon_lr))
    return fail(error, EXIT_USAGE, "--muon-lr is for Muon, but the optimizer is adamw%s",
                s->resume ? ", which a resumed run keeps" : "; leave it out, or give --optimizer muon");
  if (options_typed(&r->options, "teacher-weight") && !s->teacher && s->teacher_steps < 1)
    return fail(error, EXIT_USAGE, "--teacher-weight needs --teacher DIR or --teacher-steps N");
  return auto_check_shape(s, run_base(r), &model, error) && (!model.layers || check_device(r, &model, error));
}

/* Returns what choices depend on; `device` is filled. */
static AutoInputs choice_inputs(const Run *r, ContextInfo *device) {
  const ModelConfig *base = run_base(r);
  *device = run_device_now(&r->device);
  device->threads *= r->peers->size;
  return (AutoInputs){.vocab = base ? base->vocab : tokenizer_vocab(r->text.tokenizer),
                      .source_vocab = base ? base->source_vocab : tokenizer_vocab(run_source_tokenizer(&r->text)),
                      .base = base,
                      .teacher = run_teacher(r),
                      .text_bytes = run_epoch_bytes(&r->text),
                      .train_tokens = run_in_epoch(&r->text, token_range_size(&r->text.train.range)),
                      .val_tokens = token_range_size(&r->text.val.range),
                      .processes = r->peers->size,
                      .pairs = run_has_pairs(&r->text),
                      .device = device,
                      .peak_flops = r->device.peak_flops};
}

static void set_bench_length(TrainSettings *s) {
  s->steps = s->bench + BENCH_WARM_UP;
  s->warmup = 0; /* that of a resumed run may be longer than these steps, which auto_length() refuses */
  s->epochs = s->minutes = NAN;
  s->plans.count = 0;
}

static bool choose_model(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  ContextInfo device;
  AutoInputs given = choice_inputs(r, &device);
  if (!run_measure_documents(r, &given.lengths, error)) return false;
  if (!s->resume && !s->init && !s->bench && !given.pairs) r->outlooks = outlooks_plan(s, &given);
  if (!auto_model(s, &given, &r->model.config, &r->reasons, error)) return false;
  if (s->bench) set_bench_length(s);
  return true;
}

/* Checks flags that may not suit the text or the model. */
static bool check_choices(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  const int sequences = s->batch * s->grad_accum;
  if (sequences < r->peers->size)
    return fail(error, EXIT_USAGE, "a step of %s cannot be divided among %d processes; raise --batch, or start fewer",
                text_plural(sequences, "sequence").text, r->peers->size);
  if ((run_base(r) && !run_check_same_model(r, error)) || !run_check_teacher(r, error) || !run_open_choices(r, error))
    return false;
  if (s->patience && !run_has_validation(&r->text)) return no_validation(s, error);
  return s->optimizer != OPTIMIZER_ADAMW || !options_typed(&r->options, "momentum") ||
         fail(error, EXIT_USAGE, "--momentum is for Muon, but the optimizer is adamw");
}

static bool choose_text_and_model(Run *r, Error *error) {
  return check_flags(r, error) && run_open_teacher(r, error) && run_take_directory(r, error) &&
         run_in_phase(r, PHASE_TEXT, run_open_data, error) && run_in_phase(r, PHASE_PLAN, choose_model, error) &&
         check_choices(r, error);
}

static bool choose_steps(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  ContextInfo device;
  AutoInputs given = choice_inputs(r, &device);
  const double done = s->resume && !s->bench ? checkpoint_find_number(r->files.dir, "step") : 0;
  if (options_typed(&r->options, "steps") && done > (double)s->steps)
    return fail(error, EXIT_USAGE, "%s is at step %.0f, past --steps %" PRId64, r->files.dir, done, s->steps);
  if (s->stop_at && done > (double)s->stop_at)
    return fail(error, EXIT_USAGE, "%s is at step %.0f, past --stop-at %" PRId64, r->files.dir, done, s->stop_at);
  given.train_tokens = run_epoch_tokens(r);
  return auto_length(s, &given, &r->model.config, &r->reasons, error) && run_open_series(r, error);
}

static bool choose_length(Run *r, Error *error) { return run_in_phase(r, PHASE_PLAN, choose_steps, error); }

/* ---- prepare: all processes ---- */

static bool open_windows(Run *r, Error *error) {
  run_remove_scratch(&r->text); /* all processes have opened the tokens */
  return check_device(r, &r->model.config, error) && run_in_phase(r, PHASE_TEXT, run_open_windows, error);
}

static bool fit_minutes(Run *r, Error *error) {
  return isnan(r->settings.minutes) || run_in_phase(r, PHASE_PLAN, run_fit_minutes, error);
}

/* Everything that can be refused is refused here, before anything is computed or an older run is replaced. */
static bool prepare(Run *r, Error *error) {
  return run_decide(r, take_settings, error) &&         /* settings, initial model, name of the directory */
         run_together(r, run_open_device, error) &&     /* in each process */
         run_together(r, run_compare_devices, error) && /* compared with rank 0's */
         run_decide(r, choose_text_and_model, error) && /* directory, text, tokens, shape of the model */
         run_together(r, open_windows, error) &&        /* the sequences of the text */
         run_together(r, fit_minutes, error) &&         /* with --minutes: how many steps fit */
         run_decide(r, choose_length, error);           /* the steps, and what depends on them */
}

/* ---- loop ---- */

static bool every(int64_t interval, int64_t step) { return interval > 0 && step % interval == 0; }

static bool must_save(Run *r) {
  const Interval *interval = &r->settings.save_every;
  return every(interval->steps, r->progress.step) ||
         (interval->seconds > 0 &&
          run_broadcast_flag(r->peers, clock_seconds() - r->session.saved_at >= interval->seconds));
}

static bool must_evaluate(const Run *r) {
  const int64_t step = r->progress.step;
  return r->progress.evaluated_step < step &&
         (step == r->settings.steps || every(r->settings.eval_every, step) || run_keeps_now(r));
}

/* The model that a run starts from is evaluated once, by a resumed run if the first one was stopped before that. */
static bool must_evaluate_base(const Run *r) {
  return r->settings.init && r->progress.step == 0 && !isfinite(r->progress.best_loss);
}

/* finish() makes the last sample, so no other one comes shortly before it. */
static bool must_sample(const Run *r) {
  const int64_t interval = r->settings.sample_every;
  return r->progress.sampled_step < r->progress.step && every(interval, r->progress.step) &&
         run_planned_steps(r) - r->progress.step > interval / 2;
}

static bool is_of_device(const Error *error) { return error->code == EXIT_MEMORY || error->code == EXIT_INTERNAL; }

static bool take_all_reports(Run *r, Error *error) {
  const bool ok = !error->code && run_take_step_reports(r, true, error);
  return (ok || !is_of_device(error)) && run_agree(r->peers, error);
}

/* Evaluates and keeps the newest model, if it is time for that. */
static bool evaluate_now(Run *r, Error *error) {
  if (!r->session.stopping && must_evaluate(r) && !run_together(r, run_evaluate, error)) return false;
  return r->session.stopping || !run_keeps_now(r) || run_together(r, run_keep_model, error);
}

/* Saving, evaluating and sampling do not count as training time. Saving comes first: if the program is killed in the
 * evaluation, the resumed run makes it again. */
static bool pause_training(Run *r, Error *error) {
  const bool last = r->progress.step == r->settings.steps, sample = must_sample(r);
  const bool save = must_save(r) || last || r->session.stopping;
  if (!save && !must_evaluate(r) && !sample && !run_keeps_now(r)) return true;
  if (!take_all_reports(r, error)) return false;
  const double start = clock_seconds();
  if (save && !run_save_state(r, error)) return false;
  const double saved = clock_seconds();
  if (!evaluate_now(r, error)) return false;
  const double evaluated = clock_seconds();
  if (sample && !run_alone(r, run_sample, error)) return false;
  const double end = clock_seconds();
  if (save) r->budget.saving = saved - start;
  if (sample) r->budget.sampling = end - evaluated;
  r->budget.paused += end - start;
  r->session.paused = true;
  return true;
}

static bool out_of_patience(Run *r) {
  const RunProgress *progress = &r->progress;
  if (!r->settings.patience || progress->bad_evals < r->settings.patience) return false;
  console_note(&r->console, "early stopping: no better validation loss for %s; the best was at step %" PRId64,
               text_plural((double)progress->bad_evals, "evaluation").text, progress->best_step);
  return true;
}

/* If the text cannot be read any more, saves what was learned. Returns false. */
static bool save_before_failing(Run *r, Error *error) {
  Error second = {0};
  if (error->code != EXIT_INPUT && error->code != EXIT_CHECKPOINT) return false;
  r->peers->agreed = false; /* the processes have not agreed on the end yet */
  const bool saved = r->session.saved_step == r->progress.step ||
                     (run_take_step_reports(r, true, &second) && run_save_state(r, &second));
  r->peers->agreed = true;
  return saved && error_append(error, "; stopped after step %" PRId64 ", saved. Resume with: %s", r->progress.step,
                               run_resume_command(&r->files).text);
}

static bool stops_here(const Run *r) {
  const int64_t at = r->settings.stop_at;
  return at && r->progress.step == at && at < r->settings.steps;
}

static bool train_loop(Run *r, Error *error) {
  phases_enter(&r->phases, PHASE_STEPS);
  r->session.started = r->session.saved_at = r->phases.entered;
  r->session.paused = true;
  if (!run_agree_on_stop(r, error)) return false;
  if (!r->session.stopping && must_evaluate_base(r) && !run_evaluate_base(r, error)) return false;
  if (!evaluate_now(r, error)) return false; /* a resumed run may have been stopped before its evaluation */
  if (!r->session.stopping && must_sample(r) && !run_alone(r, run_sample, error)) return false;
  run_start_budget(r);
  while (r->progress.step < r->settings.steps && !stops_here(r) && !out_of_patience(r)) {
    TokenBatch batch;
    if (!error->code) run_fill_batch(r, r->progress.step + 1, &batch, error);
    if (!run_agree_on_stop(r, error)) return save_before_failing(r, error);
    if (r->session.stopping) break;
    model_train_step(r->model.on_device, &batch);
    r->progress.step++;
    startup_unsaved_steps++;
    /* An error of one process reaches the others before the next collective operation. If its device fails in the
     * middle of a step, they are waiting for it and cannot be told. */
    if (!run_take_step_reports(r, false, error) && is_of_device(error)) return false;
    if (!run_keep_minutes(r, error) || !pause_training(r, error)) return false;
  }
  return take_all_reports(r, error);
}

/* ---- end ---- */

static bool interrupted(Run *r, Error *error) {
  char text[sizeof(ResumeCommand) + ONE_LINE_BYTES];
  console_end_line(&r->console);
  run_write_result(r, RUN_SIGNAL, INKLING_VERSION, error);
  if (!run_agree(r->peers, error)) return false;
  snprintf(text, sizeof text, "stopped after step %" PRId64 " of %" PRId64 ", saved", r->progress.step,
           r->settings.steps);
  if (!processes_have_parent()) text_append(text, sizeof text, ". Resume with: %s", run_resume_command(&r->files).text);
  if (r->session.stopping) fail(error, (ExitCode)(EXIT_SIGNALS + r->session.stopping), "%s", text);
  else console_line(&r->console, "%s", text);
  return run_agree(r->peers, error);
}

static bool sample_at_end(Run *r, Error *error) { return run_sample(r, error) && run_check_novelty(r, error); }

/* The state is saved again after everything else is written: only then is the run finished. */
static bool finish(Run *r, Error *error) {
  if (stops_here(r)) return run_save_state(r, error) && interrupted(r, error); /* with its evaluation */
  if (r->session.saved_step != r->progress.step && !run_save_state(r, error)) return false;
  if (r->session.stopping) return interrupted(r, error);
  console_end_line(&r->console);
  if (!run_together(r, run_measure_kept, error) || !run_alone(r, sample_at_end, error) || !run_agree_on_stop(r, error))
    return false;
  if (r->session.stopping) return interrupted(r, error);
  run_load_newest(&r->model, &r->session);
  r->progress.finished = true;
  const bool timed = !isnan(r->budget.minutes) && (double)r->progress.step < r->budget.most;
  const RunEnd usual = timed ? RUN_MINUTES : RUN_DONE;
  run_write_result(r, r->progress.step < r->settings.steps ? RUN_PATIENCE : usual, INKLING_VERSION, error);
  if (!run_agree(r->peers, error) || !run_save_state(r, error)) return false;
  if (!run_has_learned(r)) {
    console_line(&r->console, "%s in %s, and the model is no better than guessing",
                 text_plural((double)r->progress.step, "step").text, text_duration(run_seconds(r)).text);
    return true;
  }
  if (!processes_have_parent()) run_tell_outlook(r);
  char next[sizeof(OneLine) + sizeof(PathText) + 64] = "."; /* a run of --verify will be deleted */
  const bool asks = r->model.config.encoder_layers, talks = !asks && tokenizer_chat_template(r->text.tokenizer);
  if (!processes_have_parent())
    snprintf(next, sizeof next, ". %s: %s %s %s",
             asks    ? "Ask it"
             : talks ? "Talk to it"
                     : "More text",
             program_name("generate").text, text_shell_word(r->files.dir, ONE_LINE_BYTES - 1).text,
             asks    ? "-p TEXT --greedy"
             : talks ? "-i"
                     : "-n 500");
  console_line(&r->console, "trained %s in %s%s", text_plural((double)r->progress.step, "step").text,
               text_duration(run_seconds(r)).text, next);
  return true;
}

static bool make_teacher(Run *r, Error *error) {
  Error second = {0};
  if (run_make_teacher(r, error)) return true;
  if (error->code > EXIT_SIGNALS || error->code == EXIT_NONFINITE)
    run_write_result(r, error->code == EXIT_NONFINITE ? RUN_NONFINITE : RUN_SIGNAL, INKLING_VERSION, &second);
  return false;
}

static bool train(Run *r, Error *error) {
  Error second = {0};
  const bool ok = train_loop(r, error) && finish(r, error);
  if (!ok && error->code == EXIT_NONFINITE) run_write_result(r, RUN_NONFINITE, INKLING_VERSION, &second);
  return ok;
}

/* ---- modes that do not train ---- */

static bool print_runs(Console *console, const Options *options, const TrainSettings *s, Error *error) {
  static const char *const here[] = {"."};
  enum { DEFAULT_WIDTH = 100 };
  const TableFormat usual = isatty(STDOUT_FILENO) ? TABLE_TEXT : TABLE_MARKDOWN;
  const int width = console_width(stdout);
  const RunsTable table = {.dirs = s->data.count ? s->data.items : here,
                           .count = s->data.count ? s->data.count : 1,
                           .sort = s->runs_sort,
                           .columns = s->runs_columns,
                           .by_seed = s->by_seed,
                           .options = options,
                           .format = s->runs_format < 0 ? usual : (TableFormat)s->runs_format,
                           .width = width > 0 ? width : DEFAULT_WIDTH,
                           .console = console};
  return runs_print(&table, stdout, error);
}

static bool write_report(Console *console, const Options *options, const TrainSettings *s, Error *error) {
  if (!s->data.count || !s->out)
    return fail(error, EXIT_USAGE, "--report needs runs and a file: %s --report a.run b.run --out compare.html",
                program_name("train").text);
  if (path_is_stdin(s->out)) return fail(error, EXIT_USAGE, "--out - : name a file for the page");
  /* A page may be written into a run directory, but must not replace a file of the run. */
  if (checkpoint_is_run(path_directory(s->out).text) && !text_ends_with(s->out, ".html"))
    return fail(error, EXIT_USAGE, "--out %s: that file belongs to a run; give the page a name ending in .html",
                s->out);
  const RunsTable table = runs_page_table(s->data.items, s->data.count, options, s->by_seed);
  return page_write_runs(&table, s->out, console, error);
}

static bool plot_runs(Console *console, const TrainSettings *s, Error *error) {
  if (!s->data.count)
    return fail(error, EXIT_USAGE, "--plot needs a run: %s --plot book.run", program_name("train").text);
  FoundRuns runs = {.console = console};
  const bool ok = find_runs_read(&runs, s->data.items, s->data.count, error) &&
                  run_charts_print(stdout, runs.items, runs.count, console_width(stdout), console->utf8, error);
  find_runs_free(&runs);
  return ok && file_flush(stdout, "stdout", error);
}

static bool verify(Console *console, const TrainSettings *s, Error *error) {
  if (s->data.count != 1)
    return fail(error, EXIT_USAGE, "--verify needs one run: %s --verify book.run", program_name("train").text);
  return verify_run(s->data.items[0], console, error);
}

static bool show_runs(Run *r, Error *error) {
  return r->options.mode == TRAIN_MODE_VERIFY   ? verify(&r->console, &r->settings, error)
         : r->options.mode == TRAIN_MODE_RUNS   ? print_runs(&r->console, &r->options, &r->settings, error)
         : r->options.mode == TRAIN_MODE_REPORT ? write_report(&r->console, &r->options, &r->settings, error)
                                                : plot_runs(&r->console, &r->settings, error);
}

static bool sweep(Run *r, Error *error) {
  return settings_read_minutes(&r->settings, error) && sweep_run(&r->options, &r->settings, &r->console, error);
}

/* ---- main ---- */

static bool run_mode(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (r->options.mode & (TRAIN_MODE_RUNS | TRAIN_MODE_REPORT | TRAIN_MODE_PLOT | TRAIN_MODE_VERIFY))
    return run_alone(r, show_runs, error);
  const bool sweeps = r->options.mode == TRAIN_MODE_SWEEP || (s->resume && sweep_is(s->resume));
  if ((s->jobs > 0 || s->by_seed) && !sweeps)
    return fail(error, EXIT_USAGE, "--%s needs --sweep%s, or the --resume=DIR of a sweep",
                s->jobs > 0 ? "jobs" : "by-seed", s->jobs > 0 ? "" : ", --runs or --report");
  if (sweeps) return run_alone(r, sweep, error);
  if (!prepare(r, error)) return false;
  const bool resumes = s->resume && settings_have_directory(s);
  if (resumes && (!run_together(r, run_start_model, error) || !run_restore_state(r, error)))
    return false; /* refuse before the plan is printed */
  if (r->progress.finished && !s->dry_run) return true;
  if (s->json) return run_alone(r, run_print_plan_json, error);
  run_print_plan(r);
  if (!model_counts_ok(error)) return false;
  if (s->dry_run) return !s->show || run_alone(r, run_show_windows, error);
  if (!resumes && (!run_together(r, run_start_model, error) || !run_init_weights(r, error))) return false;
  model_files_close(r->base.files);
  model_files_close(r->teacher.files);
  r->base.files = r->teacher.files = NULL;
  if (!run_warm_up(r, error)) return false;
  if (s->bench) return run_bench(r, INKLING_VERSION, error);
  return run_alone(r, run_begin_directory, error) && make_teacher(r, error) && train(r, error);
}

static bool run(void *context, Error *error) {
  Run *r = context;
  const TrainSettings *s = &r->settings;
  if (!run_mode(r, error)) return false;
  if (s->open && r->peers->rank == 0)
    console_open_page(&r->console, s->report ? s->out : path_in(r->files.dir, CHECKPOINT_REPORT).text);
  return true;
}

static void close_run(Run *r, ExitCode outcome) {
  metrics_close(&r->files.metrics);
  history_free(&r->files.history);
  checkpoint_unlock(&r->files.lock, r->files.dir, r->files.begun);
  collective_abort(r->peers, outcome);
  xz_stop(r->session.xz);
  run_stop_model(&r->model);
  if (r->device.backend) r->device.backend->close(r->device.context);
  free(r->device.tuning);
  run_close_data(&r->text);
  model_files_close(r->teacher.files);
  model_files_close(r->base.files);
  free(r->files.dir);
  options_free(&r->options);
}

int main(int argc, char **argv) {
  Run r = {.files.lock.fd = -1,
           .phases = phases_begin(),
           .session.saved_step = -1,
           .progress = {.best_loss = INFINITY, .last_val_loss = NAN},
           .budget.minutes = NAN};
  r.budget.launched = r.phases.entered;
  train_options(&r.options, &r.settings);
  const int status = startup_run(argc, argv,
                                 &(Startup){.version = INKLING_VERSION,
                                            .options = &r.options,
                                            .console = &r.console,
                                            .peers = &r.peers,
                                            .run = run,
                                            .context = &r});
  close_run(&r, (ExitCode)status);
  collective_close(r.peers);
  return status;
}
