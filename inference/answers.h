/* What a model writes after the prompts of pairs. */
#ifndef INKLING_INFERENCE_ANSWERS_H
#define INKLING_INFERENCE_ANSWERS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/windows.h"
#include "inference/generation.h"
#include "model/decoder.h"

/* Prompts and their targets, without end tokens, out of windows of pairs. */
typedef struct PairReader {
  const Windows *windows;
  bool encoder;        /* prompts are sources, with an end token behind them; else they begin with `before` */
  int32_t before, end; /* of targets */
  struct Batch *room;
  int64_t window;
  int place;
} PairReader;

/* Opened by pair_reader_open, closed by pair_reader_close, which is harmless on a zeroed struct. EXIT_MEMORY. */
bool pair_reader_open(PairReader *out, const Windows *windows, const Model *model, const Tokenizer *tokenizer,
                      Error *error);
void pair_reader_close(PairReader *reader);

/* The next pair into two lists, which the caller frees; *given false: there are no more. */
bool pair_reader_next(PairReader *reader, BpeIds *prompt, BpeIds *target, bool *given, Error *error);

/* A request for the likeliest answer to a prompt of pair_reader_next, of at most `limit` tokens. */
GenerationRequest answer_request(const PairReader *reader, const BpeIds *prompt, int64_t limit);

/* How many of the likeliest answers to the first `limit` pairs (0: all) are exactly their targets, `rows` of them at a
 * time. `progress` counts pairs, and is asked before every token; it may stop without an error, too. */
typedef struct ExactCount {
  int64_t pairs, exact;
} ExactCount;
bool answers_count_exact(Decoder *decoder, int rows, const Tokenizer *tokenizer, const Windows *windows, int64_t limit,
                         Progress progress, ExactCount *out, Error *error);

#endif
