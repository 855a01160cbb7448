/* main() of both programs: signals, the command line, and errors as an exit status. */
#ifndef INKLING_CLI_STARTUP_H
#define INKLING_CLI_STARTUP_H

#include "cli/console.h"
#include "cli/options.h"
#include "collective/collective.h"

/* 0, or the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 (batch systems: time is nearly up): whoever runs a loop stops at
 * the next good place. Another one, half a second later or more, exits at once, which is safe because every file is
 * replaced atomically. */
extern _Atomic int stop_signal;
/* Steps of training that would be lost then, for the message. */
extern _Atomic int64_t startup_unsaved_steps;

/* Forgets a SIGINT that has come; false where there was none. */
bool startup_take_interrupt(void);

/* False, with `error` filled, when a signal has asked to stop; `doing` is what it interrupts, in the -ing form. */
bool startup_go_on(const char *doing, Error *error);

/* A program, as main() hands it over. */
typedef struct Startup {
  const char *version; /* "1.0.0 (39f3a86)" */
  Options *options;
  Console *console;
  /* NULL: started together with others, each goes its own way. Else they are met first, or started (--gpus): opened
   * here, closed by the caller. */
  Collective **peers;
  bool (*run)(void *context, Error *error);
  void *context;
} Startup;

/* Parses the command line; then prints --help or --version, or calls run(context). Prints the error, if there is one,
 * and returns the exit status. Of processes that work together one speaks for all. Call it early in main(), while there
 * is one thread. */
int startup_run(int argc, char **argv, const Startup *startup);

#endif
