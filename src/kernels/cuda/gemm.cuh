/* Matrix products by cuBLASLt, which nothing else uses. Row-major tensors are transposed column-major tensors of
 * cuBLASLt:
 *
 *   linear                  y [N][M] = x [N][K] W^T + b   D = op_T(W) x + b,  m = M, n = N, k = K
 *   linear_backward_input   dx [N][K] (+)= dy [N][M] W    D = W dy,           m = K, n = N, k = M
 *   linear_backward_weight  dW [M][K] (+)= dy^T x, fp32   D = x op_T(dy),     m = K, n = M, k = N
 *                           db [M] (+)= the sum of the rows of dy, fp32, by kernels/cuda/columns.cuh: the library's epilogue
 *                           would write it in the type of dy
 *   muon                    kernels/cuda/muon.cuh: all matrices of a shape as one batch
 *
 * The epilogue of the product adds b in fp32. Its address is not part of a plan, because all matrices of a shape use
 * the same plan: it is set before every product, and a captured graph holds the address of its call.
 *
 * Products are summed in fp32 (fp32 inputs without TF32). A plan (descriptors and algorithm) is made once for every
 * combination of shape, strides, types and alignments, never during a capture. The algorithm is the first one of the
 * library's heuristic or, after cuda_tune(), the fastest of the first ones. The library is loaded when a context is
 * opened: it is half a gigabyte, and programs that do not use it should not wait for it. */
#ifndef INKLING_KERNELS_CUDA_GEMM_CUH
#define INKLING_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

#include <cublasLt.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

/* The functions that are loaded: X(member of struct CublasLt, name). */
/* clang-format off */
#define CUBLASLT_FUNCTIONS(X) \
  X(create, cublasLtCreate) X(destroy, cublasLtDestroy) X(version, cublasLtGetVersion) \
  X(status_string, cublasLtGetStatusString) X(desc_create, cublasLtMatmulDescCreate) \
  X(desc_destroy, cublasLtMatmulDescDestroy) X(desc_set, cublasLtMatmulDescSetAttribute) \
  X(layout_create, cublasLtMatrixLayoutCreate) X(layout_destroy, cublasLtMatrixLayoutDestroy) \
  X(layout_set, cublasLtMatrixLayoutSetAttribute) X(preference_create, cublasLtMatmulPreferenceCreate) \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy) X(preference_set, cublasLtMatmulPreferenceSetAttribute) \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic) X(matmul, cublasLtMatmul)
/* clang-format on */

struct CublasLt {
#define MEMBER(member, name) decltype(&name) member;
  CUBLASLT_FUNCTIONS(MEMBER)
#undef MEMBER
};

#ifndef INKLING_CUDA_LIBRARIES
#define INKLING_CUDA_LIBRARIES "/usr/local/cuda/lib64" /* where the build found CUDA's libraries */
#endif
#define INKLING_TEXT(x) #x
#define INKLING_LIBRARY(version) "libcublasLt.so." INKLING_TEXT(version)

static bool cublaslt_load(CublasLt *out, Error *error) {
  static const char *const paths[] = {INKLING_LIBRARY(CUBLAS_VER_MAJOR),
                                      INKLING_CUDA_LIBRARIES "/" INKLING_LIBRARY(CUBLAS_VER_MAJOR)};
#define SYMBOL(member, name) {#name, (void **)&out->member},
  const Symbol symbols[] = {CUBLASLT_FUNCTIONS(SYMBOL)};
#undef SYMBOL
  const char *missing = load_functions(paths, symbols);
  if (missing == paths[0])
    return fail(error, EXIT_USAGE, "no CUDA: %s is missing (cuBLAS of the CUDA toolkit, see LD_LIBRARY_PATH)", missing);
  return !missing || fail(error, EXIT_USAGE, "no CUDA: %s has no %s", paths[0], missing);
}

/* ---- plans ---- */

enum { GEMM_WORKSPACE = 32 << 20, GEMM_CANDIDATES = 16, GEMM_REPEATS = 5, GEMM_LIBRARY_CHOICE = -1 };
constexpr float GEMM_GAIN = 0.03f; /* by which another algorithm must be faster than the first one */

/* The arguments of a plan; all int64, so that it has no padding and can be compared and printed as an array. Matrices
 * are dense, and those of a batch adjacent. */
