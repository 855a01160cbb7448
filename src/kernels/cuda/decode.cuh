/* Decoding of one token: the operations of kernels.h whose rows are sequences. Each is one launch; LayerNorm and the
 * norms of heads are another one each.
 *
 *   x, out [rows][C]   q [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   bias [M]
 *
 * A token costs one read of all weights, which the sequences share, and 5 launches per layer. All products are one
 * block function: a block multiplies 32 sequences at a time by 16 rows of w, or by 8 where blocks would be few. Its
 * warps divide the depth, and the tensor cores multiply weights as they come from memory. A lane reads 8 neighbors of a
 * row in bf16, where mma.m16n8k16 wants two pairs for each of two multiplications. So the order within a step of the
 * depth is permuted, in x and w alike, which leaves the sum as it is.
 *
 * An RMSNorm before a product needs no separate pass, because 1/rms is a factor of the sum:
 *
 *   sum_k w[k] (norm_weight[k] x[k] rstd) = rstd * sum_k w[k] (norm_weight[k] x[k])
 *
 * LayerNorm needs the mean first, so it runs before the product, into scratch space.
 *
 * How a sum is divided depends on its depth alone, not on the number or order of sequences, so row i of a batch equals
 * a run of its sequence alone, bit for bit.
 *
 * A sequence whose position is outside the cache writes nothing there.
 *
 * On request (INKLING_PDL=1), kernels begin while those before them run: a product loads its first weights, which no
 * kernel of a token writes, and then waits. The first of them begins in order, after whatever wrote the weights. */
#ifndef INKLING_KERNELS_CUDA_DECODE_CUH
#define INKLING_KERNELS_CUDA_DECODE_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/heads.cuh"
#include "kernels/cuda/mlp.cuh"
#include "kernels/cuda/norm.cuh"

namespace {

/* ---- products ---- */

constexpr int TILE_OUTPUTS = 8, TILE_ROWS = 16; /* rows of w, and sequences that an mma multiplies */
constexpr int PRODUCT_WARPS = 8, PRODUCT_BLOCK = 32 * PRODUCT_WARPS;
constexpr int PRODUCT_TILES = 2; /* of sequences, which share the weights in registers */
constexpr int PRODUCT_ROWS = PRODUCT_TILES * TILE_ROWS;
/* The fewest blocks that fit a multiprocessor, which allows 128 registers for a thread. Without it the compiler saves
 * registers and moves each load next to its use, so that a lane has only one load in flight. (Check the SASS after
 * changes.) */
constexpr int PRODUCT_BLOCKS = 2;

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

/* d[16 sequences][8 TILES outputs] += x w^T over a step of the depth, 4 packs: lane 4 g + c has pack c of rows g and
 * g + 8 of x and of w. d[o] is columns 8 o .. 8 o + 8, laid out as in mma_bf16(). */
template <int TILES>
__device__ __forceinline__ void multiply_step(float (&d)[TILES][4], const Pack<bf16, 8> (&x)[2],
                                              const Pack<bf16, 8> (&w)[TILES]) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t a[4] = {x[0].word[i], x[1].word[i], x[0].word[i + 1], x[1].word[i + 1]};
#pragma unroll
    for (int o = 0; o < TILES; o++) mma_bf16(d[o], a, w[o].word[i], w[o].word[i + 1]);
  }
}
template <int TILES>
__device__ __forceinline__ void multiply_step(float (&d)[TILES][4], const Pack<float, 4> (&x)[2],
                                              const Pack<float, 4> (&w)[TILES]) {
  const int lane = (int)threadIdx.x % 32, row = lane & ~3, column = lane % 4 * 8;
  const auto from = [](const Pack<float, 4> &pack, int i, int other) {
    return __shfl_sync(0xFFFFFFFFu, number(pack, i), other);
  };
#pragma unroll 1
  for (int c = 0; c < 4; c++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float low = from(x[0], i, row + c), high = from(x[1], i, row + c);
#pragma unroll
      for (int o = 0; o < TILES; o++) {
        const float even = from(w[o], i, column + c), odd = from(w[o], i, column + 4 + c);
        d[o][0] = fmaf(low, even, d[o][0]), d[o][1] = fmaf(low, odd, d[o][1]);
        d[o][2] = fmaf(high, even, d[o][2]), d[o][3] = fmaf(high, odd, d[o][3]);
      }
    }
}

