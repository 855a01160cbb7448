#include "inference/logprobs.h"

#include <math.h>

static double log_sum(const float *logits, int vocab) {
  float max = logits[0];
  for (int i = 1; i < vocab; i++) max = logits[i] > max ? logits[i] : max;
  double sum = exp((double)logits[0] - (double)max);
  for (int i = 1; i < vocab; i++) sum += exp((double)logits[i] - (double)max);
  return (double)max + log(sum);
}

/* Orders alternatives: lower logit first, ties by higher id. */
static bool is_worse(TokenAlternative a, TokenAlternative b) {
  return a.logprob != b.logprob ? a.logprob < b.logprob : a.id > b.id;
}

/* Inserts each token into the sorted list of the best ones so far. */
static void select_top(const float *logits, int vocab, TokenAlternative *top, int count) {
  for (int i = 0, used = 0; i < vocab; i++) {
    const TokenAlternative item = {i, logits[i]};
    if (used == count && !is_worse(top[count - 1], item)) continue;
    int at = used < count ? used++ : count - 1;
    for (; at > 0 && is_worse(top[at - 1], item); at--) top[at] = top[at - 1];
    top[at] = item;
  }
}

float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count) {
  const double all = log_sum(logits, vocab);
  if (count > 0) select_top(logits, vocab, top, count);
  for (int i = 0; i < count; i++) top[i].logprob = (float)((double)top[i].logprob - all);
  return (float)((double)logits[id] - all);
}
