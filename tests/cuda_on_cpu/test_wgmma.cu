/* Tests of the emulated wgmma against loops, and the kernel of its planted bugs. */
#include "kernels/cuda/wgmma.cuh"
#include "tests/cuda_on_cpu/test_emulator.h"

namespace {

enum { M = 64, K = 64, THREADS = 128, TILE_BYTES = 64 * 128, SLACK = 1024 };

uint16_t bits_of(int x) { /* of a small integer in bf16 */
  const float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (uint16_t)(bits >> 16);
}
int left_value(int m, int k) { return (m * 37 + k * 11 + m * k % 7) % 15 - 7; }
int right_value(int n, int k) { return (n * 29 + k * 5 + n * k % 11) % 13 - 6; }

/* The place of element (row, column) of a tile of rows of 64 numbers. */
__device__ int place(int row, int column) { return row * 64 + (column / 8 ^ row % 8) * 8 + column % 8; }

__device__ unsigned char *aligned_tile(unsigned char *p) { return p + (1024 - (shared_address(p) & 1023)) % 1024; }

/* The registers of the left factor a [M][K] for step k. */
__device__ void left_registers(uint32_t (&r)[4], const uint16_t *a, int k) {
  const int l = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = 0; i < 4; i++) {
    const int row = 16 * warp + l / 4 + i % 2 * 8, column = 16 * k + l % 4 * 2 + i / 2 * 8;
    r[i] = a[row * K + column] | (uint32_t)a[row * K + column + 1] << 16;
  }
}

/* out [M][N] = a [M][K] b [N][K]^T, added to 1 if `add`. MN_MAJOR: b lies as [K][N], in panels of 64 columns. */
template <int N, bool REGISTERS, Major MAJOR>
__global__ void multiply(float *out, const uint16_t *a, const uint16_t *b, bool add) {
  DYNAMIC_SHARED(memory);
  uint16_t *a_tile = reinterpret_cast<uint16_t *>(aligned_tile(memory)), *b_tile = a_tile + M * K;
  const int t = threadIdx.x, l = t % 32, warp = t / 32;
  for (int i = t; i < M * K; i += THREADS) a_tile[place(i / K, i % K)] = a[i];
  for (int i = t; i < N * K; i += THREADS) {
    const int n = i / K, k = i % K;
    b_tile[MAJOR == K_MAJOR ? place(n, k) : n / 64 * 64 * K + place(k, n % 64)] = b[i];
  }
  uint32_t left[4][4];
  float d[N / 8][4];
  for (int k = 0; k < 4; k++) left_registers(left[k], a, k);
  for (auto &part : d)
    for (float &x : part) x = add ? 1.0f : NAN;
  fence_proxy_async();
  __syncthreads();
  const uint64_t panels = MAJOR == MN_MAJOR && N > 64 ? (uint64_t)(TILE_BYTES / 16 - 1) << 16 : 0;
  const uint32_t left_tile = shared_address(a_tile), right_tile = shared_address(b_tile);
  wgmma_fence();
  for (int k = 0; k < 4; k++) {
    const uint64_t right_step = tile_descriptor<MAJOR>(right_tile, k) + panels,
                   left_step = tile_descriptor<K_MAJOR>(left_tile, k);
    const bool adds = add || k > 0;
    if constexpr (N != 64)
      emu::wgmma({d[0], N, REGISTERS ? left[k] : NULL, REGISTERS ? 0 : left_step, right_step, adds, MAJOR == MN_MAJOR},
                 __FILE__, __LINE__);
    else if constexpr (REGISTERS) wgmma_registers<MAJOR>(d, left[k], right_step, adds);
    else wgmma_shared<MAJOR>(d, left_step, right_step, adds);
  }
  wgmma_commit();
  wgmma_wait<0>();
  for (int n = 0; n < N / 8; n++)
    for (int i = 0; i < 4; i++)
      out[(16 * warp + l / 4 + i / 2 * 8) * N + 8 * n + l % 4 * 2 + i % 2] = d[n][i] - (add ? 1.0f : 0.0f);
}

template <int N, class Kernel, class... Last> bool check_product(Kernel kernel, size_t shared, Last... last) {
  Device<uint16_t> a(M * K), b(N * K);
  Device<float> out(M * N);
  static uint16_t left[M * K], right[N * K];
  static float got[M * N];
  for (int i = 0; i < M * K; i++) left[i] = bits_of(left_value(i / K, i % K));
  for (int i = 0; i < N * K; i++) right[i] = bits_of(right_value(i / K, i % K));
  a.set(left), b.set(right);
  EXPECT_CUDA(launch(nullptr, kernel, 1, THREADS, shared, out.data, a.data, b.data, last...));
  out.get(got);
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) {
      int sum = 0;
      for (int k = 0; k < K; k++) sum += left_value(m, k) * right_value(n, k);
      EXPECT(got[m * N + n] == (float)sum);
    }
  return true;
}

