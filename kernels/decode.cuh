/* Decoding of one token: the operations of kernels.h whose rows are sequences. Each is one launch; LayerNorm and the
 * norms of heads are another one each.
 *
 *   x, out [rows][C]   q [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   bias [M]
 *
 * A token costs one read of all weights and 5 launches per layer; for small models the launches take most of the time.
 * So each warp works alone: it owns one or two rows of w, requests its first weights before it reads anything else, and
 * needs neither shared memory nor a barrier. An RMSNorm before a product needs no separate pass, because 1/rms is a
 * factor of the sum:
 *
 *   sum_k w[k] (norm_weight[k] x[k] rstd) = rstd * sum_k w[k] (norm_weight[k] x[k])
 *
 * Every warp sums x^2 together with its product; x and norm_weight are small and stay in the caches. LayerNorm needs
 * the mean first, so it runs before the product, into scratch space.
 *
 * Lane l of a warp sums the packs l, l + 32, ... of N neighbors in rising order, with explicit fused multiply-adds, and
 * the lanes are added in a fixed tree. The sums do not depend on the number or order of sequences, so row i of a batch
 * equals a run of its sequence alone, bit for bit. For the same reason the arithmetic after the sums is written so that
 * compilers cannot fuse it in one kernel and not in another.
 *
 * A sequence whose position is outside the cache writes nothing there. */
#ifndef INKLING_KERNELS_DECODE_CUH
#define INKLING_KERNELS_DECODE_CUH

#include "kernels/cuda.cuh"
#include "kernels/decode_attention.cuh"
#include "kernels/heads.cuh"
#include "kernels/mlp.cuh"
#include "kernels/norm.cuh"

#include <type_traits>

namespace {

constexpr int DECODE_WARPS = 4; /* of a block: few, so that small models use all processors */
constexpr int DECODE_ROWS = 4;  /* sequences that use a weight while it is in registers */
/* Weight packs that a lane requests before it needs the first. */
template <int ROWS> constexpr int DECODE_IN_FLIGHT = ROWS == 1 ? 8 : 4;
/* The fewest blocks that fit a multiprocessor, which allows 128 registers for a thread. Without it the compiler saves
 * registers and moves each load next to its use, so that a lane has only one load in flight. (Check the SASS after
 * changes.) */
constexpr int DECODE_BLOCKS = 4;

/* ---- products ---- */

/* The input of a product: `rows` sequences of `depth` numbers, and the RMSNorm before it; norm_weight NULL: none. */
template <class T> struct DecodeInput {
  const T *x;
  const float *norm_weight;
  float eps;
  int rows, depth;
};

/* w [outputs][depth], bias [outputs] or NULL. */
template <class T> struct DecodeLayer {
  const T *w, *bias;
  __device__ __forceinline__ float bias_of(int64_t output) const { return bias ? to_float(bias[output]) : 0.0f; }
};

/* out[o][r] = sum_k w[o][k] y[first + r][k], in all lanes; y = x, or with NORM norm_weight * x * rstd(x). Rows beyond
 * the last sequence repeat it. */
template <bool NORM, class T, int OUT, int ROWS>
__device__ __forceinline__ void warp_products(float (&out)[OUT][ROWS], const T *const (&w)[OUT],
                                              const DecodeInput<T> &in, int first) {
  constexpr int N = VECTOR<T>;
  constexpr int BATCH = DECODE_IN_FLIGHT<ROWS> / OUT; /* packs of each row of w that are requested together */
  constexpr int AHEAD = ROWS == 1 ? BATCH : 1;        /* likewise of x and weight */
  const int packs = in.depth / N, lane = (int)threadIdx.x % 32;
  const T *x[ROWS];
  float square[ROWS] = {};
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    x[r] = in.x + (int64_t)(first + r < in.rows ? first + r : in.rows - 1) * in.depth;
#pragma unroll
    for (int o = 0; o < OUT; o++) out[o][r] = 0;
  }
  for (int start = lane; start < packs; start += 32 * BATCH) {
    Pack<T, N> weights[BATCH][OUT], inputs[AHEAD][ROWS];
    Pack<float, N> norm_weights[AHEAD];
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
      for (int o = 0; o < OUT; o++)
        weights[b][o] = fetch<N>(w[o] + (int64_t)(start + 32 * b) * N, start + 32 * b < packs);
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      if (b % AHEAD == 0) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
          const int pack = start + 32 * (b + a);
#pragma unroll
          for (int r = 0; r < ROWS; r++) inputs[a][r] = fetch<N>(x[r] + (int64_t)pack * N, pack < packs);
          if (NORM) norm_weights[a] = fetch<N>(in.norm_weight + (int64_t)pack * N, pack < packs);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < N; i++) {
          float y = number(inputs[b % AHEAD][r], i);
          if (NORM) square[r] = fmaf(y, y, square[r]);
          if (NORM) y *= number(norm_weights[b % AHEAD], i);
#pragma unroll
          for (int o = 0; o < OUT; o++) out[o][r] = fmaf(number(weights[b][o], i), y, out[o][r]);
        }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const float rstd = NORM ? rsqrtf(warp_sum(square[r]) / (float)in.depth + in.eps) : 1.0f;
#pragma unroll
    for (int o = 0; o < OUT; o++) out[o][r] = warp_sum(out[o][r]) * rstd;
  }
}