struct GemmKey {
  int64_t transpose_a, transpose_b, m, n, k, bytes_in, bytes_out;
  int64_t batch; /* products that run together */
  int64_t reads_c = 0, epilogue = 0, align_a = 0, align_b = 0, align_c = 0, align_d = 0; /* set by gemm() */
  GemmKey() = default;
  GemmKey(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, size_t in, size_t out, int64_t batch = 1)
      : transpose_a(transpose_a), transpose_b(transpose_b), m(m), n(n), k(k), bytes_in((int64_t)in),
        bytes_out((int64_t)out), batch(batch) {}
  bool operator<(const GemmKey &other) const { return memcmp(this, &other, sizeof other) < 0; }
};
enum { GEMM_KEY_FIELDS = sizeof(GemmKey) / sizeof(int64_t) };

/* d = alpha a b + beta c, and + bias [m] in every column. c has the layout of d and may be d; a, b, c may be the
 * same. */
struct GemmOperands {
  void *d;
  const void *a, *b;
  const void *c = NULL; /* read when beta is not 0 */
  const void *bias = NULL;
  float alpha = 1.0f, beta = 0.0f;
};

struct GemmPlan {
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  int choice; /* its place in the heuristic's list, if it was measured; GEMM_LIBRARY_CHOICE: it was not */
};

struct Gemm {
  CublasLt library;
  cublasLtHandle_t handle;
  bool measures; /* plans without a choice */
  std::map<GemmKey, GemmPlan> plans;
  std::map<GemmKey, int> choices; /* GemmPlan.choice of plans to come */
};

static bool gemm_check(Context *c, cublasStatus_t status, const GemmKey *key) {
  if (status != CUBLAS_STATUS_SUCCESS && !c->error.code)
    fail(&c->error, status == CUBLAS_STATUS_ALLOC_FAILED ? EXIT_MEMORY : EXIT_INTERNAL,
         "matrix product of %lld x %lld x %lld failed on %s: %s", (long long)(key ? key->m : 0),
         (long long)(key ? key->n : 0), (long long)(key ? key->k : 0), c->name, c->gemm->library.status_string(status));
  return !c->error.code;
}

/* Writes the first line of stored choices, which are valid only for this device, library and GemmKey. */
static void tuning_header(Context *c, char *out, size_t size) {
  snprintf(out, size, "cublaslt %zu, first %d, keys of %d, on %s", c->gemm->library.version(), (int)GEMM_CANDIDATES,
           (int)GEMM_KEY_FIELDS, c->name);
}

/* Reads a line for each product: its key, and the place of the algorithm in the heuristic's list. The last line of a
 * product counts; lines that do not parse are ignored. */
static void read_choices(Context *c, const char *text) {
  char header[256];
  tuning_header(c, header, sizeof header);
  size_t length = strlen(header);
  if (strncmp(text, header, length) != 0 || text[length] != '\n') return;
  for (const char *at = text + length + 1, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
    int64_t number[GEMM_KEY_FIELDS + 1];
    char *next = (char *)at;
    for (int64_t &n : number) n = strtoll(next, &next, 10);
    const int64_t choice = number[GEMM_KEY_FIELDS];
    if (next != end || choice < 0 || choice >= GEMM_CANDIDATES) continue;
    GemmKey key;
    memcpy(&key, number, sizeof key);
    c->gemm->choices[key] = (int)choice;
  }
}

char *cuda_tuning(Context *c) {
  enum { LINE = GEMM_KEY_FIELDS * 21 + 8 };
  char *text = (char *)malloc(256 + c->gemm->plans.size() * LINE), *at = text;
  if (!text) return NULL;
  tuning_header(c, text, 256);
  at += strlen(text);
  *at++ = '\n';
  *at = '\0';
  for (const auto &[key, plan] : c->gemm->plans) {
    if (plan.choice == GEMM_LIBRARY_CHOICE) continue;
    const int64_t *field = (const int64_t *)&key;
    for (int i = 0; i < GEMM_KEY_FIELDS; i++) at += sprintf(at, "%lld ", (long long)field[i]);
    at += sprintf(at, "%d\n", plan.choice);
  }
  return text;
}

static void forget_plans(Gemm *g) {
  for (const auto &[key, plan] : g->plans) {
    if (plan.desc) g->library.desc_destroy(plan.desc);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d})
      if (layout) g->library.layout_destroy(layout);
  }
  g->plans.clear();
}

