/* Kernels with a mistake each, and the same without it: what the harness must notice, and must not. test_emulator runs
 * each in a process of its own. Every function is right when `broken` is false. */
#include "tests/cuda_on_cpu/test_emulator.h"

enum { N = 64 }; /* threads of a block, and floats in most arrays */

/* Runs a kernel of N threads and compares what it leaves in g[0..N) with want(i). */
template <class Kernel, class Want>
static bool gives(Kernel kernel, bool broken, size_t shared, Want want, unsigned blocks = 1) {
  Device<float> g(N);
  float out[N], start[N];
  for (int i = 0; i < N; i++) start[i] = (float)i;
  g.set(start);
  EXPECT_CUDA(launch(nullptr, kernel, blocks, N, shared, g.data, broken));
  g.get(out);
  for (int i = 0; i < N; i++) EXPECT(out[i] == want(i));
  return true;
}

static float same(int i) { return (float)i; }
static float neighbor(int i) { return (float)(i ^ 32); } /* of another warp */

namespace {

/* ---- addresses ---- */

__global__ void static_shared_end(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  s[t + broken] = g[t];
  __syncthreads();
  g[t] = s[t];
}

template <class T> __device__ T *of_the_block() {
  __shared__ T s[N];
  return s;
}

__global__ void shared_of_template_end(float *g, bool broken) {
  float *s = of_the_block<float>();
  const int t = threadIdx.x;
  s[t + broken] = g[t];
  __syncthreads();
  g[t] = s[t];
}

__global__ void dynamic_shared_end(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  float *s = reinterpret_cast<float *>(memory);
  const int t = threadIdx.x;
  s[t + broken] = g[t];
  __syncthreads();
  g[t] = s[t];
}

__global__ void global_end(float *g, bool broken) { g[threadIdx.x + broken] = (float)(threadIdx.x + broken); }

__global__ void local_end(float *g, bool broken) {
  float own[4];
  for (int i = 0; i < 4; i++) own[i] = g[threadIdx.x];
  volatile int at = broken ? 4 : 3;
  g[threadIdx.x] = own[at];
}

__global__ void misaligned_vector(float *g, bool broken) {
  if (threadIdx.x) return;
  const float4 v = *reinterpret_cast<const float4 *>(g + broken);
  g[3] = v.w - (float)broken;
}

__global__ void misaligned_ldg(float *g, bool broken) {
  if (threadIdx.x) return;
  const float4 v = __ldg(reinterpret_cast<const float4 *>(g + broken));
  g[3] = v.w;
}

__global__ void misaligned_ldmatrix(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  uint32_t r[4];
  const int t = threadIdx.x;
  reinterpret_cast<float *>(memory)[t] = g[t];
  __syncthreads();
  ldmatrix_x4(r, memory + t % 8 * 16 + broken * 8);
}

__global__ void ldmatrix_end(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  uint32_t r[4];
  const int t = threadIdx.x;
  reinterpret_cast<float *>(memory)[t] = g[t];
  __syncthreads();
  ldmatrix_x4(r, memory + (t % 16 + broken) * 16);
}

__global__ void cp_async_end(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  const int t = threadIdx.x;
  if (t < 16) cp_async16(memory + t * 16, g + (t + broken) * 4);
  cp_async_commit();
  cp_async_wait<0>();
}

__attribute__((noinline)) __device__ float nest(int depth) {
  volatile float own[256];
  own[depth % 256] = (float)depth;
  if (depth > 1) own[0] = nest(depth - 1);
  return own[0];
}

__global__ void deep_stack(float *g, bool broken) {
  const float x = nest(broken ? 1000 : 2);
  if (x > 1e30f) g[threadIdx.x] = x;
}

__global__ void signed_overflow(float *g, bool broken) {
  volatile int x = broken ? 2147483647 : 1;
  const int t = threadIdx.x;
  if (x + t < 0) g[t] = -1.0f;
}

/* ---- order ---- */

__global__ void missing_barrier(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  s[t] = g[t];
  if (!broken) __syncthreads();
  g[t] = s[t ^ 32];
}

__global__ void warp_barrier_for_block(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  s[t] = g[t];
  if (broken) __syncwarp();
  else __syncthreads();
  g[t] = s[t ^ 32];
}

/* The second round may overwrite what others still read. */
__global__ void missing_second_barrier(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  float x = g[t];
  for (int round = 0; round < 3; round++) {
    s[t] = x;
    __syncthreads();
    x = s[t ^ 32];
    if (!broken) __syncthreads();
  }
  g[t] = x;
}

__global__ void missing_syncwarp(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  s[t ^ 1] = g[t ^ 1];
  if (!broken) __syncwarp();
  g[t] = s[t];
}

__global__ void divergent_barrier(float *, bool broken) {
  if (!broken) __syncthreads();
  else if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
}

__global__ void lane_missing(float *g, bool broken) {
  const int t = threadIdx.x;
  if (!broken || t != 7) g[t] = __shfl_xor_sync(0xFFFFFFFFu, g[t], 0);
  __syncthreads();
}

__global__ void shuffle_from_absent_lane(float *g, bool broken) {
  const int t = threadIdx.x;
  const unsigned mask = 0x55555555u;
  if (t % 2 == 0) g[t] = __shfl_xor_sync(mask, g[t], broken ? 1 : 0);
}

__global__ void different_operations(float *g, bool broken) {
  const int t = threadIdx.x;
  const float x = g[t];
  if (broken && t % 2) g[t] = __shfl_sync(0xFFFFFFFFu, x, t % 32);
  else g[t] = __shfl_sync(0xFFFFFFFFu, x, t % 32);
}

__global__ void two_blocks_write(float *g, bool broken) {
  const int t = threadIdx.x;
  if (t < 32) g[broken ? t : t + 32 * blockIdx.x] = (float)(t + (broken ? 0 : 32 * blockIdx.x));
}

/* The block that comes last adds up what the others wrote: they need a fence before they announce themselves. g[0..2]
 * holds sums, g[60] counts. */
__global__ void last_block(float *g, bool broken) {
  if (threadIdx.x) return;
  unsigned *count = reinterpret_cast<unsigned *>(g + 60);
  g[blockIdx.x] = 1.0f;
  if (!broken) __threadfence();
  if (atomicInc(count, gridDim.x - 1) != gridDim.x - 1) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += g[i];
  g[0] = sum;
}

__global__ void uninitialised_dynamic(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  float *s = reinterpret_cast<float *>(memory);
  const int t = threadIdx.x;
  if (!broken || t != 9) s[t] = g[t];
  __syncthreads();
  g[t] = s[t];
}

__global__ void uninitialised_static(float *g, bool broken) {
  __shared__ float s[N];
  const int t = threadIdx.x;
  if (!broken || t != 9) s[t] = g[t];
  __syncthreads();
  g[t] = s[t];
}

__global__ void local_of_another_thread(float *g, bool broken) {
  __shared__ const float *place[N];
  const int t = threadIdx.x;
  float own = g[t];
  place[t] = broken ? &own : &g[t];
  __syncthreads();
  const float x = *place[t ^ 32];
  __syncthreads();
  g[t] = x;
}

/* ---- asynchronous copies ---- */

__global__ void cp_async_before_wait(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  const float *s = reinterpret_cast<const float *>(memory);
  const int t = threadIdx.x;
  if (t < 16) cp_async16(memory + t * 16, g + t * 4);
  cp_async_commit();
  if (!broken) cp_async_wait<0>();
  __syncthreads();
  const float x = s[t ^ 32];
  cp_async_wait<0>();
  __syncthreads();
  g[t] = x;
}

__global__ void cp_async_weak_wait(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  const float *s = reinterpret_cast<const float *>(memory);
  const int t = threadIdx.x;
  if (t < 16) cp_async16(memory + t * 16, g + t * 4);
  cp_async_commit();
  if (t < 16) cp_async16(memory + 256 + t * 16, g + t * 4);
  cp_async_commit();
  if (broken) cp_async_wait<2>();
  else cp_async_wait<1>();
  __syncthreads();
  const float x = s[t ^ 32];
  cp_async_wait<0>();
  __syncthreads();
  g[t] = x;
}

__global__ void cp_async_no_wait(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  const int t = threadIdx.x;
  if (t < 16) cp_async16(memory + t * 16, g + t * 4);
  cp_async_commit();
  if (!broken) cp_async_wait<0>();
}

/* The buffer is filled again while others may still read it. */
__global__ void cp_async_refill(float *g, bool broken) {
  DYNAMIC_SHARED(memory);
  const float *s = reinterpret_cast<const float *>(memory);
  const int t = threadIdx.x;
  if (t < 16) cp_async16(memory + t * 16, g + t * 4);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  if (broken && t < 16) cp_async16(memory + t * 16, g, false);
  const float x = s[t ^ 32];
  __syncthreads();
  if (!broken && t < 16) cp_async16(memory + t * 16, g, false);
  cp_async_commit();
  cp_async_wait<0>();
  g[t] = x;
}

/* ---- tensor cores: C[16][16] = A[16][16] B[16][16]^T by one warp, B with the halves of k the wrong way round ---- */

__global__ void swapped_halves(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, bool broken) {
  DYNAMIC_SHARED(memory);
  __nv_bfloat16 *s = reinterpret_cast<__nv_bfloat16 *>(memory);
  const int l = threadIdx.x;
  for (int i = l; i < 256; i += 32) s[i] = a[i], s[256 + i] = b[i];
  __syncthreads();
  uint32_t fa[4], fb[4];
  ldmatrix_x4(fa, s + l % 16 * 16 + l / 16 * 8);
  ldmatrix_x4(fb, s + 256 + (l % 8 + l / 16 * 8) * 16 + l / 8 % 2 * 8);
  for (int n = 0; n < 2; n++) {
    float d[4] = {0, 0, 0, 0};
    mma_bf16(d, fa, fb[2 * n + (broken ? 1 : 0)], fb[2 * n + (broken ? 0 : 1)]);
    for (int i = 0; i < 4; i++) c[(l / 4 + i / 2 * 8) * 16 + n * 8 + l % 4 * 2 + i % 2] = d[i];
  }
}

/* ---- kernels that begin early ---- */

enum EarlyBug { EARLY_RIGHT, EARLY_NO_WAIT, EARLY_WRITE, EARLY_READ, EARLY_TRANSITIVE, EARLY_CONSTANT };

__global__ void begins_early(float *to, const float *ahead, const float *from, EarlyBug bug) {
  const int t = threadIdx.x;
  const float first = ahead[t];
  let_next_begin();
  if (bug == EARLY_WRITE) to[t] = first;
  if (bug != EARLY_NO_WAIT) wait_for_previous();
  const uint4 words = load16_ordered<false>(from + t / 4 * 4, bug != EARLY_CONSTANT);
  const uint4 constant = load16_ordered<true>(from + t / 4 * 4, bug == EARLY_CONSTANT);
  to[t] = first + (float)((words.x | constant.x) != 0) + from[t];
}

__global__ void add_one(float *to, const float *from) { to[threadIdx.x] = from[threadIdx.x] + 1.0f; }

} // namespace

