/* Internals of the CUDA backend: the context, and functions that its families of operations (a .cuh each) share.
 *
 * Device code is in anonymous namespaces. Kernels are templates on the element type T (float or bf16) and move rows
 * 16 bytes (VECTOR<T> elements) at a time: "Alignment" in kernels.h guarantees that this is possible, and each
 * operation checks it with require_alignment(). Arithmetic is fp32; a number that is stored as T and used further is
 * used as stored. */
#ifndef INKLING_KERNELS_CUDA_CUDA_CUH
#define INKLING_KERNELS_CUDA_CUDA_CUH

#include "kernels.h"
#include "kernels/philox.h"
#include "kernels/cuda/primitives.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <curand_philox4x32_x.h>
#include <dlfcn.h>
#include <initializer_list>
#include <list>
#include <math.h>
#include <new>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

typedef __nv_bfloat16 bf16;

/* ---- the context (kernels.cu) ---- */

/* An event, without times. */
struct Event {
  cudaEvent_t event = NULL;
  Event() = default;
  Event(const Event &) = delete;
  ~Event() {
    if (event) cudaEventDestroy(event);
  }
  operator cudaEvent_t() const { return event; }
};

struct Gemm;           /* kernels/cuda/gemm.cuh */
struct ParameterLists; /* kernels/cuda/parameters.cuh */

/* Uploads go through two pinned buffers, each filled by as many uploads as fit, so that the host prepares the tokens of
 * the next steps while earlier ones are copied. */
struct Staging {
  enum { BYTES = 8 << 20 };
  char *buffer[2];
  Event free[2]; /* recorded after the copies out of the buffer */
  int current;
  size_t used;
};

/* The device writes the states of finished steps to host memory. */
struct Reports {
  StepReport *ring;        /* [REPORT_RING] shared */
  int64_t *began;          /* device: StepReport.began of the step in progress */
  unsigned *next;          /* device: reports written so far */
  Event done[REPORT_RING]; /* of report number n: [n % REPORT_RING] */
  int64_t issued, finished, taken;
};

/* Work that runs beside later operations, on a stream of its own; see beside(). */
struct Branch {
  cudaStream_t stream;
  void *workspace;       /* of its matrix products; NULL: nothing has run there */
  Event begin;           /* the stream waits for it */
  Event done[2];         /* the ends of the last two pieces of work: of number n, [n % 2] */
  int64_t begun, joined; /* pieces of work, and those that the context's stream has waited for */
};

/* out [cols] (+)= the sums of the columns of partial [rows][cols]. */
struct ColumnSum {
  float *out;
  const float *partial;
  int rows, cols;
  bool accumulate;
};

/* Sums that are still to be added, all by one launch (kernels/cuda/columns.cuh). */
struct ColumnSums {
  enum { CAPACITY = 120 }; /* the arguments of a kernel have at most 4096 bytes */
  ColumnSum sums[CAPACITY];
};

struct PartialSums {
  enum { LEAST = 16 << 20 };
  char *memory; /* of `bytes`, of which `used` belong to `count` sums */
  size_t bytes, used;
  int count;
  ColumnSums list;
};

/* A block of memory from cuda_alloc() or cuda_alloc_shared(). */
struct Block {
  size_t bytes;
  bool shared; /* pinned memory of the host, which the device accesses */
};

/* EARLY: the kernel calls wait_for_previous() and does not write weights. It may begin while such kernels run that come
 * before it, and reads weights before it waits. */
enum Start { IN_ORDER, EARLY };

struct Context {
  Collective *peers; /* NULL: none */
  struct Nccl *nccl; /* NULL: peers communicate through their hosts */
  bool crowded;      /* some peers share a GPU */
  cudaStream_t side; /* gradients are summed on it while the backward pass continues */
  Event ready, added;
  double *sums; /* [PEER_SUMS] device: sums over all processes; NULL without peers */
  DType dtype;
  Error error;      /* the first one; operations do nothing once error.code is set */
  int processors;   /* streaming multiprocessors */
  int capability;   /* 10 * major + minor: 80, 86, 89, 90 ... */
  int shared_bytes; /* shared memory that a block can have */
  int l2_bytes;     /* the cache that all multiprocessors share */
  bool early;       /* EARLY kernels begin early */
  Start last;       /* of the kernel launched last */
  char name[128];
  cudaStream_t stream;
  void *workspace; /* of matrix products on the stream */
  Event mark;      /* of cuda_mark() */
  Branch branch;
  PartialSums partial;
  bool capturing; /* the stream is captured: nothing may be allocated or waited for */
  Gemm *gemm;
  std::unordered_map<void *, Block> allocations;
  std::list<ParameterLists> lists; /* of all trained parameters */
  size_t bytes, peak_bytes;
  size_t reserved_bytes; /* of the device's memory, for the display or Windows */
  void *scratch;         /* see scratch() */
  size_t scratch_bytes;
  Staging staging;
  Reports reports;
  struct CapturedGraph *graphs; /* all that exist */
};

