/* Are the tensor-core fragments laid out as the kernels and the emulator assume? A program, because it wants a card.
 *
 * Runs every function of kernels/cuda/primitives.cuh in one warp, those of wgmma.cuh in four, and compares each
 * register of each lane with what plain C++ computes from the index formulas of the PTX ISA (9.7.14 "mma.m16n8k16",
 * "ldmatrix"; 9.7.15 "wgmma"; 9.7.9 "cp.async"). The same source runs on the card and in tests/cuda_on_cpu, so that
 * both are held to the same tables. Prints a line a check and the first lane and register that differ; status 0 when
 * all agree, 1 when not, 2 without a device. */
#include "kernels/cuda/wgmma.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

namespace {

enum { LANES = 32, TILE = 4 * 8 * 8, COPIES = 64, EXPONENTS = 1 << 16 };
enum { GROUP = 4 * LANES, SIDE = 64, DEPTH = 64, GROUP_TILE = SIDE * DEPTH }; /* of wgmma */

/* ---- device ---- */

__global__ void run_ldmatrix(uint32_t *out, const uint16_t *in, const int *row_of_lane, bool transposed) {
  DYNAMIC_SHARED(shared);
  uint16_t *tile = (uint16_t *)shared; /* 32 rows of 8 numbers */
  const int lane = (int)threadIdx.x;
  for (int i = 0; i < 8; i++) tile[lane * 8 + i] = in[lane * 8 + i];
  __syncthreads();
  uint32_t r[4] = {};
  if (transposed) ldmatrix_x4_trans(r, tile + row_of_lane[lane] * 8);
  else ldmatrix_x4(r, tile + row_of_lane[lane] * 8);
  for (int i = 0; i < 4; i++) out[lane * 4 + i] = r[i];
}

/* a, b: the registers of each lane, [32][4] and [32][2]; d [32][4], read and written. */
__global__ void run_mma(float *d, const uint32_t *a, const uint32_t *b) {
  const int lane = (int)threadIdx.x;
  uint32_t fragment[4];
  float sum[4];
  for (int i = 0; i < 4; i++) fragment[i] = a[lane * 4 + i], sum[i] = d[lane * 4 + i];
  mma_bf16(sum, fragment, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; i++) d[lane * 4 + i] = sum[i];
}

/* Products of a warpgroup: the left factor a [SIDE][DEPTH] from shared memory or registers, right factor b
 * [SIDE][DEPTH] (K_MAJOR: its rows are columns of the product) or [DEPTH][SIDE]; d [SIDE][SIDE], read if `add`. In two
 * groups. Compiled for sm_90a alone. */
template <bool REGISTERS, Major MAJOR>
__global__ void run_wgmma(float *d, const uint16_t *a, const uint16_t *b, bool add) {
#if defined(CUDA_ON_CPU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  DYNAMIC_SHARED(shared);
  uint16_t *a_tile = (uint16_t *)(shared + -shared_address(shared) % 1024), *b_tile = a_tile + GROUP_TILE;
  const int thread = (int)threadIdx.x, lane = thread % LANES, warp = thread / LANES;
  for (int i = thread; i < GROUP_TILE; i += GROUP) { /* chunk c of row r lies at place c ^ r % 8 */
    const int row = i / 64, place = row * 64 + (i / 8 % 8 ^ row % 8) * 8 + i % 8;
    a_tile[place] = a[i], b_tile[place] = b[i];
  }
  uint32_t left[4][4];
  float sum[8][4];
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < 4; i++) {
      const int at = (16 * warp + lane / 4 + 8 * (i % 2)) * DEPTH + 16 * k + 2 * (lane % 4) + 8 * (i / 2);
      left[k][i] = a[at] | (uint32_t)a[at + 1] << 16;
    }
  for (int n = 0; n < 8; n++)
    for (int i = 0; i < 4; i++)
      sum[n][i] = d[(16 * warp + lane / 4 + 8 * (i / 2)) * SIDE + 8 * n + 2 * (lane % 4) + i % 2];
  fence_proxy_async();
  __syncthreads();
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const uint64_t right = tile_descriptor<MAJOR>(shared_address(b_tile), k);
    if (REGISTERS) wgmma_registers<MAJOR>(sum, left[k], right, add || k > 0);
    else wgmma_shared<MAJOR>(sum, tile_descriptor<K_MAJOR>(shared_address(a_tile), k), right, add || k > 0);
    if (k % 2) wgmma_commit();
  }
  wgmma_wait<1>();
  wgmma_wait<0>();
  for (int n = 0; n < 8; n++)
    for (int i = 0; i < 4; i++)
      d[(16 * warp + lane / 4 + 8 * (i / 2)) * SIDE + 8 * n + 2 * (lane % 4) + i % 2] = sum[n][i];