/* Returns values[r] on lane r. */
template <int ROWS> __device__ __forceinline__ float of_lane(const float (&values)[ROWS]) {
  float mine = values[0];
#pragma unroll
  for (int r = 1; r < ROWS; r++)
    if ((int)threadIdx.x % 32 == r) mine = values[r];
  return mine;
}

/* Computes some outputs of a layer for all sequences, ROWS at a time, and calls finish(row, outputs) on one lane for
 * each sequence. The biases are requested first: a later request would have to be waited for. */
template <bool NORM, int ROWS, class T, int OUT, class F>
__device__ __forceinline__ void outputs_of(const DecodeLayer<T> &layer, const int64_t (&outputs)[OUT],
                                           const DecodeInput<T> &in, F finish) {
  const T *weights[OUT];
  float bias[OUT];
#pragma unroll
  for (int o = 0; o < OUT; o++) weights[o] = layer.w + outputs[o] * in.depth, bias[o] = layer.bias_of(outputs[o]);
  const int lane = (int)threadIdx.x % 32;
  for (int first = 0; first < in.rows; first += ROWS) {
    float products[OUT][ROWS], mine[OUT];
    warp_products<NORM>(products, weights, in, first);
#pragma unroll
    for (int o = 0; o < OUT; o++) mine[o] = __fadd_rn(of_lane(products[o]), bias[o]);
    if (lane < ROWS && first + lane < in.rows) finish(first + lane, mine);
  }
}

/* The same for outputs `low` and `high`: finish(row, low output, high output). */
template <bool NORM, int ROWS, class T, class F>
__device__ __forceinline__ void output_pair(const DecodeLayer<T> &layer, int64_t low, int64_t high,
                                            const DecodeInput<T> &in, F finish) {
  const int64_t pair[2] = {low, high};
  outputs_of<NORM, ROWS>(layer, pair, in, [&](int row, const float(&out)[2]) { finish(row, out[0], out[1]); });
}

__device__ __forceinline__ int warp_number() { return (int)blockIdx.x * DECODE_WARPS + (int)threadIdx.x / 32; }

/* ---- the operations ---- */

template <class T> struct DecodeEmbedding {
  T *x;
  const T *table, *position_embedding; /* position_embedding NULL: none is added */
  const int32_t *tokens, *lengths, *positions;
  int vocab, position_count, dim, capacity;
};

/* x[r] = table[last token of r] + position_embedding[position[r]], with zeros for a token or position that has no row.
 * A block for each sequence. */
