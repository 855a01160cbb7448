/* Sampling of the next token, a block for each row.
 *
 *   logits [rows][V] fp32 (overwritten)   tokens [rows][capacity]   lengths, positions, streams, status [rows]
 *
 * bias -> penalties -> top-k -> top-p -> min-p -> temperature -> draw, as in kernels.h, by the rules of
 * kernels/cpu/sample.c. Nothing is sorted or moved. A filter only raises the cut: the smallest logit that stays, and
 * the number of tokens equal to it that stay. It finds the cut by bisecting the range of fp32 numbers, counting (top-k)
 * or summing (top-p) the tokens from the middle on. Each step reads all logits, which stay in the caches, until the
 * tokens that can remain fit shared memory: later steps read only these. The last candidates for a cut are compared
 * with each other.
 *
 * Probabilities are summed as integers, in units of 2^-40 of the largest one. The order of such a sum does not matter,
 * so the token does not depend on the size of the block or the order of its threads. */
#ifndef INKLING_KERNELS_CUDA_SAMPLE_CUH
#define INKLING_KERNELS_CUDA_SAMPLE_CUH

#include "kernels/cuda/cuda.cuh"

#include <float.h>

namespace {

typedef unsigned long long Mass; /* the number of tokens, or the sum of their weights in fixed point */

constexpr double SAMPLE_ROUNDING = 1e-6; /* fp32: the largest difference between top_p and an equal sum */
constexpr float MASS_OF_ONE = 0x1p40f;   /* no overflow with up to 2^23 tokens */

/* ---- logits as integers ---- */

/* Keys are unsigned numbers in the order of the logits, -0 equal to 0; NaN and +inf are BAD_KEY. */
constexpr uint32_t BAD_KEY = 0xFFFFFFFFu, LOWEST_KEY = 0x00800000u; /* of -FLT_MAX; -inf is below */

__device__ __forceinline__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  if (!(logit <= FLT_MAX)) return BAD_KEY;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

/* exp((z - max) / temperature) in fixed point; z <= max. */
__device__ __forceinline__ Mass weight_of(uint32_t key, float max, float temperature) {
  return (Mass)(expf((logit_of(key) - max) / temperature) * MASS_OF_ONE);
}

/* ---- one row, which all THREADS threads of a block work on ---- */

/* The tokens that a stage reads: all of a row, or a list of those that can remain, with rising ids. */
struct Row {
  float *logits;
  int count;
  const uint2 *list; /* shared: key, id; NULL: all tokens */
  __device__ __forceinline__ uint2 token(int i) const {
    return list ? list[i] : make_uint2(key_of(logits[i]), (unsigned)i);
  }
};

/* The remaining tokens: those above `key`, and the first `ties` of those equal to it. */
struct Cut {
  uint32_t key;
  Mass ties;
};
constexpr Mass ALL = ~(Mass)0;

/* Calls f(key, id) in this warp for tokens begin + lane, begin + lane + stride, ... before `end`, with several loads in
 * flight. All lanes call f equally often for a whole row; key is that of -infinity beyond the end. */
template <class F> __device__ __forceinline__ void for_tokens(const Row &row, int begin, int end, int stride, F f) {
  constexpr int BATCH = 8;
  const int lane = (int)threadIdx.x % 32;
  if (row.list) {
    for (int i = begin + lane; i < end; i += stride) f(row.list[i].x, (int)row.list[i].y);
    return;
  }
  for (; begin < end; begin += BATCH * stride) {
    const int first = begin + lane;
    float logit[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) logit[i] = first + i * stride < end ? row.logits[first + i * stride] : -INFINITY;
#pragma unroll
    for (int i = 0; i < BATCH; i++) f(key_of(logit[i]), first + i * stride);
  }
}

/* The same for all tokens from `begin` on, divided among the threads of the block. */
template <int THREADS, class F> __device__ __forceinline__ void for_block(const Row &row, int begin, int end, F f) {
  for_tokens(row, begin + (int)threadIdx.x / 32 * 32, end, THREADS, f);
}

template <int THREADS, class F> __device__ __forceinline__ void for_row(const Row &row, F f) {
  for_block<THREADS>(row, 0, row.count, f);
}

template <int THREADS> __device__ __forceinline__ Mass block_max(Mass x) {
  __shared__ Mass part[32];
#pragma unroll
  for (int offset = 16; offset; offset /= 2) {
    const Mass other = __shfl_xor_sync(0xFFFFFFFFu, x, offset);
    x = other > x ? other : x;
  }
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < THREADS / 32; i++) x = part[i] > x ? part[i] : x;
  __syncthreads();
  return x;
}

