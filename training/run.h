/* One run of ./train: what its parts share. train.c has the loop; beside this file are settings.c (options),
 * choices.c (what was not given), data.c (text), setup.c (model), plan.c (the plan, timings), directory.c (the run
 * directory), resume.c (states), evaluation.c (validation, samples). Functions that return bool fill an Error when it
 * is false. */
#ifndef INKLING_TRAINING_RUN_H
#define INKLING_TRAINING_RUN_H

#include "training/metrics.h"
#include "cli/console.h"
#include "util/file.h"
#include "checkpoint/checkpoint.h"
#include "model/evaluation.h"
#include "dataset/packing.h"
#include "training/choices.h"
#include "util/clock.h"
#include "util/text.h"

/* Where standard input is copied to until the run begins: a name that is swept away when a run is killed before. */
#define STDIN_COPY FILE_SWEPT_NAME("stdin")

/* What was found before it was read. */
typedef struct TextFacts {
  int files;
  int64_t bytes, skipped; /* skipped: names in directories that were not taken */
  size_t stdin_bytes;     /* of them, those that came from standard input */
} TextFacts;

typedef struct Run {
  TrainSettings settings;
  Options options;
  Console console;
  /* text */
  Choices choices;
  TextFacts text;
  int threads;   /* that read it */
  char *scratch; /* directory for what a run without a directory writes; NULL: there is none */
  Tokenizer *tokenizer;
  TokenFile tokens_file, val_file; /* val_file: only with --val */
  TokenRange train, val;
  Packing train_packing, val_packing; /* only with --pack docs */
  Windows windows, val_windows;
  int32_t *tokens, *targets, *positions; /* [grad_accum][batch][ctx] of the step being prepared */
  /* model */
  const Backend *backend;
  Context *context;
  size_t available; /* bytes that were free on it before the model was there */
  ModelConfig config;
  Model *model;
  Decoder *decoder; /* for samples */
  float *host[3];   /* arenas on their way to a file: master, first and second moments */
  double peak_flops;
  /* run directory */
  char *dir;
  bool made_dir;     /* the directory was not there before */
  bool replaces_run; /* it held one */
  bool begun;        /* it is the model directory of this run */
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

/* Seconds of this run, those before it was resumed included. */
static inline double run_seconds(const Run *r) { return r->seconds + clock_seconds() - r->started; }

/* Places of all windows that hold the text once. */
static inline int64_t run_epoch_tokens(const Run *r) {
  const Packing *packing = r->windows.packing;
  return packing ? packing->windows * packing->ctx : token_range_size(&r->train);
}

/* Without validation text the newest model is the one to use. */
static inline bool run_has_validation(const Run *r) { return token_range_size(&r->val) >= 2; }

/* A dry run and a benchmark have no directory. */
static inline bool settings_have_directory(const TrainSettings *s) { return !s->dry_run && !s->bench; }

/* ---- data.c ---- */
bool run_open_data(Run *r, Error *error); /* text, tokenizer, tokens: may take long */
void run_close_data(Run *r);
/* Lengths of the documents to learn from, where the context depends on them; else no documents. */
bool run_measure_documents(Run *r, DocumentLengths *out, Error *error);
bool run_open_windows(Run *r, Error *error); /* once the context is known */
bool run_fill_batch(Run *r, int64_t step, Error *error);
TokenBatch run_batch(const Run *r);       /* what run_fill_batch has filled */
const char *run_text_name(const Run *r);  /* the first source, for people */
const char *run_stdin_file(const Run *r); /* name in the run directory of what came from standard input */

/* ---- setup.c ---- */
bool run_open_device(Run *r, Error *error);
bool run_start_model(Run *r, Error *error);
void run_init_weights(Run *r); /* of a new run */
void run_upload_state(Run *r); /* host and step onto the device */
/* One step on an accelerator that is then undone: kernels are loaded, algorithms chosen and the last memory taken
 * before anything of an older run is replaced. */
bool run_warm_up(Run *r, Error *error);
void run_stop_model(Run *r);

/* ---- plan.c ---- */
enum { BENCH_WARM_UP = 12 }; /* steps before the timed ones: recordings are made, a GPU is kept busy */
bool run_measure_steps_per_minute(Run *r, double *out, Error *error);
bool run_bench(Run *r, Error *error);
void run_print_plan(Run *r);

/* ---- directory.c ---- */
char *run_path(const Run *r, const char *name); /* DIR/name in fresh memory; NULL when out of memory */
bool run_name_directory(Run *r, Error *error);
bool run_take_directory(Run *r, Error *error);
int run_start_token(const Run *r);
bool run_write_weights(Run *r, Error *error);
bool run_begin_directory(Run *r, Error *error);
void run_abandon_directory(const Run *r);
bool run_save_tuning(const Run *r, Error *error);
char *run_read_tuning(const Run *r);

/* ---- resume.c ---- */
bool run_save_state(Run *r, Error *error);
bool run_resume_state(Run *r, Error *error);
bool run_check_same_model(const Run *r, Error *error);
bool run_resume_settings(Run *r, Error *error);
double run_resume_steps(const Run *r);

/* ---- evaluation.c ---- */
bool run_evaluate(Run *r, Error *error);
bool run_sample(Run *r, Error *error);
bool run_final_evaluation(Run *r, Error *error);

#endif
