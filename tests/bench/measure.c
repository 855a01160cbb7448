/* Contexts and operands on the device, timing and output. */
#include "tests/bench/bench.h"
#include "base/system.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OWNED = 512 };

static void *owned[MAX_OWNED]; /* device memory of the current row */
static int owned_count;

_Noreturn void bench_out_of_memory(void) {
  fprintf(stderr, "bench_kernels: out of host memory\n");
  exit(EXIT_MEMORY);
}

/* ---- the device ---- */

static uint32_t next_random(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 32);
}

/* Returns an approximately normal number: the sum of four uniform ones. */
static float random_number(void) {
  uint32_t r = next_random();
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += (float)(r >> (8 * i) & 0xFF);
  return (sum - 510.0f) * (1.0f / 147.8f);
}

static void *upload_random(Bench *b, size_t bytes, bool floats) {
  unsigned char *host = malloc(bytes);
  if (!host) bench_out_of_memory();
  for (size_t i = 0; i < bytes; i += floats ? 4 : 2) {
    float x = random_number();
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t high = (uint16_t)(bits >> 16);
    if (floats) memcpy(host + i, &x, 4);
    else memcpy(host + i, &high, 2);
  }
  void *device = b->ops->alloc(b->c, "random numbers", bytes);
  if (device) b->ops->upload(b->c, device, host, bytes);
  free(host);
  return device;
}

bool bench_open(Bench *b, Error *error) {
  ContextOptions options = {.dtype = b->dtype, .weights = b->weights, .threads = b->threads};
  owned_count = 0;
  if (!b->ops->open(&b->c, &options, error)) return false;
  b->ops->tune(b->c, NULL, b->autotune);
  b->random_bytes = b->quick ? 64 << 10 : 16 << 20;
  b->random_floats = upload_random(b, b->random_bytes, true);
  b->random_compute = b->dtype == DTYPE_F32 ? b->random_floats : upload_random(b, b->random_bytes, false);
  StepState state = {.step = 10, .lr = 1e-5f, .inv_targets = 1e-4f, .clip = 1, .bias1 = 1, .bias2 = 1, .loss_count = 1};
  b->state = b->ops->alloc(b->c, "state", sizeof state);
  if (b->state) b->ops->upload(b->c, b->state, &state, sizeof state);
  ContextInfo info;
  b->ops->info(b->c, &info);
  b->opened_bytes = info.bytes;
  return b->ops->poll(b->c, NULL, 0, true, error) >= 0;
}

size_t bench_peak_bytes(const Bench *b) {
  ContextInfo info;
  b->ops->info(b->c, &info);
  return info.peak_bytes - b->opened_bytes;
}

void bench_reopen(Bench *b) {
  Error error = {0};
  if (b->loaded) bench_unload(b, b->loaded);
  b->ops->close(b->c);
  if (bench_open(b, &error)) return;
  printf("bench_kernels: the device could not be opened again: %s\n", error.text);
  if (b->json) fclose(b->json);
  exit(EXIT_INTERNAL);
}

bool bench_alive(Bench *b, const char *what) {
  Error error = {0};
  if (b->ops->poll(b->c, NULL, 0, true, &error) >= 0) return true;
  if (what) printf("%s: %s\n", what, error.text);
  fflush(stdout);
  b->failures++;
  bench_reopen(b);
  return false;
}

/* ---- operands ---- */

static size_t fill_bytes(const Bench *b, Fill fill) {
  if (fill == FILL_COMPUTE) return b->dt;
  return fill == FILL_FLOATS ? 4 : 1;
}

void *bench_array(Bench *b, Fill fill, int64_t count) {
  ContextInfo info;
  b->ops->info(b->c, &info);
  size_t bytes = (size_t)count * fill_bytes(b, fill);
  size_t spare = b->accelerator ? (size_t)256 << 20 : 0; /* for scratch space */
  if (owned_count == MAX_OWNED || bytes + (b->quick ? 0 : spare) > info.free_bytes) return NULL;
  char *memory = b->ops->alloc(b->c, "an operand", bytes);
  if (!memory) return NULL;
  owned[owned_count++] = memory;
  const void *from = fill == FILL_COMPUTE ? b->random_compute : b->random_floats;
  for (size_t done = 0; fill != FILL_ZEROS && done < bytes; done += b->random_bytes)
    b->ops->copy(b->c, memory + done, from, bytes - done < b->random_bytes ? bytes - done : b->random_bytes);
  return memory;
}

void bench_free(Bench *b) {
  while (owned_count > 0) b->ops->release(b->c, owned[--owned_count]);
}

int32_t *bench_ints(Bench *b, const int32_t *host, int64_t count) {
  int32_t *device = bench_array(b, FILL_ZEROS, 4 * count);
  if (device) b->ops->upload(b->c, device, host, (size_t)count * sizeof *host);
  return device;
}