static void gemm_tune(Context *c, const char *choices, bool measure) {
  forget_plans(c->gemm);
  c->gemm->choices.clear();
  c->gemm->measures = measure;
  if (choices) read_choices(c, choices);
}

static bool gemm_open(Context *c) {
  Gemm *g = c->gemm = new (std::nothrow) Gemm();
  if (!g) return check(c, cudaErrorMemoryAllocation, "matrix products");
  if (!cublaslt_load(&g->library, &c->error) || !gemm_check(c, g->library.create(&g->handle), NULL)) return false;
  c->workspace = cuda_alloc(c, "workspace of the matrix products", GEMM_WORKSPACE);
  return !c->error.code;
}

static void gemm_close(Gemm *g) {
  if (!g) return;
  forget_plans(g);
  if (g->handle) g->library.destroy(g->handle);
  delete g;
}

/* The largest power of two, at most 256, that divides an address. */
static int64_t alignment_of(const void *p) {
  uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
  return low && low < 256 ? (int64_t)low : 256;
}

/* Makes the layout of a column-major matrix [cols][rows], or of a batch of them. */
static bool describe_matrix(Context *c, cublasLtMatrixLayout_t *out, const GemmKey &k, int64_t bytes, int64_t rows,
                            int64_t cols) {
  const CublasLt &l = c->gemm->library;
  const cudaDataType type = bytes == 2 ? CUDA_R_16BF : CUDA_R_32F;
  const int32_t batch = (int32_t)k.batch;
  const int64_t stride = rows * cols;
  if (!gemm_check(c, l.layout_create(out, type, (uint64_t)rows, (uint64_t)cols, rows), &k)) return false;
  return k.batch == 1 ||
         (gemm_check(c, l.layout_set(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), &k) &&
          gemm_check(c, l.layout_set(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride), &k));
}

static bool describe(Context *c, const GemmKey &k, GemmPlan *plan) {
  const CublasLt &l = c->gemm->library;
  cublasOperation_t a = k.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, b = k.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)k.epilogue;
  return gemm_check(c, l.desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), &k) &&
         gemm_check(c, l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a), &k) &&
         gemm_check(c, l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b), &k) &&
         gemm_check(c, l.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), &k) &&
         describe_matrix(c, &plan->a, k, k.bytes_in, k.transpose_a ? k.k : k.m, k.transpose_a ? k.m : k.k) &&
         describe_matrix(c, &plan->b, k, k.bytes_in, k.transpose_b ? k.n : k.k, k.transpose_b ? k.k : k.n) &&
         describe_matrix(c, &plan->d, k, k.bytes_out, k.m, k.n);
}

static cublasStatus_t multiply(Context *c, const GemmPlan &plan, const cublasLtMatmulAlgo_t *algorithm,
                               const GemmOperands &o) {
  return c->gemm->library.matmul(c->gemm->handle, plan.desc, &o.alpha, o.a, plan.a, o.b, plan.b, &o.beta, o.c, plan.d,
                                 o.d, plan.d, algorithm, c->workspace, GEMM_WORKSPACE, c->stream);
}

/* Returns the fastest algorithm, or the first one, the heuristic's choice, if none is faster by GEMM_GAIN: measuring
 * again would give the same. Runs write to the output, which the product overwrites later, or to a copy if it is also
 * an input; without memory for the copy the result is the first algorithm. */
static int fastest(Context *c, const GemmKey &k, const GemmPlan &plan, const cublasLtMatmulHeuristicResult_t *results,
                   int count, GemmOperands o) {
  void *spare = NULL;
  int best = 0;
  float best_ms = INFINITY;
  if (k.reads_c && o.c == o.d) {
    const size_t bytes = (size_t)(k.batch * k.m * k.n * k.bytes_out);
    if (cudaMalloc(&spare, bytes)) {
      cudaGetLastError(); /* not an error of the context */
      return 0;
    }
    check(c, cudaMemcpyAsync(spare, o.d, bytes, cudaMemcpyDeviceToDevice, c->stream), "speed test");
    o.c = o.d = spare;
  }
  for (int i = 0; i < count; i++) {
    const float ms =
        fastest_of(c, GEMM_REPEATS, [&] { return multiply(c, plan, &results[i].algo, o) == CUBLAS_STATUS_SUCCESS; });
    if (ms < best_ms) best = i, best_ms = i ? ms : ms * (1 - GEMM_GAIN);
  }
  cudaFree(spare);
  return best;
}

