#ifndef INKLING_KERNELS_MLP_CUH
#define INKLING_KERNELS_MLP_CUH

#include "kernels/cuda.cuh"

void cuda_swiglu(Context *c, void *, const void *, int , int ) { fail(&c->error, EXIT_INTERNAL, "swiglu is not written yet"); }
void cuda_swiglu_backward(Context *c, void *, const void *, const void *, int , int ) { fail(&c->error, EXIT_INTERNAL, "swiglu_backward is not written yet"); }

#endif
