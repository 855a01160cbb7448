/* Rotary positions (Su et al. 2021), in place: (x[i], x[i + D/2]) = (x0 cos - x1 sin, x1 cos + x0 sin). */
#ifndef INKLING_KERNELS_ROPE_CUH
#define INKLING_KERNELS_ROPE_CUH

#include "kernels/attention_arguments.cuh"

namespace {

constexpr int ROPE_BLOCK = 256;

/* x [B][T][H][D]. A thread rotates N neighbors of each half of a head, a block `rows_per_block` of the B*T rows. */
template <class T, int N>
__global__ void __launch_bounds__(ROPE_BLOCK)
    rope_kernel(const Heads<T> x, int rows, int rows_per_block, int length, int heads, int dim, const float *table,
                const int32_t *positions) {
  const int chunks = dim / 2 / N, items = heads * chunks;
  for (int e = (int)threadIdx.x; e < rows_per_block * items; e += ROPE_BLOCK) {
    const int n = (int)blockIdx.x * rows_per_block + e / items;
    if (n >= rows) return;
    const int item = e % items, i = item % chunks * N;
    const int t = n % length;
    const int64_t position = positions ? positions[n] : t;
    const float *const angles = table + position * dim + 2 * i;
    T *const at = x.at(n / length, t, item / chunks) + i;
    float first[N], second[N];
    load<N>(first, at);
    load<N>(second, at + dim / 2);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float angle[2], in[2] = {first[j], second[j]};
      load<2>(angle, angles + 2 * j);
      first[j] = in[0] * angle[0] - in[1] * angle[1];
      second[j] = in[1] * angle[0] + in[0] * angle[1];
    }
    store<N>(at, first);
    store<N>(at + dim / 2, second);
  }
}

} // namespace

/* Half a head is a multiple of 4 numbers, usually of 8. */
void cuda_rope(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope) {
  const int64_t rows = (int64_t)batch * length;
  if (!heads || !check_head_size(c, head_dim)) return;
  require_alignment(c, "rope", {}, {rope->table});
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const Heads<T> view = heads_of<T>(c, "rope", x);
    const bool whole = head_dim / 2 % VECTOR<T> == 0;
    const int items = heads * (head_dim / 2 / (whole ? VECTOR<T> : 4));
    const int rows_per_block = items < ROPE_BLOCK ? ROPE_BLOCK / items : 1;
    launch(c, "rope", whole ? rope_kernel<T, VECTOR<T>> : rope_kernel<T, 4>,
           dim3((unsigned)divide_up(rows, rows_per_block)), ROPE_BLOCK, 0, view, rows, rows_per_block, length, heads,
           head_dim, rope->table, rope->positions);
  });
}

#endif