#endif
}

/* Thread i copies 16 bytes from in[from[i]] to place i, in two groups; from[i] < 0: nothing, which leaves zeros. */
__global__ void run_cp_async(uint4 *out, const uint4 *in, const int *from) {
  DYNAMIC_SHARED(shared);
  uint4 *place = (uint4 *)shared;
  const int i = (int)threadIdx.x;
  place[i] = make_uint4(0xDEADu, 0xDEADu, 0xDEADu, 0xDEADu);
  place[COPIES + i] = place[i];
  __syncthreads();
  cp_async16(place + i, in + (from[i] < 0 ? 0 : from[i]), from[i] >= 0);
  cp_async_commit();
  cp_async16(place + COPIES + i, in + i);
  cp_async_commit();
  cp_async_wait<1>(); /* the first group has landed, the second may be on its way */
  __syncthreads();
  out[i] = place[COPIES - 1 - i]; /* of another thread */
  cp_async_wait<0>();
  __syncthreads();
  out[COPIES + i] = place[2 * COPIES - 1 - i];
}

/* As above, into registers: from[i] < 0 asks for nothing and gets zeros. */
template <bool CONSTANT> __global__ void run_load16(uint4 *out, const uint4 *in, const int *from) {
  const int i = (int)threadIdx.x;
  out[i] = load16_ordered<CONSTANT>(from[i] < 0 ? NULL : in + from[i], from[i] >= 0);
}

__global__ void run_exp2(float *out, const float *in, int count) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = exp2_approx(in[i]);
}

/* ---- host ---- */

cudaStream_t stream;
int failures;

bool good(cudaError_t status, const char *what) {
  if (status == cudaSuccess) return true;
  printf("not ok %s: %s\n", what, cudaGetErrorString(status));
  failures++;
  return false;
}

template <class T> struct Device {
  T *data = NULL;
  explicit Device(const std::vector<T> &host) {
    void *memory = NULL;
    if (good(cudaMalloc(&memory, host.size() * sizeof(T)), "cudaMalloc") &&
        good(cudaMemcpyAsync(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, stream), "upload"))
      data = (T *)memory;
  }
  ~Device() { cudaFree(data); }
  Device(const Device &) = delete;
  void read(std::vector<T> &host) const {
    good(cudaMemcpyAsync(host.data(), data, host.size() * sizeof(T), cudaMemcpyDeviceToHost, stream), "download");
  }
};

template <class... P, class... A>
bool run(const char *what, void (*kernel)(P...), int blocks, int threads, size_t shared, A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)blocks);
  config.blockDim = dim3((unsigned)threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return good(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), what);
}

bool finished(const char *what) { return good(cudaStreamSynchronize(stream), what); }

void passed(const char *what, int count) {
  printf("ok     %s: %d values\n", what, count);
  fflush(stdout);
}

void differs(const char *what, int lane, int reg, double got, double want) {
  printf("not ok %s: lane %d, register %d holds %.9g, not %.9g\n", what, lane, reg, got, want);
  fflush(stdout);
  failures++;
}

uint32_t next_random() {
  static uint32_t state = 12345;
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

/* A multiple of 1/8 from -2 to 2: exact in bf16, and so are products and sums of 16 of them in fp32. */
float small_number() { return (float)((int)(next_random() % 33) - 16) / 8.0f; }

uint32_t bf16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits >> 16;
}

