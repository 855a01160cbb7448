// emulator.h - run CUDA kernels on the CPU, functionally (one OS thread, one fiber per CUDA thread).
// Use: g++|clang++ -x c++ -include emulator.h kernels.cu ; link emu.cpp instead of libcudart.
// Types, bf16/half arithmetic and API prototypes come from NVIDIA's own headers (host path).
#pragma once
#ifdef __CUDACC__
#error "emulator.h is for g++/clang++, not nvcc"
#endif
#define CUDA_ON_CPU 1
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <tuple>
#include <type_traits>
#include <utility>
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
#define CUDA_ON_CPU_SITE EMU_SITE
#define __forceinline__ inline
// One block at a time is alive, so a function-local static is exactly one block's copy.
// (Not thread_local: ASan puts redzones round plain statics but not round TLS ones.)
#ifndef EMU_SHARED_ATTR
#define EMU_SHARED_ATTR
#endif
#define __shared__ static EMU_SHARED_ATTR
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// const as in NVIDIA's headers; the runtime (which sees other declarations) sets them at every fiber switch. A value the
// compiler keeps in a register across a switch is still right: it never changes during one fiber's life.
#ifndef EMU_IMPL
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
#endif
static constexpr int warpSize = 32;

#define EMU_NOTSAN __attribute__((no_sanitize("thread")))
#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace emu {
// ---- implemented in emu.cpp ----
using Finish = void (*)(void **payload /*[32], null where not taking part*/);
void warp_collective(const char *op, unsigned mask, void *payload, Finish fin, const char *file, int line);
enum Reduce { NONE, OR, AND, COUNT };
int block_barrier(Reduce r, int pred, const char *file, int line);
void named_barrier(int id, int nthreads, bool wait, const char *file, int line);
int lane();
unsigned char *dyn_smem();
void cp_async(void *dst, const void *src, int bytes, int src_bytes);
void cp_async_commit();
void cp_async_wait(int keep);
void yield();
[[noreturn]] void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
using Thunk = void (*)(const void *params);
cudaError_t enqueue_kernel(const void *f, const cudaLaunchConfig_t *c, Thunk t, const void *params, size_t n);
void copy_params(void *d, const void *s, size_t n);
// race-detector build only (weak no-ops otherwise)
void race_access(const void *p, size_t n, bool write, bool atomic);

// A launch is a thunk plus a copy of (kernel, arguments); each fiber copies the arguments to its own stack first.
template <class K, class... P> void thunk(const void *params) {
  using Tup = std::tuple<K, P...>;
  alignas(Tup) unsigned char buf[sizeof(Tup)];
  copy_params(buf, params, sizeof buf);
  std::apply([](K k, auto &...p) { k(p...); }, *reinterpret_cast<Tup *>(buf));
}
template <class... P, class... A>
cudaError_t launch_ex(const cudaLaunchConfig_t *c, void (*k)(P...), A &&...a) {
  static_assert((std::is_trivially_copyable<std::decay_t<P>>::value && ...), "kernel parameters are copied as bytes");
  std::tuple<void (*)(P...), std::decay_t<P>...> t(k, static_cast<std::decay_t<P>>(std::forward<A>(a))...);
  return enqueue_kernel(reinterpret_cast<const void *>(k), c, thunk<void (*)(P...), std::decay_t<P>...>, &t, sizeof t);
}

