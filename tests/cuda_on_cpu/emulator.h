/* What a .cu file sees when g++ or clang++ compiles it for the CPU: -x c++ -include tests/cuda_on_cpu/emulator.h
 *
 * A CUDA thread is a fiber, one block is alive at a time, all in one thread of the operating system. Operations of a
 * warp and barriers are where fibers meet; a fiber runs without interruption from one to the next. Types, bf16
 * arithmetic and the prototypes of the runtime API are those of NVIDIA's own headers.
 *
 * This file: the keywords, launches, barriers, operations of a warp. intrinsics.h: the rest of the device library.
 * primitives.h, wgmma.h: the emulated half of kernels/cuda/primitives.cuh and wgmma.cuh. The .cpp files: scheduler.cpp
 * (fibers, warps, barriers), async_copy.cpp, tensor_core.cpp, wgmma.cpp, memory.cpp, streams.cpp, device.cpp,
 * cublaslt.cpp, race.cpp. */
#ifndef CUDA_ON_CPU_EMULATOR_H
#define CUDA_ON_CPU_EMULATOR_H

#ifdef __CUDACC__
#error "emulator.h is for g++ and clang++, not for nvcc"
#endif
#define CUDA_ON_CPU 1

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#define __forceinline__ inline
/* One block is alive at a time, so a static variable is the copy of exactly one block. (thread_local would say so too,
 * but gets no redzones from AddressSanitizer.) */
#define __shared__ static

#include <cuda_bf16.h>

/* const as in NVIDIA's headers. The scheduler, which does not see these lines, sets them whenever it switches fibers;
 * what the compiler keeps in registers across a switch is still right, because a fiber's values never change. */
#ifndef EMU_IMPLEMENTATION
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
#endif
static constexpr int warpSize = 32;

/* Code of the emulator that is compiled into kernels: the race detector does not look at it. */
#define EMU_NOTSAN __attribute__((no_sanitize("thread")))
/* Last parameters of whatever a thread can wait at: where the kernel calls it. */
#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace emu {

/* ---- scheduler.cpp ---- */

/* Stops the program with a message that says where the current thread is. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
int lane();
/* Lets other threads run: for loops that wait for one of them. */
void yield();
unsigned char *dyn_smem();
/* The address of dynamic shared memory for the hardware. */
uint32_t shared_address(const void *p);

/* A rendezvous of the lanes in `mask`. The last one to arrive calls `finish` once for all of them, with the 32 payloads
 * (NULL for lanes that do not take part, or have ended). All must have come by the same line. */
using Finish = void (*)(void **payloads);
void warp_collective(const char *operation, unsigned mask, void *payload, Finish finish, const char *file, int line);

enum Reduce { REDUCE_NONE, REDUCE_OR, REDUCE_AND, REDUCE_COUNT };
int block_barrier(Reduce reduce, int predicate, const char *file, int line);

void finish_syncwarp(void **payloads);

/* griddepcontrol.wait */
void wait_for_previous();

/* ---- async_copy.cpp ---- */

/* Copies `source_bytes` of `bytes`, and zeros the rest; lands as late as the program allows, see there. */
void cp_async(void *shared, const void *global, int bytes, int source_bytes);
void cp_async_commit();
void cp_async_wait(int newest_groups);

/* ---- tensor_core.cpp ---- */

struct MatrixRow { /* of ldmatrix: what a lane gives and what it gets */
  uint32_t row[4], out[4];
};
void finish_ldmatrix(void **payloads);
void finish_ldmatrix_trans(void **payloads);

struct MmaFragments {
  float *d;
  const uint32_t *a, *b;
};
void finish_mma_m16n8k16_bf16(void **payloads);

/* ---- wgmma.cpp ---- */

