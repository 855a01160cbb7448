#ifndef INKLING_KERNELS_ATTENTION_CUH
#define INKLING_KERNELS_ATTENTION_CUH

#include "kernels/cuda.cuh"

void cuda_rope(Context *c, View , int , int , int , int , const Rope *) { fail(&c->error, EXIT_INTERNAL, "rope is not written yet"); }
void cuda_attention(Context *c, const Attention *, View , View , View , View , float *) { fail(&c->error, EXIT_INTERNAL, "attention is not written yet"); }
void cuda_attention_backward(Context *c, const Attention *, View , View , View , View , View , View ,
                             View , View , const float *, const Rope *) { fail(&c->error, EXIT_INTERNAL, "attention_backward is not written yet"); }

#endif
