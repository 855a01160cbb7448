/* A stand-in for cuBLASLt: the functions that kernels/cuda/gemm.cuh calls, strictly from their descriptors as the
 * library's documentation defines them (column-major, transposes, leading dimensions, strided batches, alpha, beta, a bias). What
 * the library refuses, or documents as required, is refused here, with a line on stderr that says why. Products are
 * summed as a card may sum them: in fp32, in parts and in an order that depend on the shape; products of bf16 in groups
 * of 16, each cut toward zero. */
#include "tests/cuda_on_cpu/internal.h"

#include <algorithm>
#include <cublasLt.h>

struct Layout { /* column-major */
  cudaDataType type;
  int64_t rows, cols, ld;
  int32_t batch;  /* matrices */
  int64_t stride; /* elements from one to the next */
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  const void *bias; /* [m], of the type of D */
};

struct Preference {
  uint64_t workspace;
  uint32_t reductions; /* that are allowed */
  uint32_t align_a, align_b, align_c, align_d;
};

/* What the heuristic writes into cublasLtMatmulAlgo_t, which is opaque to its users. */
struct Algorithm {
  uint64_t magic, number, workspace;
  uint32_t align_a, align_b, align_c, align_d; /* that it relies on */
  uint64_t epilogue;                           /* that it has */
  uint64_t batch;                              /* that it was made for */
  uint64_t unused;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t), "fits");
static const uint64_t MAGIC = 0x656D752D67656D6Du;
enum { CANDIDATES = emu::GEMM_CANDIDATES };

static bool from_heuristic(const Algorithm &a) {
  return a.magic == MAGIC && a.number < CANDIDATES && a.align_a && a.align_b && a.align_c && a.align_d;
}

/* A product with all that was checked. */
struct Product {
  Description description;
  Layout a, b, c, d;
  int64_t m, n, k;
};

static bool made_for(const Algorithm &a, const Product &p) {
  return a.epilogue == uint64_t(p.description.epilogue) && a.batch == uint64_t(p.d.batch);
}

static cublasStatus_t refuse(cublasStatus_t status, const char *why) {
  fprintf(stderr, "emu: cuBLASLt would refuse: %s\n", why);
  return status;
}

static size_t type_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

/* ---- checks ---- */

static bool valid_layout(const Layout &l) {
  return (l.type == CUDA_R_32F || l.type == CUDA_R_16BF) && l.rows > 0 && l.cols > 0 && l.ld >= l.rows && l.batch > 0 &&
         l.stride >= 0;
}

static cublasStatus_t make_product(Product *p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  if (!desc || !a || !b || !c || !d) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is NULL");
  p->description = *reinterpret_cast<Description *>(desc);
  p->a = *reinterpret_cast<Layout *>(a), p->b = *reinterpret_cast<Layout *>(b);
  p->c = *reinterpret_cast<Layout *>(c), p->d = *reinterpret_cast<Layout *>(d);
  for (const Layout &l : {p->a, p->b, p->c, p->d})
    if (!valid_layout(l))
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "a layout is empty, its ld is less than its rows or its stride than 0");
  const bool ta = p->description.transpose_a == CUBLAS_OP_T, tb = p->description.transpose_b == CUBLAS_OP_T;
  p->m = ta ? p->a.cols : p->a.rows, p->k = ta ? p->a.rows : p->a.cols, p->n = tb ? p->b.rows : p->b.cols;
  if (p->k != (tb ? p->b.cols : p->b.rows) || p->d.rows != p->m || p->d.cols != p->n || p->c.rows != p->m ||
      p->c.cols != p->n)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the layouts do not fit m, n, k");
  for (const Layout &l : {p->b, p->c, p->d})
    if (l.batch != p->a.batch) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the layouts have batches of several sizes");
  if (p->d.batch > 1 && p->d.stride < p->d.ld * (p->d.cols - 1) + p->d.rows)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the matrices of D overlap each other");
  if (p->description.compute != CUBLAS_COMPUTE_32F || p->description.scale != CUDA_R_32F || p->a.type != p->b.type ||
      p->c.type != p->d.type || (p->a.type == CUDA_R_32F && p->d.type != CUDA_R_32F))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this combination of types (of those that the stand-in knows)");
  if (p->description.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->description.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "this epilogue (of those that the stand-in knows)");
  if (p->d.batch > 1 && p->description.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue of a batch (the stand-in knows none)");
  return CUBLAS_STATUS_SUCCESS;
}

