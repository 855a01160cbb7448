#include "inference/logprobs.h"

#include <math.h>

static double log_sum(const float *logits, int vocab) {
  float max = logits[0];
  for (int i = 1; i < vocab; i++) max = logits[i] > max ? logits[i] : max;
  double sum = exp((double)logits[0] - (double)max);
  for (int i = 1; i < vocab; i++) sum += exp((double)logits[i] - (double)max);
  return (double)max + log(sum);
}

/* Orders a heap of the best tokens so far with the worst on top: lower probability first, ties by higher id. */
static bool is_worse(TokenAlternative a, TokenAlternative b) {
  return a.logprob != b.logprob ? a.logprob < b.logprob : a.id > b.id;
}

static void sift_down(TokenAlternative *heap, int count, int at, TokenAlternative item) {
  for (int child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_worse(heap[child + 1], heap[child])) child++;
    if (!is_worse(heap[child], item)) break;
    heap[at] = heap[child];
  }
  heap[at] = item;
}

/* Selects with a heap, then sorts it: moving the worst token to the end again and again leaves the best first. */
static void select_top(const float *logits, int vocab, TokenAlternative *top, int count) {
  for (int i = 0; i < count; i++) top[i] = (TokenAlternative){i, logits[i]};
  for (int i = count / 2 - 1; i >= 0; i--) sift_down(top, count, i, top[i]);
  for (int i = count; i < vocab; i++) {
    const TokenAlternative item = {i, logits[i]};
    if (is_worse(top[0], item)) sift_down(top, count, 0, item);
  }
  for (int left = count - 1; left > 0; left--) {
    const TokenAlternative worst = top[0];
    sift_down(top, left, 0, top[left]);
    top[left] = worst;
  }
}

float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count) {
  const double all = log_sum(logits, vocab);
  if (count > 0) select_top(logits, vocab, top, count);
  for (int i = 0; i < count; i++) top[i].logprob = (float)((double)top[i].logprob - all);
  return (float)((double)logits[id] - all);
}
