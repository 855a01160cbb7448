/* What is used of MPI, in types that do not depend on which MPI it is. mpi/library.c is compiled once with each MPI
 * that is found (by its mpicc), as a library of its own beside the programs; the one whose launcher has started us is
 * loaded. So a program that is started alone needs no MPI, and knows of none.
 *
 * MPI's own errors end all processes, with its message. */
#ifndef INKLING_COLLECTIVE_MPI_LIBRARY_H
#define INKLING_COLLECTIVE_MPI_LIBRARY_H

#include <stddef.h>

/* Messages are posted in groups, each of which is waited for by itself. Of one group all processes post the same. */
enum { MPI_LIBRARY_GROUPS = 2, MPI_LIBRARY_BYTES = 1 << 30 /* of a message, at most */ };

typedef struct MpiLibrary {
  const char *name; /* "Open MPI", "MPICH" */
  void (*start)(int *rank, int *size);
  /* The rank of the first process on this machine, how many there are, and which of them this is. */
  void (*node)(int *first, int *rank, int *size);
  void (*send)(int group, const void *bytes, size_t size, int to);
  void (*receive)(int group, void *bytes, size_t size, int from);
  void (*broadcast)(int group, void *bytes, size_t size, int from);
  void (*all_gather)(int group, const void *mine, void *all, size_t size); /* all [processes][size] */
  int (*waiting)(int group);                                               /* messages of a group that are under way */
  void (*abort)(int status);                                               /* ends all processes */
  void (*finish)(void);
} MpiLibrary;

/* The one name that the library exports. */
#define MPI_LIBRARY_SYMBOL "inkling_mpi"

#endif
