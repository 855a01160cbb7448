/* A model directory as a GGUF file, for llama.cpp and what is built on it. */
#ifndef INKLING_FORMATS_GGUF_MODEL_H
#define INKLING_FORMATS_GGUF_MODEL_H

#include "formats/model_files.h"
#include "formats/gguf_tokenizer.h"
#include "util/progress.h"

/* What matrices are written in; vectors and tables of positions are f32. */
typedef enum GgufType { GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q8_0 } GgufType;
extern const char *const gguf_type_names[]; /* as GgufType; ends with NULL */

typedef struct GgufModel {
  ModelFiles *files;
  const char *name; /* for people */
  const Tokenizer *tokenizer;
  GgufType type;
} GgufModel;

typedef struct GgufFacts {
  const char *architecture; /* of llama.cpp */
  int tensors;
  uint64_t bytes;                          /* of the file */
  const char *notes[GGUF_TOKENIZER_NOTES]; /* what people have to know of texts there */
  int note_count;
} GgufFacts;

/* Writes it atomically (util/file.h); a row at a time, so the memory does not grow with the model. `progress` counts
 * bytes of *facts, which are filled before it begins. EXIT_CHECKPOINT: what of the model or its tokenizer llama.cpp
 * does not have; as reading weights; numbers that are too large for the type. EXIT_USAGE: a matrix whose rows are no
 * blocks of q8_0. EXIT_OUTPUT, EXIT_MEMORY. */
bool gguf_model_write(const GgufModel *model, const char *path, Progress progress, GgufFacts *facts, Error *error);

#endif
