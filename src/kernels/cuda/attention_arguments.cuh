/* struct Attention for kernels; the visible keys of a query, and the keys that dropout keeps. */
#ifndef INKLING_KERNELS_CUDA_ATTENTION_ARGUMENTS_CUH
#define INKLING_KERNELS_CUDA_ATTENTION_ARGUMENTS_CUH

#include "kernels/cuda/cuda.cuh"

namespace {

__device__ __forceinline__ int lane_id() { return (int)(threadIdx.x % 32); }
__device__ __forceinline__ int warp_id() { return (int)(threadIdx.x / 32); }

/* View for kernels. */
template <class T> struct Heads {
  T *data;
  int64_t batch, row, head;

  __device__ __forceinline__ T *at(int b, int64_t i, int h) const { return data + b * batch + i * row + h * head; }
};

/* Members that an operation does not use are not set. */
struct AttentionShape {
  int heads, group; /* query heads; query heads of one kv head */
  int dim, queries, keys;
  float scale, scale_log2; /* scale, scale * log2(e) */
  bool causal;
  const int32_t *key_begin, *key_end;
  DropoutMask dropout; /* its threshold has 16 bits; state NULL: no dropout */
  float *lse, *delta;  /* [B][H][Tq] */
  const float *rope;   /* [positions][D/2][2], NULL: gradients are not rotated */
  const int32_t *positions;
};

template <class T> struct Arguments : AttentionShape { Heads<T> q, k, v, out, dout, dq, dk, dv; };

/* ---- masks ---- */

/* The keys that query i of sequence b attends to: begin <= j < end, within 0 .. Tk; none when begin >= end. */
struct Visible {
  int begin, end;
};

__device__ __forceinline__ Visible visible_keys(const AttentionShape &a, int b, int i) {
  Visible v = {0, a.causal ? min(a.keys, i + 1) : a.keys};
  if ((a.key_begin || a.key_end) && i < a.queries) {
    const int64_t at = (int64_t)b * a.queries + i;
    if (a.key_begin) v.begin = max(v.begin, a.key_begin[at]);
    if (a.key_end) v.end = min(v.end, a.key_end[at]);
  }
  return v;
}

/* ---- dropout (the map: attention() in kernels.h) ---- */

/* The random numbers for the probabilities of one head. */
struct DropoutStream {
  uint64_t seed;
  uint32_t site, step, stream, threshold;
  uint32_t first, groups; /* number of query 0's first group of 32 keys; groups of a query */

  /* Returns the words of call 0..3 for keys 32 * group .. + 32 of query i. */
  __device__ __forceinline__ uint4 words(int i, int group, int call) const {
    return random_words(seed, (first + (uint32_t)i * groups + (uint32_t)group) * 4 + (uint32_t)call, site, step,
                        stream);
  }
};

__device__ __forceinline__ DropoutStream dropout_stream(const AttentionShape &a, int b, int head) {
  const uint32_t groups = (uint32_t)(a.keys + 31) / 32;
  return {a.dropout.seed,
          a.dropout.site,
          (uint32_t)(a.dropout.state->step + 1),
          (uint32_t)(a.dropout.state->sequence + b),
          a.dropout.threshold,
          (uint32_t)head * (uint32_t)a.queries * groups,
          groups};
}

/* Sets bit j if key 32 * group + j of query i is kept. */
__device__ __forceinline__ uint32_t kept_keys(const DropoutStream &stream, int i, int group) {
  uint32_t kept = 0;
#pragma unroll
  for (int call = 0; call < 4; call++) {
    const uint4 words = stream.words(i, group, call);
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int n = 0; n < 4; n++) {
      if ((word[n] & 0xFFFF) >= stream.threshold) kept |= 1u << (8 * n + 2 * call);
      if (word[n] >> 16 >= stream.threshold) kept |= 2u << (8 * n + 2 * call);
    }
  }
  return kept;
}

/* ---- rotary positions ---- */

/* Pair i < D/2 of the numbers of a head: for i < R/2 numbers i and i + R/2, which are rotated together; for the others
 * i + R/2 and i + D/2, which are not rotated. */
