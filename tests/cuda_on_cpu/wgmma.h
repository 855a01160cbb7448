/* kernels/cuda/wgmma.cuh on the CPU: the same functions; wgmma.cpp does the work. */
#ifndef CUDA_ON_CPU_WGMMA_H
#define CUDA_ON_CPU_WGMMA_H

inline uint32_t shared_address(const void *p) { return emu::shared_address(p); }

inline void fence_proxy_async() { emu::race_proxy_fence(); }
inline void wgmma_fence(EMU_SITE) { emu::wgmma_fence(file, line); }
inline void wgmma_commit(EMU_SITE) { emu::wgmma_commit(file, line); }
template <int N> inline void wgmma_wait(EMU_SITE) { emu::wgmma_wait(N, file, line); }

template <Major MAJOR> inline void wgmma_shared(float (*d)[4], uint64_t a, uint64_t b, bool add, EMU_SITE) {
  emu::wgmma({d[0], 64, NULL, a, b, add, MAJOR == MN_MAJOR}, file, line);
}
template <Major MAJOR>
inline void wgmma_registers(float (*d)[4], const uint32_t (&a)[4], uint64_t b, bool add, EMU_SITE) {
  emu::wgmma({d[0], 64, a, 0, b, add, MAJOR == MN_MAJOR}, file, line);
}

#endif