/* What a warp sums over its steps of the depth; square: of this lane's packs of two rows of x. */
template <int TILES> struct WarpSums { float product[PRODUCT_TILES][TILES][4], square[PRODUCT_TILES][2]; };

/* Adds the steps from `k` on, one of every PRODUCT_WARPS. x: this lane's rows of each tile, any row for those beyond
 * the last sequence; `tiles` have sequences. w: likewise its rows. Beyond the depth weights are zeros, so any numbers
 * will do for x. */
template <bool NORM, int TILES, class T>
__device__ __forceinline__ void add_steps(WarpSums<TILES> &sums, const T *const (&x)[PRODUCT_TILES][2],
                                          const T *const (&w)[TILES], const DecodeInput<T> &in, int tiles, int k) {
  constexpr int N = VECTOR<T>, STRIDE = PRODUCT_WARPS * 4 * N;
  /* steps whose weights are requested together: as many as fit the registers */
  constexpr int BATCH = NORM || sizeof(T) == 4 ? 4 - TILES : 9 - 3 * TILES;
  for (int step = 0; step < in.depth; step += BATCH * STRIDE, k += BATCH * STRIDE) { /* as often in all lanes */
    Pack<T, N> weights[BATCH][TILES];
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
      for (int o = 0; o < TILES; o++) weights[b][o] = fetch<N>(w[o] + k + b * STRIDE, k + b * STRIDE < in.depth);
    if (step == 0) wait_for_previous();
#pragma unroll
    for (int n = 0; n < PRODUCT_TILES; n++) {
      if (n >= tiles) break;
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        const int at = min(k + b * STRIDE, in.depth - N);
        Pack<T, N> inputs[2];
        float norm_weight[N];
        if (NORM) load<N>(norm_weight, in.norm_weight + at);
#pragma unroll
        for (int r = 0; r < 2; r++) inputs[r] = load_pack<N>(x[n][r] + at);
#pragma unroll
        for (int r = 0; r < 2 && NORM; r++) {
          float y[N];
          unpack(y, inputs[r]);
#pragma unroll
          for (int i = 0; i < N; i++) {
            if (k + b * STRIDE < in.depth) sums.square[n][r] = fmaf(y[i], y[i], sums.square[n][r]);
            y[i] *= norm_weight[i];
          }
          inputs[r] = pack<T, N>(y);
        }
        multiply_step(sums.product[n], inputs, weights[b]);
      }
    }
  }
}

/* Computes units of a layer for all sequences. A unit is OUT rows of w, output_of(unit, 0 .. OUT), that one thread
 * finishes: finish(unit, sequence, the outputs). A block has as many of the `units` as fit 8 TILES rows of w; the grid
 * is that of with_product(). */
