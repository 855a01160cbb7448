/* Compares the matrix products of training in other libraries with those of the CPU backend.
 *
 *   build/bench_gemm [--isa LEVEL] LIBRARY...     for example libdnnl.so.2 libopenblas.so.0 libblis.so.4
 *
 * The dynamic linker finds the libraries; each must have dnnl_sgemm() or cblas_sgemm(), and uses its own threads
 * (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, BLIS_NUM_THREADS set the number). Prints GFLOP/s, the median of alternating
 * turns: forward y = x W^T, input gradient dx = dy W, weight gradient dW = dy^T x. */
#include "kernels.h"
#include "base/array.h"
#include "base/system.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 9, PAUSE_MS = 20, MAX_LIBRARIES = 8, PRODUCTS = 3 };
static const double TURN_FLOPS = 3e9;

typedef struct Shape {
  const char *name;
  int rows, outputs, inputs; /* N, M, K */
} Shape;

/* Weights of nano and the demo with their 768 and 1024 rows, of baby with 4096, and of 15m. */
static const Shape shapes[] = {
    {"nano qkv", 768, 384, 128},    {"nano output", 768, 128, 128},   {"nano gate+up", 768, 704, 128},
    {"nano down", 768, 128, 352},   {"demo qkv", 1024, 192, 64},      {"demo gate+up", 1024, 352, 64},
    {"baby qkv", 4096, 1152, 384},  {"baby output", 4096, 384, 384},  {"baby gate+up", 4096, 2048, 384},
    {"baby down", 4096, 384, 1024}, {"15m gate+up", 2048, 1536, 288}, {"15m head", 512, 32000, 288},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef int DnnlSgemm(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                      float, float *, int64_t);
typedef void CblasSgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                        int);

typedef struct Library {
  const char *name;
  DnnlSgemm *dnnl; /* row-major; NULL: cblas */
  CblasSgemm *cblas;
} Library;

typedef struct Operands {
  const Shape *shape;
  float *x, *y, *dx;
  Parameters params;
  Matrix w;
} Operands;

