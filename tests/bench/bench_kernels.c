/* Measures the speed of every operation of kernels.h on this device, also relative to the peak rates of the device.
 *
 *   build/bench_kernels [options]     (--help)
 *
 * It first measures peak rates of the device: a copy of 1 GiB (counting read and written bytes), a large GEMM. Then it
 * measures operations at the shapes of models, GEMMs, attention, decoding and whole training steps. Groups: rates,
 * elementwise, gemm, attention, decode, train, and only by name token (the whole tokens of decode) and ceilings (rates
 * measured in a second or two, next to a workload). Models: nano, demo, baby, 15m on a CPU; baby, 124m on a GPU; 15m,
 * 110m, 124m for decoding. --model names others (names16, names64 and names128 are only measured by name), and skips
 * attention at the shapes of papers and training with dropout.
 * --batch: sequences of the models of --model, or else of 124m. --shape: one custom model, which is nano except for the
 * given numbers (layers, heads, kv_heads, dim, ffn, ctx, vocab, batch, position); it decodes as many tokens at a time
 * as its batch has sequences, at the given position instead of in the middle of the context.
 *
 * Bytes and FLOPs follow the operation's formula, regardless of what the kernel moves. The program prints numbers and
 * has no time limits: it exits with 1 only when an operation failed, which its row reports.
 *
 * Timing: a recording of R calls (which the backend replays, as in training) is submitted K times between two waits; R
 * and K are chosen so that this takes at least 20 ms. Reported are the median, the 10th and the 90th percentile of 11
 * such batches. Data are random, never zeros; sets of arrays are used in turn, so that together they exceed the caches.
 * Training steps are timed for at least 2.75 s, or for about --train-ms. --quick: tiny shapes, to test the program. */
#include "tests/bench/bench.h"
#include "cli/bench_line.h"
#include "cli/option_rows.h"

#include <string.h>

typedef struct Settings {
  const char *only, *model;   /* lists with commas; NULL: the usual */
  int batch;                  /* 0: the model's */
  const char *shape_text;     /* --shape; NULL: none */
  BenchModel shape;           /* with --shape the only model; `model` is its name */
  int device, dtype, weights; /* choices; -1: not given */
  const char *isa, *json;
} Settings;

/* Returns whether `name` is in a list. */
static bool listed(const char *list, const char *name) {
  const size_t size = strlen(name);
  for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
    if (strncmp(list, name, size) == 0 && (list[size] == ',' || !list[size])) return true;
  return false;
}

static bool chosen(const char *list, const char *name) { return !list || listed(list, name); }

static bool all_known(const char *list, const char *const *names) {
  int items = list ? 1 : 0, known = 0;
  for (const char *at = list; at && *at; at++) items += *at == ',';
  for (; list && *names; names++) known += listed(list, *names);
  return items == known;
}

static const char *const groups[] = {"rates", "elementwise", "gemm",     "attention", "decode",
                                     "train", "token",       "ceilings", NULL};
static const char *const models[] = {"nano", "demo",    "baby",    "15m",      "110m", "124m",
                                     "tiny", "names16", "names64", "names128", NULL};

static void measure_training(Bench *b, const Settings *s, BenchModel *list, int count) {
  for (int i = 0; i < count; i++) {
    BenchModel *m = &list[i];
    const bool named = listed(s->model, m->name);
    m->trains = true;
    if (s->model ? !named : !m->usual) continue;
    if (s->batch && (named || strcmp(m->name, "124m") == 0)) m->batch = s->batch;
    if (chosen(s->only, "elementwise")) bench_elementwise(b, m);
    if (chosen(s->only, "gemm")) bench_gemm(b, m);
    if (chosen(s->only, "attention")) bench_attention(b, m);
    bench_unload(b, m);
    if (chosen(s->only, "train")) bench_train(b, m, !s->model && m->config.dim < 512);
  }
  if (chosen(s->only, "attention") && !s->model) bench_attention_sweep(b);
}

