#include "text/dataset/tokenization.h"

#include "text/dataset/line.h"
#include "text/dataset/pairs.h"
#include "text/tokenizer/bpe_train.h"
#include "text/tokenizer/pipeline.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- how a corpus with conversations is written ---- */

typedef struct ChatWriting {
  Chat *chat;
  bool all;                                     /* the loss counts all turns */
  bool heads;                                   /* the ids of the bytes before learned parts are needed */
  int32_t before, end, document_end, turn_mark; /* ids: around plain documents, and marks of the token file */
} ChatWriting;

/* Returns the number of bytes before the learned part of a text; 0 if all or nothing of it is learned. */
static size_t chat_head(const ChatPiece *piece) {
  return piece->learned < piece->end ? piece->learned - piece->begin : 0;
}

/* ---- blocks of documents, a few MB each, that threads process together ---- */

typedef struct DocumentBlock {
  const PipelineText *texts;   /* documents or, in a corpus with prompts, their responses */
  const PipelineText *prompts; /* the prompts of these; NULL: the corpus has none */
  const ChatText *chat;        /* of a corpus with conversations: `texts` are those of its pieces; NULL: it has none */
  size_t count;
  int group; /* of all of them */
  bool ends; /* false: the block is a slice of a large document, not the last one */
} DocumentBlock;
typedef bool (*BlockSink)(void *context, const DocumentBlock *block, Error *error);

enum {
  BLOCK_BYTES = 16 << 20, /* capacity of a block of small documents */
  SLICE_BYTES = 32 << 20  /* size of the slices of a large document, which is not copied */
};

typedef struct BlockReader {
  Corpus *corpus;
  Document pending; /* read, but not in a block yet; .text NULL: none */
  PipelineText *texts, *prompts;
  size_t count, capacity, prompt_capacity;
  int group;
  uint8_t *bytes; /* [BLOCK_BYTES] copies of the documents, which are only valid until the next one is read */
  size_t used;
  const ChatWriting *writing; /* NULL: the corpus has no conversations */
  ChatText chat;
} BlockReader;

/* Adds the pieces of a document of a corpus with conversations, with its end. */
static bool add_pieces(BlockReader *b, const Document *document, Error *error) {
  const ChatWriting *w = b->writing;
  const uint8_t *text = document->text, *response = text + document->prompt;
  const bool ok = document->turn_count
                      ? chat_render(w->chat, document->turns, document->turn_count, w->all, false, &b->chat, error)
                      : chat_text_add_token(&b->chat, w->before, false, error) &&
                            (!document->prompt || chat_text_add(&b->chat, text, document->prompt, false, error)) &&
                            chat_text_add(&b->chat, response, document->size - document->prompt, true, error) &&
                            chat_text_add_token(&b->chat, w->end, true, error);
  if (ok) return chat_text_add_token(&b->chat, w->document_end, false, error);
  if (error->code != EXIT_INPUT) return false;
  Error cause = *error;
  *error = (Error){0};
  return fail(error, EXIT_INPUT, "%s: %s", line_name(corpus_shown_file(b->corpus), document->line).text, cause.text);
}

/* Makes a list of the texts of the pieces, and of the bytes before the learned part of each. */
static bool list_pieces(BlockReader *b, Error *error) {
  const uint8_t *bytes = b->chat.text.bytes;
  if (!array_reserve(&b->texts, &b->capacity, 2 * b->chat.count, sizeof *b->texts))
    return error_memory(error, "a block of conversations");
  b->count = 0;
  for (const ChatPiece *piece = b->chat.pieces; piece < b->chat.pieces + b->chat.count; piece++) {
    if (piece->id >= 0) continue;
    b->texts[b->count++] = (PipelineText){bytes + piece->begin, piece->end - piece->begin};
    if (b->writing->heads) b->texts[b->count++] = (PipelineText){bytes + piece->begin, chat_head(piece)};
  }
  return true;
}

