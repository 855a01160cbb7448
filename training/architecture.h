/* Which Transformer ./train makes: --arch names a whole, other options change a part of it. */
#ifndef INKLING_TRAINING_ARCHITECTURE_H
#define INKLING_TRAINING_ARCHITECTURE_H

#include "training/settings.h"

/* name; norm and its place; activation, gated; positions; biases, of queries, keys and values too; tied (-1: narrow
 * models, 0: never, 1: always); what --help says. */
#define ARCHITECTURES(X)                                                                                               \
  X(LLAMA, "llama", NORM_RMS, NORM_BEFORE, ACTIVATION_SILU, true, POSITIONS_ROPE, false, -1,                           \
    "RMSNorm, SwiGLU, rotary positions, no biases")                                                                    \
  X(GPT2, "gpt2", NORM_LAYER, NORM_BEFORE, ACTIVATION_GELU_TANH, false, POSITIONS_LEARNED, true, 1,                    \
    "LayerNorm, GELU, learned positions, biases, tied")                                                                \
  X(OPT, "opt", NORM_LAYER, NORM_BEFORE, ACTIVATION_RELU, false, POSITIONS_LEARNED, true, 1, "as gpt2, with ReLU")     \
  X(ORIGINAL, "original", NORM_LAYER, NORM_AFTER, ACTIVATION_RELU, false, POSITIONS_SINUSOIDAL, true, 0,               \
    "the Transformer of 2017 (LayerNorm after each sublayer, ReLU, sinusoidal positions, biases, not tied; with an "   \
    "encoder for pairs)")

#define ARCHITECTURE_KIND(id, ...) ARCHITECTURE_##id,
typedef enum ArchitectureKind { ARCHITECTURES(ARCHITECTURE_KIND) } ArchitectureKind;
extern const char *const architecture_names[]; /* as ArchitectureKind; these and the next end with NULL */
extern const char *const architecture_norms[],
    *const architecture_norm_places[], *const architecture_activations[],
                                           *const architecture_positions[],
                                               *const architecture_inits[]; /* as the enums of model.h and kernels.h */

/* Whether the model will have an encoder, where the text has pairs of a prompt and a response or not. */
bool architecture_has_encoder(const TrainSettings *settings, bool pairs);

/* Sources that are to have a tokenizer of their own, without an encoder or with tied tables. EXIT_USAGE. */
bool architecture_check_sources(const TrainSettings *settings, bool pairs, Error *error);

/* Fills what was not given as --arch has it; dim and layers are known. */
void architecture_fill(TrainSettings *settings, bool pairs);

/* Parts that do not go together. A model that was `trained` may have what would not learn well from the beginning.
 * EXIT_USAGE. After architecture_fill. */
bool architecture_check(const TrainSettings *settings, bool trained, Error *error);

/* Sets the parts of a model; its sizes are left as they are. */
void architecture_apply(const TrainSettings *settings, ModelConfig *model);

/* "LayerNorm before each part, GELU (tanh), learned positions, biases" */
typedef struct ArchitectureWords {
  char text[256];
} ArchitectureWords;
ArchitectureWords architecture_words(const ModelConfig *model);

#endif