static void measure_decoding(Bench *b, const Settings *s, BenchModel *list, int count) {
  BenchModel *wanted[8];
  int wanted_count = 0;
  const bool operations = chosen(s->only, "decode");
  for (int i = 0; i < count; i++)
    if (chosen(s->model, list[i].name)) wanted[wanted_count++] = &list[i];
  if (listed(s->only, "ceilings")) bench_ceilings(b, wanted, wanted_count);
  for (int i = 0; i < wanted_count && (operations || listed(s->only, "token")); i++) {
    bench_decode(b, wanted[i], wanted[i]->batch, !operations);
    if (!s->shape_text) bench_decode(b, wanted[i], b->quick ? 3 : 8, !operations);
    if (!s->shape_text && !b->quick && b->accelerator) bench_decode(b, wanted[i], 64, !operations);
    bench_unload(b, wanted[i]);
  }
}

/* The model of microgpt.py and its ports, which train it on a list of names. Differences:
 * docs/measurements/performance.md. */
static BenchModel names_model(const char *name, int dim) {
  BenchModel m = bench_model(name, 1, 4, dim, 16, 27, 16);
  m.config.ffn = 4 * dim;
  m.config.gated = m.config.tie = false;
  m.config.activation = ACTIVATION_RELU;
  m.config.positions = POSITIONS_LEARNED;
  return m;
}

static void measure_groups(Bench *b, const Settings *s) {
  const bool gpu = b->accelerator;
  BenchModel trained[] = {bench_model("nano", 4, 4, 128, 64, 257, 12),
                          bench_model("demo", 4, 4, 64, 256, 257, 4),
                          bench_model("baby", 6, 6, 384, 256, 257, gpu ? 64 : 16),
                          bench_model("15m", 6, 6, 288, 256, 32000, gpu ? 128 : 4),
                          bench_model("124m", 12, 12, 768, 1024, 50304, gpu ? 64 : 1),
                          names_model("names16", 16),
                          names_model("names64", 64),
                          names_model("names128", 128)};
  BenchModel decoded[] = {bench_model("15m", 6, 6, 288, 256, 32000, 1),
                          bench_model("110m", 12, 12, 768, 1024, 32000, 1),
                          bench_model("124m", 12, 12, 768, 1024, 50304, 1)};
  BenchModel one = s->shape_text ? s->shape : bench_model("tiny", 2, 2, 32, 16, 70, 2), one_decoded = one;
  const bool alone = s->shape_text || b->quick;
  static const char *const need_rates[] = {"rates", "elementwise", "gemm", "attention", "decode"};
  bool rates = !s->only;
  for (size_t i = 0; i < sizeof need_rates / sizeof *need_rates; i++) rates |= listed(s->only, need_rates[i]);
  if (rates) bench_rates(b);
  if (!s->shape_text) one_decoded.batch = 1;
  one.usual = true;
  trained[0].usual = trained[1].usual = trained[3].usual = !gpu;
  trained[2].usual = true;
  trained[4].usual = gpu;
  measure_training(b, s, alone ? &one : trained, alone ? 1 : (int)(sizeof trained / sizeof *trained));
  measure_decoding(b, s, alone ? &one_decoded : decoded, alone ? 1 : 3);
}

/* Prints the device that is measured. */
static void print_device(Bench *b) {
  ContextInfo info;
  const char *isa = b->ops->isa, *quote = isa ? "\"" : "";
  b->ops->info(b->c, &info);
  b->accelerator = info.accelerator;
  printf("device %s, %s, %.1f GiB free\n", info.device, dtype_name(b->dtype), (double)info.free_bytes / 1073741824.0);
  bench_json(b,
             "{\"kind\": \"device\", \"device\": \"%s\", \"isa\": %s%s%s, \"threads\": %d, \"dtype\": \"%s\", "
             "\"compiler\": \"%s\", \"commit\": \"%s\"}",
             info.device, quote, isa ? isa : "null", quote, info.threads, dtype_name(b->dtype), COMPILER_NAME,
             INKLING_COMMIT);
}

