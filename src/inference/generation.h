/* Text generation: prompts in, bytes out, several texts at a time. Each text is bit for bit the one that its prompt
 * would get alone. Used by the samples of ./train and by ./generate. */
#ifndef INKLING_INFERENCE_GENERATION_H
#define INKLING_INFERENCE_GENERATION_H

#include "inference/sampling.h"
#include "inference/token_rules.h"
#include "model.h"
#include "model/decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "base/error.h"
#include "base/progress.h"

typedef enum StopReason { STOP_LENGTH, STOP_END, STOP_TEXT, STOP_CONTEXT, STOP_CALLER } StopReason;
const char *generation_stop_name(StopReason reason); /* "length", "end of text", "stop text", "context full",
                                                        "interrupted" */

/* The tokens of one prompt. */
typedef struct PromptTokens {
  BpeIds source;  /* for the encoder; empty: the model has none */
  BpeIds decoder; /* the first tokens that the decoder reads */
} PromptTokens;

/* The request for one text. */
typedef struct GenerationRequest {
  PromptTokens prompt; /* each 1..ctx tokens; not owned */
  Sampling sampling;
  uint32_t stream;    /* number of the random stream */
  int64_t max_tokens; /* new tokens; < 0: until an end token or, without `keep`, until the context is full */
  int keep; /* when the context is full: keep this many of its last tokens, compute them again and continue; 0: stop */
  bool ignore_end;   /* end tokens do not stop the text; as special tokens they have no text */
  PatternList stops; /* the text ends before the first of these that appears in it */
  TokenRules *rules; /* NULL: none */
  int alternatives;  /* report log-probabilities of each token and this many (<= vocab) likeliest ones; < 0: none */
  void *text;        /* passed to the functions of Generation */
} GenerationRequest;

typedef struct GenerationResult {
  int64_t tokens; /* generated, including the end token */
  int64_t bytes;  /* bytes of the text */
  StopReason reason;
  double first_token_seconds, seconds; /* since the start of the text: to the first token, to the end */
} GenerationResult;

typedef struct TokenAlternative {
  int32_t id;
  float logprob; /* nats: log softmax of the logits, before any bias, penalty or temperature */
} TokenAlternative;

typedef struct GeneratedToken {
  int32_t id;
  int64_t begin;               /* offset of its first byte in the text; may lie after the end of the text */
  float logprob;               /* NaN if not requested */
  const TokenAlternative *top; /* [alternatives], likeliest first; ties: lower id first */
} GeneratedToken;

/* Gets the next request; the memory that it points to must stay valid until the text is done, that of the prompt until
 * the next call. *given is false on entry, and on return if there is no request yet; with `wait`: no more requests.
 * `wait`: no text is in progress, so the function may block. */
typedef bool GenerationNext(void *context, bool wait, GenerationRequest *out, bool *given, Error *error);

/* The decoder, and the functions that supply requests and receive text. NULL functions are not called. */
typedef struct Generation {
  Decoder *decoder;
  int rows; /* texts at a time, at most the rows of the decoder */
  const Tokenizer *tokenizer;
  void *context; /* passed to the functions */
  GenerationNext *next;
  /* Receives a piece of a text in whole UTF-8 characters (invalid bytes are passed unchanged). Returning false without
   * an error ends all texts, with STOP_CALLER. */
  bool (*emit)(void *context, void *text, const uint8_t *bytes, size_t size, Error *error);
  /* Receives a token of a text, before its bytes, except for an end token that stops the text. */
  bool (*token)(void *context, void *text, const GeneratedToken *token, Error *error);
  bool (*done)(void *context, void *text, const GenerationResult *result, Error *error);
  Progress progress; /* counts tokens, before each one; stopping is no error: STOP_CALLER */
} Generation;

/* Returns log softmax(logits [vocab])[id] and writes the `count` <= vocab likeliest tokens to `top`, likeliest first,
 * ties by lower id. NaN when no logit is finite. */
float logprobs_of(const float *logits, int vocab, int32_t id, TokenAlternative *top, int count);

/* The distribution from which a token comes. */
typedef struct PredictionMeasures {
  double entropy; /* bits: -sum p log2 p */
  int rank;       /* of the token: 1 + the number of likelier ones */
} PredictionMeasures;
PredictionMeasures prediction_measure(const float *logits, int vocab, int32_t id);

/* What turns a prompt into tokens. */
typedef struct PromptEncoder {
  Tokenizer *source; /* of the encoder's texts; NULL: the model has no encoder */
  Tokenizer *tokenizer;
  int32_t start; /* begins answers, and texts without a prompt */
} PromptEncoder;

/* Encodes a prompt into empty lists: with an encoder its tokens and an end token become the source, and the decoder
 * begins with `start` and the beginning of an answer; else as generation_prompt(). EXIT_MEMORY. */
bool generation_encode(const PromptEncoder *encoder, const uint8_t *text, size_t size, const uint8_t *answer,
                       size_t answer_size, PromptTokens *out, Error *error);

/* Returns how many texts to generate at a time, 1 to `most`: as many as have caches that together are at most as large
 * as the fp32 weights, or 64 MiB if that is more. */
int generation_rows(const Model *model, int most);

/* Appends to `ids` the tokens of a prompt, preceded by the end token if the tokenizer says that texts begin with it;
 * `start` for an empty text. EXIT_MEMORY; the caller also frees `ids` after a failure. */
bool generation_prompt(Tokenizer *tokenizer, int32_t start, const uint8_t *text, size_t size, BpeIds *ids,
                       Error *error);

/* Generates texts until `next` has no more. After an error no further text is done. */
bool generation_run(const Generation *generation, Error *error);

/* The same step by step, for callers that cannot wait for the end. */
typedef struct GenerationRun GenerationRun;
/* `generation` must outlive the run. EXIT_MEMORY. */
bool generation_begin(GenerationRun **out, const Generation *generation, Error *error);
/* Draws a token of every text in progress; *more false: `next` has no more requests, or the caller stopped. */
bool generation_step(GenerationRun *run, bool *more, Error *error);
void generation_end(GenerationRun *run); /* NULL is allowed */

/* Generates one text, without the functions next and done. */
bool generation_run_one(const Generation *generation, const GenerationRequest *request, GenerationResult *result,
                        Error *error);

#endif