template <bool NORM, int OUT, int TILES, class T, class O, class F>
__device__ __forceinline__ void products(const DecodeLayer<T> &layer, const DecodeInput<T> &in, int units, O output_of,
                                         F finish) {
  constexpr int BLOCK_OUTPUTS = TILE_OUTPUTS * TILES, UNITS = BLOCK_OUTPUTS / OUT;
  constexpr int WIDTH = 16 * TILES - 8; /* 8 or 24: so that the stores of a warp go to all banks */
  alignas(8) __shared__ float sum[PRODUCT_WARPS][PRODUCT_ROWS][WIDTH];
  __shared__ float square[PRODUCT_WARPS][PRODUCT_ROWS];
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, row = lane / 4, c = lane % 4;
  const int first_unit = (int)blockIdx.x * UNITS, own = (int)threadIdx.x % BLOCK_OUTPUTS;
  const bool finishes = own < UNITS && first_unit + own < units;
  const T *w[TILES];
  float bias[OUT] = {};
  let_next_begin();
#pragma unroll
  for (int i = 0; i < TILES; i++) {
    const int output = row + 8 * i, unit = min(output / OUT, min(UNITS, units - first_unit) - 1);
    w[i] = layer.w + (int64_t)output_of(first_unit + unit, output % OUT) * in.depth;
  }
#pragma unroll
  for (int o = 0; o < OUT; o++)
    if (finishes) bias[o] = layer.bias_of(output_of(first_unit + own, o));
  for (int first = 0; first < in.rows; first += PRODUCT_ROWS) {
    const int rows = min(in.rows - first, PRODUCT_ROWS);
    const T *x[PRODUCT_TILES][2];
    WarpSums<TILES> sums = {};
#pragma unroll
    for (int n = 0; n < 2 * PRODUCT_TILES; n++)
      x[n / 2][n % 2] = in.x + (int64_t)min(first + n * 8 + row, in.rows - 1) * in.depth;
    add_steps<NORM>(sums, x, w, in, (rows + TILE_ROWS - 1) / TILE_ROWS, (warp * 4 + c) * VECTOR<T>);
#pragma unroll
    for (int n = 0; n < 2 * PRODUCT_TILES; n++) {
      const int r = n * 8 + row;
#pragma unroll
      for (int o = 0; o < TILES; o++) {
        const float *const two = &sums.product[n / 2][o][n % 2 * 2];
        store<2>(&sum[warp][r][8 * o + 2 * c], {two[0], two[1]});
      }
      if (NORM) {
        const float half = sums.square[n / 2][n % 2] + __shfl_xor_sync(0xFFFFFFFFu, sums.square[n / 2][n % 2], 1);
        const float whole = half + __shfl_xor_sync(0xFFFFFFFFu, half, 2);
        if (c == 0) square[warp][r] = whole;
      }
    }
    __syncthreads();
    for (int r = (int)threadIdx.x / BLOCK_OUTPUTS; r < rows && finishes; r += PRODUCT_BLOCK / BLOCK_OUTPUTS) {
      float out[OUT] = {}, squares = 0;
#pragma unroll
      for (int v = 0; v < PRODUCT_WARPS; v++) {
        if (NORM) squares += square[v][r];
#pragma unroll
        for (int o = 0; o < OUT; o++) out[o] += sum[v][r][own * OUT + o];
      }
      const float rstd = NORM ? rsqrtf(squares / (float)in.depth + in.eps) : 1.0f;
#pragma unroll
      for (int o = 0; o < OUT; o++) out[o] = out[o] * rstd + bias[o];
      finish(first_unit + own, first + r, out);
    }
    __syncthreads();
  }
}

/* ---- the operations ---- */

/* q, k, v = W n + b; q and k are rotated unless `table` is NULL. A unit is a pair (pair_of()) of a head, whose numbers
 * are rotated together. Heads of w: H of queries, G of keys, G of values. */
