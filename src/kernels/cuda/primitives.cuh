/* The operations of the CUDA backend that need inline PTX, a function for each; tests/cuda_on_cpu/primitives.h has
 * their definitions for kernels that run on the CPU. No other file but wgmma.cuh knows the difference. sm_80 and
 * later. */
#ifndef INKLING_KERNELS_CUDA_PRIMITIVES_CUH
#define INKLING_KERNELS_CUDA_PRIMITIVES_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#ifdef CUDA_ON_CPU
#include "tests/cuda_on_cpu/primitives.h"
#else

/* The dynamic shared memory of a block, 128-byte aligned at least; its contents are undefined at the start. */
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Four 8x8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8 (16-byte aligned) and
 * receives, of each matrix, the elements 2 * (l % 4) and + 1 of row l / 4. All 32 lanes must call it. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

/* The same with each matrix transposed: elements (2 * (l % 4), l / 4) and (2 * (l % 4) + 1, l / 4). */
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

/* d[16][8] += a[16][16] b[16][8], bf16 products summed in fp32. With g = lane / 4, c = 2 * (lane % 4):
 * a: {(g, c..), (g+8, c..), (g, c+8..), (g+8, c+8..)};  b: b0 = (k = c.., n = g), b1 = (k = c+8.., n = g);
 * d: (g, c), (g, c+1), (g+8, c), (g+8, c+1). */
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Copies 16 bytes from global to shared memory without waiting; both addresses 16-byte aligned. When !pred the
 * destination is zeroed and the source is not read. */
__device__ __forceinline__ void cp_async16(void *shared, const void *global, bool pred = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(pred ? 16 : 0)
               : "memory");
}
/* Closes the group of the copies issued so far; waits until all but the newest N groups of this thread have arrived
 * (other threads see them after a barrier). A thread must wait for all its copies before it ends. */
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#define LOAD16(instruction)                                                                                            \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %5, 0;\n mov.b32 %0, 0;\n mov.b32 %1, 0;\n mov.b32 %2, 0;\n"        \
               " mov.b32 %3, 0;\n @p " instruction ".v4.b32 {%0,%1,%2,%3}, [%4];\n}"                                   \
               : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)                                                        \
               : "l"(global), "r"((int)pred))

/* Loads 16 bytes; zeros, without an access, when !pred. These loads keep the order of the program: the compiler would
 * move ordinary loads next to their uses, which then wait. CONSTANT: the bytes do not change while the kernel runs, not
 * before wait_for_previous() either. */
template <bool CONSTANT> __device__ __forceinline__ uint4 load16_ordered(const void *global, bool pred) {
  uint4 r;
  if (CONSTANT) LOAD16("ld.global.nc");
  else LOAD16("ld.global");
  return r;
}

/* For kernels that begin early (launch<EARLY>): lets the next such kernel begin when all blocks have called it. */
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until the kernels before this one have ended. A thread that reads what they write, or writes anything, calls
 * it before; some thread of every kernel that begins early must call it. */
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Brings the line at a global address into L2. */
__device__ __forceinline__ void prefetch_l2(const void *global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/* A clock that runs while the device is idle, too. */
__device__ __forceinline__ int64_t nanoseconds() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/* 2^x to about 2 ulp; results below the smallest normal number are 0; -inf gives 0, NaN stays. */
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
#endif
