/* The test of the emulator itself: operations with known answers, computed here by index and not by its code; what the
 * runtime allows and refuses (more of it in test_streams.cu, test_cublaslt.cu and test_wgmma.cu); and the planted bugs,
 * each of which the build at hand must notice. Prints what cmocka would. `test_emulator bug NAME 0|1` and
 * `test_emulator test NAME` run one thing, in the environment as it is. */
#include "tests/cuda_on_cpu/test_emulator.h"

#include <regex.h>
#include <string>
#include <unistd.h>

namespace {

/* ---- operations of a warp ---- */

enum { WARP_RESULTS = 12 };

__global__ void warp_operations(int *out) {
  const int l = threadIdx.x;
  const unsigned all = 0xFFFFFFFFu, even = 0x55555555u;
  int *own = out + l * WARP_RESULTS;
  own[0] = __shfl_sync(all, l, l * 5 % 32);
  own[1] = __shfl_sync(all, l, 3, 8);
  own[2] = __shfl_xor_sync(all, l, 21);
  own[3] = __shfl_down_sync(all, l, 3);
  own[4] = __shfl_up_sync(all, l, 3, 8);
  own[5] = (int)__ballot_sync(all, l % 3 == 0);
  own[6] = __any_sync(all, l == 31) * 2 + __all_sync(all, l < 31);
  own[7] = (int)__reduce_add_sync(all, (unsigned)l);
  own[8] = __reduce_max_sync(all, (l * 7) % 32 - 40);
  own[9] = l % 2 ? -1 : __reduce_min_sync(even, 100 - l);
  own[10] = l % 2 ? -1 : __shfl_xor_sync(even, l, 2);
  own[11] = (int)__shfl_xor_sync(all, 0x100000000ll * l, 1) + (int)(__shfl_xor_sync(all, 0x100000000ll * l, 1) >> 32);
}

bool test_warp_operations() {
  Device<int> out(32 * WARP_RESULTS);
  int got[32 * WARP_RESULTS];
  EXPECT_CUDA(launch(nullptr, warp_operations, 1, 32, 0, out.data));
  out.get(got);
  for (int l = 0; l < 32; l++) {
    const int *own = got + l * WARP_RESULTS;
    EXPECT(own[0] == l * 5 % 32 && own[1] == l / 8 * 8 + 3 && own[2] == (l ^ 21));
    EXPECT(own[3] == (l < 29 ? l + 3 : l) && own[4] == (l % 8 >= 3 ? l - 3 : l));
    EXPECT((unsigned)own[5] == 0x49249249u && own[6] == 2);
    EXPECT(own[7] == 496 && own[8] == -9);
    EXPECT(own[9] == (l % 2 ? -1 : 70) && own[10] == (l % 2 ? -1 : (l ^ 2)) && own[11] == (l ^ 1));
  }
  return true;
}

/* ---- barriers ---- */

__global__ void barriers(int *out) {
  __shared__ int s[100];
  const int t = threadIdx.x;
  s[t] = t;
  __syncthreads();
  out[t] = s[99 - t];
  const int any = __syncthreads_or(t == 77), all = __syncthreads_and(t < 99), count = __syncthreads_count(t % 3 == 0);
  if (t == 0) out[100] = any * 1000 + all * 100 + count;
  if (t >= 50) return; /* the others meet without these */
  __syncthreads();
  if (t < 32) atomicAdd(&out[101], t);
  if (t < 32) __syncwarp();
}

bool test_barriers() {
  Device<int> out(102);
  int got[102] = {};
  out.set(got);
  EXPECT_CUDA(launch(nullptr, barriers, 1, 100, 0, out.data));
  out.get(got);
  for (int t = 0; t < 100; t++) EXPECT(got[t] == 99 - t);
  EXPECT(got[100] == 1000 + 34 && got[101] == 496);
  return true;
}

__global__ void positions(int *out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  atomicAdd(&out[block * 24 + thread], 1 + 10 * (int)threadIdx.z + 100 * (int)blockIdx.z);
}

bool test_positions() {
  const int blocks = 2 * 3 * 2, threads = 4 * 3 * 2;
  Device<int> out(blocks * threads);
  int got[blocks * threads] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2, 3, 2);
  config.blockDim = dim3(4, 3, 2);
  out.set(got);
  EXPECT_CUDA(cudaLaunchKernelEx(&config, positions, out.data));
  out.get(got);
  for (int i = 0; i < blocks * threads; i++) EXPECT(got[i] == 1 + 10 * (i % threads / 12) + 100 * (i / threads / 6));
  return true;
}

/* ---- fragments: the indices are those of the PTX ISA's figures, lane by lane ---- */

