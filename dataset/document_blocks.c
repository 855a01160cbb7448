#include "dataset/document_blocks.h"

#include "util/array.h"

#include <stdlib.h>
#include <string.h>

enum {
  BLOCK_BYTES = 16 << 20, /* capacity of a block of small documents */
  SLICE_BYTES = 32 << 20  /* size of the slices of a large document, which is not copied */
};

typedef struct Block {
  Corpus *corpus;
  Document pending; /* read, but not in a block yet; .text NULL: none */
  PipelineText *texts, *prompts;
  size_t count, capacity, prompt_capacity;
  uint8_t *bytes; /* [BLOCK_BYTES] copies of the documents, which are only valid until the next one is read */
  size_t used;
} Block;

static bool add_document(Block *b, const uint8_t *text, const Document *document, Error *error) {
  const bool has_prompt = corpus_has_prompts(b->corpus);
  const size_t begin = has_prompt ? document->prompt : 0;
  if (!array_reserve(&b->texts, &b->capacity, b->count + 1, sizeof *b->texts) ||
      (has_prompt && !array_reserve(&b->prompts, &b->prompt_capacity, b->count + 1, sizeof *b->prompts)))
    return fail(error, EXIT_MEMORY, "out of memory for a block of %zu texts", b->count + 1);
  if (has_prompt) b->prompts[b->count] = (PipelineText){text, begin};
  b->texts[b->count++] = (PipelineText){text + begin, document->size - begin};
  return true;
}

/* Reads the next documents; b->count is 0 at the end. A large document is a block of its own, and is not copied. */
static bool next_block(Block *b, Error *error) {
  b->count = b->used = 0;
  for (;;) {
    if (!b->pending.text && !corpus_next(b->corpus, &b->pending, error)) return false;
    const Document *next = &b->pending;
    const bool large = next->size > BLOCK_BYTES / 4;
    if (!next->text || (b->count && (large || next->size > BLOCK_BYTES - b->used))) return true;
    const uint8_t *text = next->text;
    if (!large) {
      text = memcpy(b->bytes + b->used, next->text, next->size);
      b->used += next->size;
    }
    if (!add_document(b, text, next, error)) return false;
    b->pending.text = NULL;
    if (large) return true;
  }
}

/* Passes a large document to the sink in slices, and drops the pages before each slice. */
static bool pass_slices(const Corpus *corpus, PipelineText rest, const Pipeline *pipeline, Progress progress,
                        DocumentBlockSink sink, void *context, Error *error) {
  while (rest.size > 0) {
    PipelineText slice = rest;
    corpus_drop_pages(corpus, slice.text);
    if (rest.size > SLICE_BYTES) slice.size = pipeline_cut(pipeline, rest.text, rest.size, SLICE_BYTES);
    rest = (PipelineText){rest.text + slice.size, rest.size - slice.size};
    if (!sink(context, &(DocumentBlock){&slice, NULL, 1, rest.size == 0}, error) ||
        !progress_report(progress, corpus_position(corpus) - (int64_t)rest.size, error))
      return false;
  }
  return true;
}

bool document_blocks_read(Corpus *corpus, const Pipeline *pipeline, Progress progress, DocumentBlockSink sink,
                          void *context, Error *error) {
  Block block = {.corpus = corpus, .bytes = malloc(BLOCK_BYTES)};
  bool ok = block.bytes || error_memory(error, "a block of text");
  corpus_rewind(corpus, progress);
  while (ok && (ok = next_block(&block, error)) && block.count) {
    if (!block.prompts && block.texts[0].size > SLICE_BYTES)
      ok = pass_slices(corpus, block.texts[0], pipeline, progress, sink, context, error);
    else
      ok = sink(context, &(DocumentBlock){block.texts, block.prompts, block.count, true}, error) &&
           progress_report(progress, corpus_position(corpus), error);
  }
  free(block.texts);
  free(block.prompts);
  free(block.bytes);
  return ok;
}