/* ldmatrix.x4: lane l addresses row l % 8 of matrix l / 8. Register m of lane l gets, of matrix m, the elements
 * (row l / 4, columns 2 * (l % 4) and + 1), the first in the low half; with .trans rows and columns change places. */
void check_ldmatrix(bool transposed, bool scattered) {
  char what[64];
  snprintf(what, sizeof what, "ldmatrix.x4%s%s", transposed ? ".trans" : "", scattered ? ", scattered rows" : "");
  std::vector<uint16_t> tile(TILE);
  std::vector<int> rows(LANES);
  std::vector<uint32_t> out(LANES * 4, 0xFFFFFFFFu);
  for (int i = 0; i < TILE; i++) tile[i] = (uint16_t)(i * 97 + 5); /* all different */
  for (int l = 0; l < LANES; l++) rows[l] = scattered ? (l * 11 + 3) % LANES : l;
  Device<uint16_t> in(tile);
  Device<int> row_of_lane(rows);
  Device<uint32_t> result(out);
  if (!run(what, run_ldmatrix, 1, LANES, TILE * sizeof(uint16_t), result.data, in.data, row_of_lane.data, transposed))
    return;
  result.read(out);
  if (!finished(what)) return;
  for (int lane = 0; lane < LANES; lane++)
    for (int m = 0; m < 4; m++) {
      uint32_t want = 0;
      for (int half = 0; half < 2; half++) {
        const int row = transposed ? 2 * (lane % 4) + half : lane / 4,
                  column = transposed ? lane / 4 : 2 * (lane % 4) + half;
        want |= (uint32_t)tile[rows[m * 8 + row] * 8 + column] << (16 * half);
      }
      if (out[lane * 4 + m] != want) return differs(what, lane, m, out[lane * 4 + m], want);
    }
  passed(what, LANES * 4);
}

/* mma.m16n8k16, with g = lane / 4 and t = lane % 4. Register i of A holds (row g + 8 * (i % 2), columns 2t + 8 * (i /
 * 2) and + 1); register i of B (rows 2t + 8i and + 1, column g); register i of D (row g + 8 * (i / 2), column 2t + i %
 * 2). */
void check_mma() {
  const char *what = "mma.m16n8k16 bf16";
  float a[16][16], b[16][8], sum[16][8];
  for (auto &row : a)
    for (float &x : row) x = small_number();
  for (auto &row : b)
    for (float &x : row) x = small_number();
  for (auto &row : sum)
    for (float &x : row) x = small_number();
  std::vector<uint32_t> fragment_a(LANES * 4), fragment_b(LANES * 2);
  std::vector<float> d(LANES * 4);
  for (int lane = 0; lane < LANES; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
      fragment_a[lane * 4 + i] = bf16_bits(a[row][column]) | bf16_bits(a[row][column + 1]) << 16;
      d[lane * 4 + i] = sum[g + 8 * (i / 2)][2 * t + i % 2];
    }
    for (int i = 0; i < 2; i++) {
      const int row = 2 * t + 8 * i;
      fragment_b[lane * 2 + i] = bf16_bits(b[row][g]) | bf16_bits(b[row + 1][g]) << 16;
    }
  }
  Device<uint32_t> da(fragment_a), db(fragment_b);
  Device<float> dd(d);
  if (!run(what, run_mma, 1, LANES, 0, dd.data, da.data, db.data)) return;
  dd.read(d);
  if (!finished(what)) return;
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      float want = sum[row][column];
      for (int k = 0; k < 16; k++) want += a[row][k] * b[k][column]; /* exact */
      if (d[lane * 4 + i] != want) return differs(what, lane, i, d[lane * 4 + i], want);
    }
  passed(what, LANES * 4);
}

/* wgmma.m64n64k16, four times: warp w of the warpgroup has rows 16w .. 16w+15 of A and D, which lie in its registers as
 * those of mma.m16n8k16, columns 8n .. of D in d[n]. */
