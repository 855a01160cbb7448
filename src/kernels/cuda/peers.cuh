/* Communication between processes that train together: by NCCL on the stream of the step, captured with it. Without
 * NCCL through the host, which waits for the device: such steps are not captured. */
#ifndef INKLING_KERNELS_CUDA_PEERS_CUH
#define INKLING_KERNELS_CUDA_PEERS_CUH

#include "kernels/cuda/nccl.cuh"
#include "kernels/cuda/parameters.cuh"

#include <stdlib.h>

namespace {

enum { PEER_SUMS = 3 }; /* squares, loss, rows of the loss */

__global__ void write_target_count(double *sums, const int32_t *targets) { sums[0] = *targets; }

/* One block: the sums of this process. partial [parts]: squares. */
__global__ void __launch_bounds__(ARENA_BLOCK)
    write_sums(double *sums, const StepState *state, const double *partial, int parts) {
  double sum = 0;
  for (int i = (int)threadIdx.x; i < parts; i += ARENA_BLOCK) sum += partial[i];
  sum = block_sum<ARENA_BLOCK>(sum);
  if (threadIdx.x) return;
  sums[0] = sum;
  sums[1] = state->loss_sum;
  sums[2] = (double)state->loss_count;
}

/* partial [gridDim.x]: the sums of squares of pieces i, i + gridDim.x ... */
__global__ void __launch_bounds__(ARENA_BLOCK)
    sum_own_squares(double *partial, const float *grad, const AdamwPiece *pieces, unsigned count) {
  double sum = 0;
  for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
    const AdamwPiece piece = pieces[i];
    if (threadIdx.x >= piece.blocks * (TENSOR_ALIGNMENT / 4)) continue;
    float g[4];
    load<4>(g, grad + (size_t)piece.first * TENSOR_ALIGNMENT + 4 * threadIdx.x);
#pragma unroll
    for (int j = 0; j < 4; j++) sum += (double)g[j] * (double)g[j];
  }
  sum = block_sum<ARENA_BLOCK>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* Copies this process's elements of the vectors from its masters; a block for each piece. */
__global__ void __launch_bounds__(ARENA_BLOCK)
    copy_own_vectors(float *vectors, const float *master, const AdamwPiece *pieces) {
  const AdamwPiece piece = pieces[blockIdx.x];
  if (threadIdx.x >= piece.blocks * (TENSOR_ALIGNMENT / 4)) return;
  float w[4];
  load<4>(w, master + (size_t)piece.m * TENSOR_ALIGNMENT + 4 * threadIdx.x);
  store<4>(vectors + (size_t)piece.first * TENSOR_ALIGNMENT + 4 * threadIdx.x, w);
}

} // namespace

/* Returns a copy in host memory, uninitialized for device NULL; NULL, with the context's error set, on failure. The
 * caller frees it. */
template <class T> static T *on_host(Context *c, const T *device, size_t count) {
  T *host = (T *)malloc((count ? count : 1) * sizeof(T));
  if (!host) fail(&c->error, EXIT_MEMORY, "out of memory for a copy for other processes");
  else if (device) cuda_download(c, host, device, count * sizeof(T));
  if (!c->error.code) return host;
  free(host);
  return NULL;
}

/* Without NCCL: copies numbers to the host, where exchange(host) gives them to other processes or takes theirs, and
 * back. */
template <class T, class F> static void through_host(Context *c, T *device, size_t count, F exchange) {
  T *host = on_host(c, device, count);
  if (!host) return;
  exchange(host);
  cuda_upload(c, device, host, count * sizeof(T));
  free(host);
}

/* Sums values [count], on the device, over all processes. */
static void sum_over_peers(Context *c, double *values, int count) {
  if (c->nccl) nccl_sum(c, values, (size_t)count);
  else
    through_host(
        c, values, (size_t)count, [&](double *host) { collective_sum(c->peers, host, count); });
}

/* Returns the number of targets of all processes; NULL for a single process. */
static const double *count_targets(Context *c, const int32_t *targets) {
  if (!c->peers || !targets) return NULL;
  launch(c, "number of targets", write_target_count, 1, 1, 0, c->sums, targets);
  sum_over_peers(c, c->sums, 1);
  return c->sums;
}

/* The number of elements that this process keeps of the spans. */
static size_t own_count(const Context *c, const Span *spans, int count) {
  size_t kept = 0;
  for (const Span *s = spans; s < spans + count; s++)
    if (s->owner == c->peers->rank && s->own + s->count > kept) kept = s->own + s->count;
  return kept;
}

static void reduce_by_host(Context *c, const Parameters *p) {
  through_host(
      c, p->grad, p->count,
      [&](float *host) {
        for (const Span *s = p->spans; s < p->spans + p->span_count && !c->error.code; s++)
          if (collective_reduce(c->peers, host, s, 1, &c->error)) collective_reduce_end(c->peers);
      });
}

