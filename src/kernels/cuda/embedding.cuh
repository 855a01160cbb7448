/* Token embedding.
 *
 *   embedding            out[n] = dropout(table[tokens[n]] + position_embedding[position of n])
 *   embedding_backward   dtable[v] (+)= sum of dropout(dx[n]) over the n with token v, in rising n
 *
 *   out, dx [B*T][C], tokens [B*T], table [rows][C], position_embedding [positions][C]
 *
 * Dropout: element e = t*C + c of sequence s draws word e % 4 of philox(seed, e/4, site, step in progress, s).
 *
 * The backward needs no atomics, whatever the distribution of tokens (a byte may occur at thousands of positions, most
 * of 50 k subwords at none): `order`, which lists the positions token by token, is divided into slices of EMBED_SLICE
 * positions. A warp sums a slice for 32 vectors of channels and begins a new sum when the token changes. The sum of a
 * token within the slice goes to the table; a token that crosses slices leaves a partial sum in each of them, and a
 * second kernel adds these in the order of the slices. So dx is read once, rows are written once, and the order of
 * every sum depends only on the counts. Additional blocks of the first kernel clear the rows of absent tokens. */
#ifndef INKLING_KERNELS_CUDA_EMBEDDING_CUH
#define INKLING_KERNELS_CUDA_EMBEDDING_CUH

#include "kernels/cuda/cuda.cuh"

namespace {

constexpr int EMBED_BLOCK = 256, EMBED_WARPS = EMBED_BLOCK / 32;
constexpr int EMBED_SLICE = 32; /* a lane fetches one position */
constexpr int EMBED_AHEAD = 8;  /* vectors in flight */

template <class T> struct EmbedForward {
  T *out;
  const T *table, *position_embedding; /* position_embedding NULL: none is added */
  const int32_t *tokens, *positions;
  const int32_t *lengths; /* decoding: row r is the last token of the ring tokens[r]; NULL: row n is tokens[n] */
  int64_t rows;
  int capacity, length, dim; /* capacity: of a ring; length: of a sequence */
  int vocab, position_count; /* tokens and positions beyond them give zeros */
  DropoutMask mask;

  __device__ __forceinline__ int token(int64_t n) const {
    if (!lengths) return tokens[n];
    return lengths[n] > 0 ? tokens[n * capacity + (lengths[n] - 1) % capacity] : -1;
  }
};

template <class T> __global__ void __launch_bounds__(EMBED_BLOCK) embed_tokens(EmbedForward<T> p) {
  constexpr int N = VECTOR<T>;
  const unsigned thread = blockIdx.x * EMBED_BLOCK + threadIdx.x;
  for (Walk at(thread, gridDim.x * EMBED_BLOCK, p.dim / N); at.row < p.rows; at.next()) {
    const int n = (int)at.row, channel = at.col * N, token = p.token(n);
    const int position = !p.position_embedding ? -1 : p.positions ? p.positions[n] : n % p.length;
    const bool known = token >= 0 && token < p.vocab, inside = position >= 0 && position < p.position_count;
    const T *const from = p.table + (int64_t)(known ? token : 0) * p.dim + channel;
    const T *const learned = inside ? p.position_embedding + (int64_t)position * p.dim + channel : from;
    const Pack<T, N> a = fetch<N>(from, known), b = fetch<N>(learned, inside);
    float x[N];
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = number(a, j) + number(b, j);
    if (p.mask.state) apply_dropout<N>(x, p.mask, n, p.length, p.dim, channel);
    store<N>(p.out + at.row * p.dim + channel, x);
  }
}

struct EmbedBackward {
  float *dtable;  /* [table_rows][dim] */
  float *partial; /* [slices][2][dim]: sums of the token that continues from the slice before, and into the next one */
  int32_t *entered; /* [slices]: the token that continues from the slice before and ends here; -1 when there is none */
  const void *dx;
  const int32_t *offsets, *order;
  int vocab, table_rows, positions, length, dim, slices;
  bool accumulate;
  DropoutMask mask;
};

/* Returns the token of entry `entry` of the order: the last v with offsets[v] <= entry. A whole warp searches. */
__device__ __forceinline__ int token_at(const int32_t *offsets, int vocab, int entry) {
  const int lane = (int)threadIdx.x % 32;
  int low = 0, count = vocab; /* the answer is in [low, low + count) and offsets[low] <= entry */
  while (count > 1) {
    const int step = (count + 31) / 32, v = lane * step;
    const unsigned before = __ballot_sync(0xFFFFFFFFu, v < count && offsets[low + v] <= entry);
    const int last = (__popc(before) - 1) * step; /* offsets rise, so these are the first lanes */
    low += last;
    count = min(step, count - last);
  }
  return low;
}

/* to += sum, or to = sum; fp32 */
template <int N> __device__ __forceinline__ void deliver(float *to, float (&sum)[N], bool accumulate) {
  float before[N] = {};
  if (accumulate) load<N>(before, to);
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] += before[j];
  store<N>(to, sum);
}

