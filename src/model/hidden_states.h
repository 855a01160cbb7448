/* The hidden states of a model while it reads a text, for research on what it computes. */
#ifndef INKLING_MODEL_HIDDEN_STATES_H
#define INKLING_MODEL_HIDDEN_STATES_H

#include "model.h"

typedef enum HiddenKind {
  HIDDEN_RESIDUAL,    /* the residual stream that layer `layer` reads; with `layer` = layers, after the last layer */
  HIDDEN_QUERIES,     /* with their biases, before head norms and rotary positions: heads side by side */
  HIDDEN_KEYS,        /* likewise, key/value heads side by side */
  HIDDEN_VALUES,      /* with their biases */
  HIDDEN_ATTENTION,   /* output of attention, after its last matrix and bias, before it is added (or normalized) */
  HIDDEN_CONVOLUTION, /* the same of a convolution */
  HIDDEN_MLP_INNER,   /* what the last matrix of the MLP reads: act(gate) * up, or act(up) */
  HIDDEN_MLP,         /* output of the MLP, as that of attention */
  HIDDEN_HEAD         /* input of the head: after the final norm, if there is one; `layer` = layers */
} HiddenKind;

typedef struct HiddenState {
  HiddenKind kind;
  int layer; /* from 0 */
  int width; /* numbers at each position */
} HiddenState;

/* Lists the hidden states of the decoder in the order of computation, into `out` unless it is NULL; cross-attention is
 * left out. Returns their number. */
int model_hidden_states(const Model *model, HiddenState *out);

/* Receives one hidden state, host fp32 [count][state->width], which it may change. False, with an error, ends the
 * calls. */
typedef bool HiddenSeen(void *context, const HiddenState *state, float *rows, int count, Error *error);

/* Calls `seen` for each hidden state of a pass over one text of `count` tokens, 1..ctx. For models without an encoder.
 * EXIT_MEMORY; the error of `seen`. */
bool model_read_hidden_states(Model *model, const int32_t *tokens, int count, HiddenSeen *seen, void *context,
                              Error *error);

#endif
