/* Measured peak rates of the device: copies, writes, matrix products, and on a CPU reading. */
#include "tests/bench/bench.h"
#include "base/system.h"
#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void call_copy(Bench *b, const Operands *o, int set) {
  b->ops->copy(b->c, o->array[set][0], o->array[set][1], (size_t)o->rows * 1024);
}

static void call_write(Bench *b, const Operands *o, int set) {
  const Embedding e = {.table = o->layer.weight};
  b->ops->embedding(b->c, o->array[set][0], &o->model->params, &e, o->array[set][1], 1, o->rows, NULL);
}

static void *host_buffer;
static void call_upload(Bench *b, const Operands *o, int set) {
  b->ops->upload(b->c, o->array[set][0], host_buffer, (size_t)o->rows * 1024);
}
static void call_download(Bench *b, const Operands *o, int set) {
  b->ops->download(b->c, host_buffer, o->array[set][0], (size_t)o->rows * 1024);
}

static void copy_rates(Bench *b) {
  int mebibytes = b->quick ? 1 : 1024;
  double bytes = mebibytes * 1048576.0;
  Operands o = {.rows = mebibytes * 1024};
  const Need array = {FILL_FLOATS, (int64_t)mebibytes << 18};
  Group group = bench_group("rates", "-", "%d MiB", mebibytes);
  /* Not recorded: on an H200, a copy in a CUDA graph takes 1.5 times as long. */
  const Case copy = {
      "copy", call_copy, 2 * bytes, .needs = {array, array}, .direct = true, .note = "bytes read + bytes written"};
  const double ms = bench_row(b, &group, &o, copy).median;
  if (ms > 0) {
    b->copy_rate = 1e3 * copy.bytes / ms;
    bench_json(b, "{\"kind\": \"rate\", \"name\": \"copy\", \"value\": %.6g, \"unit\": \"byte/s\"}", b->copy_rate);
  }
  mebibytes = b->quick ? 1 : 64;
  bytes = mebibytes * 1048576.0;
  o = (Operands){.rows = mebibytes * 1024};
  host_buffer = malloc((size_t)mebibytes << 20);
  if (!host_buffer) bench_out_of_memory();
  memset(host_buffer, 1, (size_t)mebibytes << 20);
  group = bench_group("rates", "-", "%d MiB", mebibytes);
  const Need memory = {FILL_FLOATS, (int64_t)mebibytes << 18};
  static const char note[] = "from pageable memory";
  const Case transfers[] = {{"upload", call_upload, bytes, .needs = {memory}, .direct = true, .note = note},
                            {"download", call_download, bytes, .needs = {memory}, .direct = true, .note = note}};
  bench_rows(b, &group, &o, transfers, 2);
  free(host_buffer);
}

/* Loads a model whose embedding is a matrix of that shape, for linear() and embedding(), and makes it o->layer. */
static bool load_matrix(Bench *b, BenchModel *m, int rows, int cols, Operands *o) {
  *m = bench_model("-", 1, 1, cols, 2, (rows + 127) / 128 * 128, 1);
  m->config.head_dim = 2;
  m->config.ffn = 32;
  o->of = m;
  if (!bench_load(b, m)) return false;
  o->layer.weight = (Matrix){m->model->table.decoder.embedding.offset, rows, cols};
  return true;
}

typedef struct Product {
  int rows, outputs, inputs;
} Product;

/* FLOP/s; 0 after an error. */
static double product_rate(Bench *b, Product p) {
  BenchModel m;
  Operands o = {.rows = p.rows, .warm = true};
  if (!load_matrix(b, &m, p.outputs, p.inputs, &o)) return 0;
  const Group group = bench_group("rates", "-", "%d x %d x %d", p.rows, p.outputs, p.inputs);
  const Case k = {"linear", bench_call_linear, .flops = 2.0 * p.rows * p.outputs * p.inputs,
                  .needs = {{FILL_COMPUTE, (int64_t)p.rows * p.outputs}, {FILL_COMPUTE, (int64_t)p.rows * p.inputs}}};
  const double ms = bench_row(b, &group, &o, k).median;
  bench_unload(b, &m);
  return ms > 0 ? 1e3 * k.flops / ms : 0;
}

/* Measures the GEMM as training calls it. Which shape is the fastest depends on a CPU's caches, so the best of several
 * shapes counts. */
static void gemm_rate(Bench *b) {
  static const Product on_cpu[] = {{768, 768, 128}, {1024, 1024, 1024}, {2048, 1024, 512}, {4096, 2048, 384}};
  static const Product on_gpu[] = {{8192, 8192, 8192}}, to_try[] = {{64, 64, 64}};
  const Product *list = b->quick ? to_try : b->accelerator ? on_gpu : on_cpu;
  int count = b->quick || b->accelerator ? 1 : (int)(sizeof on_cpu / sizeof *on_cpu);
  b->gemm_rate = 0; /* these rows are not compared with an earlier rate */
  double best = 0;
  for (int i = 0; i < count; i++) best = fmax(best, product_rate(b, list[i]));
  b->gemm_rate = best;
  if (best > 0) bench_json(b, "{\"kind\": \"rate\", \"name\": \"gemm\", \"value\": %.6g, \"unit\": \"FLOP/s\"}", best);
}

/* Measures writing: nothing but one row of the table is read. */
static void write_rate(Bench *b) {
  int n = b->quick ? 64 : b->accelerator ? 8192 : 1024;
  BenchModel square;
  Operands o = {.rows = n, .width = n};
  if (!load_matrix(b, &square, n, n, &o)) return;
  const Group group = bench_group("rates", "-", "%d x %d", n, n);
  bench_row(b, &group, &o,
            (Case){"write only (embedding)", call_write, (double)n * n * (double)b->dt,
                   .needs = {{FILL_COMPUTE, (int64_t)n * n}, {FILL_ZEROS, 4 * (int64_t)n}},
                   .note = "one row of the table for every token"});
  bench_unload(b, &square);
}

void bench_rates(Bench *b) {
  copy_rates(b);
  gemm_rate(b);
  write_rate(b);
  if (b->quick) return;
  double peak = b->ops->peak_flops(b->c);
  if (!bench_alive(b, "peak_flops")) return;
  printf("peak_flops() of the backend: %.3f TFLOP/s\n", 1e-12 * peak);
  bench_json(b, "{\"kind\": \"rate\", \"name\": \"peak_flops\", \"value\": %.6g, \"unit\": \"FLOP/s\"}", peak);
}

/* ---- reading on a CPU ---- */

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
  if (b->accelerator) copy_rates(b);
  gemm_rate(b);
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