/* Bytes from the first element of the first matrix to the last one of the last. */
static size_t extent(const Layout &l) {
  return size_t((l.batch - 1) * l.stride + (l.cols - 1) * l.ld + l.rows) * type_bytes(l.type);
}

/* Accessible to the device, from the first element to the last, and as aligned as the algorithm was promised. */
static bool valid_operand(const void *p, const Layout &l, uint32_t alignment, const char *name) {
  const emu::MemoryKind kind = emu::memory_kind(p, extent(l));
  if (kind == emu::MEMORY_PAGEABLE)
    fprintf(stderr, "emu: %s at %p, %zu bytes, is not all in one allocation of the device\n", name, p, extent(l));
  else if (uintptr_t(p) % alignment || uintptr_t(p) % type_bytes(l.type))
    fprintf(stderr, "emu: %s at %p is less aligned than the %u bytes that the heuristic was told\n", name, p,
            alignment);
  else return true;
  return false;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  const char *x = static_cast<const char *>(a), *y = static_cast<const char *>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

/* The bias, which nothing says the alignment of: 16 bytes, as vectors are read. */
static cublasStatus_t check_bias(const Product &p, const void *d) {
  if (p.description.epilogue != CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_SUCCESS;
  const void *bias = p.description.bias;
  const Layout vector = {p.d.type, p.m, 1, p.m, 1, 0};
  if (!bias) return refuse(CUBLAS_STATUS_INVALID_VALUE, "an epilogue with a bias, and no bias");
  if (!valid_operand(bias, vector, 16, "the bias")) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the bias's address");
  if (overlap(d, extent(p.d), bias, extent(vector))) return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps the bias");
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_operands(const Product &p, const Algorithm &algorithm, const void *a, const void *b,
                                     const void *c, const void *d, bool reads_c) {
  if (!valid_operand(a, p.a, algorithm.align_a, "A") || !valid_operand(b, p.b, algorithm.align_b, "B") ||
      (reads_c && !valid_operand(c, p.c, algorithm.align_c, "C")) || !valid_operand(d, p.d, algorithm.align_d, "D"))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an operand's address");
  if (overlap(d, extent(p.d), a, extent(p.a)) || overlap(d, extent(p.d), b, extent(p.b)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps A or B");
  if (c == d ? p.c.ld != p.d.ld || p.c.stride != p.d.stride : overlap(d, extent(p.d), c, extent(p.c)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D with another layout, or overlaps it");
  return check_bias(p, d);
}

/* ---- computing ---- */

static float get(const void *p, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float *>(p)[i];
  return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
}

static void put(void *p, cudaDataType type, int64_t i, double value) {
  const float x = float(value);
  if (type == CUDA_R_32F) static_cast<float *>(p)[i] = x;
  else static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(x);
}

/* [rows][cols] row-major of op(X), or of its transpose; X begins at element `first`. */
static std::vector<double> unpack(const void *p, const Layout &l, int64_t first, bool by_columns) {
  std::vector<double> out(size_t(l.rows * l.cols));
  size_t at = 0;
  if (by_columns)
    for (int64_t j = 0; j < l.cols; j++)
      for (int64_t i = 0; i < l.rows; i++) out[at++] = double(get(p, l.type, first + j * l.ld + i));
  else
    for (int64_t i = 0; i < l.rows; i++)
      for (int64_t j = 0; j < l.cols; j++) out[at++] = double(get(p, l.type, first + j * l.ld + i));
  return out;
}

/* sums[0..m) += scale * column[0..m): the loop that takes the time, and that compilers vectorise. */
static void add_scaled(double *__restrict__ sums, const double *__restrict__ column, double scale, int64_t m) {
  for (int64_t i = 0; i < m; i++) sums[i] += scale * column[i];
}

/* How the sums of a shape are divided. */
struct SumOrder {
  int64_t parts, group; /* products that are added at once */
  bool backward;
};

static SumOrder order_of(const Product &p, uint64_t algorithm) {
  const uint64_t hash = (uint64_t(p.m) * 31 + uint64_t(p.n) * 17 + uint64_t(p.k) * 7) * 0x9E3779B97F4A7C15u;
  const int64_t group = p.a.type == CUDA_R_32F ? 1 : 16;
  const int64_t parts = p.k >= 64 ? int64_t(1) << (hash >> 60) % 3 : 1;
  const int64_t more = (emu::options().unequal ? emu::rank : 0) + (*emu::options().gemm_ms ? int64_t(algorithm) : 0);
  return {parts + more, group, (hash >> 59 & 1) != 0};
}

/* sums [m] = the products of column j with l = begin .. end */
static void add_part(std::vector<float> &sums, std::vector<double> &wide, const Product &p, const SumOrder &order,
                     const double *columns, const double *factors, int64_t begin, int64_t end) {
  const int64_t groups = end > begin ? (end - begin + order.group - 1) / order.group : 0;
  std::fill(sums.begin(), sums.end(), 0.0f);
  for (int64_t n = 0; n < groups; n++) {
    const int64_t first = begin + (order.backward ? groups - 1 - n : n) * order.group;
    std::copy(sums.begin(), sums.end(), wide.begin());
    for (int64_t l = first; l < std::min(end, first + order.group); l++)
      add_scaled(wide.data(), columns + l * p.m, factors[l], p.m);
    for (size_t i = 0; i < sums.size(); i++) sums[i] = order.group > 1 ? emu::cut_to_float(wide[i]) : float(wide[i]);
  }
}

/* D = alpha * op(A) op(B) + beta * C, and the bias [m] in every column, of matrix number `number` of the batch */
static void multiply(const Product &p, uint64_t algorithm, int64_t number, double alpha, double beta, const void *a,
                     const void *b, const void *c, void *d) {
  const std::vector<double> columns =
      unpack(a, p.a, number * p.a.stride, p.description.transpose_a == CUBLAS_OP_N); /* [k][m] */
  const std::vector<double> factors =
      unpack(b, p.b, number * p.b.stride, p.description.transpose_b == CUBLAS_OP_N); /* [n][k] */
  const int64_t first_c = number * p.c.stride, first_d = number * p.d.stride;
  const SumOrder order = order_of(p, algorithm);
  const int64_t part = ((p.k + order.parts - 1) / order.parts + order.group - 1) / order.group * order.group;
  std::vector<float> sums(static_cast<size_t>(p.m)), parts(sums);
  std::vector<double> wide(sums.size());
  for (int64_t j = 0; j < p.n; j++) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t l = 0; l < p.k; l += part) {
      add_part(parts, wide, p, order, columns.data(), factors.data() + j * p.k, l, std::min(p.k, l + part));
      for (size_t i = 0; i < sums.size(); i++) sums[i] += parts[i];
    }
    for (int64_t i = 0; i < p.m; i++) {
      double value = alpha * double(sums[size_t(i)]);
      if (beta != 0) value += beta * double(get(c, p.c.type, first_c + j * p.c.ld + i));
      if (p.description.epilogue == CUBLASLT_EPILOGUE_BIAS) value += double(get(p.description.bias, p.d.type, i));
      put(d, p.d.type, first_d + j * p.d.ld + i, value);
    }
  }
}

/* ---- the library's functions ---- */

template <class Handle, class T> static cublasStatus_t create(Handle *out, const T &value) {
  if (!out) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no place for a new handle");
  *out = reinterpret_cast<Handle>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t destroy(void *handle) {
  if (!handle) return refuse(CUBLAS_STATUS_INVALID_VALUE, "NULL is destroyed");
  delete static_cast<T *>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t size, const void *value, size_t bytes) {
  if (!to || !value) return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute that is NULL or not known here");
  if (bytes != size) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the size of an attribute");
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return create(handle, MAGIC); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<uint64_t>(handle); }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType scale) {
  return create(desc, Description{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy<Description>(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
  Description *d = reinterpret_cast<Description *>(desc);
  if (!d) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is NULL");
  switch (name) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->transpose_a, sizeof d->transpose_a, value, bytes);
  case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->transpose_b, sizeof d->transpose_b, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, bytes);
  default: return set(nullptr, 0, value, bytes);
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return create(layout, Layout{type, int64_t(rows), int64_t(cols), ld, 1, 0});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy<Layout>(layout); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes) {
  Layout *l = reinterpret_cast<Layout *>(layout);
  if (!l) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a layout is NULL");
  switch (name) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set(&l->batch, sizeof l->batch, value, bytes);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return set(&l->stride, sizeof l->stride, value, bytes);
  default: return set(nullptr, 0, value, bytes);
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  return create(preference,
                Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256}); /* the library's defaults */
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes) {
  Preference *p = reinterpret_cast<Preference *>(preference);
  if (!p) return refuse(CUBLAS_STATUS_INVALID_VALUE, "a preference is NULL");
  switch (name) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(&p->workspace, sizeof p->workspace, value, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(&p->reductions, sizeof p->reductions, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(&p->align_a, sizeof p->align_a, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(&p->align_b, sizeof p->align_b, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(&p->align_c, sizeof p->align_c, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(&p->align_d, sizeof p->align_d, value, bytes);
  default: return set(nullptr, 0, value, bytes);
  }
}

/* Candidates that want 1 MiB of workspace, 64 KiB and none, as far as there is room. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
  static const uint64_t workspaces[CANDIDATES] = {1 << 20, 64 << 10, 0};
  const Preference *p = reinterpret_cast<const Preference *>(preference);
  Product product;
  if (!handle) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
  if (!p || !results || !found || wanted < 1) return refuse(CUBLAS_STATUS_INVALID_VALUE, "arguments of the heuristic");
  *found = 0;
  const cublasStatus_t status = make_product(&product, desc, a, b, c, d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  /* the library does this and loses digits */
  if (product.d.type == CUDA_R_16BF &&
      p->reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "parts of sums may be rounded to bf16 (REDUCTION_SCHEME_MASK)");
  for (uint64_t i = 0; i < CANDIDATES && *found < wanted; i++) {
    if (workspaces[i] > p->workspace) continue;
    const Algorithm algorithm = {MAGIC,
                                 i,
                                 workspaces[i],
                                 p->align_a,
                                 p->align_b,
                                 p->align_c,
                                 p->align_d,
                                 product.description.epilogue,
                                 uint64_t(product.d.batch),
                                 0};
    cublasLtMatmulHeuristicResult_t *result = &results[(*found)++];
    memset(result, 0, sizeof *result);
    memcpy(&result->algo, &algorithm, sizeof algorithm);
    result->workspaceSize = workspaces[i];
    result->state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  Product product;
  Algorithm algorithm = {MAGIC, 0, 0, 1, 1, 1, 1, 0, 0, 0}; /* without one the library asks its heuristic itself */
  if (!handle) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
  if (!alpha || !beta) return refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is NULL");
  cublasStatus_t status = make_product(&product, desc, a_layout, b_layout, c_layout, d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo) memcpy(&algorithm, algo, sizeof algorithm);
  if (!from_heuristic(algorithm))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that the heuristic did not make");
  if (algo && !made_for(algorithm, product))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm that was made for another epilogue or batch");
  const float scale = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
  const size_t needed = algorithm.workspace;
  if (workspace_bytes < needed ||
      (needed && (uintptr_t(workspace) % 256 || emu::memory_kind(workspace, workspace_bytes) != emu::MEMORY_DEVICE)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is too small, not aligned or not the device's");
  status = check_operands(product, algorithm, a, b, c, d, keep != 0);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const cudaError_t queued = emu::enqueue(stream, [=] {
    if (check_operands(product, algorithm, a, b, c, d, keep != 0) != CUBLAS_STATUS_SUCCESS)
      emu::die("a queued or recorded matrix product uses memory that was freed");
    if (emu::options().verbose)
      fprintf(stderr, "emu: product of %lld x %lld x %lld\n", (long long)product.m, (long long)product.n,
              (long long)product.k);
    emu::pretended_ms += emu::options().gemm_ms[(algorithm.number + uint64_t(emu::rank)) % CANDIDATES];
    if (needed) memset(workspace, 0xFF, needed); /* nobody else may keep anything there */
    for (int64_t i = 0; i < product.d.batch; i++)
      multiply(product, algorithm.number, i, double(scale), double(keep), a, b, c, d);
  });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
