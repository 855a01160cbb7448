/* Conversion of a model directory to a GGUF file, for llama.cpp and programs built on it. */
#ifndef INKLING_FILES_FORMATS_GGUF_MODEL_H
#define INKLING_FILES_FORMATS_GGUF_MODEL_H

#include "files/formats/model_files.h"
#include "files/formats/gguf_tokenizer.h"
#include "base/progress.h"

/* The type of matrices; vectors, tables of positions and kernels of convolutions are f32. */
typedef enum GgufType { GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q8_0 } GgufType;
extern const char *const gguf_type_names[]; /* as GgufType; ends with NULL */

typedef struct GgufModel {
  ModelFiles *files;
  const char *name;    /* the title */
  const char *license; /* "": none is known */
  const Tokenizer *tokenizer;
  GgufType type;
} GgufModel;

typedef struct GgufFacts {
  const char *architecture; /* llama.cpp's name */
  int tensors;
  int64_t bytes;                           /* size of the file */
  const char *notes[GGUF_TOKENIZER_NOTES]; /* notes about tokenization in llama.cpp */
  int note_count;
} GgufFacts;

/* EXIT_CHECKPOINT: llama.cpp does not support a part of the model or its tokenizer; EXIT_MEMORY. */
bool gguf_model_check(const GgufModel *model, Error *error);

/* Writes the file atomically (base/file.h), row by row, so memory use does not grow with the model. `progress` counts
 * bytes of *facts, which are filled first. EXIT_CHECKPOINT: llama.cpp does not support a part of the model or its
 * tokenizer, reading weights fails, or numbers are too large for the type. EXIT_USAGE: the rows of a matrix are not
 * whole blocks of q8_0. EXIT_OUTPUT, EXIT_MEMORY. */
bool gguf_model_write(const GgufModel *model, const char *path, Progress progress, GgufFacts *facts, Error *error);

#endif
