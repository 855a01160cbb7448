/* How fast is every operation of kernels.h on this device, and which part of what the device can do is that?
 *
 *   bench_kernels [--device cuda|cpu] [--dtype bf16|f32] [--only GROUP] [--model NAME] [--batch N] [--json FILE]
 * [--head-rows N] [--autotune] [--quick]
 *
 * First what the device reaches: a copy of 1 GiB (read and written bytes counted), an 8192^3 GEMM. Then the operations
 * at the shapes of the models baby and 124m, GEMMs, attention, decoding, whole training steps; groups: rates,
 * elementwise, gemm, attention, decode, train. Bytes and FLOPs are counted by the operation's formula, whatever the
 * kernel really moves. A program that prints numbers, no timed test: status 1 where an operation failed, which its row
 * says.
 *
 * Timing: a recording of R calls (the backend replays it, as in training) is submitted K times between two waits, R and
 * K such that it takes 20 ms at least; the median of 7 such batches. Data are random, never zeros; sets of arrays are
 * used in turn, so that together they are larger than the caches. --quick: tiny shapes, to try the program itself. */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

static BenchModel model_of(const char *name, int layers, int heads, int dim, int ctx, int vocab, int batch) {
  return (BenchModel){.name = name,
                      .batch = batch,
                      .config = {.vocab = vocab,
                                 .ctx = ctx,
                                 .layers = layers,
                                 .heads = heads,
                                 .kv_heads = heads,
                                 .dim = dim,
                                 .head_dim = dim / heads,
                                 .ffn = model_default_ffn(dim),
                                 .tie = true,
                                 .rope_base = 10000.0f,
                                 .norm_eps = 1e-5f}};
}

static bool chosen(const char *list, const char *name) { return !list || strcmp(list, name) == 0; }

static void measure_groups(Bench *b, const char *only, const char *name) {
  bench_rates(b); /* always: the shares need it */
  BenchModel trained[] = {model_of("baby", 6, 6, 384, 256, 257, 64),
                          model_of("124m", 12, 12, 768, 1024, 50304, b->batch)};
  BenchModel decoded[] = {model_of("15m", 6, 6, 288, 256, 32000, 1), model_of("110m", 12, 12, 768, 1024, 32000, 1),
                          model_of("124m", 12, 12, 768, 1024, 50304, 1)};
  int trained_count = 2, decoded_count = 3;
  if (b->quick) {
    trained[0] = model_of("tiny", 2, 2, 32, 16, 70, 2);
    decoded[0] = model_of("tiny", 2, 2, 32, 16, 70, 1);
    trained_count = decoded_count = 1;
  }
  for (int i = 0; i < trained_count; i++) {
    BenchModel *m = &trained[i];
    m->trains = true;
    if (!chosen(name, m->name)) continue;
    if (chosen(only, "elementwise")) bench_elementwise(b, m);
    if (chosen(only, "gemm")) bench_gemm(b, m);
    if (chosen(only, "attention")) bench_attention(b, m);
    bench_model_free(b, m);
    if (chosen(only, "train")) bench_train(b, m);
  }
  if (chosen(only, "attention") && !name) bench_attention_sweep(b);
  for (int i = 0; i < decoded_count && chosen(only, "decode"); i++) {
    if (!chosen(name, decoded[i].name)) continue;
    bench_decode(b, &decoded[i], 1);
    bench_decode(b, &decoded[i], b->quick ? 3 : 8);
    bench_model_free(b, &decoded[i]);
  }
}

static int usage(const char *flag) {
  fprintf(stderr,
          "bench_kernels: %s: use --device cuda|cpu, --isa v2|v3|v4, --dtype bf16|f32, --weights bf16|int8 (decoding "
          "on a CPU), --only "
          "rates|elementwise|gemm|attention|decode|train, --model NAME, --batch N, --head-rows N, --json FILE, "
          "--autotune, --quick\n",
          flag);
  return EXIT_USAGE;
}

int main(int argc, char **argv) {
  Bench b = {.dtype = DTYPE_BF16, .batch = 64};
  const char *device = NULL, *isa = NULL, *only = NULL, *name = NULL, *json = NULL, *dtype = NULL, *weights = NULL;
  for (int i = 1; i < argc; i++) {
    const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(flag, "--quick") == 0 || strcmp(flag, "--autotune") == 0) {
      *(flag[2] == 'q' ? &b.quick : &b.autotune) = true;
      continue;
    }
    const struct {
      const char *flag, **value;
    } texts[] = {{"--device", &device}, {"--isa", &isa},     {"--only", &only},      {"--model", &name},
                 {"--json", &json},     {"--dtype", &dtype}, {"--weights", &weights}};
    bool known = false;
    for (size_t t = 0; value && t < sizeof texts / sizeof texts[0]; t++)
      if (strcmp(flag, texts[t].flag) == 0) *texts[t].value = value, known = true;
    if (value && strcmp(flag, "--batch") == 0) b.batch = atoi(value), known = b.batch > 0;
    if (value && strcmp(flag, "--head-rows") == 0) b.head_rows = atoi(value), known = b.head_rows > 0;
    if (!known) return usage(flag);
    i++;
  }
  for (const Backend *const *at = backend_list(); *at && !b.ops; at++)
    if ((!device || strcmp(device, (*at)->name) == 0) && (!isa || ((*at)->isa && strcmp(isa, (*at)->isa) == 0)))
      b.ops = *at;
  if (!b.ops) return usage(isa ? "--isa" : "--device");
  if (dtype && strcmp(dtype, "bf16") != 0 && strcmp(dtype, "f32") != 0) return usage("--dtype");
  if (dtype ? strcmp(dtype, "f32") == 0 : strcmp(b.ops->name, "cpu") == 0) b.dtype = DTYPE_F32;
  b.dt = dtype_bytes(b.dtype);
  b.weights = !weights ? DTYPE_F32 : strcmp(weights, "int8") == 0 ? DTYPE_I8 : DTYPE_BF16;
  if (json && !(b.json = fopen(json, "a"))) return usage("--json");
  Error error = {0};
  if (!bench_open(&b, &error)) {
    fprintf(stderr, "bench_kernels: %s\n", error.text);
    return EXIT_INTERNAL;
  }
  ContextInfo info;
  b.ops->info(b.c, &info);
  b.accelerator = info.accelerator;
  printf("device %s, %s, %.1f GiB free\n", info.device, bench_dtype(&b), (double)info.free_bytes / 1073741824.0);
  measure_groups(&b, only, name);
  b.ops->close(b.c);
  if (b.json) fclose(b.json);
  printf("%d failed\n", b.failures);
  return b.failures ? EXIT_INTERNAL : EXIT_DONE;
}
