/* Log-probabilities of the next token. */
#ifndef INKLING_INFERENCE_LOGPROBS_H
#define INKLING_INFERENCE_LOGPROBS_H

#include "inference/generation.h"

/* log softmax(logits [vocab])[id], and the `count` <= vocab likeliest into `top`, likeliest first and of equal ones the
 * lower id. NaN where no logit is finite. */
float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count);

#endif
