/* The attention weights of a model over a text, for visualization. */
#ifndef INKLING_MODEL_ATTENTION_MAPS_H
#define INKLING_MODEL_ATTENTION_MAPS_H

#include "model.h"

typedef enum AttentionKind { ATTENTION_ENCODER, ATTENTION_SELF, ATTENTION_CROSS } AttentionKind;

/* Receives the weights of one attention, host fp32 [heads][queries][keys]; those of a query add up to 1. False, with an
 * error, stops the pass. */
typedef bool AttentionSeen(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                           Error *error);

/* Calls `seen` for every attention in a pass over one text of 1..ctx tokens, in the order of computation. With an
 * encoder the text is the target of a source of 1..ctx tokens; else source is NULL. EXIT_MEMORY; the error of
 * `seen`. */
bool model_attention(Model *model, const int32_t *source, int source_count, const int32_t *tokens, int count,
                     AttentionSeen *seen, void *context, Error *error);

#endif
