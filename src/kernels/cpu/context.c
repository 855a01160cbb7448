/* The CPU backend's context and memory, and the tables of its operations. */
#include "kernels/cpu/tile.h"
#include "base/system.h"
#include "base/text.h"
#include "base/threads.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

/* Precedes every allocated block; its size is the alignment, so that the block is aligned. */
struct Allocation {
  Allocation *next, *previous;
  size_t bytes;
};
enum { ALIGNMENT = 256 };

static bool open_with(Context **out, const ContextOptions *options, const Microkernel *microkernel, Error *error) {
  *out = NULL;
  if (options->dtype != ELEMENT_DTYPE)
    return fail(error, EXIT_USAGE, "these CPU kernels compute in %s", dtype_name(ELEMENT_DTYPE));
  if (CPU_BF16 && options->weights)
    return fail(error, EXIT_USAGE, "weights in %s need f32 to compute in", dtype_name(options->weights));
  Context *c = calloc(1, sizeof *c);
  if (!c) return fail(error, EXIT_MEMORY, "out of memory opening the CPU backend");
  c->peers = options->peers;
  c->dtype = options->dtype;
  c->weights = options->weights;
  c->threads = threads_count(options->threads);
  c->microkernel = microkernel;
  c->granted = memory_available().bytes;
  if (!pool_open(&c->pool, c->threads, error)) {
    free(c);
    return false;
  }
  *out = c;
  return true;
}

bool CPU(open)(Context **out, const ContextOptions *options, Error *error) {
  return open_with(out, options, &CPU(microkernel), error);
}

void CPU(close)(Context *c) {
  if (!c) return;
  while (c->allocations) {
    Allocation *next = c->allocations->next;
    memory_release(c->allocations, ALIGNMENT + c->allocations->bytes);
    c->allocations = next;
  }
  memory_release(c->scratch.data, c->scratch.count * sizeof(float));
  memory_release(c->rounded.data, c->rounded.count * sizeof(float));
  pool_close(c->pool);
  free(c);
}

/* The system counts allocated memory as free until it is used. So the limit is also the memory that was free when the
 * context was opened, although other processes may have freed some since. */
static AvailableMemory free_memory(const Context *c) {
  AvailableMemory out = memory_available();
  out.bytes = fmin(out.bytes, c->granted - (double)c->bytes);
  return out;
}

/* The system is asked for large blocks only: that takes 50 microseconds, and a model has dozens of small blocks. */
static bool fits(const Context *c, size_t bytes) {
  enum { LARGE = 1 << 20 };
  if (bytes > SIZE_MAX - ALIGNMENT) return false;
  return (double)bytes < (bytes < LARGE ? c->granted - (double)c->bytes : free_memory(c).bytes);
}

void CPU(info)(Context *c, ContextInfo *out) {
  *out = (ContextInfo){0};
  const char *vectors = LANES == 16 ? "AVX-512" : LANES == 8 ? "AVX2" : "128-bit vectors";
  const char *with = c->microkernel->name;
  snprintf(out->device, sizeof out->device, "CPU, %s, %s%s%s%s%s", text_plural(c->threads, "thread").text, vectors,
           with ? ", " : "", with ? with : "", c->weights ? ", weights in " : "",
           c->weights ? dtype_name(c->weights) : "");
  out->dtype = c->dtype;
  out->weights = c->weights;
  out->threads = c->threads;
  out->vector_bits = 32 * LANES;
  out->bytes = c->bytes;
  out->peak_bytes = c->peak_bytes;
  out->head_dim_multiple = 2;
  out->head_dim_max = HEAD_DIM_LIMIT;
  out->width_multiple = 1;
  out->dim_max = INT_MAX;
  const AvailableMemory free = free_memory(c);
  out->free_bytes = free.bytes < 0 ? 0 : free.bytes < (double)(SIZE_MAX / 4) ? (size_t)free.bytes : SIZE_MAX / 4;
  snprintf(out->limit, sizeof out->limit, "%s", memory_limit_text(&free).text);
}

void CPU(tune)(Context *c, const char *choices, bool measure) {
  (void)c;
  (void)choices;
  (void)measure;
}

char *CPU(tuning)(Context *c) {
  (void)c;
  return NULL;
}

void *CPU(alloc)(Context *c, const char *name, size_t bytes) {
  if (c->error.code) return NULL;
  Allocation *block = NULL;
  if (fits(c, bytes)) block = memory_allocate(ALIGNMENT, ALIGNMENT + bytes);
  if (!block) {
    const AvailableMemory free = free_memory(c);
    const MemoryLimitText limit = memory_limit_text(&free);
    fail(&c->error, EXIT_MEMORY,
         "out of memory for %s: needed %.1f MiB, free %.1f MiB, in use %.1f MiB%s%s; use a smaller batch or model",
         name, (double)bytes / 1048576.0, fmax(free.bytes, 0) / 1048576.0, (double)c->bytes / 1048576.0,
         limit.text[0] ? "; " : "", limit.text);
    return NULL;
  }
  block->bytes = bytes;
  block->previous = NULL;
  block->next = c->allocations;
  if (block->next) block->next->previous = block;
  c->allocations = block;
  c->bytes += bytes;
  if (c->bytes > c->peak_bytes) c->peak_bytes = c->bytes;
  return (char *)block + ALIGNMENT;
}

