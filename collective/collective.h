/* The processes that train one model together: who they are, and what they tell each other. A process that was started
 * alone is a group of one, for which everything here is done at once.
 *
 * Who takes part is the launcher's business (mpirun, srun): it says so in the environment, and the messages are MPI's.
 * Or ./train --gpus starts them. All processes of a group, its ranks, call the functions below in the same order, each
 * from one thread. Unless the name says otherwise they wait until all have come; a rank that waits long sleeps, so that
 * one that works beside it has the processors. What is lost on the way, or a rank that dies, ends all of them: the
 * launcher sees to that. */
#ifndef INKLING_COLLECTIVE_COLLECTIVE_H
#define INKLING_COLLECTIVE_COLLECTIVE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Collective {
  int rank, size;                       /* size 1: alone */
  int node_first, node_rank, node_size; /* of the ranks on this machine: the first, which one this is, how many */
  char host[64];                        /* name of the machine */
  const char *engine;                   /* what carries the messages: "MPICH"; NULL: nothing */
  double waited;                        /* seconds in which this rank waited for others, or for what they sent */
  bool agreed;                          /* the last error was everybody's: collective_agree() */
  struct CollectiveState *state;
} Collective;

/* Starts so many processes on this machine, this one among them, which go on from here; while there is one thread, and
 * before collective_open(). EXIT_USAGE where a launcher has done so; EXIT_MEMORY, EXIT_INTERNAL. */
bool collective_start(int processes, Error *error);

/* Finds out whether other processes were started with this one, and meets them. EXIT_USAGE, with what to type, where
 * the launcher's MPI is not the one of this build or there is none; then also *out is there, for collective_close(). */
bool collective_open(Collective **out, Error *error);

/* The process leaves. An `outcome` that is not EXIT_DONE and that the others have not agreed on ends them, too, with
 * that exit status. NULL is harmless. */
void collective_close(Collective *c, ExitCode outcome);

/* ---- what is said ---- */

/* True when no rank has an error. Else all get that of the lowest rank that has one, with its name where not everybody
 * has the same; from then on there is nothing more to agree on, and nobody is asked (unless `agreed` is reset).
 * `signal`: in, what has asked this rank to stop, or 0; out, the largest of all ranks. */
bool collective_agree(Collective *c, int *signal, Error *error);

/* The bytes of rank 0. */
void collective_broadcast(Collective *c, void *bytes, size_t size);
void collective_broadcast_from(Collective *c, void *bytes, size_t size, int rank);
/* A text of rank 0 in fresh memory of every other rank, with a zero behind it; rank 0 gives it in *text and *size. An
 * error of any rank is everybody's. EXIT_MEMORY. */
bool collective_share(Collective *c, char **text, size_t *size, Error *error);
/* `size` bytes of every rank, into all [ranks][size]. */
void collective_all_gather(Collective *c, const void *mine, void *all, size_t size);
/* Sums in the order of the ranks. At most COLLECTIVE_SUMS values. */
enum { COLLECTIVE_SUMS = 8 };
void collective_sum(Collective *c, double *values, int count);
/* The rank with the largest value, that value, and the mean of the others'. */
int collective_largest(Collective *c, double value, double *largest, double *others);

/* ---- arrays that are cut into spans, each of which belongs to one rank ---- */

typedef struct Span {
  size_t offset, count; /* elements */
  int owner;            /* rank */
  size_t own;           /* where an owner that keeps its spans alone, in an array of their own, has this one */
} Span;

/* The owner of each span gets the sum over all ranks, added in their order, in place of its own numbers; what others
 * have there is not touched. Begun at once and finished by collective_reduce_end() or the next collective_reduce();
 * until then numbers and spans must stay. EXIT_MEMORY, before anything is sent. */
bool collective_reduce(Collective *c, float *numbers, const Span *spans, int count, Error *error);
void collective_reduce_end(Collective *c);
/* All ranks get what the owners have. */
void collective_gather(Collective *c, float *numbers, const Span *spans, int count);
/* Between `all`, the whole array on rank 0 (elsewhere not touched), and `own`, the array of an owner's spans alone. */
void collective_collect(Collective *c, float *all, const float *own, const Span *spans, int count);
void collective_deal(Collective *c, float *own, const float *all, const Span *spans, int count);

#ifdef __cplusplus
}
#endif
#endif