/* Whether the environment asks for what no card has run yet: name=1. */
static inline bool asked_for(const char *name) {
  const char *value = getenv(name);
  return value && strcmp(value, "1") == 0;
}

/* Keeps `status` of `what` (an operation, a tensor) if it is the context's first error; true while there is none. */
bool check(Context *c, cudaError_t status, const char *what);

/* Returns device memory for use within one operation, 256-byte aligned, with undefined contents, valid until the next
 * call. It grows rarely, and never during a capture; old blocks live as long as the context, because graphs use them.
 * NULL, with the context's error set, when out of memory. */
void *scratch(Context *c, size_t bytes);

/* Runs submit(), which launches kernels and matrix products, on the stream of the branch: after the work submitted so
 * far, and beside what follows until cuda_join(). Not for operations that use scratch(). */
bool branch_begin(Context *c);
void branch_end(Context *c);
template <class F> void beside(Context *c, F submit) {
  if (!branch_begin(c)) return;
  submit();
  branch_end(c);
}

/* Whether `sizes` (lengths and strides of rows) are multiples of WIDTH_MULTIPLE elements and `pointers` of 16 bytes, as
 * kernels.h guarantees. If not, sets the context's error, which names the operation, and launch() does nothing. */
bool require_alignment(Context *c, const char *operation, std::initializer_list<int64_t> sizes,
                       std::initializer_list<const void *> pointers);
enum { WIDTH_MULTIPLE = 8 }; /* 16 bytes of bf16 */

/* Whether heads of `dim` numbers are supported; if not, sets the context's error. */
bool check_head_size(Context *c, int dim);
enum { HEAD_DIM_MAX = 128, NORM_DIM_MAX = 8192 };

/* Runs `kernel` on the context's stream; nothing when the context holds an error or the grid is empty. */
template <Start START = IN_ORDER, class... P, class... A>
void launch(Context *c, const char *operation, void (*kernel)(P...), dim3 grid, int block, size_t shared,
            A... arguments) {
  if (c->error.code || !grid.x || !grid.y || !grid.z) return;
  /* more than 48 KiB, with the kernel's static shared memory, must be requested */
  if (shared > 32 * 1024 &&
      !check(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), operation))
    return;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3((unsigned)block);
  config.dynamicSmemBytes = shared;
  config.stream = c->stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = START == EARLY && c->early && c->last == EARLY;
  c->last = START;
  check(c, cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), operation);
}

/* A function of a library that is loaded. */
struct Symbol {
  const char *name;
  void **function;
};

/* Loads functions of the first library that is there, or finds them in the program: the tests' stand-ins. Returns NULL,
 * or what is missing: a function, or the first of the paths. */
template <class Paths, class Symbols> const char *load_functions(const Paths &paths, const Symbols &symbols) {
  void *library = RTLD_DEFAULT;
  bool loaded = dlsym(library, symbols[0].name) != NULL;
  for (size_t i = 0; i < std::size(paths) && !loaded; i++) {
    library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    loaded = library != NULL;
  }
  if (!loaded) return paths[0];
  for (const Symbol &symbol : symbols) {
    *symbol.function = dlsym(library, symbol.name);
    if (!*symbol.function) return symbol.name;
  }
  return NULL;
}

/* Returns the milliseconds of the fastest of `repeats` runs, after a warm-up; infinite when run() returns false. */
template <class F> float fastest_of(Context *c, int repeats, F run) {
  float best = INFINITY;
  cudaEvent_t start = NULL, stop = NULL;
  cudaDeviceSynchronize(); /* other streams would take a part of the device */
  bool ok = check(c, cudaEventCreate(&start), "speed test") && check(c, cudaEventCreate(&stop), "speed test");
  for (int i = 0; i <= repeats && ok; i++) {
    float ms = INFINITY;
    cudaEventRecord(start, c->stream);
    ok = run();
    cudaEventRecord(stop, c->stream);
    ok = ok && cudaEventSynchronize(stop) == cudaSuccess && cudaEventElapsedTime(&ms, start, stop) == cudaSuccess;
    if (i && ms < best) best = ms;
  }
  if (start) cudaEventDestroy(start);
  if (stop) cudaEventDestroy(stop);
  return ok ? best : INFINITY;
}

