/* The stand-in for cuBLASLt: products against sums in double, and what it must refuse. */
#include "tests/cuda_on_cpu/test_emulator.h"

#include <cublasLt.h>

#include <math.h>
#include <vector>

namespace {

/* Everything that a product needs, to be spoilt in one place. Column-major, as the library has it. */
struct Product {
  int64_t m, n, k, lda, ldb, ldd;
  bool transpose_a, transpose_b;
  cudaDataType in, out;
  float alpha, beta;
  bool separate_c;                                /* C is not D */
  int32_t batch, batch_b;                         /* of all, and of B; 0: as the library has it by itself */
  int64_t stride_a, stride_b, stride_c, stride_d; /* elements */
  bool late_batch;                                /* set after the heuristic was asked */
  uint32_t alignment;                             /* that the heuristic is told, of all operands */
  uint32_t reductions;                            /* that the heuristic may choose from, 0: all */
  size_t workspace;                               /* that the heuristic is told */
  size_t workspace_given;                         /* that the product gets */
  int64_t shift_a, shift_d;                       /* elements that the operands are moved by */
  bool d_is_a, host_b, no_handle, no_algorithm;
  cublasLtEpilogue_t epilogue;
  int64_t shift_bias;                                /* elements */
  bool no_bias, host_bias, d_is_bias, late_epilogue; /* late: set after the heuristic was asked */
};

Product square(int64_t size) {
  Product p = {};
  p.m = p.n = p.k = p.lda = p.ldb = p.ldd = size;
  p.transpose_a = true;
  p.in = p.out = CUDA_R_32F;
  p.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  p.alignment = 16;
  p.workspace = p.workspace_given = 4 << 20;
  p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  p.alpha = 1.0f;
  return p;
}

struct Operands {
  Device<float> a, b, c, d, bias; /* large enough for either type */
  Device<char> workspace;
  explicit Operands(size_t count) : a(count), b(count), c(count), d(count), bias(count), workspace(4 << 20) {}
};

size_t width(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

cublasStatus_t set_bias(cublasLtMatmulDesc_t desc, const Product &p, const Operands &o) {
  static float host[64];
  const void *bias =
      reinterpret_cast<char *>(p.d_is_bias ? o.d.data : o.bias.data) + (size_t)p.shift_bias * width(p.out);
  if (p.host_bias) bias = host;
  if (p.no_bias) return CUBLAS_STATUS_SUCCESS;
  return cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

cublasStatus_t set_batch(cublasLtMatrixLayout_t layout, int32_t batch, int64_t stride) {
  if (!batch) return CUBLAS_STATUS_SUCCESS;
  const cublasStatus_t status =
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
}

/* The first status that is not a success. */
cublasStatus_t multiply(const Product &p, Operands *o) {
  cublasLtHandle_t handle = NULL;
  cublasLtMatmulDesc_t desc = NULL;
  cublasLtMatrixLayout_t la = NULL, lb = NULL, lc = NULL, ld = NULL;
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t result;
  cublasStatus_t first = CUBLAS_STATUS_SUCCESS;
  int found = 0;
  auto note = [&first](cublasStatus_t status) {
    if (first == CUBLAS_STATUS_SUCCESS) first = status;
  };
  const cublasOperation_t ta = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                          tb = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  note(cublasLtCreate(&handle));
  note(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  note(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
  note(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
  auto set_epilogue = [&] {
    note(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, sizeof p.epilogue));
  };
  if (!p.late_epilogue) set_epilogue();
  note(cublasLtMatrixLayoutCreate(&la, p.in, (uint64_t)(p.transpose_a ? p.k : p.m),
                                  (uint64_t)(p.transpose_a ? p.m : p.k), p.lda));
  note(cublasLtMatrixLayoutCreate(&lb, p.in, (uint64_t)(p.transpose_b ? p.n : p.k),
                                  (uint64_t)(p.transpose_b ? p.k : p.n), p.ldb));
  note(cublasLtMatrixLayoutCreate(&lc, p.out, (uint64_t)p.m, (uint64_t)p.n, p.ldd));
  note(cublasLtMatrixLayoutCreate(&ld, p.out, (uint64_t)p.m, (uint64_t)p.n, p.ldd));
  auto set_batches = [&] {
    note(set_batch(la, p.batch, p.stride_a)), note(set_batch(lb, p.batch_b ? p.batch_b : p.batch, p.stride_b));
    note(set_batch(lc, p.batch, p.stride_c)), note(set_batch(ld, p.batch, p.stride_d));
  };
  if (!p.late_batch) set_batches();
  note(cublasLtMatmulPreferenceCreate(&preference));
  note(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &p.workspace,
                                            sizeof p.workspace));
  if (p.reductions)
    note(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &p.reductions,
                                              sizeof p.reductions));
  for (cublasLtMatmulPreferenceAttributes_t name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    note(cublasLtMatmulPreferenceSetAttribute(preference, name, &p.alignment, sizeof p.alignment));
  note(cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, lc, ld, preference, 1, &result, &found));
  if (p.late_epilogue) set_epilogue();
  if (p.late_batch) set_batches();
  note(set_bias(desc, p, *o)); /* as kernels/cuda/gemm.cuh does: for the product, not for the heuristic */
  if (first == CUBLAS_STATUS_SUCCESS) {
    std::vector<float> host(p.host_b ? o->b.count : 0);
    if (p.no_algorithm) memset(&result.algo, 0, sizeof result.algo);
    const char *a = reinterpret_cast<char *>(o->a.data) + (size_t)p.shift_a * width(p.in);
    char *d = reinterpret_cast<char *>(p.d_is_a ? o->a.data : o->d.data) + (size_t)p.shift_d * width(p.out);
    const void *c = p.separate_c ? (const void *)o->c.data : d;
    note(cublasLtMatmul(p.no_handle ? NULL : handle, desc, &p.alpha, a, la, p.host_b ? host.data() : o->b.data, lb,
                        &p.beta, c, lc, d, ld, &result.algo, o->workspace.data, p.workspace_given, NULL));
  }
  cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(desc);
  cublasLtDestroy(handle);
  return first;
}

/* ---- products ---- */

float fetch(const std::vector<float> &memory, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F) return memory[(size_t)i];
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(memory.data())[i]);
}

void put(std::vector<float> *memory, cudaDataType type, int64_t i, float x) {
  if (type == CUDA_R_32F) (*memory)[(size_t)i] = x;
  else reinterpret_cast<__nv_bfloat16 *>(memory->data())[i] = __float2bfloat16_rn(x);
}

/* Element (i, j) of matrix number `number` of what should come out; `c` is what C has held. */
double expected(const Product &p, int64_t number, int64_t i, int64_t j, const std::vector<float> &a,
                const std::vector<float> &b, const std::vector<float> &c, const std::vector<float> &bias) {
  const int64_t in_a = number * p.stride_a, in_b = number * p.stride_b;
  double sum = 0;
  for (int64_t l = 0; l < p.k; l++)
    sum += (double)fetch(a, p.in, in_a + (p.transpose_a ? i * p.lda + l : l * p.lda + i)) *
           (double)fetch(b, p.in, in_b + (p.transpose_b ? l * p.ldb + j : j * p.ldb + l));
  sum = (double)p.alpha * sum + (double)p.beta * (double)fetch(c, p.out, number * p.stride_c + j * p.ldd + i);
  if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += (double)fetch(bias, p.out, i + p.shift_bias);
  return sum;
}

/* The relative error of the whole product in the L2 norm. */
bool product_is_right(const Product &p, double tolerance) {
  const size_t count = 400 * 400;
  Operands o(count);
  std::vector<float> a(count), b(count), c(count), bias(count), before(count), after(count);
  unsigned seed = 1;
  for (std::vector<float> *memory : {&a, &b})
    for (size_t i = 0; i < count; i++) {
      seed = seed * 1664525u + 1013904223u;
      put(memory, p.in, (int64_t)i, (float)(seed >> 8) / 8388608.0f - 1.0f);
    }
  for (size_t i = 0; i < count; i++) put(&before, p.out, (int64_t)i, (float)(i % 17) - 8.0f);
  for (size_t i = 0; i < count; i++) put(&c, p.out, (int64_t)i, (float)(i % 19) - 9.0f);
  for (size_t i = 0; i < count; i++) put(&bias, p.out, (int64_t)i, (float)(i % 13) - 6.0f);
  o.a.set(a.data()), o.b.set(b.data()), o.c.set(c.data()), o.d.set(before.data()), o.bias.set(bias.data());
  EXPECT(multiply(p, &o) == CUBLAS_STATUS_SUCCESS);
  o.d.get(after.data());
  double error = 0, size = 0;
  for (int64_t number = 0; number < (p.batch ? p.batch : 1); number++)
    for (int64_t j = 0; j < p.n; j++)
      for (int64_t i = 0; i < p.m; i++) {
        const double want = expected(p, number, i, j, a, b, p.separate_c ? c : before, bias);
        const double got = (double)fetch(after, p.out, number * p.stride_d + j * p.ldd + i);
        error += (got - want) * (got - want), size += want * want;
      }
  EXPECT(sqrt(error) <= tolerance * sqrt(size));
  if (p.ldd > p.m) EXPECT(fetch(after, p.out, p.m) == fetch(before, p.out, p.m)); /* the gap */
  if (p.batch > 1) { /* the gap between matrices, and what is behind the last */
    const int64_t end = (p.n - 1) * p.ldd + p.m;
    EXPECT(fetch(after, p.out, p.stride_d - 1) == fetch(before, p.out, p.stride_d - 1) && end < p.stride_d);
    const int64_t behind = (p.batch - 1) * p.stride_d + end;
    EXPECT(fetch(after, p.out, behind) == fetch(before, p.out, behind));
  }
  return true;
}

bool product_is_right_in_all_types(Product p) {
  EXPECT(product_is_right(p, 1e-6));
  p.in = CUDA_R_16BF;
  EXPECT(product_is_right(p, 1e-7));
  p.out = CUDA_R_16BF;
  EXPECT(product_is_right(p, 3e-3));
  return true;
}

/* With gaps between the columns of every matrix. */
Product odd_product(int m, int n, int k, bool transpose_a, bool transpose_b) {
  Product p = square(1);
  p.m = m, p.n = n, p.k = k;
  p.transpose_a = transpose_a, p.transpose_b = transpose_b;
  p.lda = (transpose_a ? k : m) + 3, p.ldb = (transpose_b ? n : k) + 5, p.ldd = m + 7;
  return p;
}

bool test_products() {
  for (int i = 0; i < 16; i++) {
    Product p = odd_product(37, 29, 101, i & 1, i & 2);
    p.beta = i & 4 ? 1.0f : 0.0f;
    if (i & 8) p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.shift_bias = 16;
    EXPECT(product_is_right_in_all_types(p));
  }
  return true;
}

/* Batches, with strides of their own, one of 0; alpha; C in another place than D. */
bool test_batches() {
  for (int i = 0; i < 16; i++) {
    Product p = odd_product(23, 17, 41, i & 1, i & 2);
    p.alpha = -1.5f;
    p.beta = 0.75f;
    p.separate_c = i & 4;
    p.batch = 5;
    p.stride_a = p.lda * 41 + 11, p.stride_b = i & 8 ? 0 : p.ldb * 41 + 2;
    p.stride_d = p.ldd * p.n + 9, p.stride_c = p.separate_c ? p.stride_d + 4 : p.stride_d;
    EXPECT(product_is_right_in_all_types(p));
  }
  return true;
}

/* ---- refusals ---- */

/* Two products of 16 x 16, which fit arrays of 640 numbers. */
void make_batch(Product *p) {
  p->batch = 2;
  p->stride_a = p->stride_b = p->stride_c = p->stride_d = 256;
}

bool test_refusals() {
  const struct {
    const char *what;
    void (*spoil)(Product *);
    cublasStatus_t status;
  } cases[] = {
      {"nothing wrong", [](Product *) {}, CUBLAS_STATUS_SUCCESS},
      {"no handle", [](Product *p) { p->no_handle = true; }, CUBLAS_STATUS_NOT_INITIALIZED},
      {"lda < rows", [](Product *p) { p->lda = 15; }, CUBLAS_STATUS_INVALID_VALUE},
      {"ldd < rows", [](Product *p) { p->ldd = 15; }, CUBLAS_STATUS_INVALID_VALUE},
      {"no rows", [](Product *p) { p->m = 0; }, CUBLAS_STATUS_INVALID_VALUE},
      {"f32 in, bf16 out", [](Product *p) { p->out = CUDA_R_16BF; }, CUBLAS_STATUS_NOT_SUPPORTED},
      {"parts rounded to bf16", [](Product *p) { p->in = p->out = CUDA_R_16BF, p->reductions = 0; },
       CUBLAS_STATUS_NOT_SUPPORTED},
      {"parts in fp32 by themselves", [](Product *p) { p->reductions = 0; }, CUBLAS_STATUS_SUCCESS},
      {"less workspace than promised", [](Product *p) { p->workspace_given = 1000; }, CUBLAS_STATUS_INVALID_VALUE},
      {"no room for workspace is no error", [](Product *p) { p->workspace = p->workspace_given = 0; },
       CUBLAS_STATUS_SUCCESS},
      {"less aligned than promised", [](Product *p) { p->shift_a = 1; }, CUBLAS_STATUS_INVALID_VALUE},
      {"as little aligned as promised", [](Product *p) { p->shift_a = 1, p->alignment = 4; }, CUBLAS_STATUS_SUCCESS},
      {"past the end of an array", [](Product *p) { p->shift_d = 400; }, CUBLAS_STATUS_INVALID_VALUE},
      {"in place", [](Product *p) { p->d_is_a = true; }, CUBLAS_STATUS_INVALID_VALUE},
      {"host memory", [](Product *p) { p->host_b = true; }, CUBLAS_STATUS_INVALID_VALUE},
      {"a bias", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS; }, CUBLAS_STATUS_SUCCESS},
      {"an epilogue without its bias", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->no_bias = true; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"a bias of the host", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->host_bias = true; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"a bias past the end", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->shift_bias = 628; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"a bias that is not aligned", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->shift_bias = 1; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"a bias in D", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->d_is_bias = true; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"another epilogue", [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_RELU; }, CUBLAS_STATUS_NOT_SUPPORTED},
      {"an algorithm for another epilogue",
       [](Product *p) { p->epilogue = CUBLASLT_EPILOGUE_BIAS, p->late_epilogue = true; }, CUBLAS_STATUS_NOT_SUPPORTED},
      {"a batch", make_batch, CUBLAS_STATUS_SUCCESS},
      {"a batch of none", [](Product *p) { make_batch(p), p->batch = -1; }, CUBLAS_STATUS_INVALID_VALUE},
      {"batches of two sizes", [](Product *p) { make_batch(p), p->batch_b = 1; }, CUBLAS_STATUS_INVALID_VALUE},
      {"matrices of B over each other", [](Product *p) { make_batch(p), p->stride_b = 16; }, CUBLAS_STATUS_SUCCESS},
      {"matrices of D over each other", [](Product *p) { make_batch(p), p->stride_c = p->stride_d = 255; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"a batch backwards", [](Product *p) { make_batch(p), p->stride_a = -256; }, CUBLAS_STATUS_INVALID_VALUE},
      {"the last of a batch past the end", [](Product *p) { make_batch(p), p->stride_b = 400; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"C is D with another stride", [](Product *p) { make_batch(p), p->stride_c = 320; }, CUBLAS_STATUS_INVALID_VALUE},
      {"C apart with another stride",
       [](Product *p) { make_batch(p), p->stride_c = 320, p->separate_c = true, p->beta = 1; }, CUBLAS_STATUS_SUCCESS},
      {"the last of C past the end",
       [](Product *p) { make_batch(p), p->stride_c = 400, p->separate_c = true, p->beta = 1; },
       CUBLAS_STATUS_INVALID_VALUE},
      {"an algorithm for another batch", [](Product *p) { make_batch(p), p->late_batch = true; },
       CUBLAS_STATUS_NOT_SUPPORTED},
      {"a batch with a bias", [](Product *p) { make_batch(p), p->epilogue = CUBLASLT_EPILOGUE_BIAS; },
       CUBLAS_STATUS_NOT_SUPPORTED},
      {"an algorithm of zeros", [](Product *p) { p->no_algorithm = true; }, CUBLAS_STATUS_INVALID_VALUE},
  };
  Operands o(640);
  for (const auto &c : cases) {
    Product p = square(16);
    c.spoil(&p);
    const cublasStatus_t got = multiply(p, &o);
    if (got != c.status) fprintf(stderr, "%s: %s\n", c.what, cublasLtGetStatusString(got));
    EXPECT(got == c.status);
  }
  return true;
}

bool test_attributes() {
  cublasLtMatmulDesc_t desc = NULL;
  cublasLtMatrixLayout_t layout = NULL;
  const int64_t wide = 8;
  int found = 0;
  cublasLtHandle_t handle = NULL;
  EXPECT(cublasLtCreate(NULL) == CUBLAS_STATUS_INVALID_VALUE && cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide) ==
         CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, NULL, 4) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatmulDescSetAttribute(NULL, CUBLASLT_MATMUL_DESC_TRANSA, &wide, 4) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 5, 4) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &wide, sizeof wide) ==
         CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, &wide, sizeof wide) ==
         CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatrixLayoutSetAttribute(NULL, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &wide, sizeof wide) ==
         CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, NULL, 1, NULL, &found) ==
         CUBLAS_STATUS_INVALID_VALUE);
  /* 4 x 5 times 4 x 5 does not fit */
  EXPECT(cublasLtMatmul(handle, desc, &wide, NULL, layout, NULL, layout, &wide, NULL, layout, NULL, layout, NULL, NULL,
                        0, NULL) == CUBLAS_STATUS_INVALID_VALUE);
  EXPECT(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasLtMatmulDescDestroy(desc) == CUBLAS_STATUS_SUCCESS && cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  EXPECT(cublasLtDestroy(NULL) == CUBLAS_STATUS_INVALID_VALUE);
  return true;
}

} // namespace

const Test cublaslt_tests[] = {
    {"cuBLASLt products", test_products, NULL},
    {"cuBLASLt batches", test_batches, NULL},
    {"cuBLASLt refusals", test_refusals, NULL},
    {"cuBLASLt attributes", test_attributes, NULL},
    {NULL, NULL, NULL},
};
