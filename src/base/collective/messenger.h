/* The transport of messages between processes that train together: an MPI library, or sockets (local.c) between
 * processes that ./train has started itself on this machine.
 * The Makefile compiles base/collective/mpi/library.c once with each MPI that it finds (with its mpicc), as a library
 * beside the programs. A program loads the library of the MPI whose launcher has started it, so a program that is
 * started alone needs no MPI. A communication error ends all processes. */
#ifndef INKLING_BASE_COLLECTIVE_MESSENGER_H
#define INKLING_BASE_COLLECTIVE_MESSENGER_H

#include "base/collective/collective.h"

/* Callers post messages in groups and wait for each group separately. All processes post the same messages of a group
 * in the same order. A buffer belongs to the messenger from its posting until the message is done. */
enum { MESSENGER_GROUPS = 2, MESSENGER_BYTES = 1 << 30 /* the most bytes of a message */ };

typedef enum MessageKind { SEND, RECEIVE, BROADCAST } MessageKind;

typedef struct Messenger {
  const char *name;             /* for messages to the user: "Open MPI" */
  void (*start)(Collective *c); /* sets rank and size, node_first, node_rank and node_size */
  /* Posts a message to or from `rank`; what is sent does not change. */
  void (*post)(MessageKind kind, int group, void *bytes, size_t size, int rank);
  void (*all_gather)(int group, const void *mine, void *all, size_t size); /* all [processes][size] */
  int (*waiting)(int group); /* the number of incomplete messages of a group */
  void (*abort)(int status); /* ends all processes */
  void (*finish)(void);      /* all processes call it for a normal end */
} Messenger;

/* The only symbol that a library exports. */
#define MESSENGER_SYMBOL "inkling_mpi_2"

/* Forks processes - 1 copies of this process, which must have only one thread. EXIT_MEMORY, EXIT_INTERNAL. */
bool messenger_fork(int processes, Error *error);
const Messenger *messenger_of_forks(void); /* NULL: messenger_fork() was not called */

/* In the process that called messenger_fork(): ends all processes if another one has died. Any thread may call it. */
void messenger_check_children(void);
/* From now on, the processes end because of an error that all of them know: how they end does not matter. */
void messenger_expect_end(void);

#endif
