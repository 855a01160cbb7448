/* Writing text with a model: prompt in, bytes out. The samples of ./train and the text of ./generate come from here. */
#ifndef INKLING_MODEL_GENERATION_H
#define INKLING_MODEL_GENERATION_H

#include "util/error.h"
#include "util/progress.h"
#include "model.h"
#include "tokenizer/tokenizer.h"

typedef enum StopReason { STOP_LENGTH, STOP_END, STOP_CONTEXT, STOP_CALLER } StopReason;
const char *generation_stop_name(StopReason reason); /* "length", "end of text", "context full", "interrupted" */

typedef struct GenerationRequest {
  Decoder *decoder; /* of one row */
  const Tokenizer *tokenizer;
  Sampling sampling;
  const int32_t *prompt; /* 1..ctx tokens */
  int prompt_tokens;
  int64_t max_tokens; /* new tokens; < 0: until the end token or, without `slide`, until the context is full */
  bool slide;         /* when the context is full: keep its last half, compute it again and continue; else stop */
  bool ignore_end;    /* the end token is neither printed nor obeyed */
  /* Receives the text in pieces of whole UTF-8 characters (bytes that can never become one come as they are). Returns
   * false to stop. */
  bool (*emit)(void *context, const uint8_t *bytes, size_t size);
  void *emit_context;
  BpeIds *drawn;     /* NULL, or the tokens are appended to it, but for an end token */
  Progress progress; /* tokens, before each; it stops without an error, too: STOP_CALLER */
} GenerationRequest;

typedef struct GenerationResult {
  int64_t tokens; /* drawn, the end token included */
  StopReason reason;
  double first_token_seconds, seconds; /* prompt and first token; the whole */
} GenerationResult;

/* The sampling of samples and of ./generate, unless told otherwise. */
Sampling generation_sampling(void);
/* Always the likeliest token. */
Sampling generation_greedy(void);

/* Appends to `ids` what the model reads for a prompt: its tokens, after the end token where the tokenizer says that
 * texts begin with it; `start` for a text of nothing. EXIT_MEMORY; what was appended stays the caller's to free. */
bool generation_prompt(const Tokenizer *tokenizer, int32_t start, const uint8_t *text, size_t size, BpeIds *ids,
                       Error *error);

bool generation_run(const GenerationRequest *request, GenerationResult *result, Error *error);

#endif
