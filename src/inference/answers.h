/* Generated responses to the prompts of pairs. */
#ifndef INKLING_INFERENCE_ANSWERS_H
#define INKLING_INFERENCE_ANSWERS_H

#include "text/dataset/windows.h"
#include "inference/batch.h"
#include "inference/generation.h"
#include "model/decoder.h"
#include "base/error.h"
#include "base/progress.h"

/* Reads prompts and their targets, without end tokens, from windows of pairs. */
typedef struct PairReader {
  const Windows *windows;
  bool encoder;        /* prompts are sources and end with an end token; else they begin with `before` */
  int32_t before, end; /* the tokens before and after a target */
  Batch batch;         /* holds one window */
  int64_t window;      /* the next window */
  int position;        /* in the window */
} PairReader;

/* Opens a reader and closes it; closing is harmless on a zeroed struct. EXIT_MEMORY. */
bool pair_reader_open(PairReader *out, const Windows *windows, const Model *model, const Tokenizer *tokenizer,
                      Error *error);
void pair_reader_close(PairReader *reader);

/* Reads the next pair into two lists, which the caller frees; *given false: there are no more. */
bool pair_reader_next(PairReader *reader, BpeIds *prompt, BpeIds *target, bool *given, Error *error);

/* Returns the greedy response, yet to be made, to a prompt of pair_reader_next(): at most `limit` tokens, which are
 * kept. */
Text answer_text(const PairReader *reader, const BpeIds *prompt, int64_t limit);

/* Counts the greedy responses to the first `limit` pairs (0: all) that equal their targets exactly; `rows` responses
 * are generated at a time. `progress` counts pairs and is called before every token; it may also stop the work without
 * an error. */
typedef struct ExactCount {
  int64_t pairs, exact;
} ExactCount;
bool answers_count_exact(Decoder *decoder, int rows, const Tokenizer *tokenizer, const Windows *windows, int64_t limit,
                         Progress progress, ExactCount *out, Error *error);

#endif
