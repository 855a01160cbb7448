/* Measures the speed of every operation of kernels.h on this device, also relative to the peak rates of the device.
 *
 *   bench_kernels [--device cuda|cpu] [--isa v2|v3|v4] [--threads N] [--dtype bf16|f32] [--weights bf16|int8]
 *                 [--only GROUP,...] [--model NAME,... | --shape NAME=N,...] [--batch N] [--head-rows N]
 *                 [--train-ms N] [--autotune] [--json FILE] [--quick]
 *
 * It first measures peak rates of the device: a copy of 1 GiB (counting read and written bytes), a large GEMM. Then it
 * measures operations at the shapes of models, GEMMs, attention, decoding and whole training steps. Groups: rates,
 * elementwise, gemm, attention, decode, train, and only by name token (the whole tokens of decode) and ceilings (rates
 * measured in a second or two, next to a workload). Models: nano, demo, baby, 15m on a CPU; baby, 124m on a GPU; 15m,
 * 110m, 124m for decoding. --model names others, and skips attention at the shapes of papers and training with dropout.
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
#include "bench/bench.h"

#include "util/compiler.h"

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
                                 .norm_eps = 1e-5f,
                                 .gated = true}};
}

/* What to measure. */
typedef struct Choice {
  const char *only, *model; /* lists with commas; NULL: the usual */
  int batch;                /* 0: the model's */
  const char *shape_text;   /* --shape; NULL: none */
  BenchModel shape;         /* with --shape the only model; `model` is its name */
} Choice;

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
static const char *const models[] = {"nano", "demo", "baby", "15m", "110m", "124m", "tiny", NULL};

static void measure_training(Bench *b, const Choice *choice, BenchModel *list, int count) {
  for (int i = 0; i < count; i++) {
    BenchModel *m = &list[i];
    const bool named = listed(choice->model, m->name);
    m->trains = true;
    if (choice->model ? !named : !m->usual) continue;
    if (choice->batch && (named || strcmp(m->name, "124m") == 0)) m->batch = choice->batch;
    if (chosen(choice->only, "elementwise")) bench_elementwise(b, m);
    if (chosen(choice->only, "gemm")) bench_gemm(b, m);
    if (chosen(choice->only, "attention")) bench_attention(b, m);
    bench_model_free(b, m);
    if (chosen(choice->only, "train")) bench_train(b, m, !choice->model && m->config.dim < 512);
  }
  if (chosen(choice->only, "attention") && !choice->model) bench_attention_sweep(b);
}

static void measure_decoding(Bench *b, const Choice *choice, BenchModel *list, int count) {
  BenchModel *wanted[8];
  int wanted_count = 0;
  const bool operations = chosen(choice->only, "decode");
  for (int i = 0; i < count; i++)
    if (chosen(choice->model, list[i].name)) wanted[wanted_count++] = &list[i];
  if (listed(choice->only, "ceilings")) bench_ceilings(b, wanted, wanted_count);
  for (int i = 0; i < wanted_count && (operations || listed(choice->only, "token")); i++) {
    bench_decode(b, wanted[i], wanted[i]->batch, !operations);
    if (!choice->shape_text) bench_decode(b, wanted[i], b->quick ? 3 : 8, !operations);
    bench_model_free(b, wanted[i]);
  }
}

static void measure_groups(Bench *b, const Choice *choice) {
  const bool gpu = b->accelerator;
  BenchModel trained[] = {model_of("nano", 4, 4, 128, 64, 257, 12), model_of("demo", 4, 4, 64, 256, 257, 4),
                          model_of("baby", 6, 6, 384, 256, 257, gpu ? 64 : 16),
                          model_of("15m", 6, 6, 288, 256, 32000, gpu ? 128 : 4),
                          model_of("124m", 12, 12, 768, 1024, 50304, gpu ? 64 : 1)};
  BenchModel decoded[] = {model_of("15m", 6, 6, 288, 256, 32000, 1), model_of("110m", 12, 12, 768, 1024, 32000, 1),
                          model_of("124m", 12, 12, 768, 1024, 50304, 1)};
  BenchModel one = choice->shape_text ? choice->shape : model_of("tiny", 2, 2, 32, 16, 70, 2), one_decoded = one;
  const bool alone = choice->shape_text || b->quick;
  static const char *const need_rates[] = {"rates", "elementwise", "gemm", "attention", "decode"};
  bool rates = !choice->only;
  for (size_t i = 0; i < sizeof need_rates / sizeof *need_rates; i++) rates |= listed(choice->only, need_rates[i]);
  if (rates) bench_rates(b);
  if (!choice->shape_text) one_decoded.batch = 1;
  one.usual = true;
  trained[0].usual = trained[1].usual = trained[3].usual = !gpu;
  trained[2].usual = true;
  trained[4].usual = gpu;
  measure_training(b, choice, alone ? &one : trained, alone ? 1 : 5);
  measure_decoding(b, choice, alone ? &one_decoded : decoded, alone ? 1 : 3);
}

