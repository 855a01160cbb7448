/* Texts that are written several at a time and come out in the order in which they were begun. */
#ifndef INKLING_GENERATING_TEXTS_H
#define INKLING_GENERATING_TEXTS_H

#include "inference/generation.h"

typedef struct Text {
  struct Text *next;
  BpeIds source, prompt; /* what the model reads */
  GenerationRequest request;
  uint8_t *bytes; /* written so far */
  size_t size, capacity;
  GenerationResult result;
  /* of the tokens, where the request asks for alternatives or `keep_ids` is set */
  BpeIds ids;
  int64_t *begins;       /* [ids.count] as GeneratedToken */
  float *logprobs;       /* [ids.count] */
  TokenAlternative *top; /* [ids.count][alternatives] */
  size_t begins_room, logprobs_room, top_room;
  bool keep_ids;
  struct Completion *completion; /* what it is a choice of; NULL: it stands alone */
  int index;                     /* among the texts of its prompt */
  bool done;                     /* or there is nothing to write */
  bool no_memory;
} Text;

typedef struct Texts {
  Text *first, *last;
  int64_t count;  /* that have not come out */
  int64_t tokens; /* drawn for those that are done */
  /* Takes a text that is done, when all before it were taken. */
  bool (*print)(void *context, const Text *text, Error *error);
  void (*release)(Text *text); /* before it is freed; NULL: nothing */
  void *context;
} Texts;

/* A new one, the last. The caller fills source, prompt and what else it wants of the request. NULL: EXIT_MEMORY. */
Text *texts_add(Texts *texts, Error *error);
/* Prints and frees all that are done and have none before them that is not. */
bool texts_print(Texts *texts, Error *error);
void texts_free(Texts *texts);

/* Completes the request of a text by what it reads. */
GenerationRequest text_request(Text *text);

/* What a text holds, but not the text. */
void text_free(Text *text);

/* For emit and done of a Generation. text_add: false when memory is out, which text_end then says. Texts that the
 * caller interrupted are not done. EXIT_MEMORY. */
bool text_add(Text *text, const uint8_t *bytes, size_t size);
bool text_add_token(Text *text, const GeneratedToken *token, Error *error);
bool text_end(Text *text, const GenerationResult *result, Error *error);

#endif