template <int N> bool all_forms() {
  const size_t shared = SLACK + TILE_BYTES + max(N, 64) * K * sizeof(uint16_t); /* rows of 64 columns at least */
  for (const bool add : {false, true})
    for (auto kernel : {multiply<N, false, K_MAJOR>, multiply<N, false, MN_MAJOR>, multiply<N, true, K_MAJOR>,
                        multiply<N, true, MN_MAJOR>})
      if (!check_product<N>(kernel, shared, add)) return false;
  return true;
}

bool test_wgmma() { return all_forms<8>() && all_forms<64>() && all_forms<128>() && all_forms<256>(); }

/* Two groups: after wait_group 1 the first one is done, and the second one is not. */
__global__ void two_groups(float *out) {
  DYNAMIC_SHARED(memory);
  uint16_t *tile = reinterpret_cast<uint16_t *>(aligned_tile(memory));
  for (int i = threadIdx.x; i < M * K; i += THREADS) tile[i] = 0x3F80; /* 1 */
  float first[8][4], second[8][4];
  fence_proxy_async();
  __syncthreads();
  const uint64_t ones = tile_descriptor<K_MAJOR>(shared_address(tile), 0);
  wgmma_fence();
  wgmma_shared<K_MAJOR>(first, ones, ones, false);
  wgmma_commit();
  wgmma_shared<K_MAJOR>(second, ones, ones, false);
  wgmma_shared<K_MAJOR>(second, ones, ones, true);
  wgmma_commit();
  out[threadIdx.x] = first[0][0];
  wgmma_wait<1>();
  out[THREADS + threadIdx.x] = first[7][3];
  out[2 * THREADS + threadIdx.x] = second[7][3];
  wgmma_wait<0>();
  out[3 * THREADS + threadIdx.x] = second[7][3];
}

bool test_groups() {
  Device<float> out(4 * THREADS);
  float got[4 * THREADS];
  EXPECT_CUDA(launch(nullptr, two_groups, 1, THREADS, SLACK + TILE_BYTES, out.data));
  out.get(got);
  for (int t = 0; t < THREADS; t++) {
    EXPECT(got[t] != got[t] && got[2 * THREADS + t] != got[2 * THREADS + t]); /* NaN */
    EXPECT(got[THREADS + t] == 16.0f && got[3 * THREADS + t] == 32.0f);
  }
  return true;
}

/* multiply<64, true, K_MAJOR>() with a mistake. */
__global__ void multiply_wrongly(float *out, const uint16_t *a, const uint16_t *b, WgmmaBug bug) {
  DYNAMIC_SHARED(memory);
  uint16_t *tile = reinterpret_cast<uint16_t *>(aligned_tile(memory) + (bug == BUG_MISALIGNED ? 128 : 0));
  const int t = threadIdx.x, l = t % 32, warp = t / 32;
  for (int i = t; i < 64 * K; i += THREADS)
    if (bug != BUG_TILE_LATE || i < 63 * K) tile[place(i / K, i % K)] = b[i];
    else tile[place(i / K, i % K)] = 0;
  uint32_t left[4][4];
  float d[8][4];
  for (int k = 0; k < 4; k++) left_registers(left[k], a, k);
  if (bug != BUG_NO_PROXY_FENCE && bug != BUG_LATE_PROXY_FENCE) fence_proxy_async();
  __syncthreads();
  if (bug == BUG_LATE_PROXY_FENCE) fence_proxy_async();
  const uint64_t more = bug == BUG_STRIDE ? 64ull << 32 : 0;
  if (bug != BUG_NO_FENCE) wgmma_fence();
  for (int k = 0; k < 4; k++) {
    uint32_t brief[4];
    left_registers(brief, a, k);
    if (bug != BUG_WARP_SKIPS || warp != 2 || k < 3)
      wgmma_registers<K_MAJOR>(d, bug == BUG_REGISTER_SCOPE ? brief : left[k],
                               tile_descriptor<K_MAJOR>(shared_address(tile), k) + more, k > 0);
  }
  if (bug != BUG_NO_COMMIT) wgmma_commit();
  if (bug == BUG_REGISTER_REUSED) left[3][2] = 0;
  if (bug == BUG_SUM_WRITTEN) d[3][1] = 0;
  if (bug == BUG_TILE_REFILLED && t == 0) tile[place(5, 5)] = 0;
  if (bug == BUG_TILE_LATE && t < K) tile[place(63, t)] = b[63 * K + t];
  if (bug != BUG_NO_WAIT) wgmma_wait<0>();
  for (int n = 0; n < 8; n++)
    for (int i = 0; i < 4; i++) out[(16 * warp + l / 4 + i / 2 * 8) * 64 + 8 * n + l % 4 * 2 + i % 2] = d[n][i];
  if (bug == BUG_NO_WAIT) wgmma_wait<0>();
}

} // namespace

bool run_wgmma_bug(WgmmaBug bug) { return check_product<64>(multiply_wrongly, SLACK + 128 + TILE_BYTES, bug); }

const Test wgmma_tests[] = {
    {"wgmma", test_wgmma, NULL},
    {"wgmma, backwards", test_wgmma, "EMU_ORDER=rev EMU_CPASYNC=eager"},
    {"wgmma, at random", test_wgmma, "EMU_ORDER=rand:5"},
    {"groups of wgmma", test_groups, NULL},
    {NULL, NULL, NULL},
};
