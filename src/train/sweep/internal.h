/* Internals of a sweep, which its files share. */
#ifndef INKLING_TRAIN_SWEEP_INTERNAL_H
#define INKLING_TRAIN_SWEEP_INTERNAL_H

#include "cli/processes.h"
#include "report/seeds.h"
#include "train/sweep/sweep.h"
#include "base/path.h"
#include "base/text.h"

#include <jansson.h>

/* After each of the first stages, the best part of the settings goes on, but at least two. With many settings, all
 * stages together cost less than a third of what all runs in full length would. */
typedef struct SweepStage {
  const char *name;
  double part; /* of the steps, at its end */
  int of;      /* one of so many settings goes on */
} SweepStage;
enum { SWEEP_STAGES = 3, SWEEP_LAST = SWEEP_STAGES - 1, SWEEP_MAX_RUNS = 10000, SWEEP_NAME_BYTES = 120 };
extern const SweepStage sweep_stages[SWEEP_STAGES];
int sweep_left_after(const SweepStage *stage, int groups); /* how many of so many settings go on */

typedef struct SweepRun {
  char name[SWEEP_NAME_BYTES]; /* "03-lr=0.001" */
  PathText dir, out, messages; /* out, messages: files for what its process prints */
  json_t *settings;            /* {"lr": "0.001"}; borrowed */
  json_t *words;               /* the arguments of its next process; NULL: none */
  int status;                  /* of its last process */
  int64_t steps, eval_every;
  int group;    /* the first of the runs that differ only in the seed: seeds_group() */
  bool stopped; /* worse than others */
  bool failed;
  uint64_t val_text; /* History.val_text; 0: unknown */
  bool in_nats;      /* it has no bits per byte */
  /* The lowest bits per byte, else nats per token, until the end of each stage; of the last one, that of the kept model
   * on all of the validation text. INFINITY: failed; NaN: the stage was not reached. */
  double scores[SWEEP_STAGES];
} SweepRun;

typedef struct Sweep {
  const Options *options;
  const TrainSettings *settings;
  Console *console;
  char *dir;
  int lock;     /* file descriptor; -1: none */
  json_t *file; /* sweep.json */
  SweepRun *runs;
  int count, groups;    /* of runs, and of settings without the seed */
  int stage;            /* that is made */
  int at_once, threads; /* threads: of a run; 0: the arguments say it */
  bool gpu;             /* runs use a GPU */
  int64_t eval_tokens;  /* of each evaluation of each run; 0: the arguments say it */
  bool created;         /* the directory */
  bool timed;           /* --minutes has set the steps */
} Sweep;

/* ---- spec.c ---- */

/* Returns the runs as an array of objects {"option": "value", ...}, which settings->sweep describes or the file with
 * that name. Each line describes runs by words:
 *
 *   lr=1e-3,3e-3 layers=2,4     one run for each combination: here four
 *   lr=1e-4..1e-2 layers=2,4    values drawn between two numbers, here `draws` times for each of two numbers of layers
 *
 *   tokenizer="my vocab.json",b.json    a value with spaces, commas or a quote (""), or with ".."
 *
 * Positive numbers that are a factor of 10 or more apart are drawn uniformly on a logarithmic scale. A word that begins
 * with '#' begins a comment. Equal runs occur once. EXIT_USAGE: an option that does not exist or that a sweep cannot
 * set, an invalid value, more than SWEEP_MAX_RUNS runs; EXIT_INPUT: the file. Messages name the file and the line. */
json_t *sweep_spec_read(const Options *options, const TrainSettings *settings, Error *error);

/* ---- jobs.c: runs of this program with other arguments ---- */

/* Is called when the process of a run has ended by itself, as one of so many; false: no more are started. */
typedef bool SweepEnded(Sweep *s, SweepRun *run, int done, int count);

/* Runs a process of each run with words, which it frees, and sets its status. `ended` may be NULL. Does nothing else
 * after an error. EXIT_MEMORY, and as processes_run(). */
bool sweep_run_processes(Sweep *s, SweepEnded *ended, Error *error);
OneLine sweep_message_of(const SweepRun *run); /* why its process failed */

json_t *sweep_words(const Sweep *s, const SweepRun *run); /* the arguments of a new run */
/* Append --NAME=VALUE. All words are UTF-8, as JSON needs (check_word() in sweep.c). */
void sweep_add_word(json_t *words, const char *name, const char *value);
void sweep_add_count(json_t *words, const char *name, int64_t value);

/* ---- plan.c ---- */

bool sweep_has_plan(const Sweep *s); /* made before, or read from sweep.json */
/* Chooses how many runs are made at a time: on a CPU, one for each processor, with one thread each. A GPU that steps of
 * one small model leave idle is shared by a few. */
void sweep_choose_processes(Sweep *s);
/* Asks a process of each run what it would do, and sets the steps and evaluations of each in s->runs and s->file.
 * EXIT_USAGE: no validation text, or too few minutes; the status of a process that failed. */
bool sweep_make_plan(Sweep *s, Error *error);

/* ---- findings.c: what the runs say about the options in which they differ ---- */

/* Returns the scores of run `group` and those that differ from it only in the seed. Their mean is NaN: they did not
 * reach the stage; INFINITY: one of them failed. */
SeedSum sweep_group_scores(const Sweep *s, int group, int stage);
double sweep_group_score(const Sweep *s, int group, int stage); /* their mean */
const char *sweep_unit(const SweepRun *run); /* of its scores: "bits per byte", or "nats per token" */

/* Returns the best run of the setting with the best mean after all steps, or the best run if each setting has a failed
 * one; NULL: no run got there. */
const SweepRun *sweep_best(const Sweep *s);
/* Prints the best score of each value, bests on an edge, and the best run. EXIT_MEMORY. */
bool sweep_tell(const Sweep *s, Error *error);
/* Writes report.html of a sweep: the same, a picture of each option with numbers, and the table of --runs.
 * EXIT_OUTPUT, EXIT_MEMORY. */
bool sweep_page_write(const Sweep *s, Error *error);

#endif