struct Wgmma {       /* wgmma.mma_async.m64nNk16 */
  float *d;          /* columns / 8 times 4 accumulators */
  int columns;       /* N */
  const uint32_t *a; /* 4 registers; NULL: a_tile */
  uint64_t a_tile, b_tile;
  bool add, mn_major; /* mn_major: b_tile is [16][N], otherwise [N][16] */
  /* set by wgmma() */
  const void *code = nullptr;
  const char *file = nullptr;
  int line = 0;
};
void wgmma(Wgmma product, const char *file, int line);
void wgmma_fence(const char *file, int line);
void wgmma_commit(const char *file, int line);
void wgmma_wait(int newest_groups, const char *file, int line);

/* ---- race.cpp; does nothing in other builds ---- */

void race_access(const void *p, size_t bytes, bool write, bool atomic);
void race_fence();
void race_proxy_fence();
/* A read by ld.global.nc, beside race_access(). */
void race_constant(const void *p, size_t bytes);

/* ---- launches ---- */

/* A queued launch is the bytes of a tuple (kernel, arguments) and a function that calls it. */
using Invoke = void (*)(const void *tuple);
cudaError_t enqueue_kernel(const void *kernel, const cudaLaunchConfig_t *config, Invoke invoke, const void *tuple,
                           size_t bytes);
/* memcpy that no sanitizer looks at: the tuple lies in host memory. */
void copy_arguments(void *to, const void *from, size_t bytes);

template <class Kernel, class... P> void invoke(const void *tuple) {
  using Tuple = std::tuple<Kernel, P...>;
  alignas(Tuple) unsigned char own[sizeof(Tuple)]; /* every thread has its own parameters, on its own stack */
  copy_arguments(own, tuple, sizeof own);
  std::apply([](Kernel kernel, auto &...parameters) { kernel(parameters...); }, *reinterpret_cast<Tuple *>(own));
}

template <class... P, class... A>
cudaError_t launch_kernel(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...arguments) {
  static_assert((std::is_trivially_copyable<std::decay_t<P>>::value && ...), "kernel parameters are copied as bytes");
  using Kernel = void (*)(P...);
  std::tuple<Kernel, std::decay_t<P>...> tuple(kernel, static_cast<std::decay_t<P>>(std::forward<A>(arguments))...);
  return enqueue_kernel(reinterpret_cast<const void *>(kernel), config, invoke<Kernel, std::decay_t<P>...>, &tuple,
                        sizeof tuple);
}

/* ---- operations of a warp ---- */

template <class T> struct Shuffle {
  T in, out;
  int source;
};

template <class T> EMU_NOTSAN void finish_shuffle(void **payloads) {
  for (int l = 0; l < 32; l++) {
    auto *own = static_cast<Shuffle<T> *>(payloads[l]);
    if (!own) continue;
    if (!payloads[own->source])
      die("shuffle: lane %d reads lane %d, which does not take part (an undefined value in CUDA)", l, own->source);
    own->out = static_cast<Shuffle<T> *>(payloads[own->source])->in;
  }
}

template <class T>
EMU_NOTSAN T shuffle(const char *operation, unsigned mask, T value, int source, const char *file, int line) {
  static_assert(std::is_trivially_copyable<T>::value, "shuffles move bytes");
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 2, 4 or 8 bytes");
  Shuffle<T> payload{value, value, source};
  warp_collective(operation, mask, &payload, finish_shuffle<T>, file, line);
  return payload.out;
}

struct Vote {
  unsigned predicate, ballot;
};

EMU_NOTSAN inline void finish_vote(void **payloads) {
  unsigned ballot = 0;
  for (int l = 0; l < 32; l++)
    if (payloads[l] && static_cast<Vote *>(payloads[l])->predicate) ballot |= 1u << l;
  for (int l = 0; l < 32; l++)
    if (payloads[l]) static_cast<Vote *>(payloads[l])->ballot = ballot;
}

enum Operator { OPERATOR_ADD, OPERATOR_MAX, OPERATOR_MIN };

template <class T> struct WarpReduction {
  T value;
  Operator op;
};

