#include "dataset/tokenization.h"

#include "util/checksum.h"
#include "dataset/document_blocks.h"

/* ---- writing ---- */

typedef struct FileEncoder {
  BpeEncoder *encoder;
  TokenWriter writer;
  int32_t end;
  bool has_prompts, in_response; /* in_response: the text being encoded is a response, not a prompt */
  int64_t documents;
} FileEncoder;

/* Texts of a corpus with prompts are prompts and responses in turn, each closed by the end token, which no text has
 * inside: the one after a prompt is left out. */
static bool write_ids(void *context, const int32_t *ids, size_t count, Error *error) {
  FileEncoder *e = context;
  for (size_t from = 0, at = 0; at < count; from = at) {
    while (at < count && ids[at] != e->end) at++;
    const bool closed = at < count, prompt = e->has_prompts && !e->in_response;
    if (!token_writer_add(&e->writer, ids + from, at - from + (closed && !prompt), !prompt, error)) return false;
    if (!closed) break;
    at++;
    e->in_response = !e->in_response;
    e->documents += !prompt;
  }
  return true;
}

static bool encode_block(void *context, const PretokenizeText *texts, size_t count, bool ends, Error *error) {
  FileEncoder *e = context;
  return bpe_encode(e->encoder, texts, count, ends ? e->end : -1, write_ids, e, error);
}

static bool write_tokens(const char *path, Corpus *corpus, const Tokenizer *tokenizer, const Tokenization *options,
                         Error *error) {
  const Bpe *bpe = tokenizer_bpe(tokenizer);
  const TokenFileInfo info = {.vocab = tokenizer_vocab(tokenizer),
                              .loss_mask = corpus_has_prompts(corpus),
                              .fingerprint = tokenization_fingerprint(corpus, tokenizer)};
  FileEncoder e = {.end = tokenizer_end(tokenizer), .has_prompts = info.loss_mask};
  if (!token_writer_begin(&e.writer, path, &info, error)) return false;
  bool ok = bpe_encoder_create(&e.encoder, bpe, options->threads, error) &&
            document_blocks_read(corpus, bpe->classes, options->encoding, encode_block, &e, error) &&
            token_writer_commit(&e.writer, e.documents, corpus_bytes(corpus), error);
  token_writer_abort(&e.writer);
  bpe_encoder_free(e.encoder);
  return ok;
}

/* ---- opening ---- */

uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer) {
  const uint64_t of[] = {corpus_fingerprint(corpus), tokenizer_fingerprint(tokenizer)};
  return checksum_xxh64(of, sizeof of, 0);
}

static bool is_current(const TokenFileInfo *info, const Corpus *corpus, const Tokenizer *tokenizer) {
  return info->vocab == tokenizer_vocab(tokenizer) &&
         (!corpus || (info->fingerprint == tokenization_fingerprint(corpus, tokenizer) &&
                      info->loss_mask == corpus_has_prompts(corpus)));
}

bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error) {
  Error cause = {0};
  const bool opened = token_file_open(out, path, &cause);
  if (opened &&
      (is_current(&out->info, corpus, tokenizer) || fail(&cause, EXIT_CHECKPOINT, "%s is of another text", path)) &&
      token_file_verify(out, options->checking, &cause))
    return true;
  if (opened) token_file_close(out);
  if (!corpus || cause.code != EXIT_CHECKPOINT) return fail(error, cause.code, "%s", cause.text);
  return write_tokens(path, corpus, tokenizer, options, error) && token_file_open(out, path, error);
}
