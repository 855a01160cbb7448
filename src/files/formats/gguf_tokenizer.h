/* Conversion of a tokenizer to the keys of a GGUF file. GGUF files cannot describe how texts are split: llama.cpp has a
 * byte-level BPE ("gpt2") with named pre-tokenizers, and a character BPE ("llama") like SentencePiece. Checked against
 * llama.cpp of November 2026. */
#ifndef INKLING_FILES_FORMATS_GGUF_TOKENIZER_H
#define INKLING_FILES_FORMATS_GGUF_TOKENIZER_H

#include "files/formats/gguf.h"
#include "text/tokenizer/tokenizer.h"

enum { GGUF_TOKENIZER_NOTES = 4 };

typedef struct GgufTokenizer {
  const Tokenizer *tokenizer;
  const char *cuts; /* llama.cpp's name of the pre-tokenizer; NULL: a character BPE */
  bool prefix_space;
  float *scores; /* [tokens], for a character BPE: higher scores are merged first */
  /* Notes about texts that llama.cpp tokenizes differently. */
  const char *notes[GGUF_TOKENIZER_NOTES];
  int note_count;
} GgufTokenizer;

/* Makes the conversion; the tokenizer must outlive it. `dir` is for messages. EXIT_CHECKPOINT: llama.cpp does not
 * support a part of the tokenizer; EXIT_MEMORY. The caller frees *out, also after a failure. */
bool gguf_tokenizer_make(GgufTokenizer *out, const char *dir, const Tokenizer *tokenizer, Error *error);
void gguf_tokenizer_free(GgufTokenizer *tokenizer);

/* Adds the keys of kind, tokens, token types, merges or scores. `vocab`: ids of the model. */
void gguf_tokenizer_add(GgufHeader *header, const GgufTokenizer *tokenizer, int vocab);

#endif
