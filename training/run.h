/* One run of ./train: what its parts share. train.c has the loop; beside this file are settings.c (options and
 * automatic choices), setup.c (text, model), plan.c (the plan, timings), directory.c (the run directory), resume.c
 * (states), evaluation.c (validation, samples). Functions that return bool fill an Error when it is false. */
#ifndef INKLING_TRAINING_RUN_H
#define INKLING_TRAINING_RUN_H

#include "cli/metrics.h"
#include "cli/progress.h"
#include "store/run.h"
#include "text/score.h"
#include "training/settings.h"

#include <time.h>

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
  size_t available; /* bytes that were free on it before the model was there */
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

static inline double now(void) { /* seconds of a clock that never goes back */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of this run, those before it was resumed included. */
static inline double elapsed(const Run *r) { return r->seconds + now() - r->started; }

static inline int64_t split_tokens(const Split *split) { return split->end - split->begin; }

/* Without validation text the newest model is the one to use. */
static inline bool has_validation(const Run *r) { return split_tokens(&r->tail) >= 2; }

/* ---- setup.c ---- */
bool open_device(Run *r, Error *error);
bool open_data(Run *r, Error *error);
bool check_text_length(const Run *r, Error *error);
void fill_batch(Run *r, int64_t step);
bool start_model(Run *r, Error *error);
void initialise_weights(Run *r); /* of a new run */
void upload_state(Run *r);       /* host and step onto the device */
/* One step on an accelerator that is then undone: kernels are loaded, algorithms chosen and the last memory taken
 * before anything of an older run is replaced. */
bool rehearse(Run *r, Error *error);
void stop_model(Run *r);

/* ---- plan.c ---- */
enum { BENCH_WARM_UP = 12 }; /* steps before the timed ones: recordings are made, a GPU is kept busy */
bool measure_steps_per_minute(Run *r, double *out, Error *error);
bool bench(Run *r, Error *error);
void print_plan(Run *r);

/* ---- directory.c ---- */
char *in_run(const Run *r, const char *name); /* DIR/name in fresh memory; NULL when out of memory */
char *default_directory(const char *path);
bool take_directory(Run *r, Error *error);
int start_token(const Run *r);
bool write_weights(Run *r, Error *error);
bool begin_directory(Run *r, Error *error);
void give_up_directory(const Run *r);
bool save_tuning(const Run *r, Error *error);
char *read_tuning(const Run *r);

/* ---- resume.c ---- */
bool save_state(Run *r, Error *error);
bool resume_state(Run *r, Error *error);
bool same_model(const Run *r, Error *error);
bool resume_settings(Run *r, Error *error);
double resume_steps(const Run *r);

/* ---- evaluation.c ---- */
bool evaluate(Run *r, Error *error);
bool sample(Run *r, Error *error);
bool final_evaluation(Run *r, Error *error);

#endif
