#ifndef INKLING_KERNELS_DECODE_CUH
#define INKLING_KERNELS_DECODE_CUH

#include "kernels/cuda.cuh"

void cuda_decode_embedding(Context *c, void *, const Parameters *, Matrix , const Sequences *) { fail(&c->error, EXIT_INTERNAL, "decode_embedding is not written yet"); }
void cuda_decode_qkv(Context *c, void *, const KvCache *, const void *, const float *, float ,
                     const Parameters *, Matrix , const Rope *, const Sequences *) { fail(&c->error, EXIT_INTERNAL, "decode_qkv is not written yet"); }
void cuda_decode_attention(Context *c, void *, const void *, const KvCache *, int , float ,
                           const Sequences *) { fail(&c->error, EXIT_INTERNAL, "decode_attention is not written yet"); }
void cuda_decode_residual(Context *c, void *, const void *, const Parameters *, Matrix , const Sequences *) { fail(&c->error, EXIT_INTERNAL, "decode_residual is not written yet"); }
void cuda_decode_mlp(Context *c, void *, const void *, const float *, float , const Parameters *,
                     Matrix , const Sequences *) { fail(&c->error, EXIT_INTERNAL, "decode_mlp is not written yet"); }
void cuda_decode_logits(Context *c, float *, const void *, const float *, float ,
                        const Parameters *, Matrix , int , int ) { fail(&c->error, EXIT_INTERNAL, "decode_logits is not written yet"); }
void cuda_cache_store(Context *c, const KvCache *, int , int , View , View , int ) { fail(&c->error, EXIT_INTERNAL, "cache_store is not written yet"); }

#endif
