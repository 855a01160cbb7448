/* Outputs that are generated several at a time and printed in the order in which they were added. */
#ifndef INKLING_GENERATING_OUTPUTS_H
#define INKLING_GENERATING_OUTPUTS_H

#include "inference/generation.h"

typedef struct Output {
  struct Output *next;
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
} Output;

typedef struct Outputs {
  Output *first, *last;
  int64_t count;  /* texts not yet printed */
  int64_t tokens; /* tokens generated for finished texts */
  /* Prints a finished text after all texts before it. */
  bool (*print)(void *context, const Output *text, Error *error);
  void (*release)(Output *text); /* called before it is freed; NULL: nothing */
  void *context;
} Outputs;

/* Appends a new text. The caller fills source, prompt and other fields of the request. NULL: EXIT_MEMORY. */
Output *outputs_add(Outputs *texts, Error *error);
/* Prints and frees the finished texts, up to the first unfinished one. */
bool outputs_print(Outputs *texts, Error *error);
void outputs_free(Outputs *texts);

/* Returns the request of a text with its source and prompt filled in. */
GenerationRequest output_request(Output *text);

/* Frees the contents of a text, but not the text itself. */
void output_free(Output *text);

/* Functions for emit, token and done of a Generation. output_add() returns false when memory is out, which output_end()
 * then reports. Outputs that the caller interrupted do not become done. EXIT_MEMORY. */
bool output_add(Output *text, const uint8_t *bytes, size_t size);
bool output_add_token(Output *text, const GeneratedToken *token, Error *error);
bool output_end(Output *text, const GenerationResult *result, Error *error);

#endif
