/* The documents of a corpus in blocks of some MB, which all threads share. */
#ifndef INKLING_DATASET_DOCUMENT_BLOCKS_H
#define INKLING_DATASET_DOCUMENT_BLOCKS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "tokenizer/pipeline.h"

typedef struct DocumentBlock {
  const PipelineText *texts;   /* documents or, in a corpus with prompts, their responses */
  const PipelineText *prompts; /* theirs; NULL: the corpus has none */
  size_t count;
  bool ends; /* false: it is a slice of a large document, and not the last */
} DocumentBlock;
typedef bool (*DocumentBlockSink)(void *context, const DocumentBlock *block, Error *error);

/* Reads the corpus from its beginning. A document of more than 32 MB comes in slices, cut where `pipeline`
 * allows it, unless it has a prompt. `progress` counts the bytes of the corpus that are done. What corpus_next says,
 * EXIT_MEMORY; the error of the sink or of `progress`. */
bool document_blocks_read(Corpus *corpus, const Pipeline *pipeline, Progress progress, DocumentBlockSink sink,
                          void *context, Error *error);

#endif