static bool choose_algorithm(Context *c, const GemmKey &k, GemmPlan *plan, bool tune, const GemmOperands &o) {
  const Gemm *g = c->gemm;
  const CublasLt &l = g->library;
  const auto choice = g->choices.find(k);
  const bool chosen = choice != g->choices.end();
  cublasLtMatmulPreference_t preference = NULL;
  const size_t workspace = GEMM_WORKSPACE;
  const uint32_t align_a = (uint32_t)k.align_a, align_b = (uint32_t)k.align_b;
  const uint32_t align_c = (uint32_t)k.align_c, align_d = (uint32_t)k.align_d;
  /* partial sums are added in fp32, not in bf16 */
  const uint32_t reductions = k.bytes_out == sizeof(float)
                                  ? CUBLASLT_REDUCTION_SCHEME_MASK
                                  : CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  struct {
    cublasLtMatmulPreferenceAttributes_t name;
    const void *value;
    size_t bytes;
  } attributes[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
                    {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a, sizeof align_a},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b, sizeof align_b},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_c, sizeof align_c},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_d, sizeof align_d}};
  if (!gemm_check(c, l.preference_create(&preference), &k)) return false;
  for (const auto &attribute : attributes)
    gemm_check(c, l.preference_set(preference, attribute.name, attribute.value, attribute.bytes), &k);
  cublasLtMatmulHeuristicResult_t results[GEMM_CANDIDATES];
  int found = 0;
  cublasStatus_t status = l.heuristic(g->handle, plan->desc, plan->a, plan->b, plan->d, plan->d, preference,
                                      chosen || tune ? (int)GEMM_CANDIDATES : 1, results, &found);
  l.preference_destroy(preference);
  if (status == CUBLAS_STATUS_SUCCESS) status = found ? results[0].state : CUBLAS_STATUS_NOT_SUPPORTED;
  if (!gemm_check(c, status, &k)) return false;
  if (chosen && choice->second < found && results[choice->second].state == CUBLAS_STATUS_SUCCESS)
    plan->choice = choice->second;
  else if (tune) plan->choice = fastest(c, k, *plan, results, found, o);
  plan->algorithm = results[plan->choice == GEMM_LIBRARY_CHOICE ? 0 : plan->choice].algo;
  return !c->error.code;
}

/* Runs a product. `tune`: measures if it must make the plan and has no choice. */
static void gemm(Context *c, GemmKey key, bool tune, GemmOperands o) {
  if (c->error.code || !key.m || !key.n) return;
  if (!o.c) o.c = o.d; /* not read, but must not be NULL */
  key.reads_c = o.beta != 0.0f;
  key.align_a = alignment_of(o.a), key.align_b = alignment_of(o.b);
  key.align_c = alignment_of(o.c), key.align_d = alignment_of(o.d);
  key.epilogue = o.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  const auto [found, is_new] = c->gemm->plans.try_emplace(key);
  GemmPlan *plan = &found->second;
  if (is_new) plan->choice = GEMM_LIBRARY_CHOICE;
  if (is_new && !describe(c, key, plan)) return;
  const auto attribute = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
  if (o.bias && !gemm_check(c, c->gemm->library.desc_set(plan->desc, attribute, &o.bias, sizeof o.bias), &key)) return;
  if (is_new && !choose_algorithm(c, key, plan, tune, o)) return;
  gemm_check(c, multiply(c, *plan, &plan->algorithm, o), &key);
}

/* ---- the branch ---- */

bool branch_begin(Context *c) {
  Branch *b = &c->branch;
  if (!b->workspace) b->workspace = cuda_alloc(c, "workspace of the weight gradients", GEMM_WORKSPACE);
  if (c->error.code || !check(c, cudaEventRecord(b->begin, c->stream), "weight gradients") ||
      !check(c, cudaStreamWaitEvent(b->stream, b->begin, 0), "weight gradients"))
    return false;
  std::swap(c->stream, b->stream);
  std::swap(c->workspace, b->workspace);
  return true;
}

void branch_end(Context *c) {
  Branch *b = &c->branch;
  check(c, cudaEventRecord(b->done[b->begun++ % 2], c->stream), "weight gradients");
  std::swap(c->stream, b->stream);
  std::swap(c->workspace, b->workspace);
}

