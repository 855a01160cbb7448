/* Texts that are generated several at a time and printed in the order in which they were added. */
#ifndef INKLING_GENERATING_TEXTS_H
#define INKLING_GENERATING_TEXTS_H

#include "inference/generation.h"

typedef struct Text {
  struct Text *next;
  BpeIds source, prompt; /* the tokens that the model reads */
  GenerationRequest request;
  uint8_t *bytes; /* written so far */
  size_t size, capacity;
  GenerationResult result;
  /* per token, when the request has alternatives or `keep_ids` is set */
  BpeIds ids;
  int64_t *begins;       /* [ids.count] as GeneratedToken */
  float *logprobs;       /* [ids.count] */
  TokenAlternative *top; /* [ids.count][alternatives] */
  size_t begins_room, logprobs_room, top_room;
  bool keep_ids;
  struct Completion *completion; /* the completion it belongs to; NULL: none */
  int index;                     /* among the texts of its prompt */
  bool done;                     /* finished, or nothing to generate */
  bool no_memory;
} Text;

typedef struct Texts {
  Text *first, *last;
  int64_t count;  /* texts not yet printed */
  int64_t tokens; /* tokens generated for finished texts */
  /* Prints a finished text after all texts before it. */
  bool (*print)(void *context, const Text *text, Error *error);
  void (*release)(Text *text); /* called before it is freed; NULL: nothing */
  void *context;
} Texts;

/* Appends a new text. The caller fills source, prompt and other fields of the request. NULL: EXIT_MEMORY. */
Text *texts_add(Texts *texts, Error *error);
/* Prints and frees the finished texts, up to the first unfinished one. */
bool texts_print(Texts *texts, Error *error);
void texts_free(Texts *texts);

/* Returns the request of a text with its source and prompt filled in. */
GenerationRequest text_request(Text *text);

/* Frees the contents of a text, but not the text itself. */
void text_free(Text *text);

/* Functions for emit, token and done of a Generation. text_add() returns false when memory is out, which text_end()
 * then reports. Texts that the caller interrupted do not become done. EXIT_MEMORY. */
bool text_add(Text *text, const uint8_t *bytes, size_t size);
bool text_add_token(Text *text, const GeneratedToken *token, Error *error);
bool text_end(Text *text, const GenerationResult *result, Error *error);

#endif