/* c[m][n] = op(a) op(b), sums of k products */
static void library_product(const Library *l, bool a_transposed, bool b_transposed, int m, int n, int k, const float *a,
                            const float *b, float *c) {
  int a_stride = a_transposed ? m : k, b_stride = b_transposed ? k : n;
  if (l->dnnl)
    l->dnnl(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', m, n, k, 1, a, a_stride, b, b_stride, 0, c, n);
  else l->cblas(101, a_transposed ? 112 : 111, b_transposed ? 112 : 111, m, n, k, 1, a, a_stride, b, b_stride, 0, c, n);
}

static void by_library(const Library *l, const Operands *o, int product) {
  const Shape *s = o->shape;
  const float *w = o->params.master + o->w.offset;
  if (product == 0) library_product(l, false, true, s->rows, s->outputs, s->inputs, o->x, w, o->y);
  if (product == 1) library_product(l, false, false, s->rows, s->inputs, s->outputs, o->y, w, o->dx);
  if (product == 2) library_product(l, true, false, s->outputs, s->inputs, s->rows, o->y, o->x, o->params.grad);
}

static void by_backend(const Backend *ops, Context *c, const Operands *o, int product) {
  if (product == 0) ops->linear(c, o->y, o->x, &o->params, (Linear){.weight = o->w}, o->shape->rows);
  if (product == 1)
    ops->linear_backward_input(c, o->dx, o->y, &o->params, (Linear){.weight = o->w}, o->shape->rows, false);
  if (product == 2)
    ops->linear_backward_weight(c, &o->params, (Linear){.weight = o->w}, o->y, o->x, o->shape->rows, false);
}

/* Returns the mean seconds of `calls` calls of competitor `who` (0: the backend), after a first one. The pause is for
 * the threads of the previous competitor, which spin for some milliseconds after their work. */
static double one_turn(const Backend *ops, Context *c, const Library *libraries, int who, const Operands *o,
                       int product, int calls) {
  double start = 0;
  nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
  for (int call = -1; call < calls; call++) {
    if (call == 0) start = clock_seconds();
    if (who == 0) by_backend(ops, c, o, product);
    else by_library(&libraries[who - 1], o, product);
  }
  return (clock_seconds() - start) / calls;
}

/* The competitors take turns, so that the load of the machine affects all of them equally. */
static void measure(const Backend *ops, Context *c, const Library *libraries, int count, const Operands *o,
                    int product) {
  static double seconds[MAX_LIBRARIES + 1][TURNS];
  const double flops = 2.0 * o->shape->rows * o->shape->outputs * o->shape->inputs;
  const int calls = 1 + (int)(TURN_FLOPS / flops);
  for (int turn = 0; turn < TURNS; turn++)
    for (int who = 0; who <= count; who++) seconds[who][turn] = one_turn(ops, c, libraries, who, o, product, calls);
  static const char *const names[PRODUCTS] = {"forward", "input gradient", "weight gradient"};
  printf("%-14s %-16s", o->shape->name, names[product]);
  for (int who = 0; who <= count; who++) printf(" %14.0f", 1e-9 * flops / quantiles_of(seconds[who], TURNS).median);
  printf("\n");
  fflush(stdout);
}

static float *numbers(const Backend *ops, Context *c, int64_t count) {
  float *memory = ops->alloc(c, "an operand", (size_t)count * sizeof *memory);
  for (int64_t i = 0; memory && i < count; i++) memory[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
  return memory;
}

static bool measure_shape(const Backend *ops, Context *c, const Library *libraries, int count, const Shape *shape) {
  const int64_t rows = shape->rows, weights = (int64_t)shape->outputs * shape->inputs;
  const ParameterGroup group = {.matrix = {0, shape->outputs, shape->inputs}, .decay = true, .gemm = true};
  Operands o = {.shape = shape, .w = group.matrix};
  o.x = numbers(ops, c, rows * shape->inputs);
  o.y = numbers(ops, c, rows * shape->outputs);
  o.dx = numbers(ops, c, rows * shape->inputs);
  o.params = (Parameters){.count = (size_t)weights, .groups = &group, .group_count = 1};
  o.params.master = numbers(ops, c, weights);
  o.params.grad = numbers(ops, c, weights);
  bool ok = o.x && o.y && o.dx && o.params.master && o.params.grad;
  if (ok) ops->refresh_parameters(c, &o.params);
  for (int product = 0; ok && product < PRODUCTS; product++) measure(ops, c, libraries, count, &o, product);
  void *memory[] = {o.x, o.y, o.dx, o.params.master, o.params.grad};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) ops->release(c, memory[i]);
  return ok;
}

static bool find_library(const char *name, Library *out) {
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
  *out = (Library){.name = name};
  if (handle && (symbol = dlsym(handle, "dnnl_sgemm"))) memcpy(&out->dnnl, &symbol, sizeof symbol);
  else if (handle && (symbol = dlsym(handle, "cblas_sgemm"))) memcpy(&out->cblas, &symbol, sizeof symbol);
  if (!symbol) fprintf(stderr, "bench_gemm: %s: %s\n", name, handle ? "no dnnl_sgemm or cblas_sgemm" : dlerror());
  return symbol;
}

int main(int argc, char **argv) {
  Library libraries[MAX_LIBRARIES];
  const char *isa = NULL;
  int count = 0;
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) isa = argv[++i];
    else if (count == MAX_LIBRARIES || !find_library(argv[i], &libraries[count++])) return EXIT_USAGE;
  const Backend *ops = backend_find("cpu", isa, 1u << DTYPE_F32);
  if (!ops) return fprintf(stderr, "bench_gemm: --isa %s: not on this machine\n", isa ? isa : ""), EXIT_USAGE;
  Error error = {0};
  Context *c;
  if (!ops->open(&c, &(ContextOptions){.dtype = DTYPE_F32}, &error))
    return fprintf(stderr, "bench_gemm: %s\n", error.text), EXIT_INTERNAL;
  printf("GFLOP/s, medians   %16s", ops->isa);
  for (int i = 0; i < count; i++) printf(" %14.14s", libraries[i].name);
  printf("\n");
  bool ok = true;
  for (int i = 0; ok && i < SHAPES; i++) ok = measure_shape(ops, c, libraries, count, &shapes[i]);
  ops->close(c);
  return ok ? EXIT_DONE : EXIT_MEMORY;
}
