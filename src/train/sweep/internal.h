/* Internals of a sweep, which its files share. */
#ifndef INKLING_TRAIN_SWEEP_INTERNAL_H
#define INKLING_TRAIN_SWEEP_INTERNAL_H

#include "cli/processes.h"
#include "train/sweep/findings.h"
#include "train/sweep/sweep.h"
#include "base/text.h"

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

/* ---- jobs.c: runs of this program with other arguments ---- */

typedef struct Jobs {
  Process *processes;
  json_t **words; /* [count] arrays of texts, to which the arguments point */
  PathText *out, *messages;
  SweepRun **runs;
  int count;
} Jobs;

bool sweep_jobs_make(Jobs *jobs, int most, Error *error); /* for up to `most` processes. EXIT_MEMORY */
void sweep_jobs_free(Jobs *jobs);
/* Adds a process with these words, which it takes over. `copy`: of the same run, from 0. EXIT_MEMORY. */
bool sweep_jobs_add(const Sweep *s, Jobs *jobs, SweepRun *run, int copy, json_t *words, Error *error);
OneLine sweep_message_of(const Process *process); /* why it failed */

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

#endif