static void bench_options(Options *options, Bench *b, Settings *s) {
  static const char *const devices[] = {"cuda", "cpu", NULL}, *const dtypes[] = {"f32", "bf16", NULL};
  static const char *const weights[] = {"bf16", "int8", NULL};
  const Option rows[] = {
      CHOICE("device", &s->device, devices, "cuda, if there is a GPU", "device to measure"),
      TEXT("isa", &s->isa, "LEVEL", "the best one that the processor has", "instruction set on a CPU: v2, v3, v4"),
      INT("threads", &b->threads, 1, 4096, "all", "number of CPU threads"),
      CHOICE("dtype", &s->dtype, dtypes, "the device's", "dtype to compute in"),
      CHOICE("weights", &s->weights, weights, "as --dtype", "dtype of weights for decoding on a CPU"),
      TEXT("only", &s->only, "GROUP,...", "all but the last two",
           "groups to measure: rates, elementwise, gemm, attention, decode, train, token, ceilings"),
      TEXT("model", &s->model, "NAME,...", "those of the device",
           "models to measure: nano, demo, baby, 15m, names16, names64, names128, 110m, 124m; with --quick: tiny"),
      TEXT("shape", &s->shape_text, "NAME=N,...", NULL,
           "the only model: layers, heads, kv_heads, dim, ffn, ctx, vocab, batch, position; some of them",
           .excludes = "model"),
      INT("batch", &s->batch, 1, 1 << 20, "the model's", "sequences of a training step"),
      INT("head-rows", &b->head_rows, 1, 1 << 30, "auto", "rows of logits that training computes at a time"),
      INT("train-ms", &b->train_ms, 1, 1 << 30, "enough for reliable numbers", "duration of timing training steps"),
      FLAG("autotune", &b->autotune, "try several algorithms for each matrix product"),
      TEXT("json", &s->json, "FILE", NULL, "file to which a JSON line per row is appended"),
      FLAG("quick", &b->quick, "tiny shapes, to test the program"),
  };
  *options = (Options){.program = "bench_kernels", .usage = "[options]"};
  options_init(options, rows, sizeof rows / sizeof *rows);
}

static bool check_settings(Bench *b, Settings *s, Error *error) {
  if (!all_known(s->only, groups)) return fail(error, EXIT_USAGE, "--only %s: no such group", s->only);
  if (!all_known(s->model, models)) return fail(error, EXIT_USAGE, "--model %s: no such model", s->model);
  if (s->shape_text) {
    s->shape = bench_model("shape", 4, 4, 128, 64, 257, 12);
    if (!bench_shape(&s->shape, s->shape_text)) return fail(error, EXIT_USAGE, "--shape %s: no model", s->shape_text);
    s->model = s->shape.name;
  }
  const bool cpu = s->device == 1 || (s->device < 0 && (s->isa || !backend_find("cuda", NULL, ~0u)));
  const char *device = cpu ? "cpu" : "cuda";
  b->dtype = s->dtype < 0 ? backend_natural_dtype(device, s->isa) : (DType)s->dtype;
  b->ops = backend_find(device, s->isa, 1u << b->dtype);
  if (!b->ops) return fail(error, EXIT_USAGE, "this machine has no such device, instruction set or dtype");
  b->dt = dtype_bytes(b->dtype);
  b->weights = s->weights < 0 ? DTYPE_F32 : s->weights ? DTYPE_I8 : DTYPE_BF16;
  b->batches = b->quick ? 1 : MAX_BATCHES;
  return !s->json || (b->json = fopen(s->json, "a")) || fail(error, EXIT_OUTPUT, "%s cannot be written", s->json);
}

int main(int argc, char **argv) {
  Bench b = {0};
  Settings s = {.device = -1, .dtype = -1, .weights = -1};
  Options options;
  Error error = {0};
  bench_options(&options, &b, &s);
  const bool ok = options_parse(&options, argc, argv, &error);
  if (ok && (options.help || options.version)) options_help(&options, stdout);
  else if (ok && check_settings(&b, &s, &error) && bench_open(&b, &error)) {
    print_device(&b);
    measure_groups(&b, &s);
    b.ops->close(b.c);
    printf("%d failed\n", b.failures);
  }
  if (b.json) fclose(b.json);
  if (error.code) fprintf(stderr, "bench_kernels: %s\n", error.text);
  options_free(&options);
  return b.failures ? EXIT_INTERNAL : (int)error.code;
}
