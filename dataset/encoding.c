#include "dataset/encoding.h"

#include "util/checksum.h"
#include "tokenizer/bpe_train.h"

#include <stdlib.h>
#include <string.h>

enum {
  BATCH_BYTES = 16 << 20, /* of small documents that are worked on together, by all threads */
  SLICE_BYTES = 32 << 20  /* of a large document, which is not copied */
};

/* ---- documents in batches ---- */

/* Spans of text: documents, or prompt and response of each in turn. */
typedef struct Batch {
  Corpus *corpus;
  Document pending; /* read, not taken yet; text NULL: none */
  TextSpan *spans;
  size_t count, capacity;
  uint8_t *bytes; /* [BATCH_BYTES] copies: a document lives until the next one is asked for */
  size_t used;
} Batch;

static bool batch_open(Batch *b, Corpus *corpus, Error *error) {
  *b = (Batch){.corpus = corpus, .bytes = malloc(BATCH_BYTES)};
  corpus_rewind(corpus);
  return b->bytes || fail(error, EXIT_MEMORY, "out of memory for a batch of text");
}

static void batch_close(Batch *b) {
  free(b->spans);
  free(b->bytes);
}

static bool add_span(Batch *b, const uint8_t *text, size_t size, Error *error) {
  if (b->count == b->capacity) {
    size_t capacity = b->capacity ? 2 * b->capacity : 1024;
    TextSpan *grown = realloc(b->spans, capacity * sizeof *grown);
    if (!grown) return fail(error, EXIT_MEMORY, "out of memory for a batch of %zu texts", capacity);
    b->spans = grown;
    b->capacity = capacity;
  }
  b->spans[b->count++] = (TextSpan){text, size};
  return true;
}

static bool add_document(Batch *b, const uint8_t *text, const Document *document, Error *error) {
  if (!corpus_masked(b->corpus)) return add_span(b, text, document->size, error);
  return add_span(b, text, document->prompt, error) &&
         add_span(b, text + document->prompt, document->size - document->prompt, error);
}

