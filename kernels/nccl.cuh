/* NCCL, loaded when several processes with a GPU each train together. Without it, or in a build that did not find its
 * header, they talk through their hosts. */
#ifndef INKLING_KERNELS_NCCL_CUH
#define INKLING_KERNELS_NCCL_CUH

#include "kernels/cuda.cuh"

#ifdef INKLING_NCCL
#include <dlfcn.h>
#include <nccl.h>
#include <new>
#include <vector>

struct Nccl {
  __typeof__(ncclGetVersion) *version;
  __typeof__(ncclGetUniqueId) *get_id;
  __typeof__(ncclCommInitRank) *init;
  __typeof__(ncclCommDestroy) *destroy;
  __typeof__(ncclCommAbort) *abort;
  __typeof__(ncclCommGetAsyncError) *async_error;
  __typeof__(ncclGetErrorString) *error_string;
  __typeof__(ncclGroupStart) *group_start;
  __typeof__(ncclGroupEnd) *group_end;
  __typeof__(ncclReduce) *reduce;
  __typeof__(ncclBroadcast) *broadcast;
  __typeof__(ncclAllReduce) *all_reduce;
  __typeof__(ncclReduceScatter) *reduce_scatter;
  __typeof__(ncclAllGather) *all_gather;
  ncclComm_t comm;
};

enum { NCCL_RECORDED = 21100 }; /* 2.11: operations can be part of a recording */

/* False where the library is missing or too old. */
static bool nccl_load(Nccl *out) {
  const struct {
    const char *name;
    void **function;
  } symbols[] = {{"ncclGetVersion", (void **)&out->version},
                 {"ncclGetUniqueId", (void **)&out->get_id},
                 {"ncclCommInitRank", (void **)&out->init},
                 {"ncclCommDestroy", (void **)&out->destroy},
                 {"ncclCommAbort", (void **)&out->abort},
                 {"ncclCommGetAsyncError", (void **)&out->async_error},
                 {"ncclGetErrorString", (void **)&out->error_string},
                 {"ncclGroupStart", (void **)&out->group_start},
                 {"ncclGroupEnd", (void **)&out->group_end},
                 {"ncclReduce", (void **)&out->reduce},
                 {"ncclBroadcast", (void **)&out->broadcast},
                 {"ncclAllReduce", (void **)&out->all_reduce},
                 {"ncclReduceScatter", (void **)&out->reduce_scatter},
                 {"ncclAllGather", (void **)&out->all_gather}};
  void *library = RTLD_DEFAULT; /* linked into the program, as the tests' stand-in is */
  if (!dlsym(library, symbols[0].name)) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  bool found = library != NULL || dlsym(RTLD_DEFAULT, symbols[0].name);
  for (const auto &symbol : symbols) {
    *symbol.function = found ? dlsym(library, symbol.name) : NULL;
    found = found && *symbol.function;
  }
  int version = 0;
  return found && out->version(&version) == ncclSuccess && version >= NCCL_RECORDED;
}

static bool nccl_check(Context *c, ncclResult_t status, const char *what) {
  if (status != ncclSuccess && !c->error.code)
    fail(&c->error, EXIT_INTERNAL, "%s between GPUs failed on %s: %s", what, c->name, c->nccl->error_string(status));
  return !c->error.code;
}

/* A GPU among those of all machines. */
struct NcclCard {
  int node, domain, bus, device;
};

/* All processes: whether another one has this one's GPU. */
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

/* All processes. Some may lack the library, or share a GPU, which it does not support: then none uses it. */
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
  if (c->peers->rank == 0 && !nccl_check(c, n->get_id(&id), "meeting")) return false;
  collective_broadcast(c->peers, &id, sizeof id);
  return nccl_check(c, n->init(&n->comm, c->peers->size, id, c->peers->rank), "meeting");
}

static void nccl_close(Context *c) {
  if (!c->nccl) return;
  if (c->nccl->comm && c->error.code) c->nccl->abort(c->nccl->comm);
  else if (c->nccl->comm) c->nccl->destroy(c->nccl->comm);
  delete c->nccl;
}

/* What went wrong while the device worked, such as a process that is gone. */
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
    nccl_check(c, c->nccl->all_reduce(values, values, count, nccl_type<T>, ncclSum, c->nccl->comm, c->stream), "a sum");
}

/* Whether the next spans are equal parts, one for each rank in turn. */
static bool are_dealt(const Span *spans, const Span *end, int ranks) {
  if (end - spans < ranks) return false;
  for (int i = 0; i < ranks; i++)
    if (spans[i].owner != i || spans[i].count != spans->count || spans[i].offset != spans->offset + i * spans->count)
      return false;
  return true;
}

/* Spans of an array, each to its owner as a sum, or from its owner. */
template <class T>
static void nccl_spans(Context *c, T *numbers, const Span *spans, int count, bool reduce, cudaStream_t stream) {
  const Nccl *n = c->nccl;
  const Span *const end = spans + count;
  const int ranks = c->peers->size, rank = c->peers->rank;
  const char *what = reduce ? "adding gradients" : "handing out parameters";
  if (c->error.code || !nccl_check(c, n->group_start(), what)) return;
  for (const Span *s = spans; s < end && !c->error.code;) {
    T *const all = numbers + s->offset, *const own = all + (size_t)rank * s->count;
    const bool dealt = are_dealt(s, end, ranks);
    const ncclDataType_t type = nccl_type<T>;
    nccl_check(c,
               dealt && reduce ? n->reduce_scatter(all, own, s->count, type, ncclSum, n->comm, stream)
               : dealt         ? n->all_gather(own, all, s->count, type, n->comm, stream)
               : reduce        ? n->reduce(all, all, s->count, type, ncclSum, s->owner, n->comm, stream)
                               : n->broadcast(all, all, s->count, type, s->owner, n->comm, stream),
               what);
    s += dealt ? ranks : 1;
  }
  nccl_check(c, n->group_end(), what);
}

static void nccl_broadcast(Context *c, void *bytes, size_t size) {
  if (!c->error.code)
    nccl_check(c, c->nccl->broadcast(bytes, bytes, size, ncclUint8, 0, c->nccl->comm, c->stream), "a broadcast");
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
