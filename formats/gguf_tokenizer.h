/* A tokenizer as the keys of a GGUF file. What it does to texts cannot be written there: llama.cpp has a BPE of bytes
 * ("gpt2") whose ways to cut texts have names, and one of characters ("llama") as SentencePiece has it. What is said of
 * them holds for llama.cpp of November 2026. */
#ifndef INKLING_FORMATS_GGUF_TOKENIZER_H
#define INKLING_FORMATS_GGUF_TOKENIZER_H

#include "formats/gguf.h"
#include "tokenizer/tokenizer.h"

enum { GGUF_TOKENIZER_NOTES = 4 };

typedef struct GgufTokenizer {
  const Tokenizer *tokenizer;
  const char *cuts; /* how llama.cpp calls the way that texts are cut; NULL: a BPE of characters */
  bool prefix_space;
  float *scores; /* [tokens], of a BPE of characters: the higher is merged first */
  /* Texts of which llama.cpp makes other tokens: what is to be said of them. */
  const char *notes[GGUF_TOKENIZER_NOTES];
  int note_count;
} GgufTokenizer;

/* `dir` for messages; the tokenizer must outlive it. EXIT_CHECKPOINT: what of it llama.cpp does not do; EXIT_MEMORY.
 * The caller frees it, also when that failed. */
bool gguf_tokenizer_make(GgufTokenizer *out, const char *dir, const Tokenizer *tokenizer, Error *error);
void gguf_tokenizer_free(GgufTokenizer *tokenizer);

/* Kind, tokens, their types, merges or scores. `vocab`: ids of the model. */
void gguf_tokenizer_add(GgufHeader *header, const GgufTokenizer *tokenizer, int vocab);

#endif