static int usage(const char *flag) {
  fprintf(stderr,
          "bench_kernels: %s: use --device cuda|cpu, --isa v2|v3|v4, --threads N, --dtype bf16|f32, "
          "--weights bf16|int8 (decoding on a CPU), "
          "--only rates|elementwise|gemm|attention|decode|train|token|ceilings, "
          "--model nano|demo|baby|15m|110m|124m (--quick: tiny), both lists with commas, "
          "--shape layers=N,heads=N,kv_heads=N,dim=N,ffn=N,ctx=N,vocab=N,batch=N,position=N (some of them) instead, "
          "--batch N, --head-rows N, --train-ms N, --json FILE, --autotune, --quick\n",
          flag);
  return EXIT_USAGE;
}

/* Prints the device that is measured. */
static void print_device(Bench *b) {
  ContextInfo info;
  const char *isa = b->ops->isa, *quote = isa ? "\"" : "";
  b->ops->info(b->c, &info);
  b->accelerator = info.accelerator;
  printf("device %s, %s, %.1f GiB free\n", info.device, bench_dtype(b), (double)info.free_bytes / 1073741824.0);
  bench_json(b,
             "{\"kind\": \"device\", \"device\": \"%s\", \"isa\": %s%s%s, \"threads\": %d, \"dtype\": \"%s\", "
             "\"compiler\": \"%s\", \"commit\": \"%s\"}",
             info.device, quote, isa ? isa : "null", quote, info.threads, bench_dtype(b), COMPILER_NAME,
             INKLING_COMMIT);
}

typedef struct Arguments {
  Choice choice;
  const char *device, *isa, *json, *dtype, *weights;
} Arguments;

/* Returns NULL, or the wrong flag. */
static const char *parse(int argc, char **argv, Arguments *a, Bench *b) {
  const struct {
    const char *flag, **text;
    int *number;
  } flags[] = {{"--device", &a->device, NULL},       {"--isa", &a->isa, NULL},
               {"--only", &a->choice.only, NULL},    {"--model", &a->choice.model, NULL},
               {"--json", &a->json, NULL},           {"--dtype", &a->dtype, NULL},
               {"--threads", NULL, &b->threads},     {"--batch", NULL, &a->choice.batch},
               {"--head-rows", NULL, &b->head_rows}, {"--train-ms", NULL, &b->train_ms},
               {"--weights", &a->weights, NULL},     {"--shape", &a->choice.shape_text, NULL}};
  for (int i = 1; i < argc; i++) {
    const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(flag, "--quick") == 0 || strcmp(flag, "--autotune") == 0) {
      *(flag[2] == 'q' ? &b->quick : &b->autotune) = true;
      continue;
    }
    bool known = false;
    for (size_t t = 0; value && t < sizeof flags / sizeof flags[0]; t++) {
      if (strcmp(flag, flags[t].flag) != 0) continue;
      if (flags[t].text) *flags[t].text = value;
      else *flags[t].number = atoi(value);
      known = flags[t].text || *flags[t].number > 0;
    }
    if (!known) return flag;
    i++;
  }
  if (!all_known(a->choice.only, groups)) return "--only";
  if (!all_known(a->choice.model, models)) return "--model";
  if (a->choice.shape_text) {
    a->choice.shape = model_of("shape", 4, 4, 128, 64, 257, 12);
    if (a->choice.model || !bench_shape(&a->choice.shape, a->choice.shape_text)) return "--shape";
    a->choice.model = a->choice.shape.name;
  }
  if (a->dtype && strcmp(a->dtype, "bf16") != 0 && strcmp(a->dtype, "f32") != 0) return "--dtype";
  if (a->weights && strcmp(a->weights, "bf16") != 0 && strcmp(a->weights, "int8") != 0) return "--weights";
  return NULL;
}

/* Returns the backend, and the dtype: by default the natural one. */
static const Backend *find_backend(const Arguments *a, DType *dtype) {
  const char *name = a->device ? a->device : a->isa || !backend_find("cuda", NULL, ~0u) ? "cpu" : "cuda";
  const Backend *best = backend_find(name, a->isa, ~0u);
  if (!best) return NULL;
  *dtype = a->dtype ? strcmp(a->dtype, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16 : best->natural_dtype;
  return backend_find(name, a->isa, 1u << *dtype);
}

int main(int argc, char **argv) {
  Bench b = {0};
  Arguments a = {0};
  const char *wrong = parse(argc, argv, &a, &b);
  if (wrong) return usage(wrong);
  b.ops = find_backend(&a, &b.dtype);
  if (!b.ops) return usage(a.isa ? "--isa" : a.dtype ? "--dtype" : "--device");
  b.dt = dtype_bytes(b.dtype);
  b.weights = !a.weights ? DTYPE_F32 : strcmp(a.weights, "int8") == 0 ? DTYPE_I8 : DTYPE_BF16;
  b.batches = b.quick ? 1 : MAX_BATCHES;
  if (a.json && !(b.json = fopen(a.json, "a"))) return usage("--json");
  Error error = {0};
  if (!bench_open(&b, &error)) {
    fprintf(stderr, "bench_kernels: %s\n", error.text);
    return EXIT_INTERNAL;
  }
  print_device(&b);
  measure_groups(&b, &a.choice);
  b.ops->close(b.c);
  if (b.json) fclose(b.json);
  printf("%d failed\n", b.failures);
  return b.failures ? EXIT_INTERNAL : EXIT_DONE;
}
