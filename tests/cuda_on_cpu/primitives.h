/* kernels/primitives.cuh on the CPU: the same functions, by their definition in the PTX ISA. */
#pragma once
#define DYNAMIC_SHARED(name) unsigned char *const name = emu::dyn_smem()

EMU_NOTSAN inline void emulated_ldmatrix(uint32_t (&r)[4], const void *p, emu::Finish f, const char *file, int line) {
  if (uintptr_t(p) & 15) emu::die("ldmatrix: row address %p is not 16-byte aligned (%s:%d)", p, file, line);
  emu::race_access(p, 16, false, false);
  emu::LdmPay q;
  const uint32_t *w = static_cast<const uint32_t *>(p); // four checked loads: ASan sees this lane's own address
  for (int i = 0; i < 4; i++) q.row[i] = w[i];
  emu::warp_collective(f == emu::ldmatrix_fin ? "ldmatrix" : "ldmatrix.trans", ~0u, &q, f, file, line);
  for (int i = 0; i < 4; i++) r[i] = q.out[i];
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void *p, EMU_SITE) {
  emulated_ldmatrix(r, p, emu::ldmatrix_fin, file, line);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *p, EMU_SITE) {
  emulated_ldmatrix(r, p, emu::ldmatrix_trans_fin, file, line);
}
EMU_NOTSAN inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMU_SITE) {
  uint32_t b[2] = {b0, b1};
  emu::MmaPay p{d, a, b};
  emu::warp_collective("mma.sync", ~0u, &p, emu::mma_m16n8k16_bf16_fin, file, line);
}
inline void cp_async16(void *s, const void *g, bool pred = true) { emu::cp_async(s, g, 16, pred ? 16 : 0); }
inline void cp_async_commit() { emu::cp_async_commit(); }
template <int N> inline void cp_async_wait() { emu::cp_async_wait(N); }
inline uint4 load16_ordered(const void *g, bool pred) {
  return pred ? *emu::al(static_cast<const uint4 *>(g), "load16_ordered") : uint4{0, 0, 0, 0};
}
inline float exp2_approx(float x) { return exp2f(x); }