/* The number and mass of the tokens with at least `key`. */
struct Tally {
  Mass count, mass;
};

template <int THREADS, class F> __device__ __forceinline__ Tally tally_from(const Row &row, uint32_t key, F mass_of) {
  Mass count = 0, mass = 0;
  for_row<THREADS>(row, [&](uint32_t k, int) {
    if (k < key) return;
    count++;
    mass += mass_of(k);
  });
  return {block_sum<THREADS>(count), block_sum<THREADS>(mass)};
}

/* ---- cumulative sums ---- */

/* Returns the sum of a over the lanes up to this one. */
__device__ __forceinline__ Mass warp_prefix(Mass a) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Mass before = __shfl_up_sync(0xFFFFFFFFu, a, offset);
    if ((int)threadIdx.x % 32 >= offset) a += before;
  }
  return a;
}

/* Returns to lane l of every warp what the last lane of warp l has. */
template <int THREADS> __device__ __forceinline__ Mass of_warps(Mass a) {
  __shared__ Mass last[THREADS / 32];
  const int lane = (int)threadIdx.x % 32;
  if (lane == 31) last[threadIdx.x / 32] = a;
  __syncthreads();
  a = lane < THREADS / 32 ? last[lane] : 0;
  __syncthreads();
  return a;
}

/* ---- narrowing ---- */

constexpr int LISTED = 2048; /* tokens in the list */
constexpr int SET_WORDS = 4096, SET_TOKENS = 32 * SET_WORDS;

/* A bit for each token. The parts of a larger vocabulary use it one after the other. */
__device__ __forceinline__ uint32_t *token_set() {
  __shared__ uint32_t words[SET_WORDS];
  return words;
}

/* Returns the number of tokens with at least `key`. If they fit the list, the row becomes this list. */
template <int THREADS> __device__ __forceinline__ int narrow(Row &row, uint32_t key) {
  static_assert(SET_TOKENS % (8 * THREADS) == 0, "whole batches of for_tokens()");
  __shared__ uint2 list[LISTED];
  uint32_t *const set = token_set();
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  int count = 0;
  for (int begin = 0; begin < row.count; begin += SET_TOKENS) {
    const int end = min(row.count, begin + SET_TOKENS);
    for_block<THREADS>(row, begin, end, [&](uint32_t k, int id) {
      const unsigned kept = __ballot_sync(0xFFFFFFFFu, k >= key);
      if (lane == 0) set[(id - begin) / 32] = kept;
    });
    __syncthreads();
    for (int first = begin; first < end; first += 32 * THREADS) { /* a word for each thread */
      int id = first + 32 * (int)threadIdx.x;
      uint32_t word = id < end ? set[(id - begin) / 32] : 0;
      const Mass own = warp_prefix((Mass)__popc(word)), warps = warp_prefix(of_warps<THREADS>(own));
      const Mass before = __shfl_sync(0xFFFFFFFFu, warps, warp ? warp - 1 : 0);
      int at = count + (int)own - __popc(word) + (warp ? (int)before : 0);
      for (; word && at < LISTED; word &= word - 1, at++) list[at] = row.token(id + __ffs((int)word) - 1);
      count += (int)__shfl_sync(0xFFFFFFFFu, warps, 31);
    }
  }
  __syncthreads();
  if (count <= LISTED) row.list = list, row.count = count;
  return count;
}

/* ---- the cut of a filter ---- */

constexpr int RANKED = 127; /* candidates for a cut that are compared with each other */

/* Finds the shortest prefix of the tokens, by falling logit, whose mass reaches `target` > 0. max is the largest key;
 * the `count` tokens from `low` on, with at most low_ties equal to low, reach the target. */
