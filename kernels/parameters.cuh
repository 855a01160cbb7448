/* What the backend keeps beside the arenas of a model (kernels.h: Parameters): the copy of the weights that GEMMs read
 * and, for parameters that are trained, lists of what each optimizer updates. Groups and their rules do not change
 * afterwards, so the lists are made once and stay where recordings expect them. */
#ifndef INKLING_KERNELS_PARAMETERS_CUH
#define INKLING_KERNELS_PARAMETERS_CUH

#include "kernels/cuda.cuh"

#include <new>
#include <vector>

namespace {

constexpr int ARENA_BLOCK = 256, ARENA_GRID = 32; /* threads; blocks for every multiprocessor */
constexpr int PIECE_BLOCKS = 4 * ARENA_BLOCK / TENSOR_ALIGNMENT;
static_assert(TENSOR_ALIGNMENT % 4 == 0 && 4 * ARENA_BLOCK % TENSOR_ALIGNMENT == 0, "arenas are made of float4");

/* The bf16 copy of the masters. */
__global__ void __launch_bounds__(ARENA_BLOCK) convert_masters(bf16 *compute, const float *master, size_t count) {
  const size_t stride = (size_t)gridDim.x * ARENA_BLOCK;
  for (size_t i = (size_t)blockIdx.x * ARENA_BLOCK + threadIdx.x; i < count / 4; i += stride) {
    float x[4];
    load<4>(x, master + 4 * i);
    store<4>(compute + 4 * i, x);
  }
}

} // namespace

/* What a block of threads updates at a time by AdamW, a float4 each, in blocks of TENSOR_ALIGNMENT elements: the
 * groups' runs of PIECE_BLOCKS and what is left of them. One load. */
struct alignas(16) AdamwPiece {
  uint32_t first, m, v; /* block of weights and gradients, of first and of second moments */
  uint16_t blocks;
  uint16_t decay; /* whether weight decay applies */
};

/* Of its first element: in the arenas of weights and gradients, and among the moments. */
struct MuonPlace {
  size_t offset, m_offset;
};

/* The matrices [rows][cols] of Muon, all of one shape: they go through its products together. */
struct MuonBatch {
  int rows, cols, count;
  int first; /* in ParameterLists.matrices */
};

/* Parameters.backend_data. The context has all of them in a list, to free those that nobody releases. */
struct ParameterLists {
  AdamwPiece *pieces; /* device */
  unsigned piece_count;
  MuonPlace *matrices; /* device: those of a batch next to each other */
  std::vector<MuonBatch> batches;
  AdamwPiece *owned; /* device: gradients that are this process's, of several */
  unsigned owned_count;
  ParameterLists *next;
};

