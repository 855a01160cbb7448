/* The stand-in for NCCL: processes on this machine that meet in shared memory. Every operation says what it is before
 * it moves anything, and waits for the others to say the same: one that differs in kind, count, type or root, or that a
 * rank never comes to, is reported and becomes the error of the communicator, as the library's watchdog would make it;
 * the operations after it do nothing. They run when the work of their stream does.
 *
 *   EMU_NCCL_OLD=1         it is too old to be used
 *   EMU_NCCL_SECONDS=N     how long a rank waits for the others before it reports them; without end, as NCCL waits
 *   EMU_NCCL_DROP=RANK:N   rank RANK leaves out its N-th operation
 *   EMU_NCCL_WRONG=RANK:N  rank RANK gives one element less in its N-th operation */
#include "tests/cuda_on_cpu/internal.h"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <math.h>
#include <memory>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace emu;

constexpr int RANKS = 16;
constexpr size_t WINDOW = 1 << 16; /* bytes that a rank hands over at a time */

enum Kind { REDUCE = 1, BROADCAST, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER };
static const char *const kind_names[] = {"nothing", "Reduce", "Broadcast", "AllReduce", "ReduceScatter", "AllGather"};

struct Operation {
  int kind, type, root;
  uint64_t count;
};

/* What all see. */
struct Room {
  std::atomic<int> arrived[RANKS]; /* how often a rank has come to a meeting */
  Operation doing[RANKS];
  std::atomic<int> broken; /* nobody waits any more */
  unsigned char window[RANKS][WINDOW];
};

struct ncclComm {
  Room *room;
  int rank, ranks, meetings;
  int64_t operations; /* asked for so far */
  std::atomic<int> error;
  std::shared_ptr<int> used = std::make_shared<int>(0); /* by each recorded operation */
};

static int group_depth;