template <int THREADS, class F>
__device__ __forceinline__ Cut find_cut(Row &row, uint32_t low, Mass low_ties, Mass count, uint32_t max, double target,
                                        F mass_of) {
  static_assert(RANKED < THREADS, "a thread for each candidate, and one for low");
  __shared__ uint32_t keys[RANKED];
  __shared__ Mass masses[RANKED];
  __shared__ int candidates;
  __shared__ Cut cut;
  /* low reaches the target, high does not. The largest key is tried first: one token may be enough, or all be equal. */
  uint32_t high = max + 1, middle = max;
  Mass above = 0, count_above = 0; /* of the tokens from high on */
  while (high - low > 1 && count - count_above > RANKED) {
    const Tally tally = tally_from<THREADS>(row, middle, mass_of);
    const bool reached = (double)tally.mass >= target;
    if (reached) low = middle, low_ties = ALL, count = tally.count;
    else high = middle, above = tally.mass, count_above = tally.count;
    if (reached && count <= LISTED && !row.list) narrow<THREADS>(row, low);
    middle = low + (high - low) / 2;
  }
  if (threadIdx.x == 0) candidates = 0;
  __syncthreads();
  for_row<THREADS>(row, [&](uint32_t key, int) {
    if (key <= low || key >= high) return;
    const int i = atomicAdd(&candidates, 1);
    keys[i] = key, masses[i] = mass_of(key);
  });
  __syncthreads();
  /* One key is the cut: what is above it does not reach the target, and with its ties it does. */
  const int n = candidates, own = (int)threadIdx.x; /* candidate n is low */
  if (own <= n) {
    const uint32_t key = own < n ? keys[own] : low;
    const Mass mass = mass_of(key);
    Mass ties = 0;
    bool first = true; /* of its ties */
    for (int i = 0; i < n; i++) {
      if (keys[i] > key) above += masses[i];
      if (keys[i] == key) ties++, first = first && i >= own;
    }
    const bool reached = own == n || (double)(above + ties * mass) >= target;
    if (own == n) ties = low_ties;
    if (first && (double)above < target && reached) {
      const double missing = ceil((target - (double)above) / (double)mass);
      const Mass needed = missing > 1.0 ? (Mass)missing : 1;
      cut = {key, needed < ties ? needed : own < n ? ALL : ties};
    }
  }
  __syncthreads();
  return cut;
}

/* ---- finding a token by a cumulative sum ---- */

/* Returns the masses of consecutive segments of the row, `segment` tokens from `begin` on for each warp, to all warps:
 * lane l has that of segment l. */
template <int THREADS, class F>
__device__ __forceinline__ Mass segment_masses(const Row &row, int begin, int end, int segment, F mass_of) {
  const int from = begin + (int)threadIdx.x / 32 * segment, to = min(from + segment, end);
  Mass sum = 0;
  for_tokens(row, from, to, 32, [&](uint32_t key, int id) { sum += mass_of(key, id); });
  return of_warps<THREADS>(warp_sum(sum));
}

/* Returns the first token at which the cumulative sum of mass_of(key, id), in the order of ids, exceeds aim_of(total);
 * -1 when there is none. Every round divides the current range into a segment for each warp and continues with the
 * segment of the token, until a lane has one token. All warps compute the same, so no result is exchanged. */
template <int THREADS, class F, class A> __device__ __forceinline__ int locate(const Row &row, F mass_of, A aim_of) {
  const int lane = (int)threadIdx.x % 32;
  int begin = 0, end = row.count, segment = 0;
  Mass aim = 0;
  while (segment != 1) {
    const bool first = segment == 0;
    Mass sum;
    segment = first || end - begin > 32 ? (end - begin + THREADS - 1) / THREADS * 32 : 1;
    if (segment == 1) {
      const uint2 token = row.token(min(begin + lane, end - 1));
      sum = begin + lane < end ? mass_of(token.x, (int)token.y) : 0;
    } else sum = segment_masses<THREADS>(row, begin, end, segment, mass_of);
    sum = warp_prefix(sum);
    const Mass total = __shfl_sync(0xFFFFFFFFu, sum, 31);
    if (first) aim = aim_of(total);
    const unsigned beyond = __ballot_sync(0xFFFFFFFFu, sum > aim);
    if (!beyond) return -1;
    const int hit = __ffs((int)beyond) - 1;
    const Mass below = __shfl_sync(0xFFFFFFFFu, sum, hit ? hit - 1 : 0);
    if (hit) aim -= below;
    begin += hit * segment;
    end = end - begin < segment ? end : begin + segment;
  }
  return (int)row.token(begin).y;
}

/* ---- the stages, in their order ---- */

template <int THREADS> __device__ __forceinline__ void add_bias(const Row &row, const LogitBias &bias, int64_t r) {
  if (!bias.counts) return;
  const int64_t first = r * bias.capacity, end = first + bias.counts[r];
  for (int64_t i = first + threadIdx.x; i < end; i += THREADS)
    if (bias.tokens[i] >= 0 && bias.tokens[i] < row.count) row.logits[bias.tokens[i]] += bias.values[i];
  __syncthreads();
}

