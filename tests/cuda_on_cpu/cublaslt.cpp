/* A stand-in for cuBLASLt: the functions that kernels/gemm.cuh calls, computed from their descriptors as the library's
 * documentation defines them (column-major, transposes, leading dimensions, beta, epilogues), in fp32 with double sums.
 * What the library would refuse is refused. */
#include <cublasLt.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace emu {
cudaError_t enqueue_host(cudaStream_t stream, std::function<void()> work);
}

struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Desc {
  cublasComputeType_t compute;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t aux_ld = 0;
  void *aux = nullptr;
};

static double get(const void *p, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float *>(p)[i];
  uint32_t bits = (uint32_t) static_cast<const uint16_t *>(p)[i] << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static void put(void *p, cudaDataType type, int64_t i, double value) {
  float x = (float)value;
  if (type == CUDA_R_32F) {
    static_cast<float *>(p)[i] = x;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &x, 4);
  static_cast<uint16_t *>(p)[i] =
      x != x ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) {
  *h = (cublasLtHandle_t) new int(0);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete (int *)h;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char *cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an error of the stand-in";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType) {
  Desc *d = new Desc();
  d->compute = compute;
  *out = (cublasLtMatmulDesc_t)d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete (Desc *)d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
  Desc *d = (Desc *)desc;
  void *to = name == CUBLASLT_MATMUL_DESC_TRANSA                 ? (void *)&d->a
             : name == CUBLASLT_MATMUL_DESC_TRANSB               ? (void *)&d->b
             : name == CUBLASLT_MATMUL_DESC_EPILOGUE             ? (void *)&d->epilogue
             : name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD      ? (void *)&d->aux_ld
             : name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? (void *)&d->aux
                                                                 : nullptr;
  if (!to) return CUBLAS_STATUS_NOT_SUPPORTED;
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  *out = (cublasLtMatrixLayout_t) new Layout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete (Layout *)l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) {
  *p = (cublasLtMatmulPreference_t) new int(0);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete (int *)p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
  *found = wanted < 3 ? wanted : 3;
  for (int i = 0; i < *found; i++) {
    memset(&results[i], 0, sizeof results[i]);
    results[i].algo.data[0] = 1000 + (uint64_t)i;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t al, const void *B, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *C, cublasLtMatrixLayout_t, void *D, cublasLtMatrixLayout_t dl,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t stream) {
  const Desc d = *(Desc *)desc;
  const Layout a = *(Layout *)al, b = *(Layout *)bl, o = *(Layout *)dl;
  const double scale = *(const float *)alpha, keep = *(const float *)beta;
  const int64_t m = (int64_t)o.rows, n = (int64_t)o.cols, k = (int64_t)(d.a == CUBLAS_OP_T ? a.rows : a.cols);
  emu::enqueue_host(stream, [=] {
    std::vector<float> left((size_t)(m * k)), right((size_t)(n * k)); /* [m][k], [n][k] */
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++)
        left[(size_t)(i * k + l)] = (float)get(A, a.type, d.a == CUBLAS_OP_T ? i * a.ld + l : l * a.ld + i);
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < k; l++)
        right[(size_t)(j * k + l)] = (float)get(B, b.type, d.b == CUBLAS_OP_T ? l * b.ld + j : j * b.ld + l);
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++)
          sum += (double)left[(size_t)(i * k + l)] * (double)right[(size_t)(j * k + l)];
        double value = scale * sum + (keep != 0 ? keep * get(C, o.type, j * o.ld + i) : 0.0);
        const double root = 0.7978845608028654;
        if (d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX) {
          put(d.aux, o.type, j * d.aux_ld + i, value);
          value = 0.5 * value * (1 + tanh(root * (value + 0.044715 * value * value * value)));
        } else if (d.epilogue == CUBLASLT_EPILOGUE_DGELU) {
          double x = get(d.aux, o.type, j * d.aux_ld + i), t = tanh(root * (x + 0.044715 * x * x * x));
          value *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
        }
        put(D, o.type, j * o.ld + i, value);
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}
}
