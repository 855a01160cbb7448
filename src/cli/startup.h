/* Startup of both programs: signals, the command line, and errors as exit status. */
#ifndef INKLING_CLI_STARTUP_H
#define INKLING_CLI_STARTUP_H

#include "cli/console.h"
#include "cli/options.h"
#include "base/collective/collective.h"
#include "base/progress.h"

/* 0, or the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 (sent by batch systems shortly before the time limit). Loops check
 * it and stop at the next safe point. Another signal, at least half a second later, exits at once; this is safe because
 * every file is replaced atomically. */
extern _Atomic int stop_signal;
/* The number of training steps that an immediate exit would lose, for the message. */
extern _Atomic int64_t startup_unsaved_steps;

/* Clears a pending SIGINT; returns false when there was none. */
bool startup_take_interrupt(void);

/* Returns false, with `error` filled, when a signal has asked to stop; `doing` is the interrupted work, in the -ing
 * form. */
bool startup_go_on(const char *doing, Error *error);

/* Work that shows its progress on the console until console_work_end(), and that a signal stops. */
typedef struct StartupWork {
  Console *console;
  const char *name;           /* in the -ing form */
  double total;               /* 0: unknown */
  const int64_t *later_total; /* the total, if the work sets it before its first report; NULL: `total` */
  bool bytes;                 /* counts bytes; otherwise items */
  bool may_stop;              /* a stop is no error */
  bool began;                 /* set by the first report */
} StartupWork;
Progress startup_progress(StartupWork *work);

/* The program that main() passes to startup_run(). */
typedef struct Startup {
  const char *version; /* "1.1.0 (39f3a86)" */
  Options *options;
  Console *console;
  /* NULL: processes started together run independently. Else startup_run() connects them, or starts them (--gpus);
   * opened here, closed by the caller. */
  Collective **peers;
  bool (*run)(void *context, Error *error);
  void *context;
} Startup;

/* Parses the command line; then prints --help or --version, or calls run(context). Prints the error, if any, and
 * returns the exit status. One of several cooperating processes prints for all. Call it early in main(), while there is
 * only one thread. */
int startup_run(int argc, char **argv, const Startup *startup);

#endif