/* The tokens among the last n. */
struct Recent {
  const int32_t *ring;
  int capacity, length, n;
};

/* Applies the penalties that count once: the thread that sets a token's bit in shared memory applies them. A large
 * vocabulary is divided into parts. */
template <int THREADS>
__device__ __forceinline__ void penalize_once(const Row &row, const Recent &recent, const Sampling &sampling) {
  uint32_t *const seen = token_set();
  for (int begin = 0; begin < row.count; begin += SET_TOKENS) {
    const int tokens = min(row.count - begin, SET_TOKENS);
    for (int i = (int)threadIdx.x; i < (tokens + 31) / 32; i += THREADS) seen[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < recent.n; i += THREADS) {
      const int32_t token = recent.ring[(recent.length - recent.n + i) % recent.capacity], at = token - begin;
      if (token < begin || at >= tokens || (atomicOr(&seen[at / 32], 1u << at % 32) >> at % 32 & 1)) continue;
      const float z = row.logits[token];
      row.logits[token] =
          __fsub_rn(z > 0 ? z / sampling.repeat_penalty : z * sampling.repeat_penalty, sampling.presence_penalty);
    }
    __syncthreads();
  }
}

/* Every occurrence subtracts the same number, so the order of the threads does not matter. */
template <int THREADS>
__device__ __forceinline__ void penalize(const Row &row, const int32_t *ring, int capacity, int length,
                                         const Sampling &sampling) {
  int n = sampling.repeat_last_n < length ? sampling.repeat_last_n : length;
  n = n < capacity ? n : capacity;
  if (n <= 0) return;
  const Recent recent = {ring, capacity, length, n};
  if (sampling.repeat_penalty != 1.0f || sampling.presence_penalty != 0.0f)
    penalize_once<THREADS>(row, recent, sampling);
  if (sampling.frequency_penalty == 0.0f) return;
  for (int i = (int)threadIdx.x; i < n; i += THREADS) {
    const int32_t token = ring[(length - n + i) % capacity];
    if (token >= 0 && token < row.count) atomicAdd(&row.logits[token], -sampling.frequency_penalty);
  }
  __syncthreads();
}

/* The k-th largest logit is at least the k-th largest of the threads' own maxima: this bound excludes nearly all tokens
 * before any is counted. */
template <int THREADS> __device__ __forceinline__ Cut top_k(Row &row, uint32_t own_max, uint32_t max, int k) {
  uint32_t low = LOWEST_KEY, high = max + 1;
  if (k <= 0 || k >= row.count) return {LOWEST_KEY, ALL};
  if (__syncthreads_count(own_max >= LOWEST_KEY) >= k)
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      if (__syncthreads_count(own_max >= middle) >= k) low = middle;
      else high = middle;
    }
  const auto one = [](uint32_t) { return (Mass)1; };
  const int count = narrow<THREADS>(row, low);
  if (count <= k) return {low, ALL};
  return find_cut<THREADS>(row, low, ALL, (Mass)count, max, (double)k, one);
}

/* Probabilities are relative to the tokens that top-k left. */
template <int THREADS> __device__ __forceinline__ Cut top_p(Row &row, Cut cut, uint32_t max, float p) {
  const float max_logit = logit_of(max);
  const auto weight = [&](uint32_t key) { return weight_of(key, max_logit, 1.0f); };
  if (!(p < 1.0f)) return cut;
  Tally all = tally_from<THREADS>(row, cut.ties == ALL ? cut.key : cut.key + 1, weight);
  if (cut.ties != ALL) all.mass += cut.ties * weight(cut.key), all.count += cut.ties;
  const double target = (double)p * (double)all.mass * (1.0 - SAMPLE_ROUNDING);
  if (!(target > 0)) return {max, 1};
  /* the weights below this one add up to less than half of what may be removed */
  const double least = (1.0 - (double)p) * (double)all.mass / (double)MASS_OF_ONE / (double)all.count / 2;
  const uint32_t bound = key_of(max_logit + logf((float)least));
  const bool higher = bound > cut.key && bound <= max;
  return find_cut<THREADS>(row, higher ? bound : cut.key, higher ? ALL : cut.ties, all.count, max, target, weight);
}