/* Reads the next documents of a corpus with conversations; b->count is 0 at the end. */
static bool next_conversations(BlockReader *b, Error *error) {
  b->chat.count = b->chat.text.size = b->count = 0;
  while (b->chat.text.size < BLOCK_BYTES) {
    if (!b->pending.text && !corpus_next(b->corpus, &b->pending, error)) return false;
    if (!b->pending.text || (b->chat.count && b->pending.group != b->group)) break;
    b->group = b->pending.group;
    if (!add_pieces(b, &b->pending, error)) return false;
    b->pending.text = NULL;
  }
  return list_pieces(b, error);
}

static bool add_document(BlockReader *b, const uint8_t *text, const Document *document, Error *error) {
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
static bool next_block(BlockReader *b, Error *error) {
  b->count = b->used = 0;
  for (;;) {
    if (!b->pending.text && !corpus_next(b->corpus, &b->pending, error)) return false;
    const Document *next = &b->pending;
    const bool large = next->size > BLOCK_BYTES / 4;
    if (!next->text || (b->count && (large || next->group != b->group || next->size > BLOCK_BYTES - b->used)))
      return true;
    b->group = next->group;
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
static bool pass_slices(const BlockReader *b, const Pipeline *pipeline, Progress progress, BlockSink sink,
                        void *context, Error *error) {
  const Corpus *corpus = b->corpus;
  PipelineText rest = b->texts[0];
  while (rest.size > 0) {
    PipelineText slice = rest;
    corpus_drop_pages(corpus, slice.text);
    if (rest.size > SLICE_BYTES) slice.size = pipeline_cut(pipeline, rest.text, rest.size, SLICE_BYTES);
    rest = (PipelineText){rest.text + slice.size, rest.size - slice.size};
    if (!sink(context, &(DocumentBlock){&slice, NULL, NULL, 1, b->group, rest.size == 0}, error) ||
        !progress_report(progress, corpus_position(corpus) - (int64_t)rest.size, error))
      return false;
  }
  return true;
}

static bool pass_conversations(BlockReader *b, Progress progress, BlockSink sink, void *context, Error *error) {
  bool ok;
  while ((ok = next_conversations(b, error)) && b->count) {
    const DocumentBlock block = {b->texts, NULL, &b->chat, b->count, b->group, true};
    if (!sink(context, &block, error) || !progress_report(progress, corpus_position(b->corpus), error)) return false;
  }
  return ok;
}

/* Reads the corpus from its beginning in blocks. `writing`: NULL for a corpus without conversations. It divides a
 * document of more than 32 MB into slices, cut where `pipeline` allows it, unless the document has a prompt.
 * `progress` counts the processed bytes of the corpus. */
static bool read_blocks(Corpus *corpus, const ChatWriting *writing, const Pipeline *pipeline, Progress progress,
                        BlockSink sink, void *context, Error *error) {
  BlockReader b = {.corpus = corpus, .writing = writing, .bytes = malloc(BLOCK_BYTES)};
  bool ok = b.bytes || error_memory(error, "a block of text");
  corpus_rewind(corpus, progress);
  if (ok && writing) ok = pass_conversations(&b, progress, sink, context, error);
  while (ok && !writing && (ok = next_block(&b, error)) && b.count) {
    if (!b.prompts && b.texts[0].size > SLICE_BYTES) ok = pass_slices(&b, pipeline, progress, sink, context, error);
    else
      ok = sink(context, &(DocumentBlock){b.texts, b.prompts, NULL, b.count, b.group, true}, error) &&
           progress_report(progress, corpus_position(corpus), error);
  }
  free(b.texts);
  free(b.prompts);
  free(b.bytes);
  chat_text_free(&b.chat);
  return ok;
}

/* ---- training of a tokenizer ---- */

typedef struct Counting {
  BpeTrainer *trainer;
  TrainingTexts texts;
} Counting;

/* Merges never cross the end of a slice, because a slice ends where a piece of the pre-tokenizer ends. */
static bool count_block(void *context, const DocumentBlock *block, Error *error) {
  const Counting *c = context;
  const bool prompts = block->prompts && c->texts != TRAINING_RESPONSES;
  return (!prompts || bpe_trainer_add(c->trainer, block->prompts, block->count, error)) &&
         (c->texts == TRAINING_PROMPTS || bpe_trainer_add(c->trainer, block->texts, block->count, error));
}

static bool finish_training(Tokenizer **out, BpeTrainer *trainer, const TokenizerTraining *options, Error *error) {
  BpeMerge *merges = NULL;
  size_t count = 0;
  if (options->level) return bpe_trainer_word_level(trainer, options->vocab_size, options->unknown, out, error);
  const bool ok = bpe_trainer_finish(trainer, options->vocab_size, options->merging, &merges, &count, error) &&
                  tokenizer_from_merges(out, merges, count, error);
  free(merges);
  return ok;
}

/* Opens the form of new models, whose texts do not depend on the tokenizer. */
static bool open_own_chat(ChatWriting *out, Tokenizer **tokenizer, Error *error) {
  *tokenizer = tokenizer_byte();
  return (*tokenizer || error_memory(error, "a tokenizer")) && chat_extend_tokenizer(tokenizer, error) &&
         chat_open(&out->chat, *tokenizer, error);
}

bool tokenization_train(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error) {
  Counting counting = {.texts = options->texts};
  ChatWriting writing = {0};
  Tokenizer *byte = NULL;
  const bool chat = corpus_has_conversations(corpus);
  *out = NULL;
  bool ok = (!chat || open_own_chat(&writing, &byte, error)) &&
            bpe_trainer_create(&counting.trainer, options->level, options->threads, error) &&
            read_blocks(corpus, chat ? &writing : NULL, bpe_trainer_pipeline(counting.trainer), options->counting,
                        count_block, &counting, error) &&
            finish_training(out, counting.trainer, options, error);
  bpe_trainer_free(counting.trainer);
  chat_close(writing.chat);
  tokenizer_free(byte);
  return ok;
}

/* ---- writing a token file ---- */

typedef struct FileEncoder {
  BpeEncoder *encoder, *source_encoder; /* may be the same */
  TokenWriter writer;
  PairTokens tokens;
  ChatWriting writing; /* of conversations; .chat NULL: there are none */
  BpeIds prompts;      /* of a block, each with its end token; of conversations, the texts of all pieces */
  size_t prompts_used;
  StopSignal stop;
  bool in_document;
  bool refused; /* encoding failed, not reading or writing */
  int64_t documents;
} FileEncoder;

static bool encode_prompts(FileEncoder *e, const DocumentBlock *block, Error *error) {
  e->prompts.count = e->prompts_used = 0;
  return !block->prompts || bpe_encode(e->source_encoder, block->prompts, block->count, e->tokens.source_end,
                                       bpe_ids_sink, &e->prompts, error);
}

/* Writes the next prompt of the block, without its end token. */
static bool write_prompt(FileEncoder *e, Error *error) {
  int32_t *ids = e->prompts.ids + e->prompts_used;
  size_t count = 0;
  for (; ids[count] != e->tokens.source_end; count++) ids[count] += e->tokens.source_first;
  e->prompts_used += count + 1;
  return token_writer_add(&e->writer, ids, count, false, error);
}

/* Writes the ids of documents, or of a part of one. The end token occurs only at the end of a document. */
static bool write_ids(void *context, const int32_t *ids, size_t count, Error *error) {
  enum { AT_ONCE = 1 << 20 };
  FileEncoder *e = context;
  for (size_t from = 0, at = 0; at < count; from = at) {
    const size_t end = count - from < AT_ONCE ? count : from + AT_ONCE;
    if (!stop_go_on(e->stop, "encoding", error)) return false;
    if (!e->in_document && e->prompts.count && !write_prompt(e, error)) return false;
    while (at < end && ids[at] != e->tokens.end) at++;
    e->in_document = at == end;
    at += !e->in_document;
    e->documents += !e->in_document;
    if (!token_writer_add(&e->writer, ids + from, at - from, true, error)) return false;
  }
  return true;
}

/* Returns how many ids there are before the mark, and moves *ids behind it. */
static size_t take_ids(const int32_t **ids, int32_t mark) {
  const int32_t *first = *ids;
  while (**ids != mark) ++*ids;
  return (size_t)((*ids)++ - first);
}

/* Returns how many of the ids of a text are before its learned part: those that it has in common with `head`, the ids
 * of only the bytes before that part. A token that has bytes of both counts as learned. */
static size_t unlearned_ids(const int32_t *ids, size_t count, const int32_t *head, size_t head_count) {
  size_t same = 0;
  while (same < count && same < head_count && ids[same] == head[same]) same++;
  return same;
}

static bool write_piece(FileEncoder *e, const ChatPiece *piece, const int32_t **ids, Error *error) {
  const ChatWriting *w = &e->writing;
  if (piece->opens && !token_writer_add(&e->writer, &w->turn_mark, 1, false, error)) return false;
  if (piece->id >= 0) {
    e->documents += piece->id == w->document_end;
    return token_writer_add(&e->writer, &piece->id, 1, piece->in_loss, error);
  }
  const int32_t *first = *ids;
  const size_t count = take_ids(ids, w->document_end);
  const int32_t *head = *ids;
  const size_t head_count = take_ids(ids, w->document_end);
  const size_t unlearned = piece->learned == piece->end ? count : unlearned_ids(first, count, head, head_count);
  return token_writer_add(&e->writer, first, unlearned, false, error) &&
         token_writer_add(&e->writer, first + unlearned, count - unlearned, true, error);
}

static bool encode_conversations(FileEncoder *e, const DocumentBlock *block, Error *error) {
  e->prompts.count = 0;
  e->refused =
      !bpe_encode(e->encoder, block->texts, block->count, e->writing.document_end, bpe_ids_sink, &e->prompts, error);
  if (e->refused) return false;
  const int32_t *ids = e->prompts.ids;
  for (size_t i = 0; i < block->chat->count; i++)
    if (!write_piece(e, &block->chat->pieces[i], &ids, error)) return false;
  return true;
}

static bool encode_block(void *context, const DocumentBlock *block, Error *error) {
  FileEncoder *e = context;
  token_writer_begin_group(&e->writer, block->group);
  if (block->chat) return encode_conversations(e, block, error);
  e->refused = !encode_prompts(e, block, error) || !bpe_encode(e->encoder, block->texts, block->count,
                                                               block->ends ? e->tokens.end : -1, write_ids, e, error);
  return !e->refused;
}

/* ---- the place of a piece that is not in the vocabulary ---- */

typedef struct Search {
  const Bpe *bpe;
  const uint8_t *found;
  Error cause;
} Search;

static bool refuse_piece(void *context, const uint8_t *piece, size_t size, size_t left, Error *error) {
  Search *s = context;
  (void)left;
  if (!s->bpe->level || s->bpe->unknown >= 0 || bpe_word(s->bpe, piece, size) >= 0) return true;
  s->found = piece;
  return tokenizer_refuse_piece(s->bpe, piece, size, error);
}

static bool accept_token(void *context, int32_t id, Error *error) {
  (void)context, (void)id, (void)error;
  return true;
}

/* Finds the first such piece of a text. False: there is none, or with the error. */
static bool search(Search *s, const Tokenizer *tokenizer, const uint8_t *text, size_t size, Error *error) {
  PipelineRunner *runner;
  s->bpe = tokenizer_bpe(tokenizer);
  const PipelineSink sink = {s, refuse_piece, accept_token};
  const bool ok = pipeline_runner_create(&runner, tokenizer_pipeline(tokenizer), false, sink, NULL, error) &&
                  pipeline_run(runner, text, size, false, &s->cause);
  if (!ok && !s->found && !error->code) fail(error, s->cause.code, "%s", s->cause.text);
  pipeline_runner_free(runner);
  return s->found;
}

/* Finds the first such piece of a conversation. */
static bool search_turns(Search *s, const Tokenizer *tokenizer, const Document *document, Error *error) {
  for (size_t i = 0; i < document->turn_count && !error->code; i++)
    if (search(s, tokenizer, document->turns[i].text, document->turns[i].size, error)) return true;
  return false;
}

/* Reads the corpus again, because threads encode copies of documents, and fails with file and line of the first piece
 * that is not in the vocabulary. Returns false. */
static bool find_refused(Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source, Error *error) {
  Document document = {0};
  Search s = {0};
  corpus_rewind(corpus, (Progress){0});
  while (corpus_next(corpus, &document, error) && document.text)
    if (document.turn_count ? search_turns(&s, tokenizer, &document, error)
                            : search(&s, source ? source : tokenizer, document.text, document.prompt, error) ||
                                  (!error->code && search(&s, tokenizer, document.text + document.prompt,
                                                          document.size - document.prompt, error)))
      return fail(error, EXIT_INPUT, "%s:%lld: %s", text_one_line(corpus_shown_file(corpus), 250).text,
                  (long long)corpus_line(corpus, &document, (size_t)(s.found - document.text)), s.cause.text);
    else if (error->code) return false;
  return false;
}

static int32_t vocab_of(const Tokenizer *tokenizer, const Tokenizer *source) {
  return tokenizer_vocab(tokenizer) + (source ? tokenizer_vocab(source) : 0);
}

/* Adds the options to tokenization_fingerprint(). */
static uint64_t fingerprint_of(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenization *options) {
  const uint64_t sum = tokenization_fingerprint(corpus, tokenizer, options->source_tokenizer);
  const char *template = corpus_has_conversations(corpus) ? tokenizer_chat_template(tokenizer) : NULL;
  const uint8_t flags[] = {options->special, template && options->all_turns};
  if (!template && !options->special) return sum;
  return checksum_xxh64(template, template ? strlen(template) : 0, checksum_xxh64(flags, sizeof flags, sum));
}

/* Prepares the writing of conversations if the corpus has some. */
static bool open_chat(ChatWriting *out, const Corpus *corpus, const Tokenizer *tokenizer, const Tokenization *options,
                      Error *error) {
  const int32_t marks = tokenizer_vocab(tokenizer);
  if (!corpus_has_conversations(corpus)) return true;
  if (options->source_tokenizer)
    return fail(error, EXIT_INPUT, "a model with a vocabulary for prompts cannot learn conversations");
  *out = (ChatWriting){.all = options->all_turns,
                       .heads = true,
                       .before = tokenizer_before(tokenizer),
                       .end = tokenizer_end(tokenizer),
                       .document_end = marks,
                       .turn_mark = marks + 1};
  if (chat_open(&out->chat, tokenizer, error)) return true;
  return error->code == EXIT_CHECKPOINT &&
         error_append(error, "; give another model, or prompts and responses (--prompt-field, --response-field)");
}

static bool open_encoders(FileEncoder *e, const Tokenizer *tokenizer, const Tokenization *options, Error *error) {
  const Tokenizer *source = options->source_tokenizer;
  e->stop = options->stop;
  e->tokens = pair_tokens(tokenizer, source);
  if (!bpe_encoder_create(&e->encoder, tokenizer_pipeline(tokenizer), options->special, options->threads, options->stop,
                          error))
    return false;
  e->source_encoder = e->encoder;
  if (source && !bpe_encoder_create(&e->source_encoder, tokenizer_pipeline(source), false, options->threads,
                                    options->stop, error))
    return false;
  if (options->counts) bpe_encoder_leave_out(e->encoder, &options->counts[0]);
  if (options->counts && source) bpe_encoder_leave_out(e->source_encoder, &options->counts[1]);
  return true;
}

static void close_encoders(FileEncoder *e) {
  if (e->source_encoder != e->encoder) bpe_encoder_free(e->source_encoder);
  bpe_encoder_free(e->encoder);
  free(e->prompts.ids);
  chat_close(e->writing.chat);
}

static bool write_tokens(const char *path, Corpus *corpus, const Tokenizer *tokenizer, const Tokenization *options,
                         Error *error) {
  const Tokenizer *source = options->source_tokenizer;
  const TokenFileInfo info = {.vocab = vocab_of(tokenizer, source) +
                                       (corpus_has_conversations(corpus) ? TOKEN_FILE_MARKS : 0),
                              .loss_mask = corpus_has_prompts(corpus),
                              .conversations = corpus_has_conversations(corpus),
                              .fingerprint = fingerprint_of(corpus, tokenizer, options)};
  FileEncoder e = {0};
  Error why = {0};
  if (!open_chat(&e.writing, corpus, tokenizer, options, error)) return false;
  const ChatWriting *writing = e.writing.chat ? &e.writing : NULL;
  if (!token_writer_begin(&e.writer, path, &info, error)) {
    chat_close(e.writing.chat);
    return false;
  }
  const bool ok =
      open_encoders(&e, tokenizer, options, &why) &&
      read_blocks(corpus, writing, tokenizer_pipeline(tokenizer), options->encoding, encode_block, &e, &why) &&
      token_writer_commit(&e.writer, e.documents, corpus_bytes(corpus), &why);
  token_writer_abort(&e.writer);
  close_encoders(&e);
  if (!ok && e.refused && why.code == EXIT_INPUT) find_refused(corpus, tokenizer, source, error);
  return ok || error->code || fail(error, why.code, "%s", why.text);
}

/* ---- opening a token file ---- */

uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source) {
  const uint64_t of[] = {corpus_fingerprint(corpus), tokenizer_fingerprint(tokenizer),
                         source ? tokenizer_fingerprint(source) : 0};
  return checksum_xxh64(of, (source ? 3 : 2) * sizeof *of, 0);
}

static bool is_current(const TokenFileInfo *info, const Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options) {
  const int32_t marks = info->conversations ? TOKEN_FILE_MARKS : 0;
  return info->vocab == vocab_of(tokenizer, options->source_tokenizer) + marks &&
         (!corpus ||
          (info->fingerprint == fingerprint_of(corpus, tokenizer, options) &&
           info->loss_mask == corpus_has_prompts(corpus) && info->conversations == corpus_has_conversations(corpus)));
}

bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error) {
  Error cause = {0};
  const bool opened = token_file_open(out, path, &cause);
  if (opened &&
      (is_current(&out->info, corpus, tokenizer, options) ||
       fail(&cause, EXIT_CHECKPOINT, "%s belongs to another text", path)) &&
      token_file_verify(out, options->checking, &cause))
    return true;
  if (opened) token_file_close(out);
  if (!corpus || cause.code != EXIT_CHECKPOINT) return fail(error, cause.code, "%s", cause.text);
  const char *written = options->written ? options->written : path;
  return write_tokens(written, corpus, tokenizer, options, error) && token_file_open(out, written, error);
}

/* ---- the checksum of a text ---- */

/* The checksum is computed over blocks of a fixed size, so that it does not depend on the lengths of tokens. */
typedef struct TextSum {
  uint64_t sum;
  size_t used;
  uint8_t bytes[1 << 16];
} TextSum;

static void sum_block(TextSum *s) {
  s->sum = checksum_xxh64(s->bytes, s->used, s->sum);
  s->used = 0;
}

static void sum_bytes(TextSum *s, const uint8_t *bytes, size_t size) {
  while (size) {
    const size_t left = sizeof s->bytes - s->used, taken = size < left ? size : left;
    memcpy(s->bytes + s->used, bytes, taken);
    s->used += taken;
    bytes += taken;
    size -= taken;
    if (s->used == sizeof s->bytes) sum_block(s);
  }
}

bool tokenization_text_sum(const TokenRange *range, const Tokenizer *tokenizer, const Tokenizer *source, uint64_t *out,
                           Error *error) {
  enum { BLOCK = 4096 };
  static const uint8_t mark = 0xFF;
  const PairTokens tokens = pair_tokens(tokenizer, source);
  int32_t ids[BLOCK], before = -1;
  TextSum *s = calloc(1, sizeof *s);
  bool ok = s || error_memory(error, "the checksum of a text");
  for (int64_t at = range->begin; ok && at < range->end; at += BLOCK) {
    const int64_t left = range->end - at, count = left < BLOCK ? left : BLOCK;
    ok = token_file_read(range->file, at, count, ids, error);
    for (int64_t i = 0; ok && i < count; i++) {
      const bool of_source = tokens.source_first && ids[i] >= tokens.source_first;
      size_t size;
      if (range->file->info.conversations && ids[i] >= tokenizer_vocab(tokenizer)) continue; /* a mark */
      const uint8_t *bytes = of_source ? tokenizer_decode(source, ids[i] - tokens.source_first, &size)
                                       : tokenizer_decode_after(tokenizer, before, ids[i], &size);
      before = ids[i];
      if (ids[i] == tokens.end) sum_bytes(s, &mark, 1);
      else sum_bytes(s, bytes, size);
    }
  }
  if (ok) sum_block(s), *out = s->sum;
  free(s);
  return ok;
}