/* The next documents; `count` 0 at the end. A large one comes alone and where it lies. */
static bool batch_next(Batch *b, Error *error) {
  b->count = b->used = 0;
  for (;;) {
    if (!b->pending.text && !corpus_next(b->corpus, &b->pending, error)) return false;
    const Document *next = &b->pending;
    const bool large = next->size > BATCH_BYTES / 4;
    if (!next->text || (b->count && (large || next->size > BATCH_BYTES - b->used))) return true;
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

/* `left`: bytes that the corpus has handed out and that are still to be worked on. */
static bool tell(const EncodingOptions *options, const Corpus *corpus, size_t left, Error *error) {
  return !options->progress || options->progress(options->context, corpus_position(corpus) - (int64_t)left, 0, error);
}

/* Takes a slice off the front of a large text, where it may be cut; what is behind it is let go. */
static TextSpan take_slice(TextSpan *rest, const CharClasses *classes, const Corpus *corpus) {
  corpus_let_go(corpus, rest->text);
  size_t size = rest->size > SLICE_BYTES ? pretokenize_cut(classes, rest->text, rest->size, SLICE_BYTES) : rest->size;
  TextSpan slice = {rest->text, size};
  *rest = (TextSpan){rest->text + size, rest->size - size};
  return slice;
}

/* ---- training ---- */

static bool count_words(BpeTrainer *trainer, Corpus *corpus, const EncodingOptions *options, Error *error) {
  CharClasses *classes = NULL;
  Batch batch = {0};
  bool ok = char_classes_create(&classes, error) && batch_open(&batch, corpus, error);
  while (ok && (ok = batch_next(&batch, error)) && batch.count) {
    TextSpan rest = batch.spans[0];
    if (batch.count > 1 || rest.size <= SLICE_BYTES) {
      ok = bpe_trainer_add(trainer, batch.spans, batch.count, error) && tell(options, corpus, 0, error);
      continue;
    }
    while (ok && rest.size) {
      TextSpan slice = take_slice(&rest, classes, corpus);
      ok = bpe_trainer_add(trainer, &slice, 1, error) && tell(options, corpus, rest.size, error);
    }
  }
  batch_close(&batch);
  free(classes);
  return ok;
}

static bool report_merges(void *context, int64_t merges, Error *error) {
  const EncodingOptions *options = context;
  return options->progress(options->context, 0, merges, error);
}

bool encoding_train(Tokenizer **out, Corpus *corpus, int vocab_size, const EncodingOptions *options, Error *error) {
  EncodingOptions kept = *options;
  const BpeProgress progress = {options->progress ? report_merges : NULL, &kept};
  BpeTrainer *trainer = NULL;
  BpeMerge *merges = NULL;
  size_t count = 0;
  *out = NULL;
  bool ok = bpe_trainer_create(&trainer, options->threads, error) && count_words(trainer, corpus, options, error) &&
            bpe_trainer_finish(trainer, vocab_size, progress, &merges, &count, error) &&
            tokenizer_from_merges(out, merges, count, error);
  bpe_trainer_free(trainer);
  free(merges);
  return ok;
}

/* ---- encoding ---- */

uint64_t encoding_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer) {
  const uint64_t of[] = {corpus_fingerprint(corpus), tokenizer_fingerprint(tokenizer)};
  return checksum_xxh64(of, sizeof of, 0);
}

typedef struct Encoding {
  TokenWriter writer;
  int32_t end;
  bool masked, response; /* of a masked corpus: the text being encoded is a response, not a prompt */
  int64_t documents;
} Encoding;

/* Texts of a masked corpus are prompts and responses in turn, each closed by the end token, which no text has inside:
 * the one after a prompt is left out. */
static bool write_ids(void *context, const int32_t *ids, size_t count, Error *error) {
  Encoding *e = context;
  for (size_t from = 0, at = 0; at < count; from = at) {
    while (at < count && ids[at] != e->end) at++;
    const bool closed = at < count, prompt = e->masked && !e->response;
    if (!token_writer_add(&e->writer, ids + from, at - from + (closed && !prompt), !prompt, error)) return false;
    if (!closed) break;
    at++;
    e->response = !e->response;
    e->documents += !prompt;
  }
  return true;
}

static bool encode_batch(Encoding *e, BpeEncoder *encoder, const Batch *batch, const CharClasses *classes,
                         const EncodingOptions *options, Error *error) {
  TextSpan rest = batch->spans[0];
  if (batch->count > 1 || rest.size <= SLICE_BYTES)
    return bpe_encode(encoder, batch->spans, batch->count, e->end, write_ids, e, error) &&
           tell(options, batch->corpus, 0, error);
  while (rest.size) {
    TextSpan slice = take_slice(&rest, classes, batch->corpus);
    if (!bpe_encode(encoder, &slice, 1, rest.size ? -1 : e->end, write_ids, e, error) ||
        !tell(options, batch->corpus, rest.size, error))
      return false;
  }
  return true;
}

static bool encode_all(Encoding *e, Corpus *corpus, const Tokenizer *tokenizer, const EncodingOptions *options,
                       Error *error) {
  const CharClasses *classes = tokenizer_bpe(tokenizer)->classes;
  BpeEncoder *encoder = NULL;
  Batch batch = {0};
  bool ok = bpe_encoder_create(&encoder, tokenizer_bpe(tokenizer), options->threads, error) &&
            batch_open(&batch, corpus, error);
  while (ok && (ok = batch_next(&batch, error)) && batch.count)
    ok = encode_batch(e, encoder, &batch, classes, options, error);
  batch_close(&batch);
  bpe_encoder_free(encoder);
  return ok;
}

bool encoding_write(const char *path, Corpus *corpus, const Tokenizer *tokenizer, const EncodingOptions *options,
                    Error *error) {
  const TokenFileInfo info = {.vocab = tokenizer_vocab(tokenizer),
                              .masked = corpus_masked(corpus),
                              .fingerprint = encoding_fingerprint(corpus, tokenizer)};
  Encoding e = {.end = tokenizer_end(tokenizer), .masked = info.masked};
  if (!token_writer_begin(&e.writer, path, &info, error)) return false;
  if (encode_all(&e, corpus, tokenizer, options, error))
    return token_writer_commit(&e.writer, e.documents, corpus_bytes(corpus), error);
  token_writer_abort(&e.writer);
  return false;
}