/* Clears the rows of absent tokens and of pads. */
template <int N>
__device__ __forceinline__ void clear_absent(const EmbedBackward &p, unsigned thread, unsigned threads) {
  const float zero[N] = {};
  for (Walk at(thread, threads, p.dim / N); at.row < p.table_rows; at.next()) {
    const int v = (int)at.row;
    if (v >= p.vocab || p.offsets[v] == p.offsets[v + 1]) store<N>(p.dtable + at.row * p.dim + at.col * N, zero);
  }
}

/* A warp sums slice `slice`; this lane channels channel .. channel + N (none when `active` is false). */
template <class T>
__device__ __forceinline__ void sum_slice(const EmbedBackward &p, int slice, int channel, bool active) {
  constexpr int N = VECTOR<T>;
  const int lane = (int)threadIdx.x % 32, begin = slice * EMBED_SLICE;
  const int end = min(begin + EMBED_SLICE, min(p.positions, p.offsets[p.vocab]));
  if (begin >= end) {
    if (channel == 0) p.entered[slice] = -1;
    return;
  }
  const int mine = begin + lane < end ? p.order[begin + lane] : 0;
  int v = token_at(p.offsets, p.vocab, begin), stop = p.offsets[v + 1];
  const bool entered = p.offsets[v] < begin;
  if (channel == 0 && active) p.entered[slice] = entered && stop <= end ? v : -1;
  float *to = entered ? p.partial + (int64_t)slice * 2 * p.dim : p.dtable + (int64_t)v * p.dim;
  if (!entered && stop > end) to = p.partial + ((int64_t)slice * 2 + 1) * p.dim;
  bool whole = !entered && stop <= end; /* goes to the table, is not a partial sum */
  float sum[N] = {};
  for (int first = begin; first < end; first += EMBED_AHEAD) {
    Pack<T, N> ahead[EMBED_AHEAD];
    int position[EMBED_AHEAD];
#pragma unroll
    for (int i = 0; i < EMBED_AHEAD; i++) {
      position[i] = __shfl_sync(0xFFFFFFFFu, mine, (first - begin + i) % 32);
      if (first + i < end && active)
        ahead[i] = load_pack<N>(static_cast<const T *>(p.dx) + (int64_t)position[i] * p.dim + channel);
    }
#pragma unroll
    for (int i = 0; i < EMBED_AHEAD; i++) {
      if (first + i >= end || !active) continue;
      if (first + i == stop) { /* the next token begins */
        deliver<N>(to + channel, sum, whole && p.accumulate);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] = 0;
        do stop = p.offsets[++v + 1];
        while (stop == first + i);
        whole = stop <= end;
        to = whole ? p.dtable + (int64_t)v * p.dim : p.partial + ((int64_t)slice * 2 + 1) * p.dim;
      }
      float x[N];
      unpack(x, ahead[i]);
      if (p.mask.state) apply_dropout<N>(x, p.mask, position[i], p.length, p.dim, channel);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += x[j];
    }
  }
  if (active) deliver<N>(to + channel, sum, whole && p.accumulate);
}

/* `slice_blocks` blocks sum slices, a warp for each slice and 32 vectors of channels; the other blocks clear rows. */
template <class T> __global__ void __launch_bounds__(EMBED_BLOCK) embed_backward(EmbedBackward p, int slice_blocks) {
  constexpr int N = VECTOR<T>;
  if ((int)blockIdx.x >= slice_blocks) {
    clear_absent<N>(p, (blockIdx.x - slice_blocks) * EMBED_BLOCK + threadIdx.x,
                    (gridDim.x - slice_blocks) * EMBED_BLOCK);
    return;
  }
  const int64_t warp = (int64_t)blockIdx.x * EMBED_WARPS + threadIdx.x / 32;
  const int tiles = (p.dim / N + 31) / 32, slice = (int)(warp / tiles), tile = (int)(warp % tiles);
  const int channel = (tile * 32 + (int)threadIdx.x % 32) * N;
  if (slice < p.slices) sum_slice<T>(p, slice, channel, channel < p.dim);
}

/* Sums tokens that cross slices: a block for each slice in which such a token ends, and 32 vectors of channels. Its
 * warps sum equal runs of the slices, and the first warp adds these sums. */
