/* The run directory: the names of its files (no other file spells them), its lock, and how runs are found. */
#ifndef INKLING_CHECKPOINT_DIRECTORY_H
#define INKLING_CHECKPOINT_DIRECTORY_H

#include "util/error.h"
#include "util/file.h"

/* ---- names ---- */

/* A model directory (formats/model_files.h), and what a resumed run needs besides. */
#define CHECKPOINT_LAST "last"
#define CHECKPOINT_PREV "prev"
#define CHECKPOINT_LAST_STATE CHECKPOINT_LAST "/state.safetensors"
#define CHECKPOINT_PREV_STATE CHECKPOINT_PREV "/state.safetensors" /* saved before that one */
#define CHECKPOINT_SETTINGS "config.txt"
#define CHECKPOINT_TUNING "autotune.txt"
#define CHECKPOINT_TOKENS "tokens.bin"
#define CHECKPOINT_VAL_TOKENS "val.tokens.bin"
#define CHECKPOINT_STDIN_TEXT "stdin.txt"
#define CHECKPOINT_STDIN_JSONL "stdin.jsonl"
#define CHECKPOINT_STDIN_TSV "stdin.tsv"
#define CHECKPOINT_STDIN_COPY FILE_SWEPT_NAME("stdin") /* until the run begins: swept when it is killed before */
/* For people. */
#define CHECKPOINT_METRICS "metrics.jsonl"
#define CHECKPOINT_SAMPLES "samples.txt"
#define CHECKPOINT_REPORT "report.html"
#define CHECKPOINT_RESULT "result.json" /* once the run has ended */

/* ---- files ---- */

/* Removes what an older run left and a new one does not replace when it begins: states, samples, tuning, input. */
void checkpoint_remove_old(const char *dir);

/* ---- lock ---- */

/* A run directory that this process writes to; .fd = -1: none. */
typedef struct CheckpointLock {
  int fd;
  bool created;   /* the directory was not there before */
  int parents;    /* nor were so many above it */
  bool had_model; /* it held one */
} CheckpointLock;

/* EXIT_USAGE when a run in `dir` would replace the file `input`, which it reads, or when `input` is `dir`. */
bool checkpoint_check_input(const char *dir, const char *input, Error *error);

/* Takes the directory for one writer, and makes it when it is not there. Refuses one where another process writes
 * (EXIT_BUSY), and one where a run would replace a file that is not of a run (EXIT_USAGE). The lock lives as long as
 * lock->fd is open in this process, so a killed one leaves none behind. Also deletes temporary files that a killed
 * process left. */
bool checkpoint_lock(CheckpointLock *lock, const char *dir, Error *error);

/* Gives it back. Without `keep` (the run failed before it began) what this process wrote is removed first, unless the
 * directory holds an older run. Harmless when nothing is locked. */
void checkpoint_unlock(CheckpointLock *lock, const char *dir, bool keep);

/* Whether a process writes there now. */
bool checkpoint_is_locked(const char *dir);

/* Whether `dir` holds a run that has begun: its settings. */
bool checkpoint_is_run(const char *dir);

#endif
