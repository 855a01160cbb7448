/* One run of ./train: what its parts share. train.c has the loop; beside this file are settings.c (options), choices.c
 * (what was not given) and the parts below. Functions that return bool fill an Error when it is false. */
#ifndef INKLING_TRAINING_RUN_H
#define INKLING_TRAINING_RUN_H

#include "cli/console.h"
#include "checkpoint/directory.h"
#include "checkpoint/state.h"
#include "collective/collective.h"
#include "inference/answers.h"
#include "inference/batch.h"
#include "inference/evaluation.h"
#include "dataset/corpus.h"
#include "dataset/packing.h"
#include "dataset/pairs.h"
#include "report/result.h"
#include "tokenizer/bpe_encode.h"
#include "report/verdicts.h"
#include "training/choices.h"
#include "util/clock.h"
#include "util/text.h"
#include "formats/model_files.h"
#include "model/decoder.h"

/* What was found before it was read. */
typedef struct TextFacts {
  int files;
  int64_t bytes, skipped; /* skipped: names in directories that were not read */
  size_t stdin_bytes;     /* of them, those that came from standard input */
} TextFacts;

/* Of a run that was given in minutes (pace.c); clock_seconds(), seconds, and steps. */
typedef struct Pace {
  double launched;              /* when the program started */
  double minutes, deadline;     /* minutes NaN: the run has another length */
  double step_seconds;          /* as far as is known, without pauses */
  double checked_at;            /* when the length was looked at last... */
  int64_t checked_step;         /* ...at this step */
  int64_t first_step;           /* before the first one of this program */
  double paused, all_paused;    /* since it was looked at, and before but for what is done once */
  double once;                  /* of `paused`: what is done once in a run */
  double saving, sampling;      /* what the last one took; 0: there was none */
  double evaluating, answering; /* likewise, a window and a pair */
  char *text;                   /* TrainSettings.earlier_steps, where this program changed it */
} Pace;

/* Of a step's sequences those of one process: so many from `first` on, in so many passes of `batch`, the last of which
 * may have empty ones. */
typedef struct SequenceShare {
  int first, count, batch, micro_batches;
} SequenceShare;

typedef struct Run {
  Collective *peers; /* that train together; of one process alone they are one */
  int machines;      /* on which they are */
  /* Which of them is slow: what was heard of it since the last word on that. */
  int slowest;                   /* the rank that was named, and one more; 0: none */
  double heard, worked;          /* seconds of training, and those of them in which this rank did not wait */
  double heard_at, heard_waited; /* clock_seconds() and Collective.waited when that was last added up */

  /* ---- what is asked for, and where to report ---- */
  TrainSettings settings;
  Options options;
  Choices choices; /* of what was not asked for */
  Console console;

  /* ---- text (data.c) ---- */
  TextFacts text;
  int threads;   /* that read it */
  char *scratch; /* where a run without a directory writes; NULL: it has one, or is done with it */
  Tokenizer *tokenizer;
  Tokenizer *source_tokenizer;     /* of prompts, for an encoder; NULL: the other is */
  TokenFile tokens_file, val_file; /* val_file: only with --val */
  TokenRange train, val;
  Packing train_packing, val_packing; /* only with --pack docs */
  Pairs train_pairs, val_pairs;       /* only for an encoder, instead */
  Windows windows, val_windows;
  uint64_t val_text; /* which text is validated on (dataset/text_sum.h); the leader's */
  Batch batch;       /* of the step being prepared: grad_accum * batch windows */

  /* ---- device and model (setup.c) ---- */
  const Backend *backend;
  Context *context;
  ContextInfo device; /* when it was opened: for what changes, such as free memory, run_device_now() */
  double peak_flops;
  size_t available;           /* bytes that were free before the model was there */
  ModelFiles *base_files;     /* of the leader, until its weights are read; else NULL */
  ModelConfig base;           /* of a run that does not start from nothing (base.c); layers 0: it does */
  SpecialTokens base_special; /* likewise */
  ModelConfig config;
  Model *model;
  Decoder *decoder; /* for samples and, above an encoder, answers, so many at a time: */
  int decoder_rows;
  BpeIds drawn;                   /* tokens of the newest sample */
  float *host[CHECKPOINT_ARENAS]; /* on their way to a file or from it */

  /* ---- run directory (directory.c) ---- */
  char *dir; /* its name; a run without a directory has one, too */
  CheckpointLock lock;
  bool begun; /* it is the model directory of this run */
  Metrics metrics;
  History history; /* what is in it */

  /* ---- progress, saved with the state (state.c) ---- */
  int64_t step, best_step, bad_evals, evaluated_step, sampled_step;
  int64_t val_part; /* windows of each evaluation during the run; 0: there was none, and it is free */
  bool finished;
  int64_t metrics_bytes, samples_bytes; /* of the files, when the state was saved */
  double best_loss, last_val_loss;      /* on those windows */
  double seconds;                       /* of training before this start of the program */
  double loss_sum;                      /* of the steps since the last line of metrics.jsonl */
  int64_t loss_steps;

  /* ---- since the program started ---- */
  int stopping;             /* what has asked to stop, as all processes know it: run_listen(); else 0 */
  double started, saved_at; /* clock_seconds() */
  int64_t saved_step;       /* -1: no state was saved yet */
  StepState newest;         /* the last step that the device has reported (reports.c) */
  Evaluation evaluated;     /* the newest one; no tokens: there was none */
  bool holds_kept;          /* the model has the weights of model.safetensors, Run.host[0] those of the last step */
  double logged_at;         /* clock_seconds() of the last line of metrics.jsonl, without pauses since */
  int64_t timed_steps;      /* reported since */
  Pace pace;
} Run;

