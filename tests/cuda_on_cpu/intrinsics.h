/* The device library on the CPU: atomics, cached loads and stores, arithmetic. Part of emulator.h. */
#ifndef CUDA_ON_CPU_INTRINSICS_H
#define CUDA_ON_CPU_INTRINSICS_H

/* ---- atomics: with one thread of the operating system, reading and writing is atomic ---- */

namespace emu {
template <class T, class F> EMU_NOTSAN inline T atomic(T *p, F next) {
  race_access(p, sizeof *p, true, true);
  const T old = *p;
  *p = next(old);
  return old;
}
} // namespace emu

template <class T> EMU_NOTSAN inline T atomicAdd(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return T(old + v); });
}
template <class T> EMU_NOTSAN inline T atomicSub(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return T(old - v); });
}
template <class T> EMU_NOTSAN inline T atomicExch(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T) { return v; });
}
template <class T> EMU_NOTSAN inline T atomicMax(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return v > old ? v : old; });
}
template <class T> EMU_NOTSAN inline T atomicMin(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return v < old ? v : old; });
}
template <class T> EMU_NOTSAN inline T atomicOr(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return T(old | v); });
}
template <class T> EMU_NOTSAN inline T atomicAnd(T *p, std::common_type_t<T> v) {
  return emu::atomic(
      p, [v](T old) { return T(old & v); });
}
template <class T> EMU_NOTSAN inline T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> v) {
  return emu::atomic(
      p, [expected, v](T old) { return old == expected ? v : old; });
}
/* Counts up to `limit`, then from 0 again. */
EMU_NOTSAN inline unsigned atomicInc(unsigned *p, unsigned limit) {
  return emu::atomic(
      p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}

/* ---- cached loads and stores ---- */

namespace emu {
template <class T> inline T *aligned(T *p, const char *operation) {
  if (uintptr_t(p) % alignof(T))
    die("%s: misaligned access of %zu bytes at %p", operation, sizeof(T), static_cast<const void *>(p));
  return p;
}
} // namespace emu

#define EMU_LOAD(name)                                                                                                 \
  template <class T> inline T name(const T *p) { return *emu::aligned(p, #name); }
#define EMU_STORE(name)                                                                                                \
  template <class T> inline void name(T *p, std::common_type_t<T> v) { *emu::aligned(p, #name) = v; }
EMU_LOAD(__ldg)
EMU_LOAD(__ldca)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldcv)
EMU_LOAD(__ldlu)
EMU_STORE(__stcg)
EMU_STORE(__stcs)
EMU_STORE(__stwb)
EMU_STORE(__stwt)
#undef EMU_LOAD
#undef EMU_STORE

/* ---- arithmetic that C++ has no name for, or that a card approximates ---- */

namespace emu {
/* Returns y = f(x) as a card may have it: off by up to `ulps` units in the last place, always alike for the same x, and
 * exact where x is a whole number, as exp2 is there. `salt`: another one for each function. */
inline float approximately(float y, float x, int ulps, uint32_t salt) {
  if (!(fabsf(y) <= FLT_MAX && fabsf(y) >= FLT_MIN) || x == rintf(x)) return y;
  uint32_t hash, bits;
  memcpy(&hash, &x, sizeof hash);
  memcpy(&bits, &y, sizeof bits);
  hash = (hash ^ salt) * 2654435761u;
  hash = (hash ^ hash >> 15) * 2246822519u;
  bits += (hash ^ hash >> 13) % uint32_t(2 * ulps + 1) - uint32_t(ulps);
  memcpy(&y, &bits, sizeof y);
  return y;
}
/* Keeps the compiler from fusing the operation that made x with the next one. */
inline float rounded(float x) {
  volatile float y = x;
  return y;
}
inline float device_expf(float x) { return approximately(expf(x), x, 1, 1); }
inline float device_logf(float x) { return approximately(logf(x), x, 1, 2); }
inline float device_erff(float x) { return approximately(erff(x), x, 1, 3); }
} // namespace emu

inline float rsqrtf(float x) { return emu::approximately(1.0f / sqrtf(x), x, 2, 4); }
inline float __expf(float x) {
  const float scaled = emu::rounded(x * 1.44269504f);
  return emu::approximately(exp2f(scaled), scaled, 2, 5);
}
inline float __logf(float x) { return emu::approximately(logf(x), x, 2, 6); }
inline float __log2f(float x) { return emu::approximately(log2f(x), x, 2, 7); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return emu::approximately(x / y, x + y, 2, 8); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return emu::rounded(emu::rounded(x) + emu::rounded(y)); }
inline float __fsub_rn(float x, float y) { return emu::rounded(emu::rounded(x) - emu::rounded(y)); }
inline float __fmul_rn(float x, float y) { return emu::rounded(emu::rounded(x) * emu::rounded(y)); }
inline float __saturatef(float x) { return x > 1 ? 1.0f : x > 0 ? x : 0.0f; /* NaN: 0 */ }

namespace emu {
template <class To, class From> inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
} // namespace emu

inline int __float_as_int(float x) { return emu::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emu::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emu::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emu::same_bits<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= ((x >> i) & 1u) << (31 - i);
  return reversed;
}

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(b) < C(a) ? C(b) : C(a);
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(a) < C(b) ? C(b) : C(a);
}
/* The number of the two when the other one is NaN. */
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

/* NVIDIA's headers have these for the device alone. */
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __float2bfloat16_rn(fmaf(__bfloat162float(a), __bfloat162float(b), __bfloat162float(c)));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

inline void __trap() { emu::die("__trap()"); }
inline long long clock64() {
  static long long ticks;
  return ticks += 100;
}

/* In kernels; the emulator itself uses the C library's. */
#ifndef EMU_IMPLEMENTATION
#define expf(x) emu::device_expf(x)
#define logf(x) emu::device_logf(x)
#define erff(x) emu::device_erff(x)
#endif

#endif