/* Calls f with a value of the compute dtype: with_element(c, [&]<class T>(T) { ... }). */
template <class F> void with_element(const Context *c, F f) {
  if (c->dtype == DTYPE_F32) f(float());
  else f(bf16());
}

/* Calls f with `value` as a constant. */
template <class F> void with_constant(bool value, F f) {
  if (value) f(std::true_type());
  else f(std::false_type());
}

/* Elements of T in 16 bytes. */
template <class T> constexpr int VECTOR = 16 / (int)sizeof(T);

static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A grid for loops over `blocks` pieces of work: at most `each` blocks for every multiprocessor. */
static inline dim3 loop_grid(const Context *c, int64_t blocks, int each) {
  const int64_t most = (int64_t)each * c->processors;
  return dim3((unsigned)(blocks < most ? blocks : most));
}

/* Returns the matrix that GEMMs read, [rows][cols] in the compute dtype. */
template <class T> const T *compute_matrix(const Parameters *params, Matrix w) {
  return static_cast<const T *>(params->compute) + w.offset;
}

/* ---- the functions of the table: context and memory in kernels.cu, each family of operations in a file ---- */

#define DECLARE(name) std::remove_pointer_t<decltype(Backend::name)> cuda_##name;
BACKEND_FUNCTIONS(DECLARE)
#undef DECLARE

/* ---- device functions ---- */

namespace {

constexpr float LOG2_E = 1.44269504f; /* exp(x) = 2^(x LOG2_E) */

/* exp(x) to about 2 ulp of 2^(x LOG2_E); results below the smallest normal number are 0. */
__device__ __forceinline__ float exp_approx(float x) { return exp2_approx(x * LOG2_E); }

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }

/* N neighbors of T as whole 32-bit registers, aligned to their size: one memory access where that is 4, 8 or 16 bytes.
 * Threads keep loaded numbers in packs, because nvcc would use a register for every element of a bf16 array. */
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
  static_assert(sizeof(T) * N % 4 == 0, "whole registers");
  uint32_t word[sizeof(T) * N / 4];
};

template <int N, class T> __device__ __forceinline__ Pack<T, N> load_pack(const T *from) {
  return *reinterpret_cast<const Pack<T, N> *>(from);
}

template <class T, int N> __device__ __forceinline__ void store_pack(T *to, const Pack<T, N> &pack) {
  *reinterpret_cast<Pack<T, N> *>(to) = pack;
}

/* Returns number i of a pack. A bf16 is the upper half of the float of the same value. */
template <class T, int N> __device__ __forceinline__ float number(const Pack<T, N> &pack, int i) {
  if (sizeof(T) == 4) return __uint_as_float(pack.word[i]);
  return __uint_as_float(i % 2 ? pack.word[i / 2] & 0xFFFF0000u : pack.word[i / 2] << 16);
}

/* Converts a pack to out[first ..]. */
template <class T, int N, int M>
__device__ __forceinline__ void unpack(float (&out)[M], const Pack<T, N> &pack, int first = 0) {
  static_assert(N <= M, "numbers");
#pragma unroll
  for (int i = 0; i < N; i++) out[first + i] = number(pack, i);
}

/* Rounds in[first ..] to T. */
template <class T, int N, int M> __device__ __forceinline__ Pack<T, N> pack(const float (&in)[M], int first = 0) {
  static_assert(N <= M, "numbers");
  Pack<T, N> out;
#pragma unroll
  for (int i = 0; i < (int)sizeof out / 4; i++) {
    if constexpr (sizeof(T) == 4) {
      out.word[i] = __float_as_uint(in[first + i]);
    } else { /* one instruction rounds two numbers */
      const __nv_bfloat162 two = __floats2bfloat162_rn(in[first + 2 * i], in[first + 2 * i + 1]);
      out.word[i] = (uint32_t)__bfloat16_as_ushort(two.y) << 16 | __bfloat16_as_ushort(two.x);
    }
  }
  return out;
}