template <class T> struct ShflPay { T in, out; int src; };
template <class T> EMU_NOTSAN void shfl_fin(void **p) {
  for (int l = 0; l < 32; l++)
    if (auto *q = static_cast<ShflPay<T> *>(p[l])) {
      if (!p[q->src]) die("shfl: lane %d reads lane %d, which does not take part (undefined value in CUDA)", l, q->src);
      q->out = static_cast<ShflPay<T> *>(p[q->src])->in;
    }
}
template <class T> EMU_NOTSAN T shfl(const char *op, unsigned mask, T v, int src, const char *file, int line) {
  static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8), "shfl type");
  ShflPay<T> p{v, v, src};
  warp_collective(op, mask, &p, shfl_fin<T>, file, line);
  return p.out;
}
struct VotePay { unsigned pred, out; };
EMU_NOTSAN inline void vote_fin(void **p) {
  unsigned b = 0;
  for (int l = 0; l < 32; l++) if (p[l] && static_cast<VotePay *>(p[l])->pred) b |= 1u << l;
  for (int l = 0; l < 32; l++) if (p[l]) static_cast<VotePay *>(p[l])->out = b;
}
template <class T> struct RedPay { T v; int op; };
template <class T> EMU_NOTSAN void red_fin(void **p) {
  bool first = true; T r{};
  for (int l = 0; l < 32; l++) if (auto *q = static_cast<RedPay<T> *>(p[l])) {
    if (first) r = q->v, first = false;
    else r = q->op == 0 ? T(r + q->v) : q->op == 1 ? (q->v > r ? q->v : r) : (q->v < r ? q->v : r);
  }
  for (int l = 0; l < 32; l++) if (p[l]) static_cast<RedPay<T> *>(p[l])->v = r;
}
// warp-wide tensor-core ops; bodies in emu.cpp
struct MmaPay { float *d; const uint32_t *a, *b; };
struct LdmPay { uint32_t row[4], out[4]; };
struct WgmmaPay { float *d; uint64_t a, b; int n; };
void wgmma_fin(void **p); void wgmma_commit_fin(void **p); void wgmma_wait_fin(void **p);
uint32_t smem_u32(const void *p);
void mma_m16n8k16_bf16_fin(void **p);
void ldmatrix_fin(void **p);
void ldmatrix_trans_fin(void **p);
}  // namespace emu

#define cudaLaunchKernelEx emu::launch_ex
template <class... P> cudaError_t cudaFuncSetAttribute(void (*f)(P...), cudaFuncAttribute a, int v) { return cudaFuncSetAttribute(reinterpret_cast<const void *>(f), a, v); }
template <class... P> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void (*)(P...), int, size_t) { *n = 1; return cudaSuccess; }

// ---- synchronisation ----
inline void __syncthreads(EMU_SITE) { emu::block_barrier(emu::NONE, 0, file, line); }
inline int __syncthreads_or(int p, EMU_SITE) { return emu::block_barrier(emu::OR, p, file, line); }
inline int __syncthreads_and(int p, EMU_SITE) { return emu::block_barrier(emu::AND, p, file, line); }
inline int __syncthreads_count(int p, EMU_SITE) { return emu::block_barrier(emu::COUNT, p, file, line); }
namespace emu { void syncwarp_fin(void **); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
  emu::warp_collective("__syncwarp", mask, &mask, emu::syncwarp_fin, file, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emu::yield(); }

// ---- warp shuffles, votes, reductions ----
template <class T> T __shfl_sync(unsigned m, T v, int src, int w = 32, EMU_SITE) {
  int l = emu::lane();
  return emu::shfl("__shfl_sync", m, v, (l & ~(w - 1)) | (src & (w - 1)), file, line);
}
template <class T> T __shfl_xor_sync(unsigned m, T v, int x, int w = 32, EMU_SITE) {
  int l = emu::lane(), s = l ^ x;
  return emu::shfl("__shfl_xor_sync", m, v, s <= (l | (w - 1)) ? s : l, file, line);
}
template <class T> T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32, EMU_SITE) {
  int l = emu::lane(), s = l + int(d);
  return emu::shfl("__shfl_down_sync", m, v, s <= (l | (w - 1)) ? s : l, file, line);
}
template <class T> T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32, EMU_SITE) {
  int l = emu::lane(), s = l - int(d);
  return emu::shfl("__shfl_up_sync", m, v, s >= (l & ~(w - 1)) ? s : l, file, line);
}
EMU_NOTSAN inline unsigned __ballot_sync(unsigned m, int pred, EMU_SITE) {
  emu::VotePay p{unsigned(pred != 0), 0};
  emu::warp_collective("__ballot_sync", m, &p, emu::vote_fin, file, line);
  return p.out;
}
inline int __any_sync(unsigned m, int pred, EMU_SITE) { return __ballot_sync(m, pred, file, line) != 0; }
inline int __all_sync(unsigned m, int pred, EMU_SITE) { return __ballot_sync(m, !pred, file, line) == 0; }
template <class T> EMU_NOTSAN T emu_reduce(const char *n, unsigned m, T v, int op, const char *file, int line) {
  emu::RedPay<T> p{v, op};
  emu::warp_collective(n, m, &p, emu::red_fin<T>, file, line);
  return p.v;
}
inline unsigned __reduce_add_sync(unsigned m, unsigned v, EMU_SITE) { return emu_reduce("__reduce_add_sync", m, v, 0, file, line); }
inline int __reduce_max_sync(unsigned m, int v, EMU_SITE) { return emu_reduce("__reduce_max_sync", m, v, 1, file, line); }
inline int __reduce_min_sync(unsigned m, int v, EMU_SITE) { return emu_reduce("__reduce_min_sync", m, v, 2, file, line); }