/* ---- the operations ---- */

/* NULL when the layer does not have the matrix. */
static const void *weights_of(Context *c, const Parameters *params, Matrix w) {
  if (!w.rows) return NULL;
  return c->dtype == DTYPE_F32 ? (const void *)compute_matrix<float>(params, w) : compute_matrix<bf16>(params, w);
}

void cuda_linear(Context *c, void *y, const void *x, const Parameters *params, Linear layer, int rows) {
  const Matrix w = layer.weight;
  const size_t bytes = dtype_bytes(c->dtype);
  const void *bias = weights_of(c, params, layer.bias);
  require_alignment(c, "linear", {}, {bias});
  gemm(c, {1, 0, w.rows, rows, w.cols, bytes, bytes}, c->gemm->measures,
       {.d = y, .a = weights_of(c, params, w), .b = x, .bias = bias});
}

void cuda_linear_backward_input(Context *c, void *dx, const void *dy, const Parameters *params, Linear layer, int rows,
                                bool accumulate) {
  const Matrix w = layer.weight;
  const size_t bytes = dtype_bytes(c->dtype);
  gemm(c, {0, 0, w.cols, rows, w.rows, bytes, bytes}, c->gemm->measures,
       {.d = dx, .a = weights_of(c, params, w), .b = dy, .c = dx, .beta = (float)accumulate});
}

/* Sums over no rows are 0. */
static void clear_gradient(Context *c, const Parameters *params, Matrix w) {
  const size_t bytes = (size_t)w.rows * (size_t)w.cols * sizeof(float);
  if (!c->error.code && bytes)
    check(c, cudaMemsetAsync(params->grad + w.offset, 0, bytes, c->stream), "weight gradient");
}

void cuda_linear_backward_weight(Context *c, const Parameters *params, Linear layer, const void *dy, const void *x,
                                 int rows, bool accumulate) {
  const Matrix w = layer.weight;
  if (layer.bias.rows && rows)
    add_rows(c, "bias gradient", params->grad + layer.bias.offset, dy, rows, w.rows, accumulate);
  if (rows == 0 && !accumulate) clear_gradient(c, params, w), clear_gradient(c, params, layer.bias);
  if (rows == 0) return;
  float *const dw = params->grad + w.offset;
  beside(c, [&] {
    gemm(c, {0, 1, w.cols, w.rows, rows, dtype_bytes(c->dtype), sizeof *dw}, c->gemm->measures,
         {.d = dw, .a = x, .b = dy, .c = dw, .beta = (float)accumulate});
  });
}

namespace {
/* Fills with random numbers in [-1, 1): power, and with it the clock, depends on the number of bits that change. */
template <class T> __global__ void __launch_bounds__(256) fill_at_random(T *out, int64_t count) {
  const int64_t first = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4;
  const uint4 words = random_words(0, (uint32_t)(first / 4), 0, 0, 0);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  for (int i = 0; i < 4 && first + i < count; i++) out[first + i] = from_float<T>((float)(int32_t)word[i] * 0x1p-31f);
}
} // namespace

/* Measures products of growing square matrices, until one takes 2 ms or memory is low. */
double cuda_peak_flops(Context *c) {
  double best = 0;
  for (int64_t size = 256; size <= 16384 && !c->error.code; size *= 2) {
    const size_t bytes = (size_t)(size * size) * dtype_bytes(c->dtype);
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    if (3 * bytes > available / 2) break;
    char *memory = (char *)cuda_alloc(c, "matrices of the speed test", 3 * bytes);
    if (!memory) break;
    with_element(c, [&]<class T>(T) {
      const int64_t count = 2 * size * size;
      launch(c, "speed test", fill_at_random<T>, (unsigned)divide_up(count, 1024), 256, 0, (T *)memory, count);
    });
    const float ms = fastest_of(c, 2, [&] {
      const size_t element = dtype_bytes(c->dtype);
      gemm(c, {1, 0, size, size, size, element, element}, false,
           {.d = memory + 2 * bytes, .a = memory, .b = memory + bytes});
      return !c->error.code;
    });
    check(c, cudaGetLastError(), "speed test");
    cuda_release(c, memory);
    const double flops = 2.0 * (double)size * (double)size * (double)size / (1e-3 * (double)ms);
    if (flops > best) best = flops;
    if (ms > 2.0f) break;
  }
  return best;
}

#endif