/* Counting sort of `count` token ids: offsets [vocab + 1] and positions [count]. */
static void sort_tokens(Bench *b, const int32_t *tokens, int64_t count, int vocab, void *out[2]) {
  int32_t *starts = calloc((size_t)vocab + 2, sizeof *starts), *positions = malloc((size_t)count * sizeof *positions);
  if (!starts || !positions) bench_out_of_memory();
  for (int64_t i = 0; i < count; i++) starts[tokens[i] + 2]++;
  for (int v = 0; v < vocab; v++) starts[v + 2] += starts[v + 1]; /* starts[v + 1]: first position of token v */
  for (int64_t i = 0; i < count; i++) positions[starts[tokens[i] + 1]++] = (int32_t)i;
  out[0] = bench_ints(b, starts, vocab + 1);
  out[1] = bench_ints(b, positions, count);
  free(starts);
  free(positions);
}

/* Fills the arrays of set 0 that depend on token ids. */
static void make_token_arrays(Bench *b, Operands *o, const Need *needs) {
  for (int i = 0; i < MAX_ARRAYS; i++) {
    if (needs[i].fill != FILL_TOKENS && needs[i].fill != FILL_OFFSETS) continue;
    const int vocab = o->model->config.vocab;
    int32_t *tokens = bench_random_tokens(needs[i].count, vocab);
    if (needs[i].fill == FILL_TOKENS) o->array[0][i] = bench_ints(b, tokens, needs[i].count);
    else sort_tokens(b, tokens, needs[i].count, vocab, &o->array[0][i]);
    free(tokens);
  }
}

static bool make_sets(Bench *b, Operands *o, const Need *needs) {
  double bytes = 0, wanted = b->quick ? 1 : 256 << 20; /* several times the 50 or 60 MB of cache of a Hopper */
  for (int i = 0; i < MAX_ARRAYS; i++)
    if (needs[i].fill < FILL_TOKENS) bytes += (double)needs[i].count * (double)fill_bytes(b, needs[i].fill);
  const double sets = ceil(wanted / bytes);
  o->sets = o->warm ? 1 : b->quick ? 2 : sets < 1 ? 1 : sets > (double)MAX_SETS ? MAX_SETS : (int)sets;
  make_token_arrays(b, o, needs);
  for (int set = 0; set < o->sets; set++)
    for (int i = 0; i < MAX_ARRAYS; i++) {
      void **array = &o->array[set][i];
      if (needs[i].fill >= FILL_TOKENS) *array = o->array[0][i];
      else *array = needs[i].count ? bench_array(b, needs[i].fill, needs[i].count) : NULL;
      if (!*array && needs[i].count) return false;
    }
  return true;
}

/* ---- timing ---- */

typedef struct Repeat {
  Bench *b;
  const Case *k;
  int calls;
} Repeat;

static void repeat(Context *c, void *argument) {
  const Repeat *r = argument;
  for (int i = 0; i < r->calls; i++) {
    r->k->run(r->b, r->k->operands, i % r->k->operands->sets);
    r->b->ops->join(c, 0);
  }
}

static double timed(Bench *b, CapturedGraph **slot, Repeat *r, int submits, Error *error) {
  if (b->ops->poll(b->c, NULL, 0, true, error) < 0) return 0;
  double start = clock_seconds();
  for (int i = 0; i < submits; i++)
    if (r->k->direct) repeat(b->c, r);
    else b->ops->submit(b->c, slot, repeat, r);
  if (b->ops->poll(b->c, NULL, 0, true, error) < 0) return 0;
  return clock_seconds() - start;
}

/* Returns the milliseconds of one call. */
static Quantiles measure(Bench *b, const Case *k, Error *error) {
  CapturedGraph *slot = NULL;
  Repeat r = {b, k, k->operands->sets};
  const double short_run = b->quick ? 0 : 2e-3, whole = b->quick ? 0 : 20e-3;
  timed(b, &slot, &r, 1, error); /* loads kernels, chooses algorithms */
  double once = timed(b, &slot, &r, 1, error);
  if (!b->quick) once = timed(b, &slot, &r, 1, error);
  if (!error->code && once < short_run && !k->direct) {
    double more = ceil(short_run / (once > 1e-6 ? once : 1e-6));
    if (more * r.calls > 1024) more = ceil(1024.0 / r.calls);
    b->ops->drop(b->c, &slot);
    r.calls *= (int)more;
    timed(b, &slot, &r, 1, error);
    timed(b, &slot, &r, 1, error);
    once = timed(b, &slot, &r, 1, error);
  }
  double submits = ceil(whole / (once > 1e-7 ? once : 1e-7)), ms[MAX_BATCHES] = {0};
  if (submits < 1) submits = 1;
  if (submits > 10000) submits = 10000;
  int batches = once > 1.0 ? 3 : b->batches;
  for (int i = 0; i < batches && !error->code; i++)
    ms[i] = 1e3 * timed(b, &slot, &r, (int)submits, error) / (submits * r.calls);
  b->ops->drop(b->c, &slot);
  return quantiles_of(ms, (size_t)batches);
}

/* ---- output ---- */

