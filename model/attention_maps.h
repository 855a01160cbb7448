/* The attention weights of a model over a text, for visualization. */
#ifndef INKLING_MODEL_ATTENTION_MAPS_H
#define INKLING_MODEL_ATTENTION_MAPS_H

#include "model.h"

typedef enum AttentionKind { ATTENTION_ENCODER, ATTENTION_SELF, ATTENTION_CROSS } AttentionKind;

/* Gets the weights of one attention, host fp32 [heads][queries][keys]: what a query sees adds up to 1. False, with an
 * error: no more. */
typedef bool AttentionSeen(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                           Error *error);

/* The weights of every attention in a pass over one text of 1..ctx tokens, in the order in which they are computed.
 * Above an encoder the text answers a source of 1..ctx tokens; else source is NULL. EXIT_MEMORY; the error of
 * `seen`. */
bool model_attention(Model *model, const int32_t *source, int source_count, const int32_t *tokens, int count,
                     AttentionSeen *seen, void *context, Error *error);

#endif