template <bool REGISTERS, Major MAJOR> void check_wgmma(bool add) {
  char what[80];
  snprintf(what, sizeof what, "wgmma.m64n64k16 bf16, A in %s, B %s%s", REGISTERS ? "registers" : "shared memory",
           MAJOR == K_MAJOR ? "K-major" : "MN-major", add ? ", added" : "");
  std::vector<uint16_t> a(GROUP_TILE), b(GROUP_TILE);
  std::vector<float> left(GROUP_TILE), right(GROUP_TILE), d(SIDE * SIDE);
  for (int i = 0; i < GROUP_TILE; i++) {
    a[i] = (uint16_t)bf16_bits(left[i] = small_number());
    b[i] = (uint16_t)bf16_bits(right[i] = small_number());
  }
  for (float &x : d) x = add ? small_number() : NAN;
  const std::vector<float> before = d;
  Device<uint16_t> da(a), db(b);
  Device<float> dd(d);
  if (!run(what, run_wgmma<REGISTERS, MAJOR>, 1, GROUP, 1024 + 2 * GROUP_TILE * sizeof(uint16_t), dd.data, da.data,
           db.data, add))
    return;
  dd.read(d);
  if (!finished(what)) return;
  for (int i = 0; i < SIDE * SIDE; i++) {
    const int row = i / SIDE, column = i % SIDE;
    float want = add ? before[i] : 0;
    for (int k = 0; k < DEPTH; k++) /* exact */
      want += left[row * DEPTH + k] * right[MAJOR == K_MAJOR ? column * DEPTH + k : k * SIDE + column];
    const int lane = row % 8 * 4 + column % 8 / 2, reg = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
    if (!(d[i] == want)) return differs(what, row / 16 * LANES + lane, reg, d[i], want);
  }
  passed(what, SIDE * SIDE);
}

/* On cards of compute capability 9.0, if the program was compiled for them. */
void check_hopper(const cudaDeviceProp &properties) {
#ifdef INKLING_WGMMA
  const bool compiled = true;
#else
  const bool compiled = false;
#endif
  if (!compiled || properties.major != 9 || properties.minor != 0) {
    printf("       wgmma is not checked: %s\n", compiled ? "the card does not have it" : "not compiled for sm_90a");
    return;
  }
  for (const bool add : {false, true}) {
    check_wgmma<false, K_MAJOR>(add);
    check_wgmma<false, MN_MAJOR>(add);
    check_wgmma<true, K_MAJOR>(add);
    check_wgmma<true, MN_MAJOR>(add);
  }
}

/* COPIES pieces of 16 bytes, all of their words different. */
std::vector<uint4> numbered_chunks() {
  std::vector<uint4> chunks(COPIES);
  for (int i = 0; i < COPIES; i++) chunks[i] = make_uint4(4u * i, 4u * i + 1, 4u * i + 2, 4u * i + 3);
  return chunks;
}

/* Which of them goes where; -1: none. */
std::vector<int> scattered_places() {
  std::vector<int> from(COPIES);
  for (int i = 0; i < COPIES; i++) from[i] = i % 3 == 0 ? -1 : (i * 7) % COPIES;
  return from;
}

void check_cp_async() {
  const char *what = "cp.async 16 bytes, with and without a source";
  const std::vector<uint4> in = numbered_chunks();
  const std::vector<int> from = scattered_places();
  std::vector<uint4> out(2 * COPIES, make_uint4(7, 7, 7, 7));
  Device<uint4> source(in), result(out);
  Device<int> places(from);
  if (!run(what, run_cp_async, 1, COPIES, 2 * COPIES * sizeof(uint4), result.data, source.data, places.data)) return;
  result.read(out);
  if (!finished(what)) return;
  for (int i = 0; i < 2 * COPIES; i++) {
    const int place = COPIES - 1 - i % COPIES, source_of = i < COPIES ? from[place] : place;
    const uint32_t got[4] = {out[i].x, out[i].y, out[i].z, out[i].w};
    for (int word = 0; word < 4; word++) {
      const uint32_t want = source_of < 0 ? 0 : 4u * (uint32_t)source_of + (uint32_t)word;
      if (got[word] != want) return differs(what, i, word, got[word], want);
    }
  }
  passed(what, 2 * COPIES * 4);
}

