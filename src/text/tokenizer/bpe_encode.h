/* Encoding of documents to token ids by several threads. The ids do not depend on the number of threads. */
#ifndef INKLING_TEXT_TOKENIZER_BPE_ENCODE_H
#define INKLING_TEXT_TOKENIZER_BPE_ENCODE_H

#include "base/error.h"
#include "text/tokenizer/pipeline.h"
#include "base/progress.h"

#include <stddef.h>
#include <stdint.h>

typedef struct BpeEncoder BpeEncoder;

/* Creates an encoder with a cache of words and their ids, 2 MiB per thread, and buffers. `special`: it recognizes
 * special tokens in texts. The pipeline must outlive it. The caller frees it with bpe_encoder_free. EXIT_MEMORY. Only
 * one thread may call an encoder at a time. */
bool bpe_encoder_create(BpeEncoder **out, const Pipeline *pipeline, bool special, int threads, StopSignal stop,
                        Error *error);
void bpe_encoder_free(BpeEncoder *encoder);

/* The pieces of a text, and how many of them are not in a vocabulary of whole pieces. */
typedef struct EncodedPieces {
  int64_t pieces, missing;
} EncodedPieces;

/* From now on, leaves missing pieces out instead of failing, and counts. `counts` must outlive the encoder. */
void bpe_encoder_leave_out(BpeEncoder *encoder, EncodedPieces *counts);

/* Receives the next `count` ids, in the order of the text; false, with `error` filled, stops the encoding. */
typedef bool (*BpeSink)(void *context, const int32_t *ids, size_t count, Error *error);

/* Encodes documents independently and passes their ids to the sink, a few MB of text at a time. Memory use does not
 * depend on the size of the text (except for single pieces of many MB, and for documents that pipeline_cut() cannot
 * cut). The id `end` follows each document; negative: no id follows, and the first document of the next call continues
 * the last one of this call. EXIT_MEMORY, EXIT_SIGNALS + the signal, EXIT_INPUT for a missing piece, or the
 * error of pipeline_run() or of the sink. */
bool bpe_encode(BpeEncoder *encoder, const PipelineText *documents, size_t count, int32_t end, BpeSink sink,
                void *context, Error *error);

/* Ids that bpe_ids_sink() collects. Starts as {0}; the caller frees `ids`. */
typedef struct BpeIds {
  int32_t *ids;
  size_t count, capacity;
} BpeIds;
bool bpe_ids_sink(void *ids, const int32_t *more, size_t count, Error *error);

/* Adds the ids of one whole text to `out`, without a token after them and independently of earlier calls. Errors as
 * above. */
bool bpe_encode_text(BpeEncoder *encoder, const uint8_t *text, size_t size, BpeIds *out, Error *error);

#endif
