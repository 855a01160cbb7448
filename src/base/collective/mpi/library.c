/* The Messenger over MPI, for the MPI whose mpicc compiles it. Only one thread calls it. */
#include "base/collective/messenger.h"

#include <mpi.h>
#include <stdlib.h>

#ifdef OPEN_MPI
#define NAME "Open MPI"
#else
#define NAME "MPICH" /* or one of its descendants, which are compatible */
#endif

typedef struct Group {
  MPI_Request *requests;
  int count, capacity;
} Group;

static Group groups[MESSENGER_GROUPS];

static MPI_Request *add_request(int group) {
  Group *g = &groups[group];
  if (g->count == g->capacity) {
    g->capacity = g->capacity ? 2 * g->capacity : 64;
    g->requests = realloc(g->requests, (size_t)g->capacity * sizeof *g->requests);
    if (!g->requests) MPI_Abort(MPI_COMM_WORLD, 5); /* out of memory */
  }
  return &g->requests[g->count++];
}

static void start(Collective *c) {
  int level;
  MPI_Comm here;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &c->size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  MPI_Comm_rank(here, &c->node_rank);
  MPI_Comm_size(here, &c->node_size);
  c->node_first = c->rank;
  MPI_Bcast(&c->node_first, 1, MPI_INT, 0, here);
  MPI_Comm_free(&here);
}

static void post(MessageKind kind, int group, void *bytes, size_t size, int rank) {
  MPI_Request *request = add_request(group);
  switch (kind) {
  case SEND: MPI_Isend(bytes, (int)size, MPI_BYTE, rank, group, MPI_COMM_WORLD, request); break;
  case RECEIVE: MPI_Irecv(bytes, (int)size, MPI_BYTE, rank, group, MPI_COMM_WORLD, request); break;
  case BROADCAST: MPI_Ibcast(bytes, (int)size, MPI_BYTE, rank, MPI_COMM_WORLD, request); break;
  }
}

static void all_gather(int group, const void *mine, void *all, size_t size) {
  MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, MPI_COMM_WORLD, add_request(group));
}

/* Removes the requests that are complete. */
static int waiting(int group) {
  Group *g = &groups[group];
  int left = 0;
  for (int i = 0; i < g->count; i++) {
    int done;
    MPI_Test(&g->requests[i], &done, MPI_STATUS_IGNORE);
    if (!done) g->requests[left++] = g->requests[i];
  }
  return g->count = left;
}

static void stop(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

static void finish(void) {
  MPI_Finalize();
  for (int i = 0; i < MESSENGER_GROUPS; i++) free(groups[i].requests);
}

extern const Messenger inkling_mpi_2;
const Messenger inkling_mpi_2 = {.name = NAME,
                                 .start = start,
                                 .post = post,
                                 .all_gather = all_gather,
                                 .waiting = waiting,
                                 .abort = stop,
                                 .finish = finish};
