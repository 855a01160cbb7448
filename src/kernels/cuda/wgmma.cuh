/* wgmma: products of tiles by the four warps of a warpgroup, which run while the warps compute other things. sm_90a
 * alone: a file that calls these functions is compiled for nothing else. As primitives.cuh, which has the inline PTX of
 * all cards; tests/cuda_on_cpu/wgmma.h has their definitions for kernels that run on the CPU.
 *
 * A factor in shared memory is a tile of rows of 64 bf16 numbers (128 bytes), which begins at a multiple of 1024 bytes;
 * chunk c (16 bytes) of row r lies at place c ^ r % 8: SWIZZLE_128B of the PTX ISA, and tile_offset<64, 8>() in
 * attention_tile.cuh. A warpgroup has 64 rows of the product, warp w of it rows 16w .. 16w+15, in the layouts of
 * mma.m16n8k16: d[n] holds columns 8n .. 8n+7.
 *
 * All 128 threads must call these functions in the same order with the same descriptors. */
#ifndef INKLING_KERNELS_CUDA_WGMMA_CUH
#define INKLING_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/primitives.cuh"

/* How a tile is the right factor: the product's columns are its rows (K_MAJOR), or its columns (MN_MAJOR). */
enum Major { K_MAJOR, MN_MAJOR };

#ifdef CUDA_ON_CPU
#include "tests/cuda_on_cpu/wgmma.h"
#else

/* What was written to shared memory, by stores or cp.async that have arrived, is visible to products after this call of
 * the thread that wrote it and a barrier. */
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Must stand between other uses of the registers of products and the first product. */
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/* Closes the group of the products issued so far; waits until all but the newest N groups are done. Until then their
 * registers may be neither read nor written, and their tiles may not be written. */
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define WGMMA_4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define WGMMA_32 WGMMA_4(0), WGMMA_4(1), WGMMA_4(2), WGMMA_4(3), WGMMA_4(4), WGMMA_4(5), WGMMA_4(6), WGMMA_4(7)
#define WGMMA_SUMS                                                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
  "%30,%31}"

/* Begins d[64][64] (+)= a[64][16] b, both in shared memory, a by rows: the columns 16 .. of a row from its descriptor
 * on. b: [64][16] transposed (K_MAJOR) or [16][64]. add: false overwrites d. */
template <Major MAJOR> __device__ __forceinline__ void wgmma_shared(float (*d)[4], uint64_t a, uint64_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_SUMS ", %32, %33, p, 1, 1, 0, %35;\n}"
               : WGMMA_32
               : "l"(a), "l"(b), "r"((int)add), "n"((int)MAJOR));
}

/* The same with a in registers, as mma_bf16() has it. */
template <Major MAJOR>
__device__ __forceinline__ void wgmma_registers(float (*d)[4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_SUMS
               ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
               : WGMMA_32
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"((int)MAJOR));
}

#undef WGMMA_4
#undef WGMMA_32
#undef WGMMA_SUMS
#endif

/* The descriptor of the factors 16k .. 16k+15 of every sum, columns of a K_MAJOR tile or rows of an MN_MAJOR one, of
 * the tile at `address` in shared memory: where they begin, 1 (unused), 1024 bytes from 8 rows to the next 8,
 * SWIZZLE_128B. */
template <Major MAJOR> __device__ __forceinline__ uint64_t tile_descriptor(uint32_t address, int k) {
  const uint32_t start = address + (uint32_t)k * (MAJOR == K_MAJOR ? 16 * 2 : 16 * 128);
  return start >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#endif
