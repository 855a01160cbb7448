/* Attention: a separate translation unit, because it compiles for minutes. */
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_f32.cuh"
#include "kernels/cuda/attention_forward.cuh"

static void launch_forward(Context *c, const Attention *a, const TileArguments &arguments) {
  with_tile_kernel(
      a, [&](auto width, auto dropout) { launch_forward_kernel<width, dropout, false>(c, a, arguments); });
}

static void launch_backward(Context *c, const Attention *a, const TileArguments &arguments) {
  with_tile_kernel(
      a, [&](auto width, auto dropout) { launch_backward_kernels<width, dropout, false>(c, a, arguments); });
}

void cuda_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  if (!check_head_size(c, a->head_dim) || hopper_attention(c, a, out, q, k, v, lse)) return;
  with_element(
      c, [&](auto element) { launch_forward(c, a, forward_arguments<decltype(element)>(c, a, out, q, k, v, lse)); });
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
  const BackwardViews views = {dq, dk, dv, dout, q, k, v, out, lse, whole ? rope : NULL};
  if (!hopper_attention_backward(c, a, views))
    with_element(c, [&](auto element) { launch_backward(c, a, backward_arguments<decltype(element)>(c, a, views)); });
  if (!rope || whole) return;
  cuda_rotate(c, dq, a->batch, a->queries, a->heads, a->head_dim, rope, -1.0f);
  cuda_rotate(c, dk, a->batch, a->keys, a->kv_heads, a->head_dim, rope, -1.0f);
}