/* Seconds of this run, those before it was resumed included. */
static inline double run_seconds(const Run *r) { return r->seconds + clock_seconds() - r->started; }

static inline double run_step_flops(const Run *r) {
  return model_step_flops(&r->config, settings_tokens_per_step(&r->settings), (OptimizerKind)r->settings.optimizer,
                          r->device.accelerator);
}

static inline Tokenizer *run_source_tokenizer(const Run *r) {
  return r->source_tokenizer ? r->source_tokenizer : r->tokenizer;
}

/* Places of all windows that hold the text once. */
static inline int64_t run_epoch_tokens(const Run *r) {
  return r->settings.pack == PACK_DOCS ? windows_count(&r->windows, 1) * r->config.ctx : token_range_size(&r->train);
}

/* Without validation text the newest model is the one to use. */
static inline bool run_has_validation(const Run *r) { return token_range_size(&r->val) >= 2; }

/* ---- peers.c: processes that train together; of one alone nothing is to be done ---- */
static inline bool run_leads(const Run *r) { return r->peers->rank == 0; }
/* True when no process has an error; else all have the same. Where one alone may have failed, before the next thing
 * that all do. */
bool run_agree(Run *r, Error *error);
bool run_listen(Run *r, Error *error); /* the same, and Run.stopping */
bool run_leader_says(Run *r, bool what);
double run_leader_counts(Run *r, double what);
/* The leader's settings, data and progress, for all. They agree first. */
bool run_share_settings(Run *r, Error *error);
bool run_share_data(Run *r, Error *error);
void run_share_progress(Run *r);
SequenceShare run_sequence_share(const Run *r);
TrainConfig run_train_config(const Run *r); /* of this process */
bool run_check_peers(const Run *r, Error *error);
bool run_check_device(Run *r, Error *error);
/* The steps since the last call, made by all at the same time: says which rank is 10 % behind. */
void run_name_slowest(Run *r);
void run_restart_comparison(Run *r);   /* they count from here */
int run_threads(Run *r, Error *error); /* to compute with; 0: all that it may run on */

