/* The backend's own data for a model (Parameters in kernels.h): the copy of the weights that GEMMs read and, for
 * trained parameters, a list of the updates of each optimizer. Groups and their rules do not change afterwards, so the
 * lists are made once and keep the addresses that graphs use. */
#ifndef INKLING_KERNELS_CUDA_PARAMETERS_CUH
#define INKLING_KERNELS_CUDA_PARAMETERS_CUH

#include "kernels/cuda/cuda.cuh"

#include <new>
#include <vector>

namespace {

constexpr int ARENA_BLOCK = 256, ARENA_GRID = 32; /* threads; blocks for every multiprocessor */
constexpr int PIECE_BLOCKS = 4 * ARENA_BLOCK / TENSOR_ALIGNMENT;
static_assert(TENSOR_ALIGNMENT % 4 == 0 && 4 * ARENA_BLOCK % TENSOR_ALIGNMENT == 0, "arenas are made of float4");

/* Writes the bf16 copy of the masters. */
__global__ void __launch_bounds__(ARENA_BLOCK) convert_masters(bf16 *compute, const float *master, size_t count) {
  const size_t stride = (size_t)gridDim.x * ARENA_BLOCK;
  for (size_t i = (size_t)blockIdx.x * ARENA_BLOCK + threadIdx.x; i < count / 4; i += stride) {
    float x[4];
    load<4>(x, master + 4 * i);
    store<4>(compute + 4 * i, x);
  }
}

} // namespace

/* The elements that a block of threads updates at a time by AdamW, a float4 for each thread: up to PIECE_BLOCKS blocks
 * of TENSOR_ALIGNMENT elements of a run. Its size allows one load. */
struct alignas(16) AdamwPiece {
  uint32_t first, m, v; /* first block in weights and gradients, in first and in second moments */
  uint16_t blocks;
  uint16_t decay; /* whether weight decay applies */
};

/* Offsets of a matrix of Muon: in the arenas of weights and gradients, and in the moments. */
struct MuonOffsets {
  size_t offset, m_offset;
};

/* All matrices of Muon with the shape [rows][cols]: their products run together. */
struct MuonBatch {
  int rows, cols, count;
  int first; /* in ParameterLists.matrices */
};

/* Parameters.backend_data, which the context owns. */
struct ParameterLists {
  AdamwPiece *pieces; /* device */
  unsigned piece_count;
  MuonOffsets *matrices; /* device, ordered by batch */
  std::vector<MuonBatch> batches;
  AdamwPiece *owned; /* device: gradients that this process owns; several processes */
  unsigned owned_count;
  AdamwPiece *vectors; /* device: its elements of Parameters.vectors, at `first`, and of its masters, at `m` */
  unsigned vectors_count;
};

