/* Attention in bf16 by wgmma, for heads of 33 to 64 and of 97 to 128 numbers: the kernels of attention_forward.cuh and
 * attention_backward.cuh with other products. A block is a warpgroup with 64 queries (forward, dQ) or keys (dK, dV);
 * the other side passes in tiles of 64 rows. Tiles are panels of 64 columns, which are the hardware's SWIZZLE_128B as
 * they are. Compiled for sm_90a alone, and used on request (INKLING_WGMMA=1). */
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

constexpr int PANEL_ROWS = 64, PANEL_COLUMNS = 64;

/* A tile of 64 rows in shared memory, as a factor of products. */
struct GroupTile {
  uint32_t address;

  GroupTile() = default;
  __device__ __forceinline__ explicit GroupTile(const bf16 *tile) : address(shared_address(tile)) {}
  /* That of the warp's rows: products take the tile of the block. */
  __device__ __forceinline__ void take(const bf16 *tile, int) { *this = GroupTile(tile); }
  template <Major MAJOR> __device__ __forceinline__ uint64_t step(int panel, int k) const {
    constexpr uint32_t PANEL_BYTES = PANEL_ROWS * PANEL_COLUMNS * sizeof(bf16);
    return tile_descriptor<MAJOR>(address + panel * PANEL_BYTES, k);
  }
};

template <int HD_> struct Products<HD_, true> {
  static constexpr int HD = HD_, PANEL = PANEL_COLUMNS, SLACK = 1024;
  static constexpr bool TOGETHER = true;
  template <int M, bool REGISTERS> using Left = GroupTile;
  typedef GroupTile Tile;
  __device__ static __forceinline__ unsigned char *align(unsigned char *shared) {
    return shared + -shared_address(shared) % SLACK;
  }
  __device__ static __forceinline__ void publish() { fence_proxy_async(); }
};

/* ---- products ---- */

/* Begins acc[64][64] = left[64][HD] right[64][HD]^T, a group of its own. */
template <int HD>
__device__ __forceinline__ void begin_transposed(float (&acc)[1][8][4], const GroupTile &left, const GroupTile &right) {
#pragma unroll
  for (int panel = 0; panel < HD / PANEL_COLUMNS; panel++)
#pragma unroll
    for (int k = 0; k < 4; k++)
      wgmma_shared<K_MAJOR>(acc[0], left.step<K_MAJOR>(panel, k), right.step<K_MAJOR>(panel, k), panel + k > 0);
  wgmma_commit();
}

/* The warp's 16 rows of 64 columns, rounded to bf16. */
struct LeftRows {
  uint32_t fragment[4][4];

  __device__ __forceinline__ explicit LeftRows(const float (&from)[1][8][4]) {
#pragma unroll
    for (int k = 0; k < 4; k++) round_left(fragment[k], from[0], k);
  }
};

/* Begins acc[64][HD] += left[64][64] right[64][HD]. */
template <int HD>
__device__ __forceinline__ void begin_product(float (&acc)[1][HD / 8][4], const LeftRows &left,
                                              const GroupTile &right) {
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int panel = 0; panel < HD / PANEL_COLUMNS; panel++)
      wgmma_registers<MN_MAJOR>(acc[0] + 8 * panel, left.fragment[k], right.step<MN_MAJOR>(panel, k), true);
}

/* As the functions of these names in attention_tile.cuh, for whole tiles. */
template <int HD>
__device__ __forceinline__ void multiply_transposed(float (&acc)[1][8][4], const GroupTile &left,
                                                    const GroupTile &right, int) {
  wgmma_fence();
  begin_transposed<HD>(acc, left, right);
  wgmma_wait<0>();
}

template <int HD>
__device__ __forceinline__ void multiply(float (&acc)[1][HD / 8][4], const float (&left)[1][8][4],
                                         const GroupTile &right, int) {
  const LeftRows rows(left);
  wgmma_fence();
  begin_product<HD>(acc, rows, right);
  wgmma_commit();
  wgmma_wait<0>();
}

