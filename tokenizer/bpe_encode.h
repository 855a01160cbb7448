/* Documents to token ids, by several threads. The ids do not depend on how many. */
#ifndef INKLING_TOKENIZER_BPE_ENCODE_H
#define INKLING_TOKENIZER_BPE_ENCODE_H

#include "util/error.h"
#include "tokenizer/pipeline.h"
#include "util/stop.h"

#include <stddef.h>
#include <stdint.h>

typedef struct BpeEncoder BpeEncoder;

/* Holds caches of words and their ids, 2 MiB a thread, and buffers. `special`: special tokens are found in texts. The
 * pipeline must outlive it. The caller frees it with bpe_encoder_free. EXIT_MEMORY. One call at a time. */
bool bpe_encoder_create(BpeEncoder **out, const Pipeline *pipeline, bool special, int threads, StopSignal stop,
                        Error *error);
void bpe_encoder_free(BpeEncoder *encoder);

/* Takes the next `count` ids, in the order of the text; false stops the encoding (with `error` filled). */
typedef bool (*BpeSink)(void *context, const int32_t *ids, size_t count, Error *error);

/* Encodes documents, each by itself, and passes their ids on, some MB of text at a time: any size of text takes a fixed
 * amount of memory (but for single pieces of many MB, and for documents that pipeline_cut() cannot cut). After each
 * document comes `end`. Where that is negative the last document is not at its end: the first one of the next call
 * continues it. EXIT_MEMORY, EXIT_SIGNALS + the signal, or what pipeline_run() or the sink say. */
bool bpe_encode(BpeEncoder *encoder, const PipelineText *documents, size_t count, int32_t end, BpeSink sink,
                void *context, Error *error);

/* A sink that keeps all. Starts as {0}; the caller frees `ids`. */
typedef struct BpeIds {
  int32_t *ids;
  size_t count, capacity;
} BpeIds;
bool bpe_ids_sink(void *ids, const int32_t *more, size_t count, Error *error);

/* Adds the ids of one whole text to `out`, with no token behind them, whatever was encoded before. Errors as above. */
bool bpe_encode_text(BpeEncoder *encoder, const uint8_t *text, size_t size, BpeIds *out, Error *error);

#endif
