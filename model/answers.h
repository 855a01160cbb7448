/* What a model writes after many prompts. Above an encoder they are one batch; each answer is the one that its prompt
 * would get alone. */
#ifndef INKLING_MODEL_ANSWERS_H
#define INKLING_MODEL_ANSWERS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/windows.h"
#include "model.h"
#include "tokenizer/tokenizer.h"

enum { ANSWER_ROWS = 32 };

/* Opened by answers_open, closed by answers_close. The caller fills count and prompts, and then calls answers_write. */
typedef struct Answers {
  bool encoder;
  int32_t end, source_end;
  Decoder *decoder;
  BpeIds begin;                /* above an encoder: what every answer begins with, the end token at first */
  int rows;                    /* prompts in a batch, at most */
  int count;                   /* that wait for an answer */
  BpeIds prompts[ANSWER_ROWS]; /* 1..ctx tokens each; above an encoder a source, with its end token */
  bool skipped[ANSWER_ROWS];   /* no prompt: the answer is empty */
  BpeIds answers[ANSWER_ROWS]; /* without end tokens */
  bool ended[ANSWER_ROWS];     /* with an end token; else the limit or the context came first */
  int64_t tokens;              /* drawn in all batches */
} Answers;

typedef struct AnswerRequest {
  Sampling sampling;
  uint32_t first_stream; /* prompt i draws from random stream first_stream + i */
  int64_t limit;         /* tokens of an answer; < 0: the context alone limits it */
  bool ignore_end;       /* end tokens neither end an answer nor are in it */
  Progress progress;     /* tokens drawn for each, before each */
} AnswerRequest;

/* Opens a decoder. `source`: the tokenizer of sources, where they have one of their own, or NULL. EXIT_MEMORY.
 * answers_close is harmless on a zeroed struct. */
bool answers_open(Answers *a, Model *model, const Tokenizer *tokenizer, const Tokenizer *source, Error *error);
void answers_close(Answers *a);

bool answers_write(Answers *a, const AnswerRequest *request, Error *error);

/* Prompts and their targets, without end tokens, out of windows of pairs. */
typedef struct PairReader {
  const Windows *windows;
  struct Batch *room;
  int64_t window;
  int place;
} PairReader;

/* Fills a batch with the next pairs: its prompts, and targets[i], which the caller frees. None are left when count is 0
 * afterwards. Begin and end with answers_pairs_begin and _end. */
bool answers_pairs_begin(PairReader *reader, const Windows *windows, Error *error);
bool answers_pairs_next(PairReader *reader, Answers *a, BpeIds targets[ANSWER_ROWS], Error *error);
void answers_pairs_end(PairReader *reader);

/* How many of the likeliest answers to the first `limit` pairs (0: all) are exactly their targets. `progress` counts
 * pairs, and is asked before every token; it may stop without an error, too. */
typedef struct ExactCount {
  int64_t pairs, exact;
} ExactCount;
bool answers_count_exact(Answers *a, const Windows *windows, int64_t limit, Progress progress, ExactCount *out,
                         Error *error);

#endif