__global__ void multiply_fragments(float *d, const uint16_t *a, const uint16_t *b) {
  const int l = threadIdx.x;
  uint32_t fa[4], fb[2];
  float fd[4];
  for (int i = 0; i < 8;
       i++) { /* a_i: row = groupID (+ 8 for i = 2, 3, 6, 7), col = 2 * thread + i % 2 (+ 8 for i >= 4) */
    const int row = l / 4 + (i / 2 % 2 ? 8 : 0), column = l % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0);
    uint32_t &word = fa[i / 2];
    word = i % 2 ? word | (uint32_t)a[row * 16 + column] << 16 : a[row * 16 + column];
  }
  for (int i = 0; i < 4; i++) { /* b_i: row (k) = 2 * thread + i % 2 (+ 8 for i >= 2), col (n) = groupID */
    const int k = l % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0), n = l / 4;
    uint32_t &word = fb[i / 2];
    word = i % 2 ? word | (uint32_t)b[k * 8 + n] << 16 : b[k * 8 + n];
  }
  for (int i = 0; i < 4; i++) fd[i] = (float)i; /* c_i: row = groupID (+ 8 for i >= 2), col = 2 * thread + i % 2 */
  mma_bf16(fd, fa, fb[0], fb[1]);
  for (int i = 0; i < 4; i++) d[(l / 4 + (i >= 2 ? 8 : 0)) * 8 + l % 4 * 2 + i % 2] = fd[i] - (float)i;
}

uint16_t bf16_bits(int x) {
  const float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (uint16_t)(bits >> 16); /* small integers are exact */
}

bool test_mma() {
  Device<uint16_t> a(256), b(128);
  Device<float> d(128);
  uint16_t left[256], right[128];
  float out[128];
  for (int i = 0; i < 256; i++) left[i] = bf16_bits((i * 37 + i / 16 * 11) % 41 - 20);
  for (int i = 0; i < 128; i++) right[i] = bf16_bits((i * 29 + i / 8 * 5) % 43 - 21);
  a.set(left), b.set(right);
  EXPECT_CUDA(launch(nullptr, multiply_fragments, 1, 32, 0, d.data, a.data, b.data));
  d.get(out);
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 8; n++) {
      int sum = 0;
      for (int k = 0; k < 16; k++) {
        const int i = m * 16 + k, j = k * 8 + n;
        sum += ((i * 37 + i / 16 * 11) % 41 - 20) * ((j * 29 + j / 8 * 5) % 43 - 21);
      }
      EXPECT(out[m * 8 + n] == (float)sum);
    }
  return true;
}

/* Row r of matrix m starts at element (r * 5 + m * 3) % 32 * 8, so that no two rows are neighbors by accident. */
__host__ __device__ inline int matrix_row(int matrix, int row) { return ((matrix * 8 + row) * 5 + 3) % 32 * 8; }

__global__ void load_matrices(uint32_t *out, bool transpose) {
  DYNAMIC_SHARED(memory);
  uint16_t *s = reinterpret_cast<uint16_t *>(memory);
  const int l = threadIdx.x;
  uint32_t r[4];
  for (int i = l; i < 256; i += 32) s[i] = (uint16_t)(i * 257 + 1);
  __syncthreads();
  if (transpose) ldmatrix_x4_trans(r, s + matrix_row(l / 8, l % 8));
  else ldmatrix_x4(r, s + matrix_row(l / 8, l % 8));
  for (int i = 0; i < 4; i++) out[l * 4 + i] = r[i];
}

bool test_ldmatrix() {
  Device<uint32_t> out(128);
  uint32_t got[128];
  for (int transpose = 0; transpose < 2; transpose++) {
    EXPECT_CUDA(launch(nullptr, load_matrices, 1, 32, 512, out.data, transpose == 1));
    out.get(got);
    for (int l = 0; l < 32; l++)
      for (int matrix = 0; matrix < 4; matrix++)
        for (int half = 0; half < 2; half++) {
          const int i = l / 4, j = l % 4 * 2 + half;
          const int at = transpose ? matrix_row(matrix, j) + i : matrix_row(matrix, i) + j;
          EXPECT((got[l * 4 + matrix] >> 16 * half & 0xFFFF) == (uint16_t)(at * 257 + 1));
        }
  }
  return true;
}

/* ---- cp.async: before the wait the old bytes, after it the new ones; groups in order; zeros for what is not read
 * ---- */

__global__ void copy_asynchronously(uint32_t *out, const uint32_t *in) {
  DYNAMIC_SHARED(memory);
  uint32_t *s = reinterpret_cast<uint32_t *>(memory);
  for (int i = 0; i < 12; i++) s[i] = 7;
  cp_async16(s, in);
  cp_async_commit();
  cp_async16(s + 4, in + 4);
  cp_async_commit();
  cp_async16(s + 8, in + 4000, false);
  cp_async_commit();
  for (int i = 0; i < 12; i++) out[i] = s[i];
  cp_async_wait<2>();
  for (int i = 0; i < 12; i++) out[12 + i] = s[i];
  cp_async_wait<0>();
  for (int i = 0; i < 12; i++) out[24 + i] = s[i];
}

