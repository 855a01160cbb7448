#include "dataset/tokenization.h"

#include "dataset/document_blocks.h"
#include "util/checksum.h"

#include <stdlib.h>

/* ---- writing ---- */

typedef struct FileEncoder {
  BpeEncoder *encoder, *source_encoder; /* source_encoder may be the other */
  TokenWriter writer;
  int32_t end, source_end;
  int32_t source_first; /* is added to the ids of prompts */
  BpeIds prompts;       /* of a block, each closed by source_end */
  size_t prompts_used;
  StopSignal stop;
  bool in_document;
  int64_t documents;
} FileEncoder;

static bool encode_prompts(FileEncoder *e, const DocumentBlock *block, Error *error) {
  e->prompts.count = e->prompts_used = 0;
  return !block->prompts ||
         bpe_encode(e->source_encoder, block->prompts, block->count, e->source_end, bpe_ids_sink, &e->prompts, error);
}

/* The next prompt of the block, without what closes it. */
static bool write_prompt(FileEncoder *e, Error *error) {
  int32_t *ids = e->prompts.ids + e->prompts_used;
  size_t count = 0;
  for (; ids[count] != e->source_end; count++) ids[count] += e->source_first;
  e->prompts_used += count + 1;
  return token_writer_add(&e->writer, ids, count, false, error);
}

/* Texts, each closed by the end token, which none has inside. */
static bool write_ids(void *context, const int32_t *ids, size_t count, Error *error) {
  enum { AT_ONCE = 1 << 20 };
  FileEncoder *e = context;
  for (size_t from = 0, at = 0; at < count; from = at) {
    const size_t end = count - from < AT_ONCE ? count : from + AT_ONCE;
    if (!stop_go_on(e->stop, "encoding", error)) return false;
    if (!e->in_document && e->prompts.count && !write_prompt(e, error)) return false;
    while (at < end && ids[at] != e->end) at++;
    e->in_document = at == end;
    at += !e->in_document;
    e->documents += !e->in_document;
    if (!token_writer_add(&e->writer, ids + from, at - from, true, error)) return false;
  }
  return true;
}

static bool encode_block(void *context, const DocumentBlock *block, Error *error) {
  FileEncoder *e = context;
  return encode_prompts(e, block, error) &&
         bpe_encode(e->encoder, block->texts, block->count, block->ends ? e->end : -1, write_ids, e, error);
}

static int32_t vocab_of(const Tokenizer *tokenizer, const Tokenizer *source) {
  return tokenizer_vocab(tokenizer) + (source ? tokenizer_vocab(source) : 0);
}

static bool open_encoders(FileEncoder *e, const Tokenizer *tokenizer, const Tokenization *options, Error *error) {
  const Tokenizer *source = options->source_tokenizer;
  e->stop = options->stop;
  e->end = tokenizer_end(tokenizer);
  e->source_end = tokenizer_end(source ? source : tokenizer);
  e->source_first = source ? tokenizer_vocab(tokenizer) : 0;
  if (!bpe_encoder_create(&e->encoder, tokenizer_pipeline(tokenizer), false, options->threads, options->stop, error))
    return false;
  e->source_encoder = e->encoder;
  return !source || bpe_encoder_create(&e->source_encoder, tokenizer_pipeline(source), false, options->threads,
                                       options->stop, error);
}

static void close_encoders(FileEncoder *e) {
  if (e->source_encoder != e->encoder) bpe_encoder_free(e->source_encoder);
  bpe_encoder_free(e->encoder);
  free(e->prompts.ids);
}

static bool write_tokens(const char *path, Corpus *corpus, const Tokenizer *tokenizer, const Tokenization *options,
                         Error *error) {
  const Tokenizer *source = options->source_tokenizer;
  const TokenFileInfo info = {.vocab = vocab_of(tokenizer, source),
                              .loss_mask = corpus_has_prompts(corpus),
                              .fingerprint = tokenization_fingerprint(corpus, tokenizer, source)};
  FileEncoder e = {0};
  if (!token_writer_begin(&e.writer, path, &info, error)) return false;
  bool ok = open_encoders(&e, tokenizer, options, error) &&
            document_blocks_read(corpus, tokenizer_pipeline(tokenizer), options->encoding, encode_block, &e, error) &&
            token_writer_commit(&e.writer, e.documents, corpus_bytes(corpus), error);
  token_writer_abort(&e.writer);
  close_encoders(&e);
  return ok;
}

/* ---- opening ---- */

uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source) {
  const uint64_t of[] = {corpus_fingerprint(corpus), tokenizer_fingerprint(tokenizer),
                         source ? tokenizer_fingerprint(source) : 0};
  return checksum_xxh64(of, (source ? 3 : 2) * sizeof *of, 0);
}

static bool is_current(const TokenFileInfo *info, const Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenizer *source) {
  return info->vocab == vocab_of(tokenizer, source) &&
         (!corpus || (info->fingerprint == tokenization_fingerprint(corpus, tokenizer, source) &&
                      info->loss_mask == corpus_has_prompts(corpus)));
}

bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error) {
  Error cause = {0};
  const bool opened = token_file_open(out, path, &cause);
  if (opened &&
      (is_current(&out->info, corpus, tokenizer, options->source_tokenizer) ||
       fail(&cause, EXIT_CHECKPOINT, "%s is of another text", path)) &&
      token_file_verify(out, options->checking, &cause))
    return true;
  if (opened) token_file_close(out);
  if (!corpus || cause.code != EXIT_CHECKPOINT) return fail(error, cause.code, "%s", cause.text);
  return write_tokens(path, corpus, tokenizer, options, error) && token_file_open(out, path, error);
}