/* Appends the pieces of `count` elements from these offsets on. */
static void add_pieces(std::vector<AdamwPiece> *out, size_t first, size_t m, size_t v, size_t count, bool decay) {
  const size_t blocks = (count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT;
  for (size_t done = 0; done < blocks; done += PIECE_BLOCKS) {
    const size_t left = blocks - done;
    out->push_back({(uint32_t)(first / TENSOR_ALIGNMENT + done), (uint32_t)(m / TENSOR_ALIGNMENT + done),
                    (uint32_t)(v / TENSOR_ALIGNMENT + done), (uint16_t)(left < PIECE_BLOCKS ? left : PIECE_BLOCKS),
                    decay});
  }
}

template <class T> static bool upload_list(Context *c, const char *name, const std::vector<T> &host, T **out) {
  const size_t bytes = host.size() * sizeof(T);
  if (!bytes) return true;
  *out = (T *)cuda_alloc(c, name, bytes);
  if (*out) cuda_upload(c, *out, host.data(), bytes);
  return !c->error.code;
}

static bool make_pieces(Context *c, const Parameters *params, ParameterLists *lists) {
  std::vector<AdamwPiece> updated, owned, vectors;
  for (const AdamwRun *run = params->runs; run < params->runs + params->run_count; run++) {
    const ParameterGroup &group = params->groups[run->group];
    add_pieces(&updated, group.matrix.offset + run->first, run->m_offset, run->v_offset, run->count, group.decay);
    if (params->vectors && !group.gemm)
      add_pieces(&vectors, group.vector + run->first, run->m_offset, 0, run->count, false);
  }
  for (const Span *s = params->spans; s < params->spans + params->span_count; s++)
    if (s->owner == c->peers->rank) add_pieces(&owned, s->offset, 0, 0, s->count, false);
  lists->piece_count = (unsigned)updated.size(), lists->owned_count = (unsigned)owned.size();
  lists->vectors_count = (unsigned)vectors.size();
  return upload_list(c, "list for AdamW", updated, &lists->pieces) &&
         upload_list(c, "list of own gradients", owned, &lists->owned) &&
         upload_list(c, "list of own vectors", vectors, &lists->vectors);
}

/* Finds the batch of a shape, or appends an empty one. */
static MuonBatch *find_batch(std::vector<MuonBatch> *batches, int rows, int cols) {
  for (MuonBatch &batch : *batches)
    if (batch.rows == rows && batch.cols == cols) return &batch;
  batches->push_back({rows, cols, 0, 0});
  return &batches->back();
}

static bool make_batches(Context *c, const Parameters *params, ParameterLists *lists) {
  std::vector<MuonBatch> *batches = &lists->batches;
  const int count = params->muon_count;
  for (int i = 0; i < count; i++) find_batch(batches, params->muon[i].rows, params->muon[i].cols)->count++;
  int first = 0;
  for (MuonBatch &batch : *batches) batch.first = first, first += batch.count, batch.count = 0;
  std::vector<MuonOffsets> offsets((size_t)count);
  for (int i = 0; i < count; i++) {
    MuonBatch *batch = find_batch(batches, params->muon[i].rows, params->muon[i].cols);
    offsets[(size_t)(batch->first + batch->count++)] = {params->muon[i].offset, params->muon[i].m_offset};
  }
  return upload_list(c, "list for Muon", offsets, &lists->matrices);
}

static void make_lists(Context *c, Parameters *params) {
  try {
    c->lists.emplace_front();
  } catch (const std::bad_alloc &) {
    check(c, cudaErrorMemoryAllocation, "lists for the optimizers");
    return;
  }
  ParameterLists *lists = &c->lists.front();
  params->backend_data = lists;
  if (make_pieces(c, params, lists)) make_batches(c, params, lists);
}

static void release_lists(Context *c, const ParameterLists *lists) {
  if (!lists) return;
  for (void *memory : {(void *)lists->pieces, (void *)lists->matrices, (void *)lists->owned, (void *)lists->vectors})
    cuda_release(c, memory);
  c->lists.remove_if([&](const ParameterLists &other) { return &other == lists; });
}

/* weights [count] */
static void convert_all(Context *c, const Parameters *params, const float *weights) {
  launch(c, "compute copy of the weights", convert_masters,
         loop_grid(c, divide_up((int64_t)params->count, 4 * ARENA_BLOCK), ARENA_GRID), ARENA_BLOCK, 0,
         (bf16 *)params->compute, weights, params->count);
}

/* Several processes: makes the compute copy, vectors and this process's masters from all weights in p->grad. */
static void take_weights(Context *c, const Parameters *p) {
  convert_all(c, p, p->grad);
  for (const Span *s = p->spans; s < p->spans + p->span_count; s++)
    if (s->owner == c->peers->rank) cuda_copy(c, p->master + s->own, p->grad + s->offset, s->count * sizeof(float));
  for (const ParameterGroup *g = p->groups; g < p->groups + p->group_count; g++)
    if (!g->gemm)
      cuda_copy(c, p->vectors + g->vector, p->grad + g->matrix.offset,
                (size_t)g->matrix.rows * (size_t)g->matrix.cols * sizeof(float));
  check(c, cudaMemsetAsync(p->grad, 0, p->count * sizeof(float), c->stream), "weights");
}

/* Makes params->compute from the masters; in f32 it is the masters. */
void cuda_refresh_parameters(Context *c, Parameters *params) {
  if (c->error.code) return;
  if (params->grad && !params->backend_data) make_lists(c, params);
  if (c->dtype == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = cuda_alloc(c, "compute copy of the weights", params->count * sizeof(bf16));
  if (params->vectors) take_weights(c, params);
  else convert_all(c, params, params->master);
}

void cuda_release_parameters(Context *c, Parameters *params) {
  if (params->compute != params->master) cuda_release(c, params->compute);
  release_lists(c, (ParameterLists *)params->backend_data);
  params->compute = NULL;
  params->backend_data = NULL;
}

#endif