/* ---- backward ---- */

/* As add_keys() in attention_backward.cuh. The probabilities are computed while dP is multiplied. */
template <class S, bool DROPOUT>
__device__ __forceinline__ void add_keys(float (&dq)[1][S::HD / 8][4], const GroupTile &q, const GroupTile &dout,
                                         const TileArguments &a, const QueryBlock &at, int i0, const KeyStages<S> &keys,
                                         int t, const float *bases, const float *deltas, const Limits &mine) {
  constexpr int HD = S::HD;
  const int j0 = t * S::KEYS;
  const GroupTile k(keys.k_tile(t)), v(keys.v_tile(t));
  float p[1][8][4], ds[1][8][4];
  wgmma_fence();
  begin_transposed<HD>(p, q, k);
  begin_transposed<HD>(ds, dout, v);
  wgmma_wait<1>();
  probabilities(p, bases, a.scale_log2);
  if (!mine.all_see(j0, S::KEYS)) mask_scores(p, a, at.b, i0, j0, 0.0f);
  wgmma_wait<0>();
  if (DROPOUT) drop_scores(ds, dropout_stream(a, at.b, at.h), i0, j0, a.dropout.scale);
  score_gradients(ds, p, deltas);
  multiply<HD>(dq, ds, k, 0);
}

/* As add_tile() there. */
template <class S, bool DROPOUT>
__device__ __forceinline__ void add_tile(float (&dk)[1][S::HD / 8][4], float (&dv)[1][S::HD / 8][4], const GroupTile &k,
                                         const GroupTile &v, const TileArguments &a, int b, int i0, int j0,
                                         const bf16 *q_tile, const float *bases, const uint32_t *kept, bool whole) {
  constexpr int HD = S::HD;
  const GroupTile q(q_tile), dout(q_tile + S::QUERY_TILE);
  float p[1][8][4], ds[1][8][4];
  wgmma_fence();
  begin_transposed<HD>(p, k, q);
  begin_transposed<HD>(ds, v, dout);
  wgmma_wait<1>();
  probabilities_transposed(p, bases, a.scale_log2);
  if (!whole) mask_scores_transposed(p, a, b, i0, j0, 0.0f);
  wgmma_wait<0>();
  score_gradients_transposed<DROPOUT>(ds, p, bases + S::QUERIES, kept, j0 % 32, a.dropout.scale);
  const LeftRows p_rows(p), ds_rows(ds);
  wgmma_fence();
  begin_product<HD>(dv, p_rows, dout);
  if (!DROPOUT) wgmma_fence(); /* without it ptxas spills registers */
  begin_product<HD>(dk, ds_rows, q);
  wgmma_commit();
  wgmma_wait<0>();
}

} // namespace

/* ---- host ---- */

/* Calls f(HD, DROPOUT) if there is a kernel for the head size and it is wanted on this card; false otherwise. */
template <class F> static bool with_hopper_kernel(const Context *c, const Attention *a, F f) {
  if (c->dtype != DTYPE_BF16 || c->capability != 90 || !asked_for("INKLING_WGMMA")) return false;
  bool runs = false;
  with_tile_kernel(a, [&](auto width, auto dropout) {
    if constexpr (width % PANEL_COLUMNS == 0) f(width, dropout), runs = true;
  });
  return runs;
}

bool hopper_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  return with_hopper_kernel(
      c, a,
      [&](auto width, auto dropout) {
        launch_forward_kernel<width, dropout, true>(c, a, forward_arguments<bf16>(c, a, out, q, k, v, lse));
      });
}

bool hopper_attention_backward(Context *c, const Attention *a, const BackwardViews &views) {
  return with_hopper_kernel(
      c, a,
      [&](auto width, auto dropout) {
        launch_backward_kernels<width, dropout, true>(c, a, backward_arguments<bf16>(c, a, views));
      });
}