template <class T, bool NORM, int TILES>
__global__ void __launch_bounds__(PRODUCT_BLOCK, PRODUCT_BLOCKS)
    decode_qkv_kernel(DecodeInput<T> in, DecodeLayer<T> layer, T *q, Cache<T> cache, int heads, int dims,
                      const float *table, const int32_t *positions) {
  const int dim = cache.head_dim, half = dim / 2, units = (heads + 2 * cache.kv_heads) * half;
  const auto output_of = [&](int unit, int o) {
    const HeadPair pair = pair_of(unit % half, dim, dims);
    return unit / half * dim + (o ? pair.high : pair.low);
  };
  products<NORM, 2, TILES>(layer, in, units, output_of, [&](int unit, int row, const float(&out)[2]) {
    const int position = positions[row], head = unit / half, i = unit % half;
    const HeadPair pair = pair_of(i, dim, dims);
    float low = out[0], high = out[1];
    if (position < 0 || position >= cache.capacity) return;
    T *to;
    if (head < heads) to = q + ((int64_t)row * heads + head) * dim;
    else if (head < heads + cache.kv_heads) to = cache.k + cache.at(row, position, head - heads);
    else to = cache.v + cache.at(row, position, head - heads - cache.kv_heads);
    if (table && 2 * i < dims && head < heads + cache.kv_heads) {
      const float *angle = table + (int64_t)position * dims + 2 * i;
      const float turned = fmaf(-high, angle[1], low * angle[0]);
      high = fmaf(low, angle[1], high * angle[0]);
      low = turned;
    }
    to[pair.low] = from_float<T>(low);
    to[pair.high] = from_float<T>(high);
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
  let_next_begin();
  wait_for_previous();
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

/* y = c * s with b, c, x = W n + b, and z of this position to the state. A unit is the rows i, C + i and 2C + i. */
template <class T, bool NORM, int TILES>
__global__ void __launch_bounds__(PRODUCT_BLOCK, PRODUCT_BLOCKS)
    decode_convolution_kernel(DecodeInput<T> in, DecodeLayer<T> layer, T *y, ConvolutionState state,
                              const float *kernel, int dim, const int32_t *positions) {
  const auto output_of = [&](int i, int part) { return part * dim + i; };
  products<NORM, 3, TILES>(layer, in, dim, output_of, [&](int i, int row, const float(&bcx)[3]) {
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

/* h = act(u), or act(gate) * up, with u = W n + b. A unit is the rows i (gate) and F + i (up), or 2i and 2i + 1. */
template <class T, bool NORM, int TILES>
__global__ void __launch_bounds__(PRODUCT_BLOCK, PRODUCT_BLOCKS)
    decode_mlp_kernel(DecodeInput<T> in, DecodeLayer<T> layer, T *h, MlpShape mlp) {
  const auto output_of = [&](int i, int part) { return mlp.gated ? part * mlp.ffn + i : 2 * i + part; };
  const int units = mlp.gated ? mlp.ffn : mlp.ffn / 2;
  products<NORM, 2, TILES>(layer, in, units, output_of, [&](int i, int row, const float(&u)[2]) {
    T *const to = h + (int64_t)row * mlp.ffn + output_of(i, 0);
    const float a = decode_activation(mlp.activation, u[0]);
    to[0] = from_float<T>(mlp.gated ? a * u[1] : a);
    if (!mlp.gated) to[1] = from_float<T>(decode_activation(mlp.activation, u[1]));
  });
}

/* out[r][m] = W n + b, ADD: out += W n + b */
template <class T, class Out, bool NORM, bool ADD, int TILES>
__global__ void __launch_bounds__(PRODUCT_BLOCK, PRODUCT_BLOCKS)
    decode_linear_kernel(DecodeInput<T> in, DecodeLayer<T> layer, Out *out, int outputs) {
  const auto output_of = [](int m, int) { return m; };
  products<NORM, 1, TILES>(layer, in, outputs, output_of, [&](int m, int row, const float(&y)[1]) {
    Out *const to = out + (int64_t)row * outputs + m;
    *to = from_float<Out>(ADD ? to_float(*to) + y[0] : y[0]);
  });
}

/* Calls f(T(), NORM, TILES, run) for products of `x` with units of `out` rows of a layer: run(kernel, ...) launches a
 * kernel with the input, the layer and these arguments. NORM, whether there is an RMSNorm, and TILES are constants.
 * Where there are few blocks, blocks of 8 rows use more of the multiprocessors. */
template <bool NORM, class F>
void with_product(Context *c, const char *name, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                  int rows, int out, F f) {
  if (c->error.code || rows < 1) return;
  const auto blocks = [&](int tiles) { return divide_up(layer.weight.rows / out, TILE_OUTPUTS * tiles / out); };
  with_element(c, [&]<class T>(T element) {
    DecodeInput<T> input = {static_cast<const T *>(x), NULL, 0, rows, layer.weight.cols};
    if (NORM) input.norm_weight = norm->weight, input.eps = norm->eps;
    DecodeLayer<T> weights = {compute_matrix<T>(params, layer.weight), NULL};
    if (layer.bias.rows) weights.bias = compute_matrix<T>(params, layer.bias);
    require_alignment(c, name, {input.depth}, {x, input.norm_weight, weights.w});
    with_constant(rows <= TILE_ROWS && 2 * blocks(2) < 3 * c->processors, [&](auto few) {
      constexpr std::integral_constant<int, few ? 1 : 2> tiles;
      f(element, std::bool_constant<NORM>(), tiles, [&](auto kernel, auto... rest) {
        launch<EARLY>(c, name, kernel, (unsigned)blocks(tiles), PRODUCT_BLOCK, 0, input, weights, rest...);
      });
    });
  });
}

} // namespace

/* with_product() of norm(x). A norm that does not fit the product is computed before it, into scratch space behind the
 * first `taken` bytes, which f uses. */
template <class F>
static void with_normalized(Context *c, const char *name, const void *x, const Norm *norm, const Parameters *params,
                            Linear layer, int rows, int out, F f, size_t taken = 0) {
  if (norm && !fits_product(norm)) {
    const int dim = layer.weight.cols;
    const size_t before = (size_t)divide_up((int64_t)taken, 256) * 256;
    char *space = (char *)scratch(c, before + (size_t)rows * (size_t)dim * dtype_bytes(c->dtype));
    void *y = space ? space + before : NULL;
    cuda_decode_norm(c, y, x, norm, rows, dim);
    x = y, norm = NULL;
  }
  if (norm) with_product<true>(c, name, x, norm, params, layer, rows, out, f);
  else with_product<false>(c, name, x, NULL, params, layer, rows, out, f);
}

/* Normalized heads need all numbers of a head: the product goes to scratch space, in fp32. */
static void decode_normalized_heads(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                                    const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                                    const Sequences *s) {
  const char *const name = "decode_qkv";
  const int outputs = layer.weight.rows, dims = rope ? rope_dims(rope, cache->head_dim) : cache->head_dim;
  const int both = cache->head_dim | dims; /* its largest power of two divides both */
  const int64_t heads = (int64_t)s->rows * (outputs / cache->head_dim);
  const size_t bytes = (size_t)s->rows * (size_t)outputs * sizeof(float);
  if (!check_head_size(c, cache->head_dim)) return;
  require_alignment(c, name, {}, {q, cache->k, cache->v, head_norm->weight, rope ? rope->table : NULL});
  const auto run_both = [&]<class T>(T, auto normed, auto tiles, auto run) {
    float *const qkv = (float *)scratch(c, bytes);
    run(decode_linear_kernel<T, float, normed, false, tiles>, qkv, outputs);
    with_part<float>(both, [&](auto part) {
      const int lanes = lanes_of_head(cache->head_dim, part);
      launch<EARLY>(c, name, decode_heads_kernel<T, part>, (unsigned)divide_up(heads * lanes, HEADS_BLOCK), HEADS_BLOCK,
                    0, q, cache_of<T>(cache), qkv, *head_norm, s->rows, lanes, dims, rope ? rope->table : NULL,
                    s->positions);
    });
  };
  with_normalized(c, name, x, norm, params, layer, s->rows, 1, run_both, bytes);
}

void cuda_decode_qkv(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                     const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                     const Sequences *s) {
  if (head_norm) return decode_normalized_heads(c, q, cache, x, norm, params, layer, head_norm, rope, s);
  const int heads = layer.weight.rows / cache->head_dim - 2 * cache->kv_heads;
  const int dims = rope ? rope_dims(rope, cache->head_dim) : cache->head_dim;
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_qkv_kernel<T, normed, tiles>, q, cache_of<T>(cache), heads, dims, rope ? rope->table : NULL,
        s->positions);
  };
  with_normalized(c, "decode_qkv", x, norm, params, layer, s->rows, 2, f);
}

void cuda_decode_convolution(Context *c, void *y, const ConvolutionState *state, const void *x, const Norm *norm,
                             const Parameters *params, Linear layer, const Convolution *v, const Sequences *s) {
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_convolution_kernel<T, normed, tiles>, y, *state, v->kernel, v->dim, s->positions);
  };
  with_normalized(c, "decode_convolution", x, norm, params, layer, s->rows, 3, f);
}

void cuda_decode_mlp(Context *c, void *h, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                     const MlpShape *mlp, const Sequences *s) {
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_mlp_kernel<T, normed, tiles>, h, *mlp);
  };
  with_normalized(c, "decode_mlp", x, norm, params, layer, s->rows, 2, f);
}

void cuda_decode_residual(Context *c, void *x, const void *in, const Parameters *params, Linear layer,
                          const Sequences *s) {
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_linear_kernel<T, T, normed, true, tiles>, x, layer.weight.rows);
  };
  with_product<false>(c, "decode_residual", in, NULL, params, layer, s->rows, 1, f);
}

void cuda_decode_linear(Context *c, void *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                        const Sequences *s) {
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_linear_kernel<T, T, normed, false, tiles>, out, layer.weight.rows);
  };
  with_normalized(c, "decode_linear", x, norm, params, layer, s->rows, 1, f);
}

void cuda_decode_logits(Context *c, float *logits, const void *x, const Norm *norm, const Parameters *params,
                        Linear layer, int vocab, int rows) {
  const auto f = [&]<class T>(T, auto normed, auto tiles, auto run) {
    run(decode_linear_kernel<T, float, normed, false, tiles>, logits, vocab);
  };
  layer.weight.rows = vocab; /* not the padded one */
  with_normalized(c, "decode_logits", x, norm, params, layer, rows, 1, f);
}

#endif
