/* Decoding: the tokens of several sequences one after the other, over a key/value cache. */
#ifndef INKLING_MODEL_DECODER_H
#define INKLING_MODEL_DECODER_H

#include "model.h"

enum { DECODER_LOOKBACK = 4096 }; /* tokens a repeat penalty can look back at, even when the context is shorter */

typedef struct Decoder Decoder;

/* Caches for `rows` sequences of up to ctx positions. Shares the model's weights; may be used while training is paused
 * between steps. EXIT_MEMORY. */
bool decoder_open(Decoder **out, Model *model, int rows, Error *error);
void decoder_close(Decoder *decoder);
/* Rows 0 to rows - 1, of those that it was opened for, are those that decoder_next() and decoder_logits() go on with;
 * the others stay what they are. At first all. */
void decoder_use_rows(Decoder *decoder, int rows);
/* Above an encoder: what row `row` answers, 1..ctx tokens. Computed once, and kept until it is called again; a row
 * needs it before decoder_prompt(). EXIT_INPUT; EXIT_INTERNAL for a token outside of the vocabulary of sources. */
bool decoder_source(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* Starts row `row` with a prompt of 1..ctx tokens. What follows depends on the row's own prompt, source, sampling and
 * biases alone, bit for bit. EXIT_INPUT; EXIT_INTERNAL. */
bool decoder_prompt(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* How the row draws, and its random stream. Until it is called, nothing is defined. */
void decoder_sampling(Decoder *decoder, int row, const Sampling *sampling, uint32_t stream);
/* What is added to the logits of `count` different tokens, at most a vocabulary of them, until the next call; in a row
 * that never had any it is nothing. -INFINITY: never drawn. EXIT_MEMORY. */
bool decoder_bias(Decoder *decoder, int row, const int32_t *tokens, const float *values, int count, Error *error);
/* Row `to` becomes what row `from` is. */
void decoder_copy(Decoder *decoder, int to, int from);
/* Row `to` begins with the source and the `count` tokens that row `from` began with, which has not slid since. */
void decoder_begin_as(Decoder *decoder, int to, int from, int count);
/* Draws the next token of every row in use into next[rows]. EXIT_NONFINITE when logits are not finite. */
bool decoder_next(Decoder *decoder, int32_t *next, Error *error);
/* Positions left before the row's context is full: decoder_next may be called this often. */
int decoder_capacity_left(const Decoder *decoder, int row);
const Model *decoder_model(const Decoder *decoder);
/* Drops all but the row's last `keep` tokens and computes its cache again (positions restart at 0). */
bool decoder_slide(Decoder *decoder, int row, int keep, Error *error);
/* Logits of the next token of the rows in use, before any bias or penalty: host fp32 [rows][vocab]. */
bool decoder_logits(Decoder *decoder, float *logits, Error *error);
/* The same after the embedding, and after each layer of the decoder: the residual stream there, through the final norm,
 * where there is one, and the head (the logit lens, nostalgebraist 2020). Host fp32 [layers + 1][rows][vocab]; the last
 * are those of decoder_logits(), bit for bit. */
bool decoder_lens(Decoder *decoder, float *logits, Error *error);

#endif
