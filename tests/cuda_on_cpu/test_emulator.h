/* What the files of the emulator's own test program share. */
#ifndef CUDA_ON_CPU_TEST_EMULATOR_H
#define CUDA_ON_CPU_TEST_EMULATOR_H

#include "kernels/cuda/primitives.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the test function, which returns bool. */
#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: wrong result: not true: %s\n", __FILE__, __LINE__, #condition);                          \
      return false;                                                                                                    \
    }                                                                                                                  \
  } while (0)
#define EXPECT_CUDA(call) EXPECT((call) == cudaSuccess)

struct Test {
  const char *name;
  bool (*run)();
  const char *environment; /* "EMU_SM=86": runs in a process of its own; NULL: here */
};

/* A kernel, as it should be and with one mistake. The words are what a build must say of the mistake, an extended
 * regular expression; NULL where it need not notice. */
struct PlantedBug {
  const char *name;
  bool (*run)(bool broken); /* false for a wrong result */
  const char *plain, *address, *race;
  const char *environment; /* "" or more */
};

extern const PlantedBug planted_bugs[]; /* planted_bugs.cu; ends with a name of NULL */
extern const Test stream_tests[];       /* test_streams.cu; the same */
extern const Test cublaslt_tests[];     /* test_cublaslt.cu; the same */
extern const Test wgmma_tests[];        /* test_wgmma.cu; the same */

/* Mistakes in a product by wgmma. */
enum WgmmaBug {
  BUG_NONE,
  BUG_NO_WAIT,          /* the product is stored before the wait */
  BUG_NO_COMMIT,        /* the wait covers nothing */
  BUG_NO_FENCE,         /* no wgmma.fence */
  BUG_NO_PROXY_FENCE,   /* no fence.proxy.async */
  BUG_LATE_PROXY_FENCE, /* after the barrier */
  BUG_STRIDE,           /* a descriptor with another SBO */
  BUG_MISALIGNED,       /* a tile that does not begin at a multiple of 1024 bytes */
  BUG_REGISTER_REUSED,  /* a register of the left factor is overwritten before the wait */
  BUG_REGISTER_SCOPE,   /* the left factor is no longer a variable */
  BUG_SUM_WRITTEN,      /* an accumulator is */
  BUG_TILE_REFILLED,    /* a tile is */
  BUG_TILE_LATE,        /* a part of a tile is written after the product was issued */
  BUG_WARP_SKIPS,       /* one warp leaves out the last product */
};
bool run_wgmma_bug(WgmmaBug bug); /* as PlantedBug's */

/* A launch on `stream`. */
template <class... P, class... A>
cudaError_t launch(cudaStream_t stream, void (*kernel)(P...), unsigned grid, unsigned block, size_t shared,
                   A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

/* Device memory that is freed with the variable. */
template <class T> struct Device {
  T *data;
  size_t count;
  explicit Device(size_t n) : data(nullptr), count(n) {
    void *memory = nullptr;
    if (cudaMalloc(&memory, n * sizeof(T)) != cudaSuccess) abort();
    data = static_cast<T *>(memory);
  }
  Device(const Device &) = delete;
  ~Device() { cudaFree(data); }
  void set(const T *values) { cudaMemcpy(data, values, count * sizeof(T), cudaMemcpyHostToDevice); }
  void get(T *values) const { cudaMemcpy(values, data, count * sizeof(T), cudaMemcpyDeviceToHost); }
};

#endif
