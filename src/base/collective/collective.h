/* Collective operations of the processes that train one model together. A process that was started alone is a group of
 * size 1, for which every function returns at once.
 * A launcher (mpirun, srun) starts the processes and describes the group in the environment; MPI carries the messages.
 * Alternatively ./train --gpus starts them. All processes of a group, its ranks, call the functions below in the same
 * order, each from one thread. Unless stated otherwise a call waits until all ranks have made it; a rank that waits
 * long sleeps, so that ranks on the same machine can use the processors. A lost message or a rank that dies ends all
 * ranks; the launcher ensures that. */
#ifndef INKLING_BASE_COLLECTIVE_COLLECTIVE_H
#define INKLING_BASE_COLLECTIVE_COLLECTIVE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Collective {
  int rank, size;                       /* size 1: alone */
  int node_first, node_rank, node_size; /* ranks on this machine: the first, the index of this one among them, their
                                           number */
  char host[64];                        /* name of the machine */
  const char *engine;                   /* name of the messenger: "MPICH"; NULL: none */
  bool agreed;                          /* all ranks have the last error: collective_agree() */
  struct CollectiveState *state;
} Collective;

/* Forks so that `processes` processes, including this one, continue from this call on this machine. Call it while the
 * process has one thread, before collective_open(). EXIT_USAGE when a launcher has started this process; EXIT_MEMORY,
 * EXIT_INTERNAL. */
bool collective_start(int processes, Error *error);

/* Detects whether other processes were started with this one, and connects to them. EXIT_USAGE, with the command to
 * type, where this build does not support the launcher's MPI or any MPI; *out is valid then, too, for
 * collective_close(). */
bool collective_open(Collective **out, Error *error);

/* Ends all ranks, including this one, with that exit status, if `outcome` is an error that the ranks have not agreed
 * on. Call it before anything that may wait for the other ranks, such as closing a GPU. NULL is harmless. */
void collective_abort(Collective *c, ExitCode outcome);

/* Leaves the group. All ranks must call it. NULL is harmless. */
void collective_close(Collective *c);

/* Ends all ranks if one that collective_start() forked has died. Call it in any thread when SIGCHLD arrives. */
void collective_check_children(void);

/* ---- messages ---- */

/* Returns true when no rank has an error. Otherwise all ranks get the error of the lowest rank that has one, with the
 * name of that rank unless all have the same; later calls return without communication (unless `agreed` is reset).
 * `signal`: in, the signal that asked this rank to stop, or 0; out, the largest of all ranks. */
bool collective_agree(Collective *c, int *signal, Error *error);

/* Copies `size` bytes of rank 0 to all ranks. */
void collective_broadcast(Collective *c, void *bytes, size_t size);
/* Copies a text of rank 0, passed in *text and *size, to allocated memory of every other rank, with a zero after it. An
 * error of one rank is returned on all. EXIT_MEMORY. */
bool collective_broadcast_text(Collective *c, char **text, size_t *size, Error *error);
/* Gathers `size` bytes of every rank into all [ranks][size]. */
void collective_all_gather(Collective *c, const void *mine, void *all, size_t size);
/* Returns how many ranks, including this one, have the same number. */
int collective_same(Collective *c, uint64_t number);
/* Sums each value over the ranks, in their order. At most COLLECTIVE_SUMS values. */
enum { COLLECTIVE_SUMS = 8 };
void collective_sum(Collective *c, double *values, int count);

/* ---- arrays divided into spans, each with one rank as its owner ---- */

typedef struct Span {
  size_t offset, count; /* elements */
  int owner;            /* rank */
  size_t own;           /* offset of the span in an owner's array that holds only its own spans */
} Span;

/* Replaces each span of its owner by the sum over all ranks, added in their order; the arrays of other ranks do not
 * change. It starts the reduction; collective_reduce_end() or the next collective_reduce() completes it. Until then
 * numbers and spans must not change. EXIT_MEMORY, before anything is sent. */
bool collective_reduce(Collective *c, float *numbers, const Span *spans, int count, Error *error);
void collective_reduce_end(Collective *c);
/* Copies the owners' spans to all ranks. */
void collective_all_gather_spans(Collective *c, float *numbers, const Span *spans, int count);
/* Copy spans between `all`, the whole array on rank 0 (unused on other ranks), and `own`, an owner's array that holds
 * only its own spans: gather to rank 0, scatter to the owners. */
void collective_gather_spans(Collective *c, float *all, const float *own, const Span *spans, int count);
void collective_scatter_spans(Collective *c, float *own, const float *all, const Span *spans, int count);

#ifdef __cplusplus
}
#endif
#endif