/* Returns how many pieces there are; with `out` it takes them. */
static unsigned list_pieces(const Parameters *params, AdamwPiece *out) {
  unsigned count = 0;
  for (const AdamwRun *run = params->runs; run < params->runs + params->run_count; run++) {
    const ParameterGroup &group = params->groups[run->group];
    const size_t blocks = (run->count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT;
    for (size_t done = 0; done < blocks; done += PIECE_BLOCKS, count++) {
      const size_t left = blocks - done;
      if (!out) continue;
      out[count] = {(uint32_t)((group.matrix.offset + run->first) / TENSOR_ALIGNMENT + done),
                    (uint32_t)(run->m_offset / TENSOR_ALIGNMENT + done),
                    (uint32_t)(run->v_offset / TENSOR_ALIGNMENT + done),
                    (uint16_t)(left < PIECE_BLOCKS ? left : PIECE_BLOCKS), group.decay};
    }
  }
  return count;
}

/* Likewise, of the spans that this process owns. */
static unsigned list_owned(const Context *c, const Parameters *params, AdamwPiece *out) {
  unsigned count = 0;
  for (const Span *s = params->spans; s < params->spans + params->span_count; s++) {
    const size_t blocks = (s->count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT;
    for (size_t done = 0; s->owner == c->peers->rank && done < blocks; done += PIECE_BLOCKS, count++) {
      const size_t left = blocks - done;
      if (out)
        out[count] = {(uint32_t)(s->offset / TENSOR_ALIGNMENT + done), 0, 0,
                      (uint16_t)(left < PIECE_BLOCKS ? left : PIECE_BLOCKS), 0};
    }
  }
  return count;
}

static bool make_owned(Context *c, const Parameters *params, ParameterLists *lists) {
  lists->owned_count = list_owned(c, params, NULL);
  if (!lists->owned_count) return true;
  std::vector<AdamwPiece> host(lists->owned_count);
  list_owned(c, params, host.data());
  lists->owned = (AdamwPiece *)cuda_alloc(c, "list of own gradients", host.size() * sizeof(AdamwPiece));
  if (lists->owned) cuda_upload(c, lists->owned, host.data(), host.size() * sizeof(AdamwPiece));
  return !c->error.code;
}

static bool make_pieces(Context *c, const Parameters *params, ParameterLists *lists) {
  lists->piece_count = list_pieces(params, NULL);
  const size_t bytes = lists->piece_count * sizeof(AdamwPiece);
  AdamwPiece *host = new (std::nothrow) AdamwPiece[lists->piece_count];
  if (!host) return check(c, cudaErrorMemoryAllocation, "list for AdamW");
  list_pieces(params, host);
  lists->pieces = (AdamwPiece *)cuda_alloc(c, "list for AdamW", bytes);
  if (lists->pieces) cuda_upload(c, lists->pieces, host, bytes);
  delete[] host;
  return !c->error.code;
}

/* Of its shape; a new and empty one where there is none yet. */
static MuonBatch *find_batch(std::vector<MuonBatch> *batches, int rows, int cols) {
  for (MuonBatch &batch : *batches)
    if (batch.rows == rows && batch.cols == cols) return &batch;
  batches->push_back({rows, cols, 0, 0});
  return &batches->back();
}

static bool make_batches(Context *c, const Parameters *params, ParameterLists *lists) {
  std::vector<MuonBatch> *batches = &lists->batches;
  const int count = params->muon_count;
  if (!count) return true;
  for (int i = 0; i < count; i++) find_batch(batches, params->muon[i].rows, params->muon[i].cols)->count++;
  int first = 0;
  for (MuonBatch &batch : *batches) batch.first = first, first += batch.count, batch.count = 0;
  std::vector<MuonPlace> places((size_t)count);
  for (int i = 0; i < count; i++) {
    MuonBatch *batch = find_batch(batches, params->muon[i].rows, params->muon[i].cols);
    places[(size_t)(batch->first + batch->count++)] = {params->muon[i].offset, params->muon[i].m_offset};
  }
  const size_t bytes = (size_t)count * sizeof(MuonPlace);
  lists->matrices = (MuonPlace *)cuda_alloc(c, "list for Muon", bytes);
  if (lists->matrices) cuda_upload(c, lists->matrices, places.data(), bytes);
  return !c->error.code;
}

static void make_lists(Context *c, Parameters *params) {
  ParameterLists *lists = new (std::nothrow) ParameterLists();
  if (!lists) {
    check(c, cudaErrorMemoryAllocation, "lists for the optimizers");
    return;
  }
  lists->next = c->lists;
  c->lists = lists;
  params->backend_data = lists;
  if (make_pieces(c, params, lists) && make_owned(c, params, lists)) make_batches(c, params, lists);
}

static void release_lists(Context *c, ParameterLists *lists) {
  ParameterLists **at = &c->lists;
  while (*at && *at != lists) at = &(*at)->next;
  if (!lists || !*at) return;
  *at = lists->next;
  cuda_release(c, lists->pieces);
  cuda_release(c, lists->matrices);
  cuda_release(c, lists->owned);
  delete lists;
}

/* For a context that is closed: device memory is freed with it. */
static void parameters_close(Context *c) {
  while (c->lists) {
    ParameterLists *next = c->lists->next;
    delete c->lists;
    c->lists = next;
  }
}

static void convert_all(Context *c, const Parameters *params) {
  launch(c, "compute copy of the weights", convert_masters,
         loop_grid(c, divide_up((int64_t)params->count, 4 * ARENA_BLOCK), ARENA_GRID), ARENA_BLOCK, 0,
         (bf16 *)params->compute, params->master, params->count);
}

/* params->compute is made from the masters: in f32 the masters themselves. */
void cuda_refresh_parameters(Context *c, Parameters *params) {
  if (c->error.code) return;
  if (params->grad && !params->backend_data) make_lists(c, params);
  if (c->dtype == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = cuda_alloc(c, "compute copy of the weights", params->count * sizeof(bf16));
  convert_all(c, params);
}

void cuda_release_parameters(Context *c, Parameters *params) {
  if (params->compute != params->master) cuda_release(c, params->compute);
  release_lists(c, (ParameterLists *)params->backend_data);
  params->compute = NULL;
  params->backend_data = NULL;
}

#endif