void bench_json(Bench *b, const char *format, ...) {
  if (!b->json) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(b->json, format, arguments);
  va_end(arguments);
  fputc('\n', b->json);
  fflush(b->json);
}

/* Replaces characters that need an escape in JSON. */
static void clean_text(char *text) {
  for (; *text; text++)
    if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') *text = '\'';
}

static void print_start(const Bench *b, const Case *k) {
  printf("%-8s %-30s %-28s %-4s ", k->group->model, k->operation, k->group->shape, dtype_name(b->dtype));
}

void bench_skip(Bench *b, const Case *k, const char *why) {
  char text[300];
  snprintf(text, sizeof text, "%.290s", why);
  clean_text(text);
  print_start(b, k);
  printf("%s\n", text);
  fflush(stdout);
  bench_json(b,
             "{\"kind\": \"kernel\", \"group\": \"%s\", \"model\": \"%s\", \"operation\": \"%s\", \"shape\": \"%s\", "
             "\"dtype\": \"%s\", \"error\": \"%s\"}",
             k->group->name, k->group->model, k->operation, k->group->shape, dtype_name(b->dtype), text);
  bench_alive(b, NULL);
}

/* A rate can exceed its ceiling when operands stay in a cache, or when the machine was slower while the ceiling was
 * measured. */
static void print_efficiency(const char *of, double fraction) {
  if (fraction > 1) printf("  above the rate of the %s", of);
  else printf(" %6.1f %% of %s", 100 * fraction, of);
}

Quantiles bench_case(Bench *b, const Case *k) {
  Error error = {0};
  Quantiles ms = measure(b, k, &error);
  if (error.code) {
    bench_skip(b, k, error.text);
    return (Quantiles){0};
  }
  double gb = k->bytes / (1e6 * ms.median), tflop = k->flops / (1e9 * ms.median);
  double fraction = k->against_gemm ? 1e12 * tflop / b->gemm_rate : 1e9 * gb / b->copy_rate;
  const bool has_fraction = k->against_gemm ? b->gemm_rate > 0 && k->flops > 0 : b->copy_rate > 0 && k->bytes > 0;
  print_start(b, k);
  printf("%10.4f ms", ms.median);
  if (k->bytes > 0) printf(" %8.1f GB/s", gb);
  else printf(" %13s", "");
  if (k->flops > 0) printf(" %8.3f TFLOP/s", tflop);
  else printf(" %17s", "");
  if (has_fraction) print_efficiency(k->against_gemm ? "GEMM" : "copy", fraction);
  printf("%s%s\n", k->note ? "  " : "", k->note ? k->note : "");
  fflush(stdout);
  char fraction_text[32] = "null";
  if (has_fraction && fraction <= 1) snprintf(fraction_text, sizeof fraction_text, "%.4f", fraction);
  bench_json(b,
             "{\"kind\": \"kernel\", \"group\": \"%s\", \"model\": \"%s\", \"operation\": \"%s\", \"shape\": \"%s\", "
             "\"dtype\": \"%s\", \"ms\": %.6g, \"ms_p10\": %.6g, \"ms_p90\": %.6g, \"bytes\": %.0f, \"flops\": %.0f, "
             "\"gb_per_s\": %.2f, \"tflop_per_s\": %.4f, \"share\": %s, \"share_of\": \"%s\", \"sets\": %d, "
             "\"note\": \"%s\"}",
             k->group->name, k->group->model, k->operation, k->group->shape, dtype_name(b->dtype), ms.median, ms.p10,
             ms.p90, k->bytes, k->flops, gb, tflop, fraction_text, k->against_gemm ? "gemm" : "copy", k->operands->sets,
             k->note ? k->note : "");
  return ms;
}

/* ---- rows ---- */

Group bench_group(const char *name, const char *model, const char *shape, ...) {
  Group group = {.name = name, .model = model};
  va_list arguments;
  va_start(arguments, shape);
  vsnprintf(group.shape, sizeof group.shape, shape, arguments);
  va_end(arguments);
  return group;
}

Quantiles bench_row(Bench *b, const Group *group, Operands *o, Case k) {
  Quantiles ms = {0};
  k.group = group;
  k.operands = o;
  o->flag = k.flag;
  const bool ready = !o->of || bench_load(b, o->of);
  o->model = o->of ? o->of->model : NULL;
  o->dropout.p = k.dropout;
  o->dropout.state = b->state; /* another one after an error */
  if (!ready) bench_skip(b, &k, "the model does not fit");
  else if (!make_sets(b, o, k.needs)) bench_skip(b, &k, "skipped: its operands do not fit the memory that is free");
  else {
    for (int set = 0; k.prepare && set < o->sets; set++) k.prepare(b, o, set);
    ms = bench_case(b, &k);
  }
  bench_free(b);
  return ms;
}

void bench_rows(Bench *b, const Group *group, Operands *o, const Case *cases, size_t count) {
  for (size_t i = 0; i < count; i++) bench_row(b, group, o, cases[i]);
}
