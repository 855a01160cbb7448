/* Text generation: prompts in, bytes out, several texts at a time. Each text is bit for bit the one that its prompt
 * would get alone. The caller adds texts with generation_add(), calls generation_step() until they have ended, and
 * reads what was generated. */
#ifndef INKLING_INFERENCE_GENERATION_H
#define INKLING_INFERENCE_GENERATION_H

#include "inference/sampling.h"
#include "inference/token_rules.h"
#include "model.h"
#include "model/decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "base/array.h"
#include "base/error.h"

typedef enum StopReason { STOP_LENGTH, STOP_END, STOP_TEXT, STOP_CONTEXT, STOP_CALLER } StopReason;
const char *generation_stop_name(StopReason reason); /* "length", "end of text", "stop text", "context full",
                                                        "interrupted" */

/* The tokens of one prompt. */
typedef struct PromptTokens {
  BpeIds source;  /* for the encoder; empty: the model has none */
  BpeIds decoder; /* the first tokens that the decoder reads */
} PromptTokens;

typedef struct TokenAlternative {
  int32_t id;
  float logprob; /* nats: log softmax of the logits, before any bias, penalty or temperature */
} TokenAlternative;

typedef struct TextToken {
  size_t begin;  /* offset of its first byte in the text; may lie after the end of a text that a stop text ended */
  float logprob; /* NaN if not requested */
} TextToken;

/* One text: the settings for generating it, and what has been generated so far. Zero but for what the caller fills. */
typedef struct Text {
  /* filled by the caller */
  PromptTokens prompt; /* each 1..ctx tokens; not owned, read by generation_add() */
  size_t cached; /* the first tokens of the prompt, which are all that row 0 has after the text before; 0: none. One row
                  * only. Their keys and values are kept, so bits can differ from those of a prompt without `cached` */
  Sampling sampling;
  uint32_t stream;    /* number of the random stream */
  int64_t max_tokens; /* new tokens; < 0: until an end token or, without `keep`, until the context is full */
  int keep; /* when the context is full: keep this many of its last tokens, compute them again and continue; 0: stop */
  bool ignore_end;   /* end tokens do not stop the text; as special tokens they have no text */
  PatternList stops; /* the text ends before the first of these that appears in it; not owned */
  TokenRules *rules; /* NULL: none; not owned */
  int alternatives;  /* keep log-probabilities of each token and this many (<= vocab) likeliest ones; < 0: none */
  bool keep_tokens;  /* keep the tokens, also without log-probabilities */
  /* what has been generated */
  ByteBuffer bytes; /* when it has ended: the text. Before: whole characters (invalid bytes unchanged), [ready], then
                     * bytes of an incomplete one or of what may become a stop text */
  size_t ready;
  int64_t count;         /* tokens, including the end token */
  int32_t last;          /* the last one of them */
  BpeIds ids;            /* those that were kept, without the end token that stops the text */
  TextToken *tokens;     /* [ids.count] */
  TokenAlternative *top; /* [ids.count][alternatives], likeliest first; ties: lower id first */
  bool ended;
  StopReason reason;                   /* STOP_CALLER until it has ended */
  double first_token_seconds, seconds; /* since it was begun: to the first token, to the last one or the end */
  /* of the generation */
  double start;
  bool at_start;   /* no token so far has any text */
  size_t *matched; /* [stop texts], then [banned texts]: how many bytes of each the text ends with */
  size_t tokens_capacity, top_capacity;
} Text;

/* Drops the bytes that are ready, once the caller has used them: a text without end then needs no memory for them. */
void generation_drop_ready(Text *text);
/* Frees what was made, but not the text itself; harmless on a zeroed struct. */
void generation_free_text(Text *text);
/* Adds a token, where tokens are kept: `begin` is at the end of the bytes. `top` [alternatives]. EXIT_MEMORY. */
bool generation_add_token(Text *text, int32_t id, float logprob, const TokenAlternative *top, Error *error);

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

/* ---- texts in progress ---- */

typedef struct Generation Generation;

/* Texts that are made with the first `rows` rows of a decoder, which must outlive it, as must the tokenizer.
 * EXIT_MEMORY. generation_close() accepts NULL. */
bool generation_open(Generation **out, Decoder *decoder, int rows, const Tokenizer *tokenizer, Error *error);
void generation_close(Generation *generation);

int generation_count(const Generation *generation);     /* the number of texts in progress */
bool generation_has_room(const Generation *generation); /* for another text */
/* Begins a text, which must stay at its address until it has ended or generation_close(). Requires room. EXIT_MEMORY,
 * errors of the device. */
bool generation_add(Generation *generation, Text *text, Error *error);
/* Drops the texts in progress as they are. NULL is harmless. */
void generation_interrupt(Generation *generation);
/* Draws a token of every text in progress; or ends those that have no next one, because of their length or of the
 * context. A text that has ended makes room for another one. EXIT_MEMORY, EXIT_USAGE of token_rules_list(), errors of
 * the device. */
bool generation_step(Generation *generation, Error *error);

#endif