template <class T> __global__ void decode_embedding_kernel(DecodeEmbedding<T> p) {
  constexpr int N = VECTOR<T>;
  const int64_t row = blockIdx.x;
  const int32_t length = p.lengths[row], position = p.position_embedding ? p.positions[row] : -1;
  const int32_t token = length > 0 ? p.tokens[row * p.capacity + (length - 1) % p.capacity] : -1;
  const bool known = token >= 0 && token < p.vocab, inside = position >= 0 && position < p.position_count;
  const T *const from = p.table + (int64_t)(known ? token : 0) * p.dim;
  const T *const learned = inside ? p.position_embedding + (int64_t)position * p.dim : from;
  for (int i = (int)threadIdx.x * N; i < p.dim; i += (int)blockDim.x * N) {
    const Pack<T, N> a = fetch<N>(from + i, known), b = fetch<N>(learned + i, inside);
    float x[N];
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = number(a, j) + number(b, j);
    store<N>(p.x + row * p.dim + i, x);
  }
}

/* q, k, v = W n + b; q and k are rotated unless `table` is NULL. A warp owns the rows of a pair (pair_of())
 * of a head, which are rotated together. Heads of w: H of queries, G of keys, G of values. */
template <class T, int ROWS, bool NORM>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_qkv_kernel(T *q, Cache<T> cache, DecodeInput<T> in, DecodeLayer<T> layer, int heads, int dims,
                      const float *table, const int32_t *positions) {
  const int half = cache.head_dim / 2, head = warp_number() / half, i = warp_number() % half;
  if (head >= heads + 2 * cache.kv_heads) return;
  const HeadPair pair = pair_of(i, cache.head_dim, dims);
  const int64_t first = (int64_t)head * cache.head_dim;
  output_pair<NORM, ROWS>(layer, first + pair.low, first + pair.high, in, [&](int row, float a, float b) {
    const int position = positions[row];
    if (position < 0 || position >= cache.capacity) return;
    T *to;
    if (head < heads) to = q + ((int64_t)row * heads + head) * cache.head_dim;
    else if (head < heads + cache.kv_heads) to = cache.k + cache.at(row, position, head - heads);
    else to = cache.v + cache.at(row, position, head - heads - cache.kv_heads);
    if (table && 2 * i < dims && head < heads + cache.kv_heads) {
      const float *angle = table + (int64_t)position * dims + 2 * i;
      const float turned = fmaf(-b, angle[1], a * angle[0]);
      b = fmaf(a, angle[1], b * angle[0]);
      a = turned;
    }
    to[pair.low] = from_float<T>(a);
    to[pair.high] = from_float<T>(b);
  });
}

/* q, k and v of all sequences from their packed product, `qkv` [rows][H + 2G][D]: heads of queries and keys are
 * normalized, and rotated unless `table` is NULL. Lanes of a warp for each head. */
template <class T, int N>
__global__ void __launch_bounds__(HEADS_BLOCK)
    decode_heads_kernel(T *q, Cache<T> cache, const float *qkv, HeadNorm norm, int rows, int lanes, int dims,
                        const float *table, const int32_t *positions) {
  const int dim = norm.head_dim, normed = norm.heads + norm.kv_heads, heads = normed + norm.kv_heads;
  const HeadLane<N> lane(lanes, dim, dims);
  const int item = (int)(blockIdx.x * HEADS_BLOCK + threadIdx.x) / lanes, row = item / heads, head = item % heads;
  const int position = row < rows ? positions[row] : -1;
  if (position < 0 || position >= cache.capacity) return; /* all lanes of a head */
  float first[N], second[N];
  lane.load_parts(first, second, qkv + (int64_t)item * dim);
  if (head < normed) {
    lane.normalize(first, second, norm.weight + (head < norm.heads ? 0 : dim), norm.eps);
    if (table && lane.rotated) rotate_pairs<N>(first, second, table + (int64_t)position * dims + 2 * lane.at);
  }
  T *to;
  if (head < norm.heads) to = q + ((int64_t)row * norm.heads + head) * dim;
  else if (head < normed) to = cache.k + cache.at(row, position, head - norm.heads);
  else to = cache.v + cache.at(row, position, head - normed);
  lane.store_parts(to, first, second);
}

