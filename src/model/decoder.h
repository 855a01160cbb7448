/* Decoding: generates several sequences token by token with a key/value cache. */
#ifndef INKLING_MODEL_DECODER_H
#define INKLING_MODEL_DECODER_H

#include "model.h"

enum { DECODER_LOOKBACK = 4096 }; /* tokens a repeat penalty can look back at, even when the context is shorter */

typedef struct Decoder Decoder;

/* The bytes of a row's key/value caches and states of convolutions. `dtype_size`: bytes of the compute dtype. */
int64_t decoder_cache_bytes(const ModelConfig *config, size_t dtype_size);
/* Caches for `rows` sequences of up to ctx positions. Shares the model's weights; may be used while training is paused
 * between steps. EXIT_MEMORY. */
bool decoder_open(Decoder **out, Model *model, int rows, Error *error);
void decoder_close(Decoder *decoder);
/* Makes rows 0 to rows - 1 the rows in use, which decoder_next() and decoder_logits() work on; the others keep their
 * state. All rows are in use at first. */
void decoder_use_rows(Decoder *decoder, int rows);
/* With an encoder: sets the source of row `row`, 1..ctx tokens, and computes its keys and values once. A row needs a
 * source before decoder_prompt(). EXIT_INPUT; EXIT_INTERNAL for a token outside of the source vocabulary. */
bool decoder_source(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* Starts row `row` with a prompt of 1..ctx tokens. The text generated from it depends, bit for bit, only on the row's
 * own prompt, source, sampling and biases. EXIT_INPUT; EXIT_INTERNAL. */
bool decoder_prompt(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* Appends tokens to those of the only row in use, as if they had been drawn. The row must have begun with a prompt.
 * EXIT_INPUT when they do not fit into the context; EXIT_INTERNAL. */
bool decoder_extend(Decoder *decoder, const int32_t *tokens, int count, Error *error);
/* Sets how the row samples, and the number of its random stream. Required before decoder_next(). */
void decoder_sampling(Decoder *decoder, int row, const Sampling *sampling, uint32_t stream);
/* Sets the biases that are added to the logits of `count` different tokens until the next call; none at first.
 * -INFINITY: the token is never sampled. EXIT_MEMORY. */
bool decoder_bias(Decoder *decoder, int row, const int32_t *tokens, const float *values, int count, Error *error);
/* Copies the state of row `from` to row `to`. */
void decoder_copy(Decoder *decoder, int to, int from);
/* Starts row `to` with the source and the prompt of row `from`, which must not have slid. */
void decoder_begin_as(Decoder *decoder, int to, int from);
/* Samples the next token of every row in use into next[rows]. EXIT_NONFINITE when logits are not finite. */
bool decoder_next(Decoder *decoder, int32_t *next, Error *error);
/* The number of positions left in the row's context: decoder_next() may be called that many times. */
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