void *CPU(alloc_shared)(Context *c, const char *name, size_t bytes) { return CPU(alloc)(c, name, bytes); }

void CPU(release)(Context *c, void *memory) {
  if (!memory) return;
  Allocation *block = (Allocation *)((char *)memory - ALIGNMENT);
  if (block->next) block->next->previous = block->previous;
  if (block->previous) block->previous->next = block->next;
  else c->allocations = block->next;
  c->bytes -= block->bytes;
  memory_release(block, ALIGNMENT + block->bytes);
}

static float *reserve(Context *c, Scratch *scratch, size_t count) {
  if (c->error.code) return NULL;
  if (count <= scratch->count) return scratch->data;
  memory_release(scratch->data, scratch->count * sizeof(float));
  c->bytes -= scratch->count * sizeof(float);
  scratch->count = 0;
  scratch->data = count <= SIZE_MAX / 8 ? memory_allocate(64, count * sizeof(float)) : NULL;
  if (!scratch->data) {
    fail(&c->error, EXIT_MEMORY, "out of memory for the CPU backend's scratch space: needed %.1f MiB",
         (double)count * 4 / 1048576.0);
    return NULL;
  }
  scratch->count = count;
  c->bytes += count * sizeof(float);
  if (c->bytes > c->peak_bytes) c->peak_bytes = c->bytes;
  return scratch->data;
}

float *CPU(scratch)(Context *c, size_t count) { return reserve(c, &c->scratch, count); }

float *CPU(rounded)(Context *c, size_t count) { return reserve(c, &c->rounded, count); }

void CPU(copy)(Context *c, void *to, const void *from, size_t bytes) {
  if (!c->error.code && bytes) memcpy(to, from, bytes);
}

void CPU(upload)(Context *c, void *device, const void *host, size_t bytes) { CPU(copy)(c, device, host, bytes); }

void CPU(download)(Context *c, void *host, const void *device, size_t bytes) { CPU(copy)(c, host, device, bytes); }

void CPU(submit)(Context *c, CapturedGraph **slot, StepFunction step, void *argument) {
  (void)slot; /* nothing to record: calling it again is the replay */
  if (!c->error.code) step(c, argument);
}

void CPU(mark)(Context *c) { (void)c; }
void CPU(wait)(Context *c) { (void)c; } /* submit() has run the step */

void CPU(join)(Context *c, int running) {
  (void)c;
  (void)running;
}

void CPU(drop)(Context *c, CapturedGraph **slot) {
  (void)c;
  *slot = NULL;
}

/* A reader that falls behind loses the oldest reports, never the newest. */
void CPU(report)(Context *c, const StepState *state) {
  if (c->error.code) return;
  const int next = (c->report_first + c->report_count) % REPORT_RING;
  c->reports[next] = (StepReport){*state, c->began, clock_nanoseconds()};
  if (c->report_count < REPORT_RING) c->report_count++;
  else c->report_first = (c->report_first + 1) % REPORT_RING;
}

int CPU(poll)(Context *c, StepReport *out, int capacity, bool wait, Error *error) {
  (void)wait; /* work is done when its call returns */
  if (c->error.code) {
    fail(error, c->error.code, "%s", c->error.text);
    return -1;
  }
  int taken = capacity < c->report_count ? capacity : c->report_count;
  for (int i = 0; i < taken; i++) out[i] = c->reports[(c->report_first + i) % REPORT_RING];
  c->report_first = (c->report_first + taken) % REPORT_RING;
  c->report_count -= taken;
  return taken;
}

/* ---- the tables: one for each instruction set, element type and microkernel ---- */

#define TEXT(isa) #isa
#define NAME(isa) TEXT(isa)
#define ROW(function) .function = CPU(function),
#ifdef CPU_GENERATES /* and does not train */
#define FUNCTIONS BACKEND_GENERATION_FUNCTIONS(ROW)
#else
#define FUNCTIONS BACKEND_FUNCTIONS(ROW)
#endif
#define TABLE(isa_name)                                                                                                \
  .name = "cpu", .isa = isa_name, .dtypes = 1u << ELEMENT_DTYPE, FUNCTIONS BACKEND_IMAGE_FUNCTIONS(ROW)

const Backend CPU(backend) = {TABLE(NAME(CPU_ISA))};

#ifdef HAVE_BF16_PRODUCTS
#pragma GCC diagnostic ignored "-Woverride-init" /* .open */
#define TABLE_WITH(microkernel, isa_name)                                                                              \
  static bool open_##isa_name(Context **out, const ContextOptions *options, Error *error) {                            \
    return open_with(out, options, &CPU(microkernel), error);                                                          \
  }                                                                                                                    \
  const Backend cpu_##isa_name##_backend = {TABLE(#isa_name).open = open_##isa_name};
#ifdef __aarch64__
TABLE_WITH(pair_dots, bf16)
#else
TABLE_WITH(pair_dots, avx512bf16)
TABLE_WITH(amx, amx)
#endif
#endif