bool copies_land(bool at_once) {
  Device<uint32_t> out(36), in(8);
  const uint32_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint32_t got[36];
  in.set(values);
  EXPECT_CUDA(launch(nullptr, copy_asynchronously, 1, 1, 48, out.data, in.data));
  out.get(got);
  for (int i = 0; i < 12; i++) {
    const uint32_t after = i < 8 ? values[i] : 0;
    EXPECT(got[i] == (at_once ? after : 7));
    EXPECT(got[12 + i] == (i < 4 || at_once ? after : 7));
    EXPECT(got[24 + i] == after);
  }
  return true;
}

bool test_copies_land_late() { return copies_land(false); }
bool test_copies_land_at_once() { return copies_land(true); }

/* ---- memory ---- */

__global__ void fill(int *to, int value) { to[threadIdx.x] = value; }

bool test_memory() {
  Device<uint32_t> d(5);
  uint32_t got[5];
  void *p = &p;
  size_t available = 0, total = 0, later = 0;
  d.get(got);
  for (uint32_t word : got) EXPECT(word == 0xFFFFFFFFu);
  EXPECT_CUDA(cudaMemGetInfo(&available, &total));
  EXPECT(available == total - 20 && cudaMalloc(&p, available + 1) == cudaErrorMemoryAllocation && !p);
  EXPECT(cudaMalloc(&p, (size_t)1 << 60) == cudaErrorMemoryAllocation &&
         cudaGetLastError() == cudaErrorMemoryAllocation);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT_CUDA(cudaMalloc(&p, 1000));
  EXPECT_CUDA(cudaMemGetInfo(&later, &total));
  EXPECT((uintptr_t)p % 256 == 0 && later == available - 1000);
  EXPECT_CUDA(cudaFree(p));
  EXPECT(cudaFree(p) == cudaErrorInvalidValue && cudaFree(got) == cudaErrorInvalidValue &&
         cudaFree(NULL) == cudaSuccess);
  EXPECT(cudaMemcpy(got, d.data, 24, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(d.data, got, 20, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  EXPECT(cudaMemset(got, 0, 20) == cudaErrorInvalidValue && cudaMemset(d.data, 0, 21) == cudaErrorInvalidValue);
  EXPECT(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
  EXPECT(strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
  return true;
}

bool test_pinned_memory() {
  void *pinned = nullptr;
  EXPECT_CUDA(cudaHostAlloc(&pinned, 128, cudaHostAllocMapped));
  EXPECT_CUDA(launch(nullptr, fill, 1, 32, 0, static_cast<int *>(pinned), 5));
  EXPECT(static_cast<int *>(pinned)[31] == 5);
  EXPECT(cudaFree(pinned) == cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFreeHost(pinned));
  return true;
}

/* ---- launches: limits of the card ---- */

bool shared_memory_limit(int kib) {
  Device<int> d(1);
  cudaDeviceProp properties;
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 0));
  EXPECT(properties.sharedMemPerBlockOptin == (size_t)kib << 10 && properties.sharedMemPerBlock == 48 << 10);
  EXPECT_CUDA(launch(nullptr, fill, 1, 1, 47 << 10, d.data, 1));
  EXPECT(launch(nullptr, fill, 1, 1, (47 << 10) + 1, d.data, 1) == cudaErrorInvalidValue);
  EXPECT(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, (kib << 10) + 1) ==
         cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, kib << 10));
  EXPECT_CUDA(launch(nullptr, fill, 1, 1, (size_t)kib << 10, d.data, 1));
  EXPECT(launch(nullptr, fill, 1, 1, ((size_t)kib << 10) + 1, d.data, 1) == cudaErrorInvalidValue);
  return true;
}

bool test_shared_memory_80() { return shared_memory_limit(163); }
bool test_shared_memory_86() { return shared_memory_limit(99); }
bool test_shared_memory_89() { return shared_memory_limit(99); }
bool test_shared_memory_90() { return shared_memory_limit(227); }

bool test_launch_limits() {
  Device<int> d(1024);
  EXPECT_CUDA(launch(nullptr, fill, 1, 1024, 0, d.data, 1));
  EXPECT(launch(nullptr, fill, 1, 1025, 0, d.data, 1) == cudaErrorInvalidConfiguration);
  EXPECT(launch(nullptr, fill, 0, 1, 0, d.data, 1) == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  return true;
}

/* ---- running ---- */

const Test tests[] = {
    {"warp operations", test_warp_operations, NULL},
    {"warp operations, backwards", test_warp_operations, "EMU_ORDER=rev"},
    {"warp operations, at random", test_warp_operations, "EMU_ORDER=rand:5"},
    {"barriers", test_barriers, NULL},
    {"barriers, backwards", test_barriers, "EMU_ORDER=rev"},
    {"barriers, at random", test_barriers, "EMU_ORDER=rand:5"},
    {"positions", test_positions, "EMU_ORDER=rand:6"},
    {"mma", test_mma, NULL},
    {"ldmatrix", test_ldmatrix, NULL},
    {"cp.async lands late", test_copies_land_late, NULL},
    {"cp.async lands at once", test_copies_land_at_once, "EMU_CPASYNC=eager"},
    {"memory", test_memory, NULL},
    {"pinned memory", test_pinned_memory, NULL},
    {"shared memory of sm_80", test_shared_memory_80, "EMU_SM=80"},
    {"shared memory of sm_86", test_shared_memory_86, "EMU_SM=86"},
    {"shared memory of sm_89", test_shared_memory_89, "EMU_SM=89"},
    {"shared memory of sm_90", test_shared_memory_90, "EMU_SM=90"},
    {"limits of launches", test_launch_limits, NULL},
    {NULL, NULL, NULL},
};

/* This program again, in another environment: its exit status and output. */
int run_again(const std::string &arguments, const char *environment, std::string *output) {
  char self[4096], part[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  self[length > 0 ? length : 0] = 0;
  const std::string command = std::string("ASAN_OPTIONS=symbolize=0:detect_leaks=0 ") + environment + " timeout 60 '" +
                              self + "' " + arguments + " 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe) return -1;
  output->clear();
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) output->append(part, n);
  return pclose(pipe);
}

bool run_test(const Test &test) {
  if (!test.environment) return test.run();
  std::string output;
  const int status = run_again(std::string("test '") + test.name + "'", test.environment, &output);
  if (status != 0) fprintf(stderr, "%s\n", output.c_str());
  return status == 0;
}

bool matches(const char *expression, const std::string &text) {
  regex_t compiled;
  if (regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&compiled, text.c_str(), 0, NULL, 0) == 0;
  regfree(&compiled);
  return found;
}

const char *words_of(const PlantedBug &bug) {
#if defined(__SANITIZE_ADDRESS__)
  return bug.address;
#elif defined(__SANITIZE_THREAD__)
  return bug.race;
#else
  return bug.plain;
#endif
}

bool run_bug(const PlantedBug &bug) {
  const std::string name = std::string("bug ") + bug.name;
  const char *words = words_of(bug);
  std::string output;
  if (run_again(name + " 0", bug.environment, &output) != 0 || !output.empty()) {
    fprintf(stderr, "%s, without the bug: %s\n", bug.name, output.c_str());
    return false;
  }
  if (!words) return true;
  if (run_again(name + " 1", bug.environment, &output) != 0 && matches(words, output)) return true;
  fprintf(stderr, "%s was not noticed: no \"%s\" in: %s\n", bug.name, words, output.c_str());
  return false;
}

int run_one(const char *what, const char *name, bool broken) {
  if (strcmp(what, "bug") == 0)
    for (const PlantedBug *b = planted_bugs; b->name; b++)
      if (strcmp(b->name, name) == 0) return b->run(broken) ? 0 : 1;
  for (const Test *list : {tests, stream_tests, cublaslt_tests, wgmma_tests})
    for (const Test *t = list; t->name; t++)
      if (strcmp(t->name, name) == 0) return t->run() ? 0 : 1;
  fprintf(stderr, "there is no %s %s\n", what, name);
  return 2;
}

int passed, failed;

void count(const char *name, bool good) {
  printf("[  %s ] %s\n", good ? "     OK" : "FAILED ", name);
  fflush(stdout);
  (good ? passed : failed)++;
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 2) return run_one(argv[1], argv[2], argc > 3 && argv[3][0] == '1');
  for (const char *name : {"EMU_ORDER", "EMU_CPASYNC", "EMU_STREAMS", "EMU_SM", "EMU_HOSTGUARD", "EMU_VERBOSE"})
    unsetenv(name);
  for (const Test *list : {tests, stream_tests, cublaslt_tests, wgmma_tests})
    for (const Test *t = list; t->name; t++) count(t->name, run_test(*t));
  for (const PlantedBug *b = planted_bugs; b->name; b++) count(b->name, run_bug(*b));
  printf("[  PASSED  ] %d test(s).\n", passed);
  if (failed) printf("[  FAILED  ] %d test(s).\n", failed);
  return failed ? 1 : 0;
}
