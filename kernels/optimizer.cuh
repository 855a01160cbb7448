#ifndef INKLING_KERNELS_OPTIMIZER_CUH
#define INKLING_KERNELS_OPTIMIZER_CUH

#include "kernels/cuda.cuh"

namespace {

/* The bf16 copy of the masters. */
__global__ void __launch_bounds__(256) convert_masters(bf16 *compute, const float *master, size_t count) {
  const size_t stride = (size_t)gridDim.x * 256;
  for (size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; i < count / 4; i += stride) {
    float x[4];
    load<4>(x, master + 4 * i);
    store<4>(compute + 4 * i, x);
  }
}

} // namespace

/* Makes params->compute from the masters: in f32 the masters themselves. The arena is a multiple of TENSOR_ALIGNMENT. */
void cuda_refresh_parameters(Context *c, Parameters *params) {
  if (c->error.code) return;
  if (c->dtype == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = cuda_alloc(c, "compute copy of the weights", params->count * sizeof(bf16));
  const int64_t blocks = divide_up((int64_t)params->count, 1024), most = 16 * c->processors;
  launch(c, "compute copy of the weights", convert_masters, dim3((unsigned)(blocks < most ? blocks : most)), 256, 0,
         (bf16 *)params->compute, params->master, params->count);
}

void cuda_release_parameters(Context *c, Parameters *params) {
  if (params->compute != params->master) cuda_release(c, params->compute);
  params->compute = NULL;
}

void cuda_clip(Context *c, StepState *, const Parameters *, float, const AdamW *) { fail(&c->error, EXIT_INTERNAL, "clip is not written yet"); }
void cuda_adamw(Context *c, StepState *, const Parameters *, const AdamW *) { fail(&c->error, EXIT_INTERNAL, "adamw is not written yet"); }

#endif