/* ---- what is not only a kernel ---- */

static bool run_swapped_halves(bool broken) {
  Device<__nv_bfloat16> a(256), b(256);
  Device<float> c(256);
  __nv_bfloat16 left[256], right[256];
  float out[256];
  for (int i = 0; i < 256; i++) {
    left[i] = __float2bfloat16_rn((float)(i * 7 % 13) - 6.0f);
    right[i] = __float2bfloat16_rn((float)(i * 5 % 11) - 5.0f);
  }
  a.set(left), b.set(right);
  EXPECT_CUDA(launch(nullptr, swapped_halves, 1, 32, 1024, c.data, a.data, b.data, broken));
  c.get(out);
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      float sum = 0;
      for (int k = 0; k < 16; k++) sum += __bfloat162float(left[m * 16 + k]) * __bfloat162float(right[n * 16 + k]);
      EXPECT(out[m * 16 + n] == sum);
    }
  return true;
}

static bool run_last_block(bool broken) {
  Device<float> g(N);
  float out[N];
  memset(out, 0, sizeof out);
  g.set(out);
  EXPECT_CUDA(launch(nullptr, last_block, 3, 32, 0, g.data, broken));
  g.get(out);
  EXPECT(out[0] == 3.0f);
  return true;
}

/* One kernel writes a, the next one makes b of it, and the third one c of b. */
static bool run_early(EarlyBug bug) {
  Device<float> numbers(N), a(N), b(N), c(N);
  float start[N], out[N];
  for (int i = 0; i < N; i++) start[i] = (float)(i + 1);
  numbers.set(start);
  EXPECT_CUDA(launch(nullptr, add_one, 1, N, 0, a.data, numbers.data));
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1), config.blockDim = dim3(N), config.attrs = &early, config.numAttrs = 1;
  const float *const first = bug == EARLY_READ ? a.data : numbers.data;
  const float *const second = bug == EARLY_TRANSITIVE ? a.data : numbers.data;
  EXPECT_CUDA(cudaLaunchKernelEx(&config, begins_early, b.data, first, a.data, bug));
  EXPECT_CUDA(cudaLaunchKernelEx(&config, begins_early, c.data, second, b.data, EARLY_RIGHT));
  c.get(out);
  for (int i = 0; i < N; i++) EXPECT(out[i] == (float)(3 * i + 6 + (bug == EARLY_READ || bug == EARLY_TRANSITIVE)));
  return true;
}

