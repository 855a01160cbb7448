/* Other processes of this program, several at a time. */
#ifndef INKLING_CLI_PROCESSES_H
#define INKLING_CLI_PROCESSES_H

#include "base/error.h"

typedef struct Process {
  const char *const *arguments; /* after the program's name; ends with NULL */
  const char *in;               /* file for stdin; NULL: empty */
  const char *out, *messages;   /* files for stdout and stderr, which are replaced; NULL: that of this process */
  int status;                   /* its exit status; EXIT_SIGNALS + the signal that killed it */
} Process;

typedef bool ProcessEnded(void *context, int which);

/* The variable in which a process that was started here finds the id of its parent. */
#define PROCESSES_PARENT "INKLING_PARENT"

/* Returns whether processes_run() of another process started this one, which gets SIGTERM when that one dies (not on
 * macOS). */
bool processes_have_parent(void);

/* Runs `count` processes, at most `at_once` at a time, in order, and calls `ended` (NULL: nothing) with the number of
 * each that has ended by itself; false: no more are started. A signal (stop_signal) is sent on to them; then it waits
 * for them, starts no more, and fails with EXIT_SIGNALS + the signal. EXIT_INTERNAL: a process cannot be started. */
bool processes_run(Process *processes, int count, int at_once, ProcessEnded *ended, void *context, Error *error);

#endif
