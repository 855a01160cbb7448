/* Upper limits of this device: the rates of matrix products and copies, and on a CPU of reading. */
#include "bench/bench.h"
#include "util/clock.h"
#include "util/memory.h"
#include "util/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Block __attribute__((vector_size(64))); /* a cache line */

typedef uint64_t ReadFunction(const Block *data, size_t count, size_t streams);

/* Sums all blocks, reading 1 or 4 streams side by side, whichever suits the hardware better; `count` is a multiple of
 * `streams`. All loads are aligned and wide, so only the memory and the caches limit the rate. */
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

/* Uses the widest loads of this processor, independently of the backend. */
static ReadFunction *widest_read(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_narrow;
}

enum { PIECE = 4096, MOST_PIECES = 64 }; /* blocks in a piece; pieces that a thread takes at a time */

typedef struct Reading {
  const Block *data;
  size_t streams;
  ReadFunction *read;
  _Atomic uint64_t *sum; /* keeps the compiler from removing the loads */
} Reading;

static void read_pieces(const void *job, int begin, int end, int thread) {
  const Reading *r = job;
  (void)thread;
  *r->sum += r->read(r->data + (size_t)begin * PIECE, (size_t)(end - begin) * PIECE, r->streams);
}

/* Returns the seconds of one pass over all pieces. */
static double time_reading(Pool *pool, int pieces, const Reading *r, int passes) {
  const double start = clock_seconds();
  for (int pass = 0; pass < passes; pass++) pool_run(pool, pieces, 1, MOST_PIECES, read_pieces, r);
  return (clock_seconds() - start) / passes;
}

/* Returns the seconds of the faster of two ways to read. */
static double read_seconds(const Bench *b, Pool *pool, const Block *data, int pieces) {
  double best = INFINITY;
  for (size_t streams = 1; streams <= 4; streams += 3) {
    double seconds[MAX_BATCHES];
    _Atomic uint64_t sum = 0;
    const Reading r = {data, streams, widest_read(), &sum};
    time_reading(pool, pieces, &r, 1);
    const double once = time_reading(pool, pieces, &r, 1);
    const int passes = b->quick || once > 20e-3 ? 1 : (int)ceil(20e-3 / once);
    for (int i = 0; i < b->batches; i++) seconds[i] = time_reading(pool, pieces, &r, passes);
    best = fmin(best, quantiles_of(seconds, (size_t)b->batches).median);
  }
  return best;
}

/* Returns the bytes/s of reading the same `bytes` again and again, with the threads of the operations. As much of them
 * stays in the caches between two passes as of a model with that size. 0: out of memory. */
static double read_rate(Bench *b, double bytes) {
  ContextInfo info;
  Error error = {0};
  Pool *pool = NULL;
  b->ops->info(b->c, &info);
  const int pieces = (int)ceil(bytes / (PIECE * sizeof(Block)));
  const size_t size = (size_t)pieces * PIECE * sizeof(Block);
  Block *data = memory_allocate(sizeof(Block), size);
  double rate = 0;
  if (data && pool_open(&pool, info.threads, &error)) {
    memset(data, 1, size);
    rate = (double)size / read_seconds(b, pool, data, pieces);
  }
  pool_close(pool);
  memory_release(data, size);
  return rate;
}

void bench_ceilings(Bench *b, BenchModel *const *models, int count) {
  const int batches = b->batches;
  if (!b->quick) b->batches = 5;
  if (b->accelerator) bench_copy_rates(b);
  bench_gemm_rate(b);
  for (int i = 0; i < count && !b->accelerator; i++) {
    const double bytes = bench_token_bytes(b, models[i], 1), rate = read_rate(b, bytes);
    if (rate <= 0) continue;
    printf("%-8s reading its %.1f MB again and again: %.1f GB/s\n", models[i]->name, 1e-6 * bytes, 1e-9 * rate);
    bench_json(b,
               "{\"kind\": \"rate\", \"name\": \"read\", \"model\": \"%s\", \"bytes\": %.0f, \"value\": %.6g, "
               "\"unit\": \"byte/s\"}",
               models[i]->name, bytes, rate);
  }
  b->batches = batches;
}