struct HeadPair {
  int low, high;
};

__device__ __forceinline__ HeadPair pair_of(int i, int dim, int dims) {
  const int half = dims / 2;
  return i < half ? HeadPair{i, i + half} : HeadPair{i + half, i + dim / 2};
}

/* Rotates the pairs (x[i], y[i]), numbers d + i and D/2 + d + i of a head, by minus the angle of `position`. */
__device__ __forceinline__ void rotate_back(float (&x)[4], float (&y)[4], const float *table, int64_t position, int d,
                                            int dim) {
  float turn[8]; /* of each pair the cosine and the sine */
  load<8>(turn, table + position * dim + 2 * d);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float cosine = turn[2 * i], sine = turn[2 * i + 1], first = x[i], second = y[i];
    x[i] = first * cosine + second * sine;
    y[i] = second * cosine - first * sine;
  }
}

} // namespace

/* ---- host ---- */

/* cuda_rope(); direction -1 rotates back. */
void cuda_rotate(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope, float direction);

template <class T> static Heads<T> heads_of(Context *c, const char *operation, View v) {
  require_alignment(c, operation, {v.batch, v.row, v.head}, {v.data});
  return {static_cast<T *>(v.data), v.batch, v.row, v.head};
}

template <class T> static Arguments<T> attention_arguments(const Attention *a) {
  Arguments<T> arguments = {};
  arguments.heads = a->heads;
  arguments.group = a->heads / a->kv_heads;
  arguments.dim = a->head_dim;
  arguments.queries = a->queries;
  arguments.keys = a->keys;
  arguments.scale = a->scale;
  arguments.scale_log2 = a->scale * LOG2_E;
  arguments.causal = a->causal;
  arguments.key_begin = a->key_begin;
  arguments.key_end = a->key_end;
  arguments.dropout = dropout_mask(a->dropout, 16);
  return arguments;
}

template <class T>
static Arguments<T> forward_arguments(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  const auto heads = [&](View view) { return heads_of<T>(c, "attention", view); };
  Arguments<T> arguments = attention_arguments<T>(a);
  arguments.q = heads(q), arguments.k = heads(k), arguments.v = heads(v), arguments.out = heads(out);
  arguments.lse = lse;
  return arguments;
}

/* The tensors of cuda_attention_backward(). */
struct BackwardViews {
  View dq, dk, dv, dout, q, k, v, out;
  const float *lse;
  const Rope *rope; /* NULL: dq and dk are not rotated back by the kernels */
};

template <class T> static Arguments<T> backward_arguments(Context *c, const Attention *a, const BackwardViews &views) {
  const auto heads = [&](View view) { return heads_of<T>(c, "attention_backward", view); };
  Arguments<T> arguments = attention_arguments<T>(a);
  arguments.q = heads(views.q), arguments.k = heads(views.k), arguments.v = heads(views.v);
  arguments.out = heads(views.out), arguments.dout = heads(views.dout);
  arguments.dq = heads(views.dq), arguments.dk = heads(views.dk), arguments.dv = heads(views.dv);
  arguments.lse = const_cast<float *>(views.lse);
  arguments.delta =
      static_cast<float *>(scratch(c, (size_t)a->batch * (size_t)a->heads * (size_t)a->queries * sizeof(float)));
  if (views.rope) arguments.rope = views.rope->table, arguments.positions = views.rope->positions;
  return arguments;
}

/* Attention by wgmma (attention_hopper.cu). False, and nothing is launched, unless the card, the build and the
 * environment (INKLING_WGMMA=1) have it for the dtype and the head size. */
#ifdef INKLING_WGMMA
bool hopper_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse);
bool hopper_attention_backward(Context *c, const Attention *a, const BackwardViews &views);
#else
static inline bool hopper_attention(Context *, const Attention *, View, View, View, View, float *) { return false; }
static inline bool hopper_attention_backward(Context *, const Attention *, const BackwardViews &) { return false; }
#endif

#endif
