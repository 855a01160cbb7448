/* Attention: a separate translation unit, because it compiles for minutes. */
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_f32.cuh"
#include "kernels/cuda/attention_forward.cuh"

void cuda_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  if (!check_head_size(c, a->head_dim)) return;
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const auto heads = [&](View view) { return heads_of<T>(c, "attention", view); };
    Arguments<T> arguments = attention_arguments<T>(a);
    arguments.q = heads(q), arguments.k = heads(k), arguments.v = heads(v), arguments.out = heads(out);
    arguments.lse = lse;
    launch_forward(c, a, arguments);
  });
}

void cuda_attention_map(Context *c, const Attention *a, float *map, View q, View k, const float *lse) {
  if (!check_head_size(c, a->head_dim)) return;
  with_element(c, [&](auto element) {
    using T = decltype(element);
    Arguments<T> arguments = attention_arguments<T>(a);
    arguments.q = heads_of<T>(c, "attention_map", q), arguments.k = heads_of<T>(c, "attention_map", k);
    arguments.lse = const_cast<float *>(lse);
    launch_f32(c, "attention_map", attention_map<T>, (int64_t)a->batch * a->heads, a->queries, arguments, map);
  });
}

void cuda_attention_backward(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                             View v, View out, const float *lse, const Rope *rope) {
  if (!check_head_size(c, a->head_dim)) return;
  const bool whole = rope && rope_dims(rope, a->head_dim) == a->head_dim; /* else dq and dk are rotated afterwards */
  void *delta = scratch(c, (size_t)a->batch * (size_t)a->heads * (size_t)a->queries * sizeof(float));
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const auto heads = [&](View view) { return heads_of<T>(c, "attention_backward", view); };
    Arguments<T> arguments = attention_arguments<T>(a);
    arguments.q = heads(q), arguments.k = heads(k), arguments.v = heads(v);
    arguments.out = heads(out), arguments.dout = heads(dout);
    arguments.dq = heads(dq), arguments.dk = heads(dk), arguments.dv = heads(dv);
    arguments.lse = const_cast<float *>(lse);
    arguments.delta = static_cast<float *>(delta);
    if (whole) arguments.rope = rope->table, arguments.positions = rope->positions;
    launch_backward(c, a, arguments);
  });
  if (!rope || whole) return;
  cuda_rotate(c, dq, a->batch, a->queries, a->heads, a->head_dim, rope, -1.0f);
  cuda_rotate(c, dk, a->batch, a->keys, a->kv_heads, a->head_dim, rope, -1.0f);
}