__global__ void __launch_bounds__(EMBED_BLOCK) embed_join(EmbedBackward p) {
  constexpr int N = VECTOR<float>;
  __shared__ Pack<float, N> part[EMBED_WARPS][32];
  const int slice = (int)blockIdx.x, v = p.entered[slice];
  if (v < 0) return;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, channel = ((int)blockIdx.y * 32 + lane) * N;
  const int from = p.offsets[v] / EMBED_SLICE, run = (slice - from) / EMBED_WARPS + 1;
  const int first = from + warp * run, last = min(first + run, slice + 1);
  float sum[N] = {};
  if (channel < p.dim) {
#pragma unroll 4
    for (int s = first; s < last; s++) {
      float x[N];
      load<N>(x, p.partial + ((int64_t)s * 2 + (s == from)) * p.dim + channel);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += x[j];
    }
  }
  part[warp][lane] = pack<float, N>(sum);
  __syncthreads();
  if (warp || channel >= p.dim) return;
  for (int w = 1; w < EMBED_WARPS; w++) {
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += number(part[w][lane], j);
  }
  deliver<N>(p.dtable + (int64_t)v * p.dim + channel, sum, p.accumulate);
}

} // namespace

/* Launches embed_tokens() with the other arguments in those that `set` changes. */
template <class F>
static void embed(Context *c, const char *name, void *out, const Parameters *params, const Embedding *e, F set) {
  with_element(
      c,
      [&]<class T>(T) {
        EmbedForward<T> p = {};
        p.out = static_cast<T *>(out), p.table = compute_matrix<T>(params, e->table);
        if (e->position_embedding.rows) p.position_embedding = compute_matrix<T>(params, e->position_embedding);
        p.vocab = e->table.rows, p.position_count = e->position_embedding.rows, p.dim = e->table.cols;
        set(p);
        require_alignment(c, name, {p.dim}, {out, p.table, p.position_embedding});
        const dim3 grid = loop_grid(c, divide_up(p.rows * (p.dim / VECTOR<T>), EMBED_BLOCK), 16);
        launch(c, name, embed_tokens<T>, grid, EMBED_BLOCK, 0, p);
      });
}

void cuda_embedding(Context *c, void *out, const Parameters *params, const Embedding *e, const int32_t *tokens,
                    int batch, int length, const Dropout *dropout) {
  embed(
      c, "embedding", out, params, e,
      [&](auto &p) {
        p.tokens = tokens, p.positions = e->positions;
        p.rows = (int64_t)batch * length, p.length = length, p.mask = dropout_mask(dropout);
      });
}

void cuda_decode_embedding(Context *c, void *x, const Parameters *params, const Embedding *e, const Sequences *s) {
  embed(
      c, "decode_embedding", x, params, e,
      [&](auto &p) {
        p.tokens = s->tokens, p.lengths = s->lengths, p.positions = s->positions;
        p.rows = s->rows, p.capacity = s->capacity;
      });
}

void cuda_embedding_backward(Context *c, const Parameters *params, Matrix table, const void *dx, const int32_t *offsets,
                             const int32_t *order, int vocab, int batch, int length, const Dropout *dropout,
                             bool accumulate) {
  EmbedBackward p = {};
  p.dtable = params->grad + table.offset;
  p.dx = dx, p.offsets = offsets, p.order = order;
  p.vocab = vocab, p.table_rows = table.rows, p.positions = batch * length, p.length = length, p.dim = table.cols;
  p.slices = (int)divide_up(p.positions, EMBED_SLICE);
  p.accumulate = accumulate, p.mask = dropout_mask(dropout);
  const size_t partial_bytes = (size_t)p.slices * 2 * (size_t)p.dim * sizeof(float);
  char *memory = (char *)scratch(c, partial_bytes + (size_t)p.slices * sizeof(int32_t));
  p.partial = (float *)memory;
  p.entered = (int32_t *)(memory + partial_bytes);
  require_alignment(c, "embedding_backward", {p.dim}, {dx, p.dtable});
  with_element(c, [&]<class T>(T) {
    const int packs = p.dim / VECTOR<T>;
    const int64_t tiles = divide_up(packs, 32), slice_blocks = divide_up(p.slices * tiles, EMBED_WARPS);
    const int64_t pieces = divide_up((int64_t)p.table_rows * packs, EMBED_BLOCK);
    const dim3 clear_blocks = accumulate ? dim3(0) : loop_grid(c, pieces, 4);
    launch(c, "embedding_backward", embed_backward<T>, (unsigned)slice_blocks + clear_blocks.x, EMBED_BLOCK, 0, p,
           (int)slice_blocks);
  });
  launch(c, "embedding_backward", embed_join, dim3((unsigned)p.slices, (unsigned)divide_up(p.dim, 32 * VECTOR<float>)),
         EMBED_BLOCK, 0, p);
}

#endif