/* ---- data.c ---- */
bool run_has_pairs(const Run *r);         /* prompts are left out of the loss */
bool run_has_encoder(const Run *r);       /* known before the rest of the model is */
bool run_open_data(Run *r, Error *error); /* text, tokenizer, tokens: may take long */
void run_remove_scratch(Run *r);          /* once all have opened the data */
void run_close_data(Run *r);
/* Of its parts: the texts, and their tokens in a file of that name. */
bool run_open_corpus(Run *r, const char *const *sources, int count, Corpus **out, Error *error);
bool run_encode(Run *r, const char *path, Corpus *corpus, TokenFile *out, Error *error);
/* Lengths of the documents to learn from, where the context depends on them; else no documents. */
bool run_measure_documents(Run *r, DocumentLengths *out, Error *error);
bool run_open_windows(Run *r, Error *error); /* once the context is known */
/* The sequences of a step; `out` points into the run. */
bool run_fill_batch(Run *r, int64_t step, TokenBatch *out, Error *error);
const char *run_text_name(const Run *r);  /* the first source, for people */
const char *run_stdin_file(const Run *r); /* name in the run directory of what came from standard input */

/* ---- doctor.c: what the texts are ---- */
/* Says what the files are that are not plain text, and how to mend them. EXIT_INPUT for those of which nobody can want
 * the bytes. `trained`: the text to train on, which may come through a pipe; else that to validate on. */
bool run_examine_text(Run *r, const Corpus *corpus, bool trained, Error *error);

/* ---- show.c: what the model will see ---- */
bool run_show_windows(const Run *r, Error *error); /* --show, on stdout. EXIT_OUTPUT, EXIT_MEMORY */

/* ---- setup.c: device and model ---- */
bool run_open_device(Run *r, Error *error);
ContextInfo run_device_now(const Run *r);
bool run_save_tuning(const Run *r, Error *error); /* what --autotune has chosen so far */
/* Whether the run fits into the memory that is free now, as far as that can be planned. EXIT_MEMORY. */
bool run_check_memory(Run *r, Error *error);
bool run_start_model(Run *r, Error *error);
bool run_init_weights(Run *r, Error *error); /* of a new run */
/* Weights and moments between the model and Run.host; the step goes up with them. */
bool run_download_state(Run *r, Error *error);
void run_upload_state(Run *r);
/* One step on an accelerator that is then undone: kernels are loaded, algorithms chosen and the last memory taken
 * before anything of an older run is replaced. */
bool run_warm_up(Run *r, Error *error);
void run_stop_model(Run *r);

/* ---- plan.c: what the run will be ---- */
void run_print_plan(Run *r);
bool run_print_plan_json(Run *r, Error *error); /* on stdout, for programs. EXIT_OUTPUT, EXIT_MEMORY */

/* ---- pace.c: --minutes ---- */
bool run_read_plans(Run *r, Error *error); /* --earlier-steps. EXIT_USAGE */
/* The steps that fit into --minutes, measured, instead of it. */
bool run_fit_minutes(Run *r, Error *error);
void run_begin_pace(Run *r);
/* After a step: changes the length of the run where it would not end in time, or could be longer. */
bool run_keep_minutes(Run *r, Error *error);
void run_count_pause(Run *r, double saving, double evaluating, double sampling); /* seconds of the pause; 0: none */
/* The length that the run was to have when the step was made: the same when it is repeated. */
static inline int64_t run_planned_steps(const Run *r) {
  return schedule_steps(&r->settings.plans, r->settings.steps, r->step);
}

/* ---- bench.c: timings ---- */
/* Seconds of a training step on this machine now; takes `limit` seconds at most, or one step. */
bool run_measure_step(Run *r, double limit, double *seconds, Error *error);
bool run_bench(Run *r, const char *commit, Error *error);

/* ---- directory.c: the run directory ---- */
bool run_name_directory(Run *r, Error *error);
bool run_take_directory(Run *r, Error *error);
/* From here on it holds a model that transformers and ./generate can read. Of a run that is replaced nothing is removed
 * before the new model is in its place. */