// ---- atomics (one OS thread: plain read-modify-write is atomic) ----
#define EMU_ATOMIC(name, expr)                                                     \
  template <class T> EMU_NOTSAN inline T name(T *p, std::common_type_t<T> v) {     \
    emu::race_access(p, sizeof *p, true, true);                                    \
    T old = *p; *p = static_cast<T>(expr); return old; }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicExch, v)
EMU_ATOMIC(atomicMax, v > old ? v : old)
EMU_ATOMIC(atomicMin, v < old ? v : old)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicAnd, old & v)
template <class T> EMU_NOTSAN inline T atomicCAS(T *p, std::common_type_t<T> cmp, std::common_type_t<T> v) {
  emu::race_access(p, sizeof *p, true, true);
  T old = *p; if (old == cmp) *p = v; return old;
}
inline unsigned atomicInc(unsigned *p, unsigned v) { unsigned o = *p; emu::race_access(p, 4, true, true); *p = o >= v ? 0 : o + 1; return o; }

// ---- cached loads/stores ----
namespace emu { template <class T> inline T *al(T *p, const char *n) { if (uintptr_t(p) % alignof(T)) die("%s: misaligned %zu-byte access at %p", n, sizeof(T), (const void *)p); return p; } }
#define EMU_LD(n) template <class T> inline T n(const T *p) { return *emu::al(p, #n); }
#define EMU_ST(n) template <class T> inline void n(T *p, std::common_type_t<T> v) { *emu::al(p, #n) = v; }
EMU_LD(__ldg) EMU_LD(__ldcs) EMU_LD(__ldcg) EMU_LD(__ldca) EMU_LD(__ldcv) EMU_LD(__ldlu)
EMU_ST(__stcs) EMU_ST(__stcg) EMU_ST(__stwb) EMU_ST(__stwt)

// ---- maths CUDA has and the host library does not (or only as device code) ----
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __saturatef(float a) { return a < 0 ? 0 : a > 1 ? 1 : a != a ? 0 : a; }
template <class T, class U> inline T emu_bits(U u) { static_assert(sizeof(T) == sizeof(U), ""); T t; memcpy(&t, &u, sizeof t); return t; }
inline int __float_as_int(float f) { return emu_bits<int>(f); }
inline unsigned __float_as_uint(float f) { return emu_bits<unsigned>(f); }
inline float __int_as_float(int i) { return emu_bits<float>(i); }
inline float __uint_as_float(unsigned i) { return emu_bits<float>(i); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline unsigned __brev(unsigned x) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= ((x >> i) & 1u) << (31 - i); return r; }
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) { using C = std::common_type_t<A, B>; return C(b) < C(a) ? C(b) : C(a); }
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) { using C = std::common_type_t<A, B>; return C(a) < C(b) ? C(b) : C(a); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __float2bfloat16_rn(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
inline void __trap() { emu::die("__trap()"); }
inline long long clock64() { static long long t; return t += 100; }
#undef __noinline__
#define __noinline__ __attribute__((noinline))   // last: libstdc++ headers spell the attribute this way, include them before
