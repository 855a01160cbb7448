/* What both programs do first: signals, and how OpenMP's threads wait. */
#ifndef INKLING_CLI_STARTUP_H
#define INKLING_CLI_STARTUP_H

/* 0, or the first SIGINT, SIGTERM or SIGHUP: whoever runs a loop stops at the next good place. A second one exits at
 * once, which is safe because every file is replaced atomically. */
extern _Atomic int stop_signal;

/* Call it first in main(). Starts the program again, once, when the environment does not say yet how long OpenMP's
 * threads spin before they sleep: the runtime reads that before main(). */
void startup(char **argv);

#endif
