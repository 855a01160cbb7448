/* NCCL, loaded when several processes with a GPU each train together. Without it, or in a build without its header,
 * they communicate through their hosts. */
#ifndef INKLING_KERNELS_CUDA_NCCL_CUH
#define INKLING_KERNELS_CUDA_NCCL_CUH

#include "kernels/cuda/cuda.cuh"

#ifdef INKLING_NCCL
#include <nccl.h>

/* The functions that are loaded: X(member of struct Nccl, name). */
/* clang-format off */
#define NCCL_FUNCTIONS(X) \
  X(version, ncclGetVersion) X(get_id, ncclGetUniqueId) X(init, ncclCommInitRank) X(destroy, ncclCommDestroy) \
  X(abort, ncclCommAbort) X(async_error, ncclCommGetAsyncError) X(error_string, ncclGetErrorString) \
  X(group_start, ncclGroupStart) X(group_end, ncclGroupEnd) X(reduce, ncclReduce) X(broadcast, ncclBroadcast) \
  X(all_reduce, ncclAllReduce) X(reduce_scatter, ncclReduceScatter) X(all_gather, ncclAllGather)
/* clang-format on */

struct Nccl {
#define MEMBER(member, name) decltype(&name) member;
  NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
  ncclComm_t comm;
};

enum { NCCL_CAPTURES = 21100 }; /* 2.11: operations can be captured in a graph */

/* False when the library is missing or too old. */
static bool nccl_load(Nccl *out) {
  static const char *const paths[] = {"libnccl.so.2"};
#define SYMBOL(member, name) {#name, (void **)&out->member},
  const Symbol symbols[] = {NCCL_FUNCTIONS(SYMBOL)};
#undef SYMBOL
  int version = 0;
  return !load_functions(paths, symbols) && out->version(&version) == ncclSuccess && version >= NCCL_CAPTURES;
}

static bool nccl_check(Context *c, ncclResult_t status, const char *what) {
  if (status != ncclSuccess && !c->error.code)
    fail(&c->error, EXIT_INTERNAL, "%s between GPUs failed on %s: %s", what, c->name, c->nccl->error_string(status));
  return !c->error.code;
}

/* Identifies a GPU among all machines. */
struct NcclCard {
  int node, domain, bus, device;
};

/* Called by all processes: whether another process has the same GPU. */
static bool nccl_shares_card(Context *c) {
  const int ranks = c->peers->size;
  int number = 0, same = 0;
  cudaDeviceProp p = {};
  cudaGetDevice(&number);
  cudaGetDeviceProperties(&p, number);
  const NcclCard mine = {c->peers->node_first, p.pciDomainID, p.pciBusID, p.pciDeviceID};
  std::vector<NcclCard> all((size_t)ranks);
  collective_all_gather(c->peers, &mine, all.data(), sizeof mine);
  for (const NcclCard &card : all) same += memcmp(&card, &mine, sizeof mine) == 0;
  return same > 1;
}

/* Called by all processes. None uses NCCL if one lacks it, or if two share a GPU, which NCCL does not support. */
static bool nccl_open(Context *c) {
  ncclUniqueId id = {};
  Nccl *n = new (std::nothrow) Nccl();
  double sums[] = {(double)(n && nccl_load(n)), (double)nccl_shares_card(c)};
  collective_sum(c->peers, sums, 2);
  c->crowded = sums[1] > 0;
  if (sums[0] < c->peers->size || c->crowded) {
    delete n;
    return true;
  }
  c->nccl = n;
  if (c->peers->rank == 0 && !nccl_check(c, n->get_id(&id), "connection")) return false;
  collective_broadcast(c->peers, &id, sizeof id);
  return nccl_check(c, n->init(&n->comm, c->peers->size, id, c->peers->rank), "connection");
}

static void nccl_close(Context *c) {
  if (!c->nccl) return;
  if (c->nccl->comm && c->error.code) c->nccl->abort(c->nccl->comm);
  else if (c->nccl->comm) c->nccl->destroy(c->nccl->comm);
  delete c->nccl;
}

/* Checks for asynchronous errors, such as a process that ended. */
static bool nccl_works(Context *c) {
  ncclResult_t status = ncclSuccess;
  return !c->nccl || c->error.code ||
         (nccl_check(c, c->nccl->async_error(c->nccl->comm, &status), "work") && nccl_check(c, status, "work"));
}

template <class T> constexpr ncclDataType_t nccl_type = ncclFloat32;
template <> constexpr ncclDataType_t nccl_type<double> = ncclFloat64;
template <> constexpr ncclDataType_t nccl_type<bf16> = ncclBfloat16;

template <class T> static void nccl_sum(Context *c, T *values, size_t count) {
  if (!c->error.code)
    nccl_check(c, c->nccl->all_reduce(values, values, count, nccl_type<T>, ncclSum, c->nccl->comm, c->stream), "sum");
}

/* Whether the next spans have equal sizes and go to the ranks in turn. */
static bool are_scattered(const Span *spans, const Span *end, int ranks) {
  if (end - spans < ranks) return false;
  for (int i = 0; i < ranks; i++)
    if (spans[i].owner != i || spans[i].count != spans->count || spans[i].offset != spans->offset + i * spans->count)
      return false;
  return true;
}

/* Sums each span of an array to its owner, or copies it from its owner. */
template <class T>
static void nccl_spans(Context *c, T *numbers, const Span *spans, int count, bool reduce, cudaStream_t stream) {
  const Nccl *n = c->nccl;
  const Span *const end = spans + count;
  const int ranks = c->peers->size, rank = c->peers->rank;
  const char *what = reduce ? "sum of gradients" : "distribution of parameters";
  if (c->error.code || !nccl_check(c, n->group_start(), what)) return;
  for (const Span *s = spans; s < end && !c->error.code;) {
    T *const all = numbers + s->offset, *const own = all + (size_t)rank * s->count;
    const bool scattered = are_scattered(s, end, ranks);
    const ncclDataType_t type = nccl_type<T>;
    nccl_check(c,
               scattered && reduce ? n->reduce_scatter(all, own, s->count, type, ncclSum, n->comm, stream)
               : scattered         ? n->all_gather(own, all, s->count, type, n->comm, stream)
               : reduce            ? n->reduce(all, all, s->count, type, ncclSum, s->owner, n->comm, stream)
                                   : n->broadcast(all, all, s->count, type, s->owner, n->comm, stream),
               what);
    s += scattered ? ranks : 1;
  }
  nccl_check(c, n->group_end(), what);
}

static void nccl_broadcast(Context *c, void *bytes, size_t size) {
  if (!c->error.code)
    nccl_check(c, c->nccl->broadcast(bytes, bytes, size, ncclUint8, 0, c->nccl->comm, c->stream), "broadcast");
}

#else

struct Nccl {};
static bool nccl_open(Context *) { return true; }
static void nccl_close(Context *) {}
static bool nccl_works(Context *) { return true; }
template <class T> static void nccl_sum(Context *, T *, size_t) {}
template <class T> static void nccl_spans(Context *, T *, const Span *, int, bool, cudaStream_t) {}
static void nccl_broadcast(Context *, void *, size_t) {}

#endif
#endif