/* y = c * s with b, c, x = W n + b, and z of this position to the state. A warp owns the rows i, C + i and 2C + i. */
template <class T, int ROWS, bool NORM>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_convolution_kernel(T *y, ConvolutionState state, DecodeInput<T> in, DecodeLayer<T> layer,
                              const float *kernel, int dim, const int32_t *positions) {
  const int i = warp_number();
  if (i >= dim) return;
  const int64_t outputs[3] = {i, (int64_t)dim + i, 2 * (int64_t)dim + i};
  outputs_of<NORM, ROWS>(layer, outputs, in, [&](int row, const float(&bcx)[3]) {
    const int position = positions[row];
    if (position < 0) return;
    T *const z = static_cast<T *>(state.z) + row * state.slot + i;
    T *const now = z + position % CONVOLUTION_TAPS * dim;
    const T rounded = from_float<T>(bcx[0] * bcx[2]);
    float s = kernel[3 * i + 2] * to_float(rounded);
    if (position > 0) s = fmaf(kernel[3 * i + 1], to_float(z[(position + 2) % CONVOLUTION_TAPS * dim]), s);
    if (position > 1) s = fmaf(kernel[3 * i], to_float(z[(position + 1) % CONVOLUTION_TAPS * dim]), s);
    *now = rounded;
    y[(int64_t)row * dim + i] = from_float<T>(bcx[1] * s);
  });
}

/* h = act(u), or act(gate) * up, with u = W n + b. A warp owns the rows i (gate) and F + i (up), or 2i and 2i + 1. */
template <class T, int ROWS, bool NORM>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_mlp_kernel(T *h, DecodeInput<T> in, DecodeLayer<T> layer, MlpShape mlp) {
  const int i = warp_number();
  if (i >= (mlp.gated ? mlp.ffn : mlp.ffn / 2)) return;
  const int64_t low = mlp.gated ? i : 2 * (int64_t)i, high = mlp.gated ? (int64_t)mlp.ffn + i : low + 1;
  output_pair<NORM, ROWS>(layer, low, high, in, [&](int row, float a, float b) {
    T *const to = h + (int64_t)row * mlp.ffn + low;
    a = decode_activation(mlp.activation, a);
    to[0] = from_float<T>(mlp.gated ? a * b : a);
    if (!mlp.gated) to[1] = from_float<T>(decode_activation(mlp.activation, b));
  });
}

/* out[r][m] = W n + b. A warp owns the rows 2i and 2i + 1. */
template <class T, class Out, int ROWS, bool NORM>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_pairs_kernel(Out *out, DecodeInput<T> in, DecodeLayer<T> layer, int outputs) {
  const int64_t low = 2 * (int64_t)warp_number(), high = low + 1 < outputs ? low + 1 : low;
  if (low >= outputs) return;
  output_pair<NORM, ROWS>(layer, low, high, in, [&](int row, float a, float b) {
    out[(int64_t)row * outputs + low] = from_float<Out>(a);
    if (high > low) out[(int64_t)row * outputs + high] = from_float<Out>(b);
  });
}

/* out[r][m] = W in + b, ADD: out += W in + b. A warp owns one row of w: the rows are few and long. */
template <class T, int ROWS, bool ADD>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_single_kernel(T *out, DecodeInput<T> in, DecodeLayer<T> layer, int outputs) {
  const int m = warp_number(), lane = (int)threadIdx.x % 32;
  if (m >= outputs) return;
  const T *const weights[1] = {layer.w + (int64_t)m * in.depth};
  const float bias = layer.bias_of(m);
  for (int first = 0; first < in.rows; first += ROWS) {
    float products[1][ROWS];
    warp_products<false>(products, weights, in, first);
    const float y = __fadd_rn(of_lane(products[0]), bias);
    if (lane >= ROWS || first + lane >= in.rows) continue;
    T *to = out + (int64_t)(first + lane) * outputs + m;
    *to = from_float<T>(ADD ? to_float(*to) + y : y);
  }
}

/* Calls f(T(), ROWS, NORM, input, layer) for products of `x` with rows of a layer. ROWS (sequences at a time) and NORM
 * (whether there is an RMSNorm) are constants. */
