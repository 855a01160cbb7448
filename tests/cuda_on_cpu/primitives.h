/* kernels/cuda/primitives.cuh on the CPU: the same functions, as the PTX ISA defines them. */
#ifndef CUDA_ON_CPU_PRIMITIVES_H
#define CUDA_ON_CPU_PRIMITIVES_H

#include <chrono>

#define DYNAMIC_SHARED(name) unsigned char *const name = emu::dyn_smem()

EMU_NOTSAN inline void emulated_ldmatrix(uint32_t (&r)[4], const void *p, emu::Finish finish, const char *operation,
                                         const char *file, int line) {
  if (uintptr_t(p) % 16) emu::die("%s: row address %p is not a multiple of 16 (%s:%d)", operation, p, file, line);
  emu::race_access(p, 16, false, false);
  emu::MatrixRow payload;
  /* Read here and not in the rendezvous: a bad address is reported at the lane that gave it. */
  const uint32_t *words = static_cast<const uint32_t *>(p);
  for (int i = 0; i < 4; i++) payload.row[i] = words[i];
  emu::warp_collective(operation, 0xFFFFFFFFu, &payload, finish, file, line);
  for (int i = 0; i < 4; i++) r[i] = payload.out[i];
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void *p, EMU_SITE) {
  emulated_ldmatrix(r, p, emu::finish_ldmatrix, "ldmatrix", file, line);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *p, EMU_SITE) {
  emulated_ldmatrix(r, p, emu::finish_ldmatrix_trans, "ldmatrix.trans", file, line);
}

EMU_NOTSAN inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMU_SITE) {
  const uint32_t b[2] = {b0, b1};
  emu::MmaFragments payload{d, a, b};
  emu::warp_collective("mma.sync", 0xFFFFFFFFu, &payload, emu::finish_mma_m16n8k16_bf16, file, line);
}

inline void cp_async16(void *shared, const void *global, bool pred = true) {
  emu::cp_async(shared, global, 16, pred ? 16 : 0);
}
inline void cp_async_commit() { emu::cp_async_commit(); }
template <int N> inline void cp_async_wait() { emu::cp_async_wait(N); }

template <bool CONSTANT> inline uint4 load16_ordered(const void *global, bool pred) {
  if (CONSTANT && pred) emu::race_constant(global, 16);
  return pred ? *emu::aligned(static_cast<const uint4 *>(global), "load16_ordered") : uint4{0, 0, 0, 0};
}

/* Reads a byte, for the sanitizers. */
inline void prefetch_l2(const void *global) { (void)*static_cast<const volatile char *>(global); }

inline void let_next_begin() {}
inline void wait_for_previous() { emu::wait_for_previous(); }

inline int64_t nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* Zero where ex2.approx.ftz flushes. */
inline float exp2_approx(float x) {
  const float y = emu::approximately(exp2f(x), x, 2, 9);
  return y < 0x1p-126f ? 0.0f : y;
}

#endif