template <class T> EMU_NOTSAN void finish_reduction(void **payloads) {
  bool first = true;
  T result{};
  for (int l = 0; l < 32; l++) {
    auto *own = static_cast<WarpReduction<T> *>(payloads[l]);
    if (!own) continue;
    if (first) result = own->value;
    else if (own->op == OPERATOR_ADD) result = T(result + own->value);
    else if (own->op == OPERATOR_MAX) result = own->value > result ? own->value : result;
    else result = own->value < result ? own->value : result;
    first = false;
  }
  for (int l = 0; l < 32; l++)
    if (payloads[l]) static_cast<WarpReduction<T> *>(payloads[l])->value = result;
}

template <class T>
EMU_NOTSAN T warp_reduce(const char *operation, unsigned mask, T value, Operator op, const char *file, int line) {
  WarpReduction<T> payload{value, op};
  warp_collective(operation, mask, &payload, finish_reduction<T>, file, line);
  return payload.value;
}

} // namespace emu

/* The header's own template would ask for a function of the library that only nvcc's launches need. */
#define cudaLaunchKernelEx emu::launch_kernel

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

template <class... P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*kernel)(P...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void *>(kernel), threads, shared);
}

inline void __syncthreads(EMU_SITE) { emu::block_barrier(emu::REDUCE_NONE, 0, file, line); }
inline int __syncthreads_or(int p, EMU_SITE) { return emu::block_barrier(emu::REDUCE_OR, p, file, line); }
inline int __syncthreads_and(int p, EMU_SITE) { return emu::block_barrier(emu::REDUCE_AND, p, file, line); }
inline int __syncthreads_count(int p, EMU_SITE) { return emu::block_barrier(emu::REDUCE_COUNT, p, file, line); }

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, EMU_SITE) {
  emu::warp_collective("__syncwarp", mask, &mask, emu::finish_syncwarp, file, line);
}

/* `width` (a power of two) divides the warp into groups that shuffle among themselves. */
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_SITE) {
  const int first = emu::lane() & ~(width - 1);
  return emu::shuffle("__shfl_sync", mask, value, first | (source & (width - 1)), file, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMU_SITE) {
  const int own = emu::lane(), last = own | (width - 1), source = own ^ lanes;
  return emu::shuffle("__shfl_xor_sync", mask, value, source <= last ? source : own, file, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
  const int own = emu::lane(), last = own | (width - 1), source = own + int(delta);
  return emu::shuffle("__shfl_down_sync", mask, value, source <= last ? source : own, file, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_SITE) {
  const int own = emu::lane(), first = own & ~(width - 1), source = own - int(delta);
  return emu::shuffle("__shfl_up_sync", mask, value, source >= first ? source : own, file, line);
}

EMU_NOTSAN inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
  emu::Vote payload{unsigned(predicate != 0), 0};
  emu::warp_collective("__ballot_sync", mask, &payload, emu::finish_vote, file, line);
  return payload.ballot;
}
inline int __any_sync(unsigned mask, int predicate, EMU_SITE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMU_SITE) {
  return __ballot_sync(mask, !predicate, file, line) == 0;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value, EMU_SITE) {
  return emu::warp_reduce("__reduce_add_sync", mask, value, emu::OPERATOR_ADD, file, line);
}
template <class T> T __reduce_max_sync(unsigned mask, T value, EMU_SITE) {
  return emu::warp_reduce("__reduce_max_sync", mask, value, emu::OPERATOR_MAX, file, line);
}
template <class T> T __reduce_min_sync(unsigned mask, T value, EMU_SITE) {
  return emu::warp_reduce("__reduce_min_sync", mask, value, emu::OPERATOR_MIN, file, line);
}

/* Every load sees every store before it: fences matter to the race detector only. */
inline void __threadfence() { emu::race_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { emu::race_fence(); }
inline void __nanosleep(unsigned) { emu::yield(); }

#include "tests/cuda_on_cpu/intrinsics.h"

#endif
