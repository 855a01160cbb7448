/* Log-probabilities of the next token. */
#ifndef INKLING_INFERENCE_LOGPROBS_H
#define INKLING_INFERENCE_LOGPROBS_H

#include "inference/generation.h"

/* Returns log softmax(logits [vocab])[id] and writes the `count` <= vocab likeliest tokens to `top`, likeliest first,
 * ties by lower id. NaN when no logit is finite. */
float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count);

#endif
