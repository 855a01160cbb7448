#ifndef INKLING_KERNELS_EMBEDDING_CUH
#define INKLING_KERNELS_EMBEDDING_CUH

#include "kernels/cuda.cuh"

void cuda_embedding(Context *c, void *, const Parameters *, Matrix , const int32_t *, int ,
                    int , const Dropout *) { fail(&c->error, EXIT_INTERNAL, "embedding is not written yet"); }
void cuda_embedding_backward(Context *c, const Parameters *, Matrix , const void *, const int32_t *,
                             const int32_t *, int , int , int , const Dropout *,
                             bool ) { fail(&c->error, EXIT_INTERNAL, "embedding_backward is not written yet"); }

#endif
