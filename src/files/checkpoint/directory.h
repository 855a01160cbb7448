/* The run directory: the names of its files (defined only here), its lock, and checks for existing runs. */
#ifndef INKLING_FILES_CHECKPOINT_DIRECTORY_H
#define INKLING_FILES_CHECKPOINT_DIRECTORY_H

#include "base/error.h"
#include "base/file.h"

/* ---- names ---- */

/* A run directory is a model directory (files/formats/model_files.h) with these additional files for resuming. */
#define CHECKPOINT_LAST "last"
#define CHECKPOINT_PREV "prev"
#define CHECKPOINT_LAST_STATE CHECKPOINT_LAST "/state.safetensors"
#define CHECKPOINT_PREV_STATE CHECKPOINT_PREV "/state.safetensors" /* the state saved before that one */
#define CHECKPOINT_SETTINGS "config.txt"
#define CHECKPOINT_TUNING "autotune.txt"
#define CHECKPOINT_TOKENS "tokens.bin"
#define CHECKPOINT_VAL_TOKENS "val.tokens.bin"
#define CHECKPOINT_STDIN_TEXT "stdin.txt"
#define CHECKPOINT_STDIN_JSONL "stdin.jsonl"
#define CHECKPOINT_STDIN_TSV "stdin.tsv"
#define CHECKPOINT_STDIN_FASTA "stdin.fa"
/* Until the run begins, beside the files of an older one; deleted later if it is killed. */
#define CHECKPOINT_STDIN_COPY FILE_SWEPT_NAME("stdin")
#define CHECKPOINT_NEW_TOKENS FILE_SWEPT_NAME("tokens")
#define CHECKPOINT_NEW_VAL_TOKENS FILE_SWEPT_NAME("val.tokens")
/* Files for the user. */
#define CHECKPOINT_METRICS "metrics.jsonl"
#define CHECKPOINT_SAMPLES "samples.txt"
#define CHECKPOINT_REPORT "report.html"
#define CHECKPOINT_LOCK ".lock"
#define CHECKPOINT_RESULT "result.json"     /* written when the run ends */
#define CHECKPOINT_SERIES "series"          /* models kept on the way */
#define CHECKPOINT_TEACHER "teacher"        /* the run of --teacher-steps */
#define CHECKPOINT_MANIFEST "manifest.json" /* the list of them, in that directory */

/* ---- files ---- */

/* Removes files of an older run that a new run does not replace when it begins: states, samples, tuning, input. */
void checkpoint_remove_old(const char *dir);

/* ---- lock ---- */

/* The lock of a run directory that this process writes to; .fd = -1: none. */
typedef struct CheckpointLock {
  int fd;
  bool created;   /* this process created the directory */
  int parents;    /* the number of parent directories it created */
  bool had_run;   /* it contained a model or the state of a run before */
} CheckpointLock;

/* Checks that a run in `dir` does not replace its own input: EXIT_USAGE when it would replace the file `input`, or when
 * `input` is `dir`. */
bool checkpoint_check_input(const char *dir, const char *input, Error *error);

/* Locks the directory for one writer, and creates it if necessary. Refuses a directory in which another process writes
 * (EXIT_BUSY), and one in which a run would replace a file that is not part of a run (EXIT_USAGE). The lock is released
 * when lock->fd is closed, so a killed process leaves none behind. Also deletes temporary files left by killed
 * processes. */
bool checkpoint_lock(CheckpointLock *lock, const char *dir, Error *error);

/* Locks a directory that is no run, until *fd is closed. EXIT_BUSY, EXIT_OUTPUT. */
bool checkpoint_lock_directory(const char *dir, int *fd, Error *error);

/* Releases the lock. Without `keep` (the run failed before it began) it first removes the files that this process
 * wrote, unless the directory contains an older run. Harmless when nothing is locked. */
void checkpoint_unlock(CheckpointLock *lock, const char *dir, bool keep);

/* Returns whether a process holds the lock of `dir`. */
bool checkpoint_is_locked(const char *dir);

/* Returns whether `dir` contains the settings of a run that has begun. */
bool checkpoint_is_run(const char *dir);

/* Returns whether `dir` has the state of a run that trained a teacher first, in CHECKPOINT_TEACHER. */
bool checkpoint_has_teacher(const char *dir);

#endif