template <bool NORM, class F>
void with_product(Context *c, const char *operation, const void *x, const Norm *norm, const Parameters *params,
                  Linear layer, int rows, F f) {
  if (c->error.code || rows < 1) return;
  with_element(c, [&](auto e) {
    using T = decltype(e);
    DecodeInput<T> input = {static_cast<const T *>(x), NULL, 0, rows, layer.weight.cols};
    if (NORM) input.norm_weight = norm->weight, input.eps = norm->eps;
    DecodeLayer<T> weights = {compute_matrix<T>(params, layer.weight), NULL};
    if (layer.bias.rows) weights.bias = compute_matrix<T>(params, layer.bias);
    require_alignment(c, operation, {input.depth}, {x, input.norm_weight, weights.w});
    const std::bool_constant<NORM> normed;
    if (rows == 1) f(e, std::integral_constant<int, 1>(), normed, input, weights);
    else f(e, std::integral_constant<int, DECODE_ROWS>(), normed, input, weights);
  });
}

/* The number of blocks with a warp for each of `count` tasks. */
unsigned decode_blocks(int64_t count) { return (unsigned)divide_up(count, DECODE_WARPS); }

} // namespace

void cuda_decode_embedding(Context *c, void *x, const Parameters *params, const Embedding *e, const Sequences *s) {
  const auto run = [&](auto element) {
    using T = decltype(element);
    DecodeEmbedding<T> p = {};
    p.x = static_cast<T *>(x), p.table = compute_matrix<T>(params, e->table);
    if (e->position_embedding.rows) p.position_embedding = compute_matrix<T>(params, e->position_embedding);
    p.tokens = s->tokens, p.lengths = s->lengths, p.positions = s->positions, p.capacity = s->capacity;
    p.vocab = e->table.rows, p.position_count = e->position_embedding.rows, p.dim = e->table.cols;
    require_alignment(c, "decode_embedding", {p.dim}, {x, p.table, p.position_embedding});
    launch(c, "decode_embedding", decode_embedding_kernel<T>, (unsigned)s->rows, 128, 0, p);
  };
  with_element(c, run);
}

/* with_product() of norm(x). A norm that does not fit the product is computed before it, into scratch space behind the
 * first `taken` bytes, which f uses. */
template <class F>
static void with_normalized(Context *c, const char *operation, const void *x, const Norm *norm,
                            const Parameters *params, Linear layer, int rows, F f, size_t taken = 0) {
  if (norm && !fits_product(norm)) {
    const int dim = layer.weight.cols;
    const size_t before = (size_t)divide_up((int64_t)taken, 256) * 256;
    char *space = (char *)scratch(c, before + (size_t)rows * (size_t)dim * dtype_bytes(c->dtype));
    void *y = space ? space + before : NULL;
    cuda_decode_norm(c, y, x, norm, rows, dim);
    x = y, norm = NULL;
  }
  if (norm) with_product<true>(c, operation, x, norm, params, layer, rows, f);
  else with_product<false>(c, operation, x, NULL, params, layer, rows, f);
}

/* Normalized heads need all numbers of a head: the product goes to scratch space, in fp32. */
static void decode_normalized_heads(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                                    const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                                    const Sequences *s) {
  const char *const name = "decode_qkv";
  const int outputs = layer.weight.rows, dims = rope ? rope_dims(rope, cache->head_dim) : cache->head_dim;
  const size_t bytes = (size_t)s->rows * (size_t)outputs * sizeof(float);
  if (!check_head_size(c, cache->head_dim)) return;
  require_alignment(c, name, {}, {q, cache->k, cache->v, head_norm->weight, rope ? rope->table : NULL});
  const auto run = [&](auto e, auto rows, auto normed, auto in, auto weights) {
    using T = decltype(e);
    float *const qkv = (float *)scratch(c, bytes);
    launch(c, name, decode_pairs_kernel<T, float, rows, normed>, decode_blocks(divide_up(outputs, 2)),
           32 * DECODE_WARPS, 0, qkv, in, weights, outputs);
    const int64_t heads = (int64_t)s->rows * (outputs / cache->head_dim);
    const int both = cache->head_dim | dims; /* its largest power of two divides both */
    with_part<float>(both, [&](auto part) {
      const int lanes = lanes_of_head(cache->head_dim, part);
      launch(c, name, decode_heads_kernel<T, part>, (unsigned)divide_up(heads * lanes, HEADS_BLOCK), HEADS_BLOCK, 0, q,
             cache_of<T>(cache), qkv, *head_norm, s->rows, lanes, dims, rope ? rope->table : NULL, s->positions);
    });
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, run, bytes);
}