template <bool CONSTANT> void check_load16(const char *what) {
  const std::vector<uint4> in = numbered_chunks();
  const std::vector<int> from = scattered_places();
  std::vector<uint4> out(COPIES, make_uint4(7, 7, 7, 7));
  Device<uint4> source(in), result(out);
  Device<int> places(from);
  if (!run(what, run_load16<CONSTANT>, 1, COPIES, 0, result.data, source.data, places.data)) return;
  result.read(out);
  if (!finished(what)) return;
  for (int i = 0; i < COPIES; i++) {
    const uint32_t got[4] = {out[i].x, out[i].y, out[i].z, out[i].w};
    for (int word = 0; word < 4; word++) {
      const uint32_t want = from[i] < 0 ? 0 : 4u * (uint32_t)from[i] + (uint32_t)word;
      if (got[word] != want) return differs(what, i, word, got[word], want);
    }
  }
  passed(what, COPIES * 4);
}

/* What primitives.cuh promises: about 2 ulp; exact at 0; results below 2^-126 are 0; -inf gives 0, NaN stays. */
void check_exp2() {
  const char *what = "exp2_approx";
  std::vector<float> x(EXPONENTS), y(EXPONENTS);
  const float special[] = {0.0f, -0.0f, -INFINITY, -1000.0f, -127.5f, -148.0f, NAN, 1.0f, -1.0f, 10.0f};
  const int specials = (int)(sizeof special / sizeof special[0]);
  for (int i = 0; i < EXPONENTS; i++)
    x[i] = i < specials ? special[i] : -120.0f + 124.0f * (float)next_random() / 16777216.0f;
  Device<float> in(x), out(y);
  if (!run(what, run_exp2, EXPONENTS / 256, 256, 0, out.data, in.data, (int)EXPONENTS)) return;
  out.read(y);
  if (!finished(what)) return;
  double worst = 0;
  int worst_at = 0;
  for (int i = 0; i < EXPONENTS; i++) {
    const double want = x[i] < -126.0f ? 0 : exp2((double)x[i]);
    if (isnan(x[i])) {
      if (!isnan(y[i])) return differs(what, i, 0, y[i], NAN);
    } else if (want == 0) {
      /* the emulator's exp2f keeps what is smaller than normal numbers; kernels may not rely on either */
      if (!(y[i] >= 0 && y[i] < 1.1754944e-38f)) return differs(what, i, 0, y[i], 0);
    } else {
      const double error = fabs(y[i] - want) / want * 8388608.0; /* 2^23: in units of the last place, or half as many */
      if (!(error <= worst)) worst = error, worst_at = i;
    }
  }
  printf("       exp2_approx: largest error %.3f ulp, at %.9g\n", worst, (double)x[worst_at]);
  if (!(worst <= 3.0)) return differs(what, worst_at, 0, y[worst_at], exp2((double)x[worst_at]));
  if (y[0] != 1.0f || y[1] != 1.0f) return differs(what, 0, 0, y[0], 1);
  passed(what, EXPONENTS);
}

} // namespace

int main() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || !count) {
    printf("not run: no CUDA device (%s)\n", cudaGetErrorString(status));
    return 2;
  }
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)
    printf("device %s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  if (!good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream")) return 1;
  for (int scattered = 0; scattered < 2; scattered++)
    for (int transposed = 0; transposed < 2; transposed++) check_ldmatrix(transposed, scattered);
  check_mma();
  check_cp_async();
  check_load16<true>("load16_ordered of constants, with and without a source");
  check_load16<false>("load16_ordered of other numbers, with and without a source");
  check_exp2();
  check_hopper(properties);
  cudaStreamDestroy(stream);
  printf(failures ? "%d checks failed\n" : "fragments: all as the PTX ISA says\n", failures);
  return failures ? 1 : 0;
}