/* exp(z - max) >= min_p, in logits */
__device__ __forceinline__ Cut min_p(Cut cut, uint32_t max, float p) {
  if (!(p > 0.0f)) return cut;
  const double cutoff = p < 1.0f ? (double)logit_of(max) + log((double)p) - SAMPLE_ROUNDING : (double)logit_of(max);
  const float rounded = (float)cutoff;
  const uint32_t key = key_of(rounded) + ((double)rounded < cutoff ? 1 : 0);
  return key > cut.key && key <= max ? Cut{key, ALL} : cut;
}

/* Returns the first token whose cumulative weight is above u * total; u < 1, so it exists and its weight is not 0. */
template <int THREADS>
__device__ __forceinline__ int draw(const Row &row, Cut cut, uint32_t max, float temperature, float u) {
  const float max_logit = logit_of(max);
  int last_tie = -1;
  if (cut.ties != ALL)
    last_tie = locate<THREADS>(
        row, [&](uint32_t key, int) { return (Mass)(key == cut.key); }, [&](Mass) { return cut.ties - 1; });
  if (last_tie < 0) last_tie = INT32_MAX;
  return locate<THREADS>(
      row,
      [&](uint32_t key, int id) {
        const bool stays = key > cut.key || (key == cut.key && id <= last_tie);
        return stays ? weight_of(key, max_logit, temperature) : 0;
      },
      [&](Mass total) { return (Mass)((double)u * (double)total); });
}

/* ---- a row ---- */

/* Returns the next token of row r, or -1 when its logits are not finite. */
template <int THREADS> __device__ __forceinline__ int choose(const Sequences &s, int64_t r, Row row, int length) {
  const Sampling sampling = s.sampling[r];
  add_bias<THREADS>(row, s.bias, r);
  penalize<THREADS>(row, s.tokens + r * s.capacity, s.capacity, length, sampling);
  Mass best = 0; /* the largest key, with its lowest id */
  for_row<THREADS>(row, [&](uint32_t key, int id) {
    const Mass candidate = (Mass)key << 32 | ~(uint32_t)id;
    best = candidate > best ? candidate : best;
  });
  const uint32_t own_max = (uint32_t)(best >> 32);
  best = block_max<THREADS>(best);
  const uint32_t max = (uint32_t)(best >> 32);
  if (max == BAD_KEY || max < LOWEST_KEY) return -1;
  if (!(sampling.temperature > 0)) return (int)~(uint32_t)best;
  Cut cut = top_k<THREADS>(row, own_max, max, sampling.top_k);
  cut = top_p<THREADS>(row, cut, max, sampling.top_p);
  cut = min_p(cut, max, sampling.min_p);
  const uint4 words = random_words(sampling.seed, 0, SITE_SAMPLE, (uint32_t)length, (uint32_t)s.streams[r]);
  const float u = ((float)(words.x >> 9) + 0.5f) * 0x1p-23f; /* philox_uniform() */
  return draw<THREADS>(row, cut, max, sampling.temperature, u);
}

/* A row that failed before stays failed. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS, 1) sample_kernel(Sequences s, float *logits, int vocab) {
  const int64_t r = blockIdx.x;
  wait_for_previous();
  const int32_t length = s.lengths[r];
  int32_t token = -1;
  const bool runs = s.status[r] == SEQUENCE_OK && length >= 0;
  if (runs) token = choose<THREADS>(s, r, {logits + r * vocab, vocab, NULL}, length);
  __syncthreads(); /* all threads have read before the writes below */
  if (threadIdx.x != 0) return;
  s.drawn[2 * r + (length & 1)] = token;
  if (!runs) return;
  if (token < 0) {
    s.status[r] = SEQUENCE_NONFINITE;
    return;
  }
  s.tokens[r * s.capacity + length % s.capacity] = token;
  s.lengths[r] = length + 1;
  s.positions[r] += 1;
}

} // namespace

void cuda_sample(Context *c, const Sequences *s, float *logits, int vocab) {
  constexpr int SMALL = 128, LARGE = 1024; /* which one it is changes no token */
  const bool small = vocab <= 16 * SMALL;
  if (s->rows < 1) return;
  launch<EARLY>(c, "sample", small ? sample_kernel<SMALL> : sample_kernel<LARGE>, (unsigned)s->rows,
                small ? SMALL : LARGE, 0, *s, logits, vocab);
}

#endif