static bool run_host_memory(bool broken) {
  Device<float> g(N);
  void *pinned = nullptr;
  EXPECT_CUDA(cudaMallocHost(&pinned, N * sizeof(float)));
  float *host = broken ? static_cast<float *>(malloc(N * sizeof(float))) : static_cast<float *>(pinned);
  for (int i = 0; i < N; i++) host[i] = 1.0f;
  EXPECT_CUDA(launch(nullptr, add_one, 1, N, 0, g.data, host));
  EXPECT_CUDA(launch(nullptr, add_one, 1, N, 0, host, g.data));
  EXPECT(host[N - 1] == 3.0f);
  if (broken) free(host);
  EXPECT_CUDA(cudaFreeHost(pinned));
  return true;
}

static bool run_host_touches_device(bool broken) {
  Device<float> g(N);
  float out[N] = {};
  g.set(out);
  if (broken) out[0] = g.data[0];
  else g.get(out);
  EXPECT(out[0] == 0.0f);
  return true;
}

/* A staging buffer that is filled again before the copy out of it is over. */
static bool run_staging_reuse(bool broken) {
  Device<float> first(1), second(1);
  cudaStream_t stream;
  void *memory = nullptr;
  float got = 0;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CUDA(cudaMallocHost(&memory, sizeof(float)));
  float *staging = static_cast<float *>(memory);
  *staging = 1.0f;
  EXPECT_CUDA(cudaMemcpyAsync(first.data, staging, sizeof(float), cudaMemcpyHostToDevice, stream));
  if (!broken) EXPECT_CUDA(cudaStreamSynchronize(stream));
  *staging = 2.0f;
  EXPECT_CUDA(cudaMemcpyAsync(second.data, staging, sizeof(float), cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaMemcpy(&got, first.data, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got == 1.0f);
  EXPECT_CUDA(cudaFreeHost(memory));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  return true;
}

static bool run_result_not_waited_for(bool broken) {
  Device<float> g(N);
  cudaStream_t stream;
  void *memory = nullptr;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CUDA(cudaMallocHost(&memory, N * sizeof(float)));
  float *host = static_cast<float *>(memory);
  for (int i = 0; i < N; i++) host[i] = 0.0f;
  EXPECT_CUDA(launch(stream, add_one, 1, N, 0, g.data, host));
  EXPECT_CUDA(cudaMemcpyAsync(host, g.data, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
  if (!broken) EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT(host[0] == 1.0f);
  EXPECT_CUDA(cudaFreeHost(memory));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  return true;
}

static __global__ void write_number(int *to, int value) { *to = value; }

/* A second stream reads a number, which the first one overwrites without waiting for it. */
static bool run_overwritten_early(bool broken) {
  Device<int> number(1), seen(1);
  cudaStream_t stream, side;
  cudaEvent_t written, read;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  for (cudaStream_t *s : {&stream, &side}) EXPECT_CUDA(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
  for (cudaEvent_t *e : {&written, &read}) EXPECT_CUDA(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(launch(stream, write_number, 1, 1, 0, number.data, 1));
  EXPECT_CUDA(cudaEventRecord(written, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(side, written, 0));
  EXPECT_CUDA(cudaMemcpyAsync(seen.data, number.data, sizeof(int), cudaMemcpyDeviceToDevice, side));
  EXPECT_CUDA(cudaEventRecord(read, side));
  if (!broken) EXPECT_CUDA(cudaStreamWaitEvent(stream, read, 0));
  EXPECT_CUDA(launch(stream, write_number, 1, 1, 0, number.data, 2));
  EXPECT_CUDA(cudaStreamWaitEvent(stream, read, 0));
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 20; i++) {
    int got = 0;
    EXPECT_CUDA(cudaGraphLaunch(executable, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    seen.get(&got);
    EXPECT(got == 1);
  }
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  for (cudaEvent_t e : {written, read}) EXPECT_CUDA(cudaEventDestroy(e));
  for (cudaStream_t s : {stream, side}) EXPECT_CUDA(cudaStreamDestroy(s));
  return true;
}

/* A recording is replayed after what it copies to was freed. */
static bool run_stale_recording(bool broken) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  void *to = nullptr;
  Device<float> from(N);
  EXPECT_CUDA(cudaMalloc(&to, N * sizeof(float)));
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaMemcpyAsync(to, from.data, N * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  if (broken) EXPECT_CUDA(cudaFree(to));
  EXPECT_CUDA(cudaGraphLaunch(executable, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  if (!broken) EXPECT_CUDA(cudaFree(to));
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  return true;
}

static bool run_use_after_free(bool broken) {
  Device<float> to(N);
  void *from = nullptr;
  EXPECT_CUDA(cudaMalloc(&from, N * sizeof(float)));
  EXPECT_CUDA(cudaMemset(from, 0, N * sizeof(float)));
  if (broken) EXPECT_CUDA(cudaFree(from));
  EXPECT_CUDA(launch(nullptr, add_one, 1, N, 0, to.data, static_cast<const float *>(from)));
  if (!broken) EXPECT_CUDA(cudaFree(from));
  return true;
}

/* A kernel of N threads in one block, or two, as a PlantedBug's function. */
#define KERNEL(kernel, shared, want) #kernel, [](bool broken) { return gives(kernel, broken, shared, want); }
#define KERNEL_BLOCKS(kernel, blocks, want) #kernel, [](bool broken) { return gives(kernel, broken, 0, want, blocks); }

#define EARLY(name, bug) name, [](bool broken) { return run_early(broken ? bug : EARLY_RIGHT); }
#define WGMMA(name, bug) name, [](bool broken) { return run_wgmma_bug(broken ? bug : BUG_NONE); }

#define WRONG "wrong result"
#define OVERFLOW "heap-buffer-overflow"

const PlantedBug planted_bugs[] = {
    /* name and function, plain, address, race, environment */
    {KERNEL(static_shared_end, 0, same), NULL, "global-buffer-overflow|out of bounds", NULL, ""},
    {KERNEL(shared_of_template_end, 0, same), NULL, "global-buffer-overflow|insufficient space", NULL, ""},
    {KERNEL(dynamic_shared_end, 256, same), NULL, "use-after-poison", NULL, ""},
    {KERNEL(global_end, 0, same), NULL, OVERFLOW, "past the end of device memory", ""},
    {KERNEL(local_end, 0, same), NULL, "stack-buffer-overflow|out of bounds", NULL, ""},
    {KERNEL(misaligned_vector, 0, same), NULL, "misaligned address", NULL, ""},
    {KERNEL(misaligned_ldg, 0, same), "misaligned", "misaligned", "misaligned", ""},
    {KERNEL(misaligned_ldmatrix, 256, same), "not a multiple of 16", "not a multiple of 16", "not a multiple of 16",
     ""},
    {KERNEL(ldmatrix_end, 256, same), NULL, "use-after-poison", NULL, ""},
    {KERNEL(cp_async_end, 256, same), NULL, OVERFLOW, "past the end of device memory", ""},
    {KERNEL(deep_stack, 0, same), "stack overflowed", "stack-overflow|SEGV", "stack overflowed", ""},
    {KERNEL(signed_overflow, 0, same), NULL, "signed integer overflow", NULL, ""},
    {KERNEL(missing_barrier, 0, neighbor), WRONG, WRONG, "race: .*after|uninitialised", ""},
    {KERNEL(warp_barrier_for_block, 0, neighbor), WRONG, WRONG, "race: .*after|uninitialised", ""},
    {KERNEL(missing_second_barrier, 0, neighbor), NULL, NULL, "race: .*after", ""},
    {KERNEL(missing_syncwarp, 0, same), WRONG, WRONG, "race: .*after", ""},
    {KERNEL(divergent_barrier, 0, same), "divergent barrier", "divergent barrier", "divergent barrier", ""},
    {KERNEL(lane_missing, 0, same), "deadlock", "deadlock", "deadlock", ""},
    {KERNEL(shuffle_from_absent_lane, 0, same), "not take part", "not take part", "not take part", ""},
    {KERNEL(different_operations, 0, same), "different operations", "different operations", "different operations", ""},
    {KERNEL_BLOCKS(two_blocks_write, 2, same), NULL, NULL, "race between blocks", ""},
    {"last_block", run_last_block, NULL, NULL, "race between blocks", ""},
    {KERNEL(uninitialised_dynamic, 256, same), WRONG, WRONG, "uninitialised shared", ""},
    {KERNEL(uninitialised_static, 0, same), WRONG, WRONG, "uninitialised shared", ""},
    {KERNEL(local_of_another_thread, 0, neighbor), NULL, NULL, "another thread's local memory", ""},
    {KERNEL(cp_async_before_wait, 256, neighbor), WRONG, WRONG, "race: .*after", ""},
    {KERNEL(cp_async_weak_wait, 512, neighbor), WRONG, WRONG, "race: .*after", ""},
    {KERNEL(cp_async_no_wait, 256, same), "never|having waited", "never|having waited", "never|having waited", ""},
    {KERNEL(cp_async_refill, 256, neighbor), WRONG, WRONG, "race: .*after", "EMU_CPASYNC=eager"},
    {"swapped_halves", run_swapped_halves, WRONG, WRONG, WRONG, ""},
    {WGMMA("wgmma_no_wait", BUG_NO_WAIT), WRONG, WRONG, WRONG, ""},
    {WGMMA("wgmma_no_commit", BUG_NO_COMMIT), "having waited", "having waited", "having waited", ""},
    {WGMMA("wgmma_no_fence", BUG_NO_FENCE), "without a wgmma.fence", "without a wgmma.fence", "without a wgmma.fence",
     ""},
    {WGMMA("wgmma_no_proxy_fence", BUG_NO_PROXY_FENCE), NULL, NULL, "no fence.proxy.async", ""},
    {WGMMA("wgmma_late_proxy_fence", BUG_LATE_PROXY_FENCE), NULL, NULL, "no fence.proxy.async", ""},
    {WGMMA("wgmma_stride", BUG_STRIDE), "SBO", "SBO", "SBO", ""},
    {WGMMA("wgmma_misaligned", BUG_MISALIGNED), "multiple of 1024", "multiple of 1024", "multiple of 1024", ""},
    {WGMMA("wgmma_register_reused", BUG_REGISTER_REUSED), WRONG, WRONG, WRONG, ""},
    {WGMMA("wgmma_register_scope", BUG_REGISTER_SCOPE), NULL, "out of scope", NULL, ""},
    {WGMMA("wgmma_sum_written", BUG_SUM_WRITTEN), "were written", "were written", "were written", ""},
    {WGMMA("wgmma_tile_refilled", BUG_TILE_REFILLED), WRONG, WRONG, "race: .*after", ""},
    {WGMMA("wgmma_tile_late", BUG_TILE_LATE), WRONG, WRONG, "race: .*after", "EMU_CPASYNC=eager"},
    {WGMMA("wgmma_warp_skips", BUG_WARP_SKIPS), "operations of its warpgroup|warpgroup differ",
     "operations of its warpgroup|warpgroup differ", "operations of its warpgroup|warpgroup differ", ""},
    {EARLY("early_no_wait", EARLY_NO_WAIT), "never waits", "never waits", "never waits", ""},
    {EARLY("early_write", EARLY_WRITE), NULL, NULL, "before wait_for_previous\\(\\): write", ""},
    {EARLY("early_read", EARLY_READ), NULL, NULL, "before wait_for_previous\\(\\): read", ""},
    {EARLY("early_transitive", EARLY_TRANSITIVE), NULL, NULL, "before wait_for_previous\\(\\): read", ""},
    {EARLY("early_constant", EARLY_CONSTANT), NULL, NULL, "ld.global.nc while", ""},
    {"host_memory", run_host_memory, NULL, NULL, "host memory", ""},
    {"host_touches_device", run_host_touches_device, NULL, "use-after-poison", NULL, "EMU_HOSTGUARD=1"},
    {"staging_reuse", run_staging_reuse, WRONG, WRONG, WRONG, "EMU_STREAMS=lazy"},
    {"result_not_waited_for", run_result_not_waited_for, WRONG, WRONG, WRONG, "EMU_STREAMS=lazy"},
    {"overwritten_early", run_overwritten_early, WRONG, WRONG, WRONG, "EMU_STREAMS=random:1"},
    {"stale_recording", run_stale_recording, "was freed", "was freed", "was freed", ""},
    {"use_after_free", run_use_after_free, NULL, "heap-use-after-free", "past the end of device memory", ""},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};