/* Gives the owners their gradients, and c->sums the sums over all processes. */
static void sum_steps(Context *c, StepState *state, const Parameters *p) {
  const ParameterLists *lists = (const ParameterLists *)p->backend_data;
  if (!c->nccl) reduce_by_host(c, p);
  const dim3 grid = loop_grid(c, lists->owned_count, ARENA_GRID);
  double *partial = (double *)scratch(c, (grid.x + 1) * sizeof(double));
  launch(c, "sum of own squared gradients", sum_own_squares, grid, ARENA_BLOCK, 0, partial, p->grad, lists->owned,
         lists->owned_count);
  launch(c, "sums of a process", write_sums, 1, ARENA_BLOCK, 0, c->sums, state, partial,
         (int)(lists->owned_count ? grid.x : 0));
  sum_over_peers(c, c->sums, PEER_SUMS);
}

/* Runs concurrently with later operations. With the last spans the streams join again, which a capture requires.
 * Without NCCL clip() sums all gradients. */
void cuda_peers_reduce(Context *c, const Parameters *params, int first, int count) {
  if (!c->nccl || c->error.code) return;
  check(c, cudaEventRecord(c->ready, c->stream), "sum of gradients");
  check(c, cudaStreamWaitEvent(c->side, c->ready, 0), "sum of gradients");
  nccl_spans(c, params->grad, params->spans + first, count, true, c->side);
  if (first + count < params->span_count) return;
  check(c, cudaEventRecord(c->added, c->side), "sum of gradients");
  check(c, cudaStreamWaitEvent(c->stream, c->added, 0), "sum of gradients");
}

/* Gathers an arena that every process has whole. */
static void gather_arena(Context *c, float *device, const Parameters *p) {
  if (c->nccl) nccl_spans(c, device, p->spans, p->span_count, false, c->stream);
  else
    through_host(
        c, device, p->count,
        [&](float *host) { collective_all_gather_spans(c->peers, host, p->spans, p->span_count); });
}

/* Gathers compute copies and vectors: each process fills its own elements of the vectors, zeros elsewhere, and the sum
 * has all. */
static void gather_copies(Context *c, const Parameters *p) {
  const ParameterLists *lists = (const ParameterLists *)p->backend_data;
  nccl_spans(c, (bf16 *)p->compute, p->spans, p->span_count, false, c->stream);
  check(c, cudaMemsetAsync(p->vectors, 0, p->vector_count * sizeof(float), c->stream), "distribution of norms");
  if (lists->vectors_count)
    launch(c, "own weights of norms", copy_own_vectors, lists->vectors_count, ARENA_BLOCK, 0, p->vectors, p->master,
           lists->vectors);
  nccl_sum(c, p->vectors, p->vector_count);
}

/* Gathers sharded masters through the hosts, in the memory of the gradients. */
static void gather_masters_by_host(Context *c, const Parameters *p) {
  for (const Span *s = p->spans; s < p->spans + p->span_count; s++)
    if (s->owner == c->peers->rank) cuda_copy(c, p->grad + s->offset, p->master + s->own, s->count * sizeof(float));
  gather_arena(c, p->grad, p);
  take_weights(c, p);
}

void cuda_peers_gather(Context *c, const Parameters *params, bool gradients) {
  if (c->error.code || !params->span_count) return;
  if (gradients) gather_arena(c, params->grad, params);
  else if (params->vectors && c->nccl) gather_copies(c, params);
  else if (params->vectors) gather_masters_by_host(c, params);
  else {
    gather_arena(c, params->master, params);
    if (params->compute != params->master) convert_all(c, params, params->master);
  }
}

void cuda_peers_broadcast(Context *c, void *device, size_t bytes) {
  if (c->error.code || !c->peers) return;
  if (c->nccl) nccl_broadcast(c, device, bytes);
  else through_host(c, (char *)device, bytes, [&](char *host) { collective_broadcast(c->peers, host, bytes); });
}

void cuda_peers_collect(Context *c, float *host, const float *device, const Span *spans, int count) {
  if (c->error.code || !c->peers) return;
  float *own = on_host(c, device, own_count(c, spans, count));
  if (!own) return;
  collective_gather_spans(c->peers, host, own, spans, count);
  free(own);
}

void cuda_peers_deal(Context *c, float *device, const float *host, const Span *spans, int count) {
  if (c->error.code || !c->peers) return;
  const size_t kept = own_count(c, spans, count);
  float *own = on_host<float>(c, NULL, kept);
  if (!own) return;
  memset(own, 0, kept * sizeof *own);
  collective_scatter_spans(c->peers, own, host, spans, count);
  cuda_upload(c, device, own, kept * sizeof *own);
  free(own);
}

#endif
