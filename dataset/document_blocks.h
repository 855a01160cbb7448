/* Reading of a corpus in blocks of documents, a few MB each, that threads process together. */
#ifndef INKLING_DATASET_DOCUMENT_BLOCKS_H
#define INKLING_DATASET_DOCUMENT_BLOCKS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "tokenizer/pipeline.h"

typedef struct DocumentBlock {
  const PipelineText *texts;   /* documents or, in a corpus with prompts, their responses */
  const PipelineText *prompts; /* the prompts of these; NULL: the corpus has none */
  size_t count;
  bool ends; /* false: the block is a slice of a large document, not the last one */
} DocumentBlock;
typedef bool (*DocumentBlockSink)(void *context, const DocumentBlock *block, Error *error);

/* Reads the corpus from its beginning. It divides a document of more than 32 MB into slices, cut where `pipeline`
 * allows it, unless the document has a prompt. `progress` counts the processed bytes of the corpus. Errors of
 * corpus_next, EXIT_MEMORY; the error of the sink or of `progress`. */
bool document_blocks_read(Corpus *corpus, const Pipeline *pipeline, Progress progress, DocumentBlockSink sink,
                          void *context, Error *error);

#endif
