/* What nothing on this device can pass: the rates of products and copies, and on a CPU of reading. */
#include "bench/bench.h"
#include "util/clock.h"
#include "util/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Block __attribute__((vector_size(64))); /* a line of the cache */

typedef uint64_t ReadFunction(const Block *data, size_t count, size_t streams);

/* Sums all blocks, as so many streams side by side as the hardware may like better; `count` is a multiple of `streams`.
 * Without unaligned or narrow loads, what remains is what the memory and the caches can deliver. */
static inline __attribute__((always_inline)) uint64_t sum_streams(const Block *data, size_t count, size_t streams) {
  Block sum[4] = {0};
  const size_t each = count / streams;
  if (streams == 1)
    for (size_t i = 0; i < each; i++) sum[i % 4] += data[i];
  else
    for (size_t i = 0; i < each; i++)
      for (size_t s = 0; s < 4; s++) sum[s] += data[s * each + i];
  sum[0] += sum[1] + sum[2] + sum[3];
  return sum[0][0] + sum[0][1] + sum[0][2] + sum[0][3] + sum[0][4] + sum[0][5] + sum[0][6] + sum[0][7];
}

static uint64_t read_narrow(const Block *data, size_t count, size_t streams) {
  return sum_streams(data, count, streams);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint64_t read_avx2(const Block *data, size_t count, size_t streams) {
  return sum_streams(data, count, streams);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const Block *data, size_t count, size_t streams) {
  return sum_streams(data, count, streams);
}
#endif

/* The widest loads of this processor, whatever the backend was compiled for. */
static ReadFunction *widest_read(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_narrow;
}

/* Seconds of one pass through the buffer, every thread through a part of its own. */
static double read_all(const Block *data, size_t count, int threads, size_t streams, int passes) {
  static volatile uint64_t result; /* so that the sum is needed */
  ReadFunction *const read_part = widest_read();
  const size_t part = count / (size_t)threads;
  uint64_t sum = 0;
  const double start = clock_seconds();
  for (int pass = 0; pass < passes; pass++) {
#pragma omp parallel for num_threads(threads) reduction(+ : sum)
    for (int t = 0; t < threads; t++) sum += read_part(data + part * (size_t)t, part, streams);
  }
  result = sum;
  (void)result;
  return (clock_seconds() - start) / passes;
}

/* Bytes/s of reading the same `bytes` over and over: what is left in the caches between two passes is what a model of
 * that size finds there. The better of two ways to read. */
static double read_rate(Bench *b, double bytes) {
  ContextInfo info;
  b->ops->info(b->c, &info);
  const size_t multiple = 4 * (size_t)info.threads, count = (size_t)bytes / (multiple * sizeof(Block)) * multiple;
  Block *data = count ? memory_allocate(sizeof(Block), count * sizeof *data) : NULL;
  if (!data) return 0;
  memset(data, 1, count * sizeof *data);
  double best = 0;
  for (size_t streams = 1; streams <= 4; streams += 3) {
    double seconds[MAX_BATCHES];
    read_all(data, count, info.threads, streams, 1);
    const double once = read_all(data, count, info.threads, streams, 1);
    const int passes = b->quick || once > 20e-3 ? 1 : (int)ceil(20e-3 / once);
    for (int i = 0; i < b->batches; i++) seconds[i] = read_all(data, count, info.threads, streams, passes);
    best = fmax(best, (double)count * sizeof *data / quantiles_of(seconds, (size_t)b->batches).median);
  }
  free(data);
  return best;
}

void bench_ceilings(Bench *b, BenchModel *const *models, int count) {
  const int batches = b->batches;
  if (!b->quick) b->batches = 5;
  if (b->accelerator) bench_copy_rates(b);
  bench_gemm_rate(b);
  for (int i = 0; i < count && !b->accelerator; i++) {
    const double bytes = bench_token_bytes(b, &models[i]->config, 1), rate = read_rate(b, bytes);
    if (rate <= 0) continue;
    printf("%-8s reading its %.1f MB again and again: %.1f GB/s\n", models[i]->name, 1e-6 * bytes, 1e-9 * rate);
    bench_json(b,
               "{\"kind\": \"rate\", \"name\": \"read\", \"model\": \"%s\", \"bytes\": %.0f, \"value\": %.6g, "
               "\"unit\": \"byte/s\"}",
               models[i]->name, bytes, rate);
  }
  b->batches = batches;
}
