/* The documents of a corpus in blocks of some MB, which all threads share. */
#ifndef INKLING_DATASET_DOCUMENT_BLOCKS_H
#define INKLING_DATASET_DOCUMENT_BLOCKS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "tokenizer/pretokenize.h"

/* Takes a block: whole texts, or a slice of a large one, whose last slice `ends` it. */
typedef bool (*DocumentBlockSink)(void *context, const PretokenizeText *texts, size_t count, bool ends, Error *error);

/* Reads the corpus from its beginning. Texts are documents or, in a corpus with prompts, the prompt and the response of
 * each document in turn. A document of more than 32 MB comes in slices, cut where pretokenize_cut allows it. `progress`
 * counts the bytes of the corpus that are done. What corpus_next says, EXIT_MEMORY; the error of the sink or of
 * `progress`. */
bool document_blocks_read(Corpus *corpus, const CharClasses *classes, Progress progress, DocumentBlockSink sink,
                          void *context, Error *error);

#endif
