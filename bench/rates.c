/* Measured peak rates of the device: copies, writes, matrix products. */
#include "bench/bench.h"

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

void bench_copy_rates(Bench *b) {
  int mebibytes = b->quick ? 1 : 1024;
  double bytes = mebibytes * 1048576.0;
  Operands o = {.rows = mebibytes * 1024};
  const Need array = {FILL_FLOATS, (int64_t)mebibytes << 18};
  Group group = bench_group("rates", "-", "%d MiB", mebibytes);
  const Case copy = {"copy", call_copy, 2 * bytes, .needs = {array, array}, .note = "bytes read + bytes written"};
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

/* A model whose embedding is a matrix of that shape, for linear() and embedding(). */
static BenchModel model_of_matrix(int rows, int cols) {
  return (BenchModel){.name = "-",
                      .config = {.vocab = (rows + 127) / 128 * 128,
                                 .ctx = 2,
                                 .layers = 1,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .dim = cols,
                                 .head_dim = 2,
                                 .ffn = 32,
                                 .tie = true,
                                 .gated = true}};
}

typedef struct Product {
  int rows, outputs, inputs;
} Product;

/* FLOP/s; 0 after an error. */
static double product_rate(Bench *b, Product p) {
  BenchModel m = model_of_matrix(p.outputs, p.inputs);
  Operands o = {.model = &m, .rows = p.rows, .warm = true};
  if (!bench_model_ready(b, &m)) return 0;
  o.layer.weight = (Matrix){m.table.decoder.embedding.offset, p.outputs, p.inputs};
  const Group group = bench_group("rates", "-", "%d x %d x %d", p.rows, p.outputs, p.inputs);
  const Case k = {"linear", bench_call_linear, .flops = 2.0 * p.rows * p.outputs * p.inputs,
                  .needs = {{FILL_COMPUTE, (int64_t)p.rows * p.outputs}, {FILL_COMPUTE, (int64_t)p.rows * p.inputs}}};
  const double ms = bench_row(b, &group, &o, k).median;
  bench_model_free(b, &m);
  return ms > 0 ? 1e3 * k.flops / ms : 0;
}

/* Measures the GEMM as training calls it. Which shape is the fastest depends on a CPU's caches, so the best of several
 * shapes counts. */
void bench_gemm_rate(Bench *b) {
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
  BenchModel square = model_of_matrix(n, n);
  Operands o = {.model = &square, .rows = n, .width = n};
  if (!bench_model_ready(b, &square)) return;
  o.layer.weight = (Matrix){square.table.decoder.embedding.offset, n, n};
  const Group group = bench_group("rates", "-", "%d x %d", n, n);
  bench_row(b, &group, &o,
            (Case){"write only (embedding)", call_write, (double)n * n * (double)b->dt,
                   .needs = {{FILL_COMPUTE, (int64_t)n * n}, {FILL_ZEROS, 4 * (int64_t)n}},
                   .note = "one row of the table for every token"});
  bench_model_free(b, &square);
}

void bench_rates(Bench *b) {
  bench_copy_rates(b);
  bench_gemm_rate(b);
  write_rate(b);
  if (b->quick) return;
  double peak = b->ops->peak_flops(b->c);
  if (!bench_alive(b, "peak_flops")) return;
  printf("peak_flops() of the backend: %.3f TFLOP/s\n", 1e-12 * peak);
  bench_json(b, "{\"kind\": \"rate\", \"name\": \"peak_flops\", \"value\": %.6g, \"unit\": \"FLOP/s\"}", peak);
}
