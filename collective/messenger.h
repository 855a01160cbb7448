/* What carries the messages of processes that train together: an MPI, or, between processes that ./train has started on
 * this machine itself, sockets (local.c).
 *
 * collective/mpi/library.c is compiled once with each MPI that is found (by its mpicc), as a library of its own beside
 * the programs; the one whose launcher has started us is loaded. So a program that is started alone needs no MPI, and
 * knows of none. What goes wrong on the way ends all processes. */
#ifndef INKLING_COLLECTIVE_MESSENGER_H
#define INKLING_COLLECTIVE_MESSENGER_H

#include "util/error.h"

#include <stddef.h>

/* Messages are posted in groups, each of which is waited for by itself. Of one group all processes post the same, in
 * the same order; what is posted belongs to the messenger until it is done. */
enum { MESSENGER_GROUPS = 2, MESSENGER_BYTES = 1 << 30 /* of a message, at most */ };

typedef struct Messenger {
  const char *name; /* for people: "Open MPI" */
  void (*start)(int *rank, int *size);
  /* The rank of the first process on this machine, which of them this one is, and how many there are. */
  void (*node)(int *first, int *rank, int *size);
  void (*send)(int group, const void *bytes, size_t size, int to);
  void (*receive)(int group, void *bytes, size_t size, int from);
  void (*broadcast)(int group, void *bytes, size_t size, int from);
  void (*all_gather)(int group, const void *mine, void *all, size_t size); /* all [processes][size] */
  int (*waiting)(int group);                                               /* messages of a group that are under way */
  void (*abort)(int status);                                               /* ends all processes */
  void (*finish)(void);                                                    /* of all processes, in order */
} Messenger;

/* The one name that a library exports. */
#define MESSENGER_SYMBOL "inkling_mpi"

/* Starts processes - 1 copies of this one, from here on; while there is one thread. EXIT_MEMORY, EXIT_INTERNAL. */
bool messenger_fork(int processes, Error *error);
const Messenger *messenger_of_forks(void); /* NULL: there are none */

#endif