/* Loads N neighbors, 16 bytes at a time if they are more (fp32 norm weights beside bf16 rows). */
template <int N, class T> __device__ __forceinline__ void load(float (&out)[N], const T *from) {
  constexpr int PART = N < VECTOR<T> ? N : VECTOR<T>;
#pragma unroll
  for (int i = 0; i < N; i += PART) unpack(out, load_pack<PART>(from + i), i);
}

template <int N, class T> __device__ __forceinline__ void store(T *to, const float (&in)[N]) {
  constexpr int PART = N < VECTOR<T> ? N : VECTOR<T>;
#pragma unroll
  for (int i = 0; i < N; i += PART) store_pack(to + i, pack<T, PART>(in, i));
}

/* Loads N neighbors, or zeros, without a branch, so that many loads can be in flight. CONSTANT: load16_ordered(). */
template <int N, bool CONSTANT = true, class T>
__device__ __forceinline__ Pack<T, N> fetch(const T *from, bool present) {
  constexpr int LOADS = (int)sizeof(Pack<T, N>) / 16;
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const uint4 words = load16_ordered<CONSTANT>(reinterpret_cast<const uint4 *>(from) + i, present);
    pack.word[4 * i] = words.x, pack.word[4 * i + 1] = words.y;
    pack.word[4 * i + 2] = words.z, pack.word[4 * i + 3] = words.w;
  }
  return pack;
}

template <class S> __device__ __forceinline__ S warp_sum(S x) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

/* Returns the sum over all BLOCK threads of a block (a multiple of 32) to each of them, in a fixed order. It may be
 * called again at once. */
template <int BLOCK, class S> __device__ __forceinline__ S block_sum(S x) {
  static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "whole warps");
  if (BLOCK == 32) return warp_sum(x);
  __shared__ S part[BLOCK / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < BLOCK / 32 ? part[threadIdx.x % 32] : S(0);
  x = warp_sum(x);
  __syncthreads();
  return x;
}

/* Iterates over an array of rows x cols with a grid: each thread begins at its own number and advances by the number of
 * threads. It divides only at the beginning. */
struct Walk {
  int64_t row;
  int col, cols, row_step, col_step;
  __device__ __forceinline__ Walk(unsigned thread, unsigned threads, int columns)
      : row(thread / (unsigned)columns), col((int)(thread % (unsigned)columns)), cols(columns),
        row_step((int)(threads / (unsigned)columns)), col_step((int)(threads % (unsigned)columns)) {}
  __device__ __forceinline__ void next() {
    row += row_step;
    col += col_step;
    if (col >= cols) col -= cols, row++;
  }
};

/* ---- randomness ---- */

/* Returns the same four words as philox() of kernels/philox.h, from cuRAND. */
__device__ __forceinline__ uint4 random_words(uint64_t seed, uint32_t element_div_4, uint32_t site, uint32_t step,
                                              uint32_t stream) {
  return curand_Philox4x32_10(make_uint4(element_div_4, site, step, stream),
                              make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
}

/* struct Dropout for kernels. */
struct DropoutMask {
  uint64_t seed;
  const StepState *state;   /* NULL: no dropout */
  uint32_t site, threshold; /* an element is kept when its word >= threshold */
  float scale;
};

/* x *= mask for N elements of row `row` of an array of `dim` columns, from column `at` on (a multiple of 4); a sequence
 * of the micro-batch has `length` rows. */
template <int N>
__device__ __forceinline__ void apply_dropout(float (&x)[N], const DropoutMask &mask, int row, int length, int dim,
                                              int at) {
  static_assert(N % 4 == 0, "whole calls of the generator");
  const uint32_t step = (uint32_t)(mask.state->step + 1), stream = (uint32_t)(mask.state->sequence + row / length);
  const int64_t element = (int64_t)(row % length) * dim + at;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const uint4 words = random_words(mask.seed, (uint32_t)((element + i) / 4), mask.site, step, stream);
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int j = 0; j < 4; j++) x[i + j] *= word[j] >= mask.threshold ? mask.scale : 0.0f;
  }
}

} // namespace

/* ---- dropout: host ---- */

/* All 0 without dropout. `bits`: of the random numbers. */
static inline DropoutMask dropout_mask(const Dropout *dropout, int bits = 32) {
  DropoutMask mask = {};
  if (!dropout_active(dropout)) return mask;
  mask.seed = dropout->seed;
  mask.state = dropout->state;
  mask.site = dropout->site;
  mask.threshold = dropout_threshold(dropout->p, bits);
  mask.scale = 1.0f / (1.0f - dropout->p);
  return mask;
}

#endif