void cuda_decode_qkv(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                     const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                     const Sequences *s) {
  if (head_norm) return decode_normalized_heads(c, q, cache, x, norm, params, layer, head_norm, rope, s);
  const char *const name = "decode_qkv";
  const int outputs = layer.weight.rows, heads = outputs / cache->head_dim - 2 * cache->kv_heads;
  const int dims = rope ? rope_dims(rope, cache->head_dim) : cache->head_dim;
  const auto run = [&](auto e, auto rows, auto normed, auto in, auto weights) {
    using T = decltype(e);
    launch(c, name, decode_qkv_kernel<T, rows, normed>, decode_blocks(outputs / 2), 32 * DECODE_WARPS, 0, q,
           cache_of<T>(cache), in, weights, heads, dims, rope ? rope->table : NULL, s->positions);
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, run);
}

void cuda_decode_convolution(Context *c, void *y, const ConvolutionState *state, const void *x, const Norm *norm,
                             const Parameters *params, Linear layer, const Convolution *v, const Sequences *s) {
  const char *const name = "decode_convolution";
  const auto run = [&](auto e, auto rows, auto normed, auto in, auto weights) {
    launch(c, name, decode_convolution_kernel<decltype(e), rows, normed>, decode_blocks(v->dim), 32 * DECODE_WARPS, 0,
           y, *state, in, weights, v->kernel, v->dim, s->positions);
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, run);
}

void cuda_decode_residual(Context *c, void *x, const void *in, const Parameters *params, Linear layer,
                          const Sequences *s) {
  const char *const name = "decode_residual";
  const int outputs = layer.weight.rows;
  const auto run = [&](auto e, auto rows, auto, auto input, auto weights) {
    launch(c, name, decode_single_kernel<decltype(e), rows, true>, decode_blocks(outputs), 32 * DECODE_WARPS, 0, x,
           input, weights, outputs);
  };
  with_product<false>(c, name, in, NULL, params, layer, s->rows, run);
}

void cuda_decode_linear(Context *c, void *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                        const Sequences *s) {
  const char *const name = "decode_linear";
  const int outputs = layer.weight.rows;
  const auto run = [&](auto e, auto rows, auto normed, auto in, auto weights) {
    using T = decltype(e);
    if constexpr (normed)
      launch(c, name, decode_pairs_kernel<T, T, rows, true>, decode_blocks(divide_up(outputs, 2)), 32 * DECODE_WARPS, 0,
             out, in, weights, outputs);
    else
      launch(c, name, decode_single_kernel<T, rows, false>, decode_blocks(outputs), 32 * DECODE_WARPS, 0, out, in,
             weights, outputs);
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, run);
}

void cuda_decode_mlp(Context *c, void *h, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                     const MlpShape *mlp, const Sequences *s) {
  const char *const name = "decode_mlp";
  const auto run = [&](auto e, auto rows, auto normed, auto in, auto weights) {
    launch(c, name, decode_mlp_kernel<decltype(e), rows, normed>, decode_blocks(layer.weight.rows / 2),
           32 * DECODE_WARPS, 0, h, in, weights, *mlp);
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, run);
}

void cuda_decode_logits(Context *c, float *logits, const void *x, const Norm *norm, const Parameters *params,
                        Linear layer, int vocab, int rows) {
  const char *const name = "decode_logits";
  const auto run = [&](auto e, auto several, auto normed, auto in, auto weights) {
    launch(c, name, decode_pairs_kernel<decltype(e), float, several, normed>, decode_blocks(divide_up(vocab, 2)),
           32 * DECODE_WARPS, 0, logits, in, weights, vocab);
  };
  with_normalized(c, name, x, norm, params, layer, rows, run);
}

#endif
