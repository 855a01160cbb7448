/* What the emulator's .cpp files share. They are compiled without sanitizers, so that their frames never hold redzones
 * (the frames that an ended fiber leaves behind would poison the stack of the next one), but with -DEMU_ASAN in the
 * AddressSanitizer build, whose interface they then use. */
#ifndef CUDA_ON_CPU_INTERNAL_H
#define CUDA_ON_CPU_INTERNAL_H

#define EMU_IMPLEMENTATION
#include "tests/cuda_on_cpu/emulator.h"

#include <functional>

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {

/* The header's macros do nothing in a file that is compiled without -fsanitize. */
inline void poison(const void *p, size_t bytes) {
#ifdef EMU_ASAN
  __asan_poison_memory_region(p, bytes);
#else
  (void)p, (void)bytes;
#endif
}
inline void unpoison(const void *p, size_t bytes) {
#ifdef EMU_ASAN
  __asan_unpoison_memory_region(p, bytes);
#else
  (void)p, (void)bytes;
#endif
}

/* Rounds toward zero. */
inline float cut_to_float(double x) {
  const float y = float(x);
  return fabs(double(y)) > fabs(x) ? nextafterf(y, 0.0f) : y;
}

/* ---- device.cpp: what the environment asks for ---- */

enum Order { ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM };

enum { GEMM_CANDIDATES = 3 };

struct Options {
  Order order;          /* EMU_ORDER=fwd|rev|rand:SEED: of blocks, warps and lanes */
  unsigned seed;        /* never 0 */
  bool eager_copies;    /* EMU_CPASYNC=eager */
  bool lazy_streams;    /* EMU_STREAMS=lazy */
  unsigned stream_seed; /* EMU_STREAMS=random:SEED; 0: not random */
  bool host_guard;      /* EMU_HOSTGUARD=1, with AddressSanitizer: host code must not touch device memory */
  unsigned memory_kib;  /* EMU_MEMORY_KIB: of the card */
  bool unequal;         /* EMU_UNEQUAL=1: every rank adds products in an order of its own, as unequal cards do */
  /* EMU_GEMM_MS=A,B,C: what each algorithm for a matrix product takes, on events; they then add in orders of their own.
   * Rank r begins with number r. */
  float gemm_ms[GEMM_CANDIDATES];
  bool verbose; /* EMU_VERBOSE=1: a line for every launch */
};
const Options &options();

extern int rank;            /* in the last communicator */
extern double pretended_ms; /* by which the clock of events is ahead: EMU_GEMM_MS */

struct Card { /* EMU_SM=80|86|89|90 */
  int capability;
  int shared_per_block; /* bytes that a block can opt in to */
  int shared_per_processor;
  int threads_per_processor;
};
const Card &card();

/* Remembers `status` for cudaGetLastError() and returns it. */
cudaError_t failure(cudaError_t status);
/* What cudaFuncSetAttribute has allowed a kernel. */
size_t shared_limit(const void *kernel);

/* ---- scheduler.cpp ---- */

enum { STACK_BYTES = 256 << 10 }; /* of a fiber */
bool in_kernel();
int current_thread(); /* its number in the block */
bool has_waited();    /* for the launches before this one, if it began early */
const char *current_stack();
bool is_fiber_stack(const void *p);
/* What an address of shared memory stands for; NULL beyond the block's dynamic shared memory. */
const void *shared_memory_at(uint32_t address, size_t bytes);
/* early: it may begin before the launches before it have ended */
void run_grid(const void *kernel, const cudaLaunchConfig_t &config, bool early, Invoke invoke, const void *tuple);

/* How the race detector knows what is ordered: counts that barriers and __syncwarp advance. */
struct Epochs {
  unsigned launch;
  unsigned first;    /* the oldest launch that may still run when this one begins; this one: none */
  unsigned block;    /* barriers of the block so far */
  unsigned warp[32]; /* __syncwarps of each warp so far */
  bool running;      /* kernel code, not the emulator or the host */
};
extern Epochs epochs;

/* ---- async_copy.cpp ---- */

void async_copies_begin(int threads); /* of a block */
bool async_copies_pending(int thread);

/* ---- tensor_core.cpp ---- */

void need_all_lanes(void **payloads, const char *operation);
/* Number `half` (0: the low one) of two bf16 in a register. */
float bf16_half(uint32_t word, int half);
/* c + the sum of a[i] * b[i] for i < 16, as a tensor core adds. */
float sum_of_products(float c, const float *a, const float *b);

/* ---- wgmma.cpp ---- */

void wgmma_block_begin(int threads);
void wgmma_block_end();
bool wgmma_pending(int thread); /* of its warp */

/* ---- memory.cpp ---- */

enum MemoryKind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE };
/* Of the allocation that holds all of [p, p + bytes). */
MemoryKind memory_kind(const void *p, size_t bytes);
/* The allocation around p, a device's or pinned; false when there is none. Fast for what was asked about last. */
bool find_allocation(const void *p, const char **begin, const char **end, MemoryKind *kind);
/* With host_guard: whether touching device memory is an error from now on. */
void guard_device_memory(bool closed);

/* ---- streams.cpp ---- */

/* Appends to the stream, or to what it is recording. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
/* What is queued waits for other processes, whose hosts may wait for this one's: it cannot be put off. */
void run_at_once(cudaStream_t stream);
/* An error while the calling thread records a stream (and the recording is spoilt): for calls that CUDA forbids
 * then. */
cudaError_t unsafe_while_capturing();
/* The same for what `stream`, which is being recorded, cannot record. */
cudaError_t refuse_capture(cudaStream_t stream);
void finish_all_streams();

/* ---- race.cpp; does nothing in other builds ---- */

/* As race_access(), by the kernel at `code`. */
void race_access_at(const void *p, size_t bytes, bool write, bool atomic, const void *code);
/* A read by the async proxy: what was written needs a fence.proxy.async, too. */
void race_proxy_read(const void *p, size_t bytes, const void *code);
void race_block_begin(unsigned number, const void *dynamic_shared, size_t bytes); /* number: in the grid */

} // namespace emu

#endif
