/* Writing texts with a model: prompts in, bytes out, several at a time. Each is the text that its prompt would get
 * alone, bit for bit. The samples of ./train and the texts of ./generate come from here. */
#ifndef INKLING_INFERENCE_GENERATION_H
#define INKLING_INFERENCE_GENERATION_H

#include "util/error.h"
#include "util/matcher.h"
#include "util/progress.h"
#include "model.h"
#include "inference/sampling.h"
#include "inference/token_rules.h"
#include "tokenizer/tokenizer.h"
#include "model/decoder.h"

typedef enum StopReason { STOP_LENGTH, STOP_END, STOP_TEXT, STOP_CONTEXT, STOP_CALLER } StopReason;
const char *generation_stop_name(StopReason reason); /* "length", "end of text", "stop text", "context full",
                                                        "interrupted" */

/* Texts at which others stop. */
typedef struct StopTexts {
  Pattern *patterns;
  int count;
} StopTexts;

/* A text to be written. */
typedef struct GenerationRequest {
  const int32_t *source; /* above an encoder: 1..ctx tokens */
  int source_tokens;
  const int32_t *prompt; /* 1..ctx tokens */
  int prompt_tokens;
  Sampling sampling;
  uint32_t stream;    /* of random numbers */
  int64_t max_tokens; /* new tokens; < 0: until the end token or, without `keep`, until the context is full */
  int keep;           /* when the context is full: keep so many of its last tokens, compute them again and continue; 0:
                         stop */
  bool ignore_end;    /* the end token is neither printed nor obeyed */
  StopTexts stops;    /* the text ends before the first that appears in it */
  TokenRules *rules;  /* NULL: none */
  int alternatives;   /* log-probabilities of each token and of so many of the likeliest, at most as many as the
                         vocabulary has; < 0: none */
  void *text;         /* the caller's, for its functions */
} GenerationRequest;

typedef struct GenerationResult {
  int64_t tokens; /* drawn, the end token included */
  int64_t bytes;  /* of the text */
  StopReason reason;
  double first_token_seconds, seconds; /* since the text was begun: prompt and first token; the whole */
} GenerationResult;

typedef struct TokenAlternative {
  int32_t id;
  float logprob; /* nats: log softmax of the logits, before any bias, penalty or temperature */
} TokenAlternative;

typedef struct GeneratedToken {
  int32_t id;
  int64_t begin;               /* byte of the text where its own begin; they may stand behind the end of the text */
  float logprob;               /* NaN where none was asked for */
  const TokenAlternative *top; /* [alternatives], likeliest first; of equal ones the lower id */
} GeneratedToken;

/* The next text to write; what it points to stays until that is done. `wait`: none is being written, so it may take its
 * time. *given, false before: there is one; if not, there is none yet, or, where it might have waited, no more. */
typedef bool GenerationNext(void *context, bool wait, GenerationRequest *out, bool *given, Error *error);

/* All of the work. Functions that are NULL are not called. */
typedef struct Generation {
  Decoder *decoder;
  int rows; /* texts at a time, at most as many as the decoder was opened for */
  const Tokenizer *tokenizer;
  void *context; /* for the functions */
  GenerationNext *next;
  /* A piece of a text, of whole UTF-8 characters (bytes that can never become one come as they are). False stops the
   * whole work without an error: all texts are done, as STOP_CALLER. */
  bool (*emit)(void *context, void *text, const uint8_t *bytes, size_t size);
  /* A token of a text, before its bytes; end tokens that are obeyed or ignored are none. */
  bool (*token)(void *context, void *text, const GeneratedToken *token, Error *error);
  bool (*done)(void *context, void *text, const GenerationResult *result, Error *error);
  Progress progress; /* tokens drawn, before each; stops without an error, too: STOP_CALLER */
} Generation;

/* How many texts at a time are worth their caches: 1 to `most`. */
int generation_rows(const Model *model, int most);

/* Appends to `ids` what the model reads for a prompt: its tokens, after the end token where the tokenizer says that
 * texts begin with it; `start` for a text of nothing. EXIT_MEMORY; what was appended stays the caller's to free. */
bool generation_prompt(Tokenizer *tokenizer, int32_t start, const uint8_t *text, size_t size, BpeIds *ids,
                       Error *error);

/* Until there is no next text. On an error no text is done any more. */
bool generation_run(const Generation *generation, Error *error);

/* One text, with functions of `generation` but next and done. */
bool generation_run_one(const Generation *generation, const GenerationRequest *request, GenerationResult *result,
                        Error *error);

#endif