bool run_begin_directory(Run *r, Error *error);
bool run_write_settings(const Run *r, Error *error); /* config.txt */
typedef struct ResumeCommand {
  char text[2 * sizeof(ShellWord) + 16];
} ResumeCommand;
ResumeCommand run_resume_command(const Run *r); /* what to type */
/* The same in fresh memory. EXIT_MEMORY. */
bool run_settings_text(const Run *r, char **text, size_t *size, Error *error);

/* ---- state.c: progress, weights and moments, saved and restored ---- */
/* All processes: to where rank 0 has them on its host. */
bool run_download_weights(Run *r, Error *error);
bool run_write_weights(const Run *r, Error *error); /* rank 0: from there to model.safetensors */
bool run_save_state(Run *r, Error *error);
bool run_restore_state(Run *r, Error *error);

/* ---- resume.c: what a resumed run keeps ---- */
/* Settings of the run that --resume names: its config.txt, under what the command line says. */
bool run_resume_settings(Run *r, Error *error);

/* ---- base.c: the model that a run starts from, of --init or its own when it is resumed ---- */
static inline const char *run_base_dir(const Run *r) { return r->settings.resume ? r->dir : r->settings.init; }
static inline const ModelConfig *run_base(const Run *r) { return r->base.layers ? &r->base : NULL; }
/* Run.base, and with --init its shape as settings, of which none may have been given. The leader reads it. */
bool run_read_base(Run *r, Error *error);
bool run_share_base(Run *r, Error *error);
/* Refuses flags that would make another model of the weights. */
bool run_check_same_model(const Run *r, Error *error);
/* Its tokenizers. */
bool run_open_base_tokenizers(Run *r, Error *error);
/* Of --init: its weights into Run.host. */
bool run_read_base_weights(Run *r, Error *error);

/* ---- reports.c: what the device reports of its steps ---- */
/* Takes the reports that have arrived: sums the losses, writes metrics, shows progress. With `wait` all steps' so
 * far. */
bool run_take_reports(Run *r, bool wait, Error *error);
/* EXIT_NONFINITE: what happened, what is left, and rates to try. */
bool run_fail_nonfinite(const Run *r, const char *what, Error *error);
void run_restart_timing(Run *r); /* tokens per second count from here */
bool run_write_result(const Run *r, RunEnd end, const char *version, Error *error); /* result.json */
bool run_write_report(const Run *r, Error *error);                                  /* report.html */
bool run_log(Run *r, const MetricsLine *line, Error *error);                        /* a line of metrics.jsonl */
bool run_log_verdict(Run *r, const MetricsLine *verdict, Error *error);             /* the same, and prints it */

/* ---- evaluation.c: validation ---- */
/* On the validation text, or on its beginning where it is long; the best model so far goes to model.safetensors.
 * Without validation text the newest goes there. */
bool run_evaluate(Run *r, Error *error);
bool run_evaluate_base(Run *r, Error *error); /* the same before the first step, and says how good the model is */
bool run_evaluates_all(const Run *r);         /* every evaluation is on all of the validation text */
/* After the last step: measures the best model so far and the newest one on all of the validation text, keeps the
 * better one in model.safetensors, says its loss and logs it. From then on the model may hold its weights instead of
 * the newest. */
bool run_measure_kept(Run *r, Error *error);
void run_load_newest(Run *r); /* the model holds the newest weights again */
VerdictFacts run_verdict_facts(const Run *r);
bool run_has_learned(const Run *r); /* false: the last evaluation was no better than guessing */

/* ---- compression.c ---- */
/* What xz -9, which has seen the end of the training text, makes of the beginning of the validation text. NaN: it was
 * measured before, or cannot be. */
bool run_measure_compression(const Run *r, double *bits_per_byte, Error *error);

/* ---- samples.c: what the model writes ---- */
int run_start_token(const Run *r); /* that text without a prompt starts from */
bool run_sample(Run *r, Error *error);

/* ---- copying.c ---- */
bool run_judge_sample(Run *r, Error *error); /* whether the newest sample repeats the training text */

#endif