static size_t bytes_of(int type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void report(ncclComm *c, const char *format, int rank, const Operation &theirs, const Operation &mine) {
  fprintf(stderr, format, c->rank, kind_names[mine.kind], (unsigned long long)mine.count, mine.root, rank,
          kind_names[theirs.kind], (unsigned long long)theirs.count, theirs.root);
  c->error = ncclInternalError;
  c->room->broken = 1;
}

/* Waits until all have come as often as this rank; the first that does not, or -1. */
static int meet(ncclComm *c) {
  const char *limit = getenv("EMU_NCCL_SECONDS");
  const double end = limit ? now() + atof(limit) : INFINITY;
  c->room->arrived[c->rank] = ++c->meetings;
  for (int rank = 0; rank < c->ranks; rank++)
    while (c->room->arrived[rank] < c->meetings) {
      if (c->room->broken || now() > end) return rank;
      sched_yield();
    }
  return -1;
}

template <class T> static void add(void *to, const void *from, size_t count) {
  for (size_t i = 0; i < count; i++) static_cast<T *>(to)[i] += static_cast<const T *>(from)[i];
}

/* What a rank does with the windows of all: the sum of all, or that of the root. */
static void take(const ncclComm *c, const Operation &op, unsigned char *to, size_t bytes) {
  const bool wanted = op.kind != REDUCE || op.root == c->rank;
  if (!wanted) return;
  memcpy(to, c->room->window[op.kind == BROADCAST ? op.root : 0], bytes);
  for (int rank = 1; op.kind != BROADCAST && rank < c->ranks; rank++)
    if (op.type == ncclFloat64) add<double>(to, c->room->window[rank], bytes / 8);
    else add<float>(to, c->room->window[rank], bytes / 4);
}

/* All do `op`; false: somebody does not come. */
static bool hand_over(ncclComm *c, const Operation &op, const unsigned char *from, unsigned char *to, size_t bytes) {
  for (size_t done = 0; done < bytes || done == 0;) {
    const size_t some = bytes - done < WINDOW ? bytes - done : WINDOW;
    memcpy(c->room->window[c->rank], from + done, some);
    if (meet(c) >= 0) return false;
    take(c, op, to + done, some);
    if (meet(c) >= 0) return false;
    done += some ? some : 1;
  }
  return true;
}

static void run(ncclComm *c, const Operation &op, const void *from, void *to) {
  const size_t all = op.count * bytes_of(op.type);
  if (c->error) return;
  c->room->doing[c->rank] = op;
  const int missing = meet(c);
  if (missing >= 0) {
    report(c, "emu: nccl: rank %d is at %s of %llu to %d, and rank %d does not come (last: %s of %llu to %d)\n",
           missing, c->room->doing[missing], op);
    return;
  }
  for (int rank = 0; rank < c->ranks; rank++) {
    const Operation &theirs = c->room->doing[rank];
    if (theirs.kind == op.kind && theirs.count == op.count && theirs.type == op.type && theirs.root == op.root)
      continue;
    report(c, "emu: nccl: rank %d does %s of %llu to %d, and rank %d does %s of %llu to %d\n", rank, theirs, op);
    return;
  }
  const unsigned char *source = static_cast<const unsigned char *>(from);
  unsigned char *target = static_cast<unsigned char *>(to);
  bool ok = true;
  if (op.kind != REDUCE_SCATTER && op.kind != ALL_GATHER) ok = hand_over(c, op, source, target, all);
  else
    for (int rank = 0; ok && rank < c->ranks; rank++) /* a part to each rank, or from each */
      ok = op.kind == REDUCE_SCATTER
               ? hand_over(c, {REDUCE, op.type, rank, op.count}, source + rank * all, target, all)
               : hand_over(c, {BROADCAST, op.type, rank, op.count}, source, target + rank * all, all);
  if (!ok || c->room->broken) c->error = ncclRemoteError;
}

/* Whether RANK:N in the environment is this rank and its newest operation. */
static bool planted(const char *name, const ncclComm *c) {
  int rank = -1;
  long long number = -1;
  const char *value = getenv(name);
  return value && sscanf(value, "%d:%lld", &rank, &number) == 2 && rank == c->rank && number == c->operations;
}

static ncclResult_t submit(ncclComm *c, Operation op, const void *from, void *to, cudaStream_t stream) {
  if (!c || !from || !to || op.root < 0 || op.root >= c->ranks ||
      (bytes_of(op.type) < 4 && op.kind != BROADCAST && op.kind != ALL_GATHER))
    return ncclInvalidArgument;
  c->operations++;
  if (planted("EMU_NCCL_DROP", c)) return ncclSuccess;
  if (planted("EMU_NCCL_WRONG", c)) op.count--;
  if (enqueue(stream, [=, used = c->used] { run(c, op, from, to); }) != cudaSuccess) return ncclUnhandledCudaError;
  run_at_once(stream);
  return ncclSuccess;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  *version = getenv("EMU_NCCL_OLD") ? 2400 : 22600;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int count;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/inkling-nccl-%d-%d", int(getpid()), count++);
  const int fd = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  const bool ok = fd >= 0 && ftruncate(fd, sizeof(Room)) == 0;
  if (fd >= 0) close(fd);
  return ok ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  if (ranks > RANKS) return ncclInvalidArgument;
  emu::rank = rank;
  const int fd = shm_open(id.internal, O_RDWR, 0600);
  void *room = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (room == MAP_FAILED) return ncclSystemError;
  *comm = new ncclComm{static_cast<Room *>(room), rank, ranks, 0, 0, {0}};
  const bool together = meet(*comm) < 0;
  if (rank == 0) shm_unlink(id.internal);
  return together ? ncclSuccess : ncclRemoteError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclInvalidArgument;
  if (comm->used.use_count() > 1) { /* NCCL waits until they are destroyed */
    fprintf(stderr, "emu: nccl: a communicator is destroyed before the graphs that use it\n");
    abort();
  }
  munmap(comm->room, sizeof(Room));
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm) comm->room->broken = 1;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  *error = ncclResult_t(comm->error.load());
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error"};
  return texts[result];
}

ncclResult_t ncclGroupStart(void) { return group_depth++, ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return group_depth-- > 0 ? ncclSuccess : ncclInvalidUsage; }

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {REDUCE, type, root, count}, from, to, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, {BROADCAST, type, root, count}, from, to, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, {ALL_REDUCE, type, 0, count}, from, to, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, {REDUCE_SCATTER, type, 0, count}, from, to, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, {ALL_GATHER, type, 0, count}, from, to, stream);
}
}
