/* The runs of a sweep, and what they say about the options in which they differ. */
#ifndef INKLING_TRAIN_SWEEP_FINDINGS_H
#define INKLING_TRAIN_SWEEP_FINDINGS_H

#include "cli/console.h"
#include "cli/options.h"
#include "report/seeds.h"
#include "base/path.h"
#include "base/text.h"

#include <jansson.h>
#include <stdint.h>

/* After each of the first stages, the best part of the settings goes on, but at least two. With many settings, all
 * stages together cost less than a third of what all runs in full length would. */
typedef struct SweepStage {
  const char *name;
  double part; /* of the steps, at its end */
  int of;      /* one of so many settings goes on */
} SweepStage;
enum { SWEEP_STAGES = 3, SWEEP_NAME_BYTES = 120 };
extern const SweepStage sweep_stages[SWEEP_STAGES];
int sweep_left_after(const SweepStage *stage, int groups); /* how many of so many settings go on */

typedef struct SweepRun {
  char name[SWEEP_NAME_BYTES]; /* "03-lr=0.001" */
  PathText dir;
  json_t *settings; /* {"lr": "0.001"}; borrowed */
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

typedef struct SweepRuns {
  SweepRun *items;
  int count, groups;
} SweepRuns;

/* Returns the scores of run `group` and those that differ from it only in the seed. Their mean is NaN: they did not
 * reach the stage; INFINITY: one of them failed. */
SeedSum sweep_group_scores(const SweepRuns *runs, int group, int stage);
double sweep_group_score(const SweepRuns *runs, int group, int stage); /* their mean */

/* Returns the best run of the setting with the best mean after all steps, or the best run if each setting has a failed
 * one; NULL: no run got there. */
const SweepRun *sweep_best(const SweepRuns *runs);

/* Returns the unit of a run's scores: "bits per byte", or "nats per token". */
const char *sweep_run_unit(const SweepRun *run);
/* Returns "bits per byte", or "nats per token" if a run has no others. */
const char *sweep_unit(const SweepRuns *runs);

/* Returns the setting of a run, without the seed, and its score after all steps: "lr=3e-3, wd=1: 2.0440 bits per byte
 * (mean of 2 seeds, standard deviation 0.0010)". */
OneLine sweep_setting_text(const SweepRuns *runs, const SweepRun *run);

/* What a value of an option is worth: its best setting after the first stage, which all settings have reached. */
typedef struct SweepValue {
  const char *text;
  double number; /* NaN: none */
  double score;  /* INFINITY: each setting with it has a failed run; NaN: not reached */
  int group;     /* of the best setting */
} SweepValue;

typedef struct SweepOption {
  const char *name;
  SweepValue *values; /* numbers in increasing order, texts in the order of the sweep */
  int count;
  bool numbers; /* all values are */
  int edge;     /* the value of the best run is the smallest (-1) or largest (1) of three or more numbers */
} SweepOption;

/* Lists the options of the runs, without the seed. Free with sweep_options_free(). EXIT_MEMORY. */
bool sweep_options(const SweepRuns *runs, SweepOption **out, int *count, Error *error);
void sweep_options_free(SweepOption *options, int count);

/* Prints the best score of each value, warnings of bests on an edge, and the best run. EXIT_MEMORY. */
bool sweep_tell(const SweepRuns *runs, Console *console, Error *error);

/* Writes report.html of a sweep: the best setting, a picture of each option, and the table of --runs. EXIT_OUTPUT,
 * EXIT_MEMORY. */
bool sweep_page_write(const SweepRuns *runs, const char *dir, const Options *options, bool by_seed, const char *path,
                      Error *error);

#endif
