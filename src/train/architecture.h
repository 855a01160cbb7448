/* The architecture of the Transformer that ./train builds: --arch selects all of it, other options change single
 * parts. */
#ifndef INKLING_TRAIN_ARCHITECTURE_H
#define INKLING_TRAIN_ARCHITECTURE_H

#include "train/settings.h"

/* name; the text of --help; norm and its place; mixers of the layers, norms of queries and keys; activation, gated;
 * positions; biases, including those of queries, keys and values; tied (-1: narrow models whose tokens are not bytes,
 * 0: never, 1: always). */
#define ARCHITECTURES(X)                                                                                               \
  X(LLAMA, "llama", "RMSNorm, SwiGLU, rotary positions, no biases", NORM_RMS, NORM_BEFORE, "A", false,                 \
    ACTIVATION_SILU, true, POSITIONS_ROPE, false, -1)                                                                  \
  X(QWEN3, "qwen3", "like llama, with norms of queries and keys", NORM_RMS, NORM_BEFORE, "A", true, ACTIVATION_SILU,   \
    true, POSITIONS_ROPE, false, -1)                                                                                   \
  X(LFM2, "lfm2", "like qwen3, with short convolutions in two of three layers", NORM_RMS, NORM_BEFORE, "CCA", true,    \
    ACTIVATION_SILU, true, POSITIONS_ROPE, false, -1)                                                                  \
  X(GPT2, "gpt2", "LayerNorm, GELU, learned positions, biases, tied", NORM_LAYER, NORM_BEFORE, "A", false,             \
    ACTIVATION_GELU_TANH, false, POSITIONS_LEARNED, true, 1)                                                           \
  X(OPT, "opt", "like gpt2, but ReLU", NORM_LAYER, NORM_BEFORE, "A", false, ACTIVATION_RELU, false, POSITIONS_LEARNED, \
    true, 1)                                                                                                           \
  X(ORIGINAL, "original",                                                                                              \
    "the original 2017 Transformer (LayerNorm after each sublayer, ReLU, sinusoidal positions, biases, not tied; "     \
    "with an encoder for pairs)",                                                                                      \
    NORM_LAYER, NORM_AFTER, "A", false, ACTIVATION_RELU, false, POSITIONS_SINUSOIDAL, true, 0)

/* Numbers that --help also shows; macros, because they become text. */
#define ARCHITECTURE_TIE_DIM 1024 /* narrower models tie the head to the embedding, unless a token is a byte */
#define ARCHITECTURE_ROPE_BASE 10000
#define ARCHITECTURE_INIT 0.7 /* standard deviation of initial weights times sqrt(dim), except with RMSNorm */

#define ARCHITECTURE_KIND(id, ...) ARCHITECTURE_##id,
typedef enum ArchitectureKind { ARCHITECTURES(ARCHITECTURE_KIND) } ArchitectureKind;
extern const char *const architecture_names[]; /* as ArchitectureKind; both lists end with NULL */
extern const char *const architecture_inits[]; /* as InitKind */

/* Returns whether it is an architecture with RMSNorm, which has rates and initial weights of its own. */
bool architecture_has_rms(int arch);

/* Returns whether the model will have an encoder. `pairs`: the text has prompts and responses. */
bool architecture_has_encoder(const TrainSettings *settings, bool pairs);

/* Refuses a separate tokenizer for sources without an encoder or with tied tables. EXIT_USAGE. */
bool architecture_check_sources(const TrainSettings *settings, bool pairs, Error *error);

/* Fills the settings that were not given from --arch; dim and layers are known. */
void architecture_fill(TrainSettings *settings, bool pairs);

/* Refuses combinations of parts that do not work. A model that is already `trained` may have parts that would not train
 * well from random weights. EXIT_USAGE. Call it after architecture_fill(). */
bool architecture_check(const TrainSettings *settings, bool trained, Error *error);

/* "LayerNorm before each sublayer, GELU (tanh), learned positions, biases" */
typedef struct ArchitectureWords {
  char text[384];
} ArchitectureWords;
ArchitectureWords architecture_words(const ModelConfig *model);

#endif
