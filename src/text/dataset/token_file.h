/* A file of tokens: written once, mapped for training; it may be larger than memory.
 * 80 bytes of header (token_file.c), then one word per token: 2 bytes where all ids fit, else 4, little-endian; then 8
 * bytes for each group, if there are any. In a file with a loss mask the highest bit of a word marks a token that the
 * loss ignores. The file does not mark documents otherwise than by the tokenizer's end token, unless it has
 * conversations. */
#ifndef INKLING_TEXT_DATASET_TOKEN_FILE_H
#define INKLING_TEXT_DATASET_TOKEN_FILE_H

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A part of the header, as it is in the file. */
typedef struct TokenFileInfo {
  uint32_t word_bytes; /* 2 or 4 */
  uint32_t loss_mask;  /* 1: words have the bit for tokens that the loss ignores; else 0 */
  int64_t tokens, documents;
  int64_t bytes;        /* of the input files */
  uint64_t fingerprint; /* hash of the input files and the tokenizer; a file with another one is stale */
  uint64_t sum;         /* checksum of the tokens and the loss mask; does not depend on file names */
  int32_t vocab;        /* every id is less than this */
  uint32_t groups;      /* the last group with documents; where groups 1, 2, ... begin is written after the tokens */
  /* 1: there are conversations. Then the last two ids are no tokens but marks, which are outside of the loss: one after
   * each document, and one before each turn of a user; a document's first token is there, too (packing.h) */
  uint32_t conversations;
  uint32_t unused;
} TokenFileInfo;

enum { TOKEN_GROUPS = 16 /* at most */, TOKEN_FILE_MARKS = 2 /* ids of marks */ };

/* Returns the id that ends documents in a file, for a tokenizer with the end token `end`. */
static inline int32_t token_file_end(const TokenFileInfo *info, int32_t end) {
  return info->conversations ? info->vocab - 2 : end;
}
/* Returns the id before each turn of a user; -1: there is none. */
static inline int32_t token_file_turn(const TokenFileInfo *info) { return info->conversations ? info->vocab - 1 : -1; }

/* ---- writing: to a temporary file that is renamed when it is complete ---- */

typedef struct TokenWriter {
  FileWriter file;
  TokenFileInfo info;
  int64_t groups[TOKEN_GROUPS]; /* the first token of each */
  void *words;                  /* buffered words */
  size_t held;
} TokenWriter;

/* Creates the temporary file; reads only vocab, loss_mask, conversations and fingerprint of `info`. EXIT_OUTPUT,
 * EXIT_MEMORY. After a failure of this or the next two functions there is nothing to free. */
bool token_writer_begin(TokenWriter *writer, const char *path, const TokenFileInfo *info, Error *error);
/* Appends ids. `in_loss` false: the loss ignores them; needs a loss mask. EXIT_INTERNAL for ids outside of the
 * vocabulary. */
bool token_writer_add(TokenWriter *writer, const int32_t *ids, size_t count, bool in_loss, Error *error);
/* What is added from now on belongs to a group that is not lower than before, 0..TOKEN_GROUPS. */
static inline void token_writer_begin_group(TokenWriter *writer, int group) {
  while ((int)writer->info.groups < group) writer->groups[writer->info.groups++] = writer->info.tokens;
}
bool token_writer_commit(TokenWriter *writer, int64_t documents, int64_t bytes, Error *error);
void token_writer_abort(TokenWriter *writer); /* deletes the temporary file; harmless after the others */

/* ---- reading ---- */

typedef struct TokenFile {
  MappedFile file;
  char *path;
  dev_t device; /* device and inode of the file */
  ino_t number;
  TokenFileInfo info;
} TokenFile;

/* Opens a token file. EXIT_CHECKPOINT for a file that is missing, damaged or truncated. The caller checks
 * info.fingerprint to detect a stale file. */
bool token_file_open(TokenFile *out, const char *path, Error *error);
void token_file_close(TokenFile *file);

/* Checks that no other process has truncated the file since it was opened; reading missing pages would end the program.
 * EXIT_INPUT. */
bool token_file_check(const TokenFile *file, Error *error);

/* Reads tokens [begin, begin + count), which must be inside the file. EXIT_CHECKPOINT for an id outside of the
 * vocabulary, from a damaged file. */
bool token_file_read(const TokenFile *file, int64_t begin, int64_t count, int32_t *ids, Error *error);
/* Reads the same tokens as targets, with `ignored` in place of tokens that the loss ignores. */
bool token_file_read_targets(const TokenFile *file, int64_t begin, int64_t count, int32_t ignored, int32_t *targets,
                             Error *error);
/* Returns the first of the tokens [begin, end) that is `in_loss`: the loss does not ignore it, or else it does; `end`:
 * none. */
int64_t token_file_find(const TokenFile *file, int64_t begin, int64_t end, bool in_loss);
/* Reads all tokens and verifies their checksum; `progress` counts tokens. EXIT_CHECKPOINT for a damaged file; the error
 * of `progress`. */
bool token_file_verify(const TokenFile *file, Progress progress, Error *error);
/* Tells the kernel that later reads are random, so that it does not read ahead. */
void token_file_read_randomly(const TokenFile *file);
/* Starts reading these tokens from the disk in the background. */
void token_file_prefetch(const TokenFile *file, int64_t begin, int64_t count);
/* Drops the file's pages from memory; reading them again loads them again. */
void token_file_drop_pages(const TokenFile *file);

/* ---- ranges of a file: training and validation, and their documents ---- */

typedef struct TokenRange {
  const TokenFile *file;
  int64_t begin, end; /* tokens */
} TokenRange;

/* Returns the tokens of a group; none: the corpus has no documents of this group. */
TokenRange token_file_group(const TokenFile *file, int group);

static inline int64_t token_range_size(const TokenRange *range) { return range->end - range->begin; }

/* Receives the index of the first token of a document and of the one after its last. False stops the scan. */
typedef bool (*DocumentFound)(void *context, int64_t begin, int64_t stop);

/* Calls `found` for every document in order. A document includes its token `end`; tokens after the last `end` are also
 * a document. The first and the last may be parts of documents that the range cuts. `progress` counts tokens.
 * EXIT_CHECKPOINT for a damaged token file; EXIT_MEMORY; the error of `found` or of `progress`. */
bool token_range_documents(const TokenRange *range, int32_t end, DocumentFound found, void *context, Progress progress,
                           Error *error);

/* A histogram of document lengths: counts[k] documents have more than 2^(k-1) and at most 2^k tokens, including the end
 * token. */
typedef struct DocumentLengths {
  int64_t documents, counts[64];
} DocumentLengths;

/* Adds one document of `tokens` >= 1 tokens. */
void document_lengths_add(DocumentLengths *lengths, int64_t tokens);

#endif
