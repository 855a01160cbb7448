/* A stream of tokens on disk: written once, mapped for training, larger than memory when it has to be.
 *
 * 80 bytes of header (token_file.c), then a word a token: 2 bytes where all ids fit, else 4, little-endian. In a file
 * with a loss mask the highest bit of a word says that the token is left out of the loss. Nothing else is interpreted:
 * documents end with the tokenizer's end token. */
#ifndef INKLING_DATASET_TOKEN_FILE_H
#define INKLING_DATASET_TOKEN_FILE_H

#include "util/error.h"
#include "util/file.h"
#include "util/progress.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct TokenFileInfo {
  int32_t vocab;        /* every id is below it */
  bool loss_mask;       /* some tokens may be left out of the loss */
  uint64_t fingerprint; /* of the text and the tokenizer it was made from: a file with another one is stale */
  int64_t tokens, documents;
  int64_t bytes; /* of the files that they were made of */
  uint64_t sum;  /* of the tokens and the loss mask: identifies the text, whatever its files are called */
} TokenFileInfo;

/* ---- writing: to a temporary file that takes the name when it is complete ---- */

typedef struct TokenWriter {
  FileWriter file;
  TokenFileInfo info;
  void *words; /* not written yet */
  size_t held;
} TokenWriter;

/* `info`: vocab, loss_mask and fingerprint are read. EXIT_OUTPUT, EXIT_MEMORY. After a failure of any of the three
 * nothing is left to free. */
bool token_writer_begin(TokenWriter *writer, const char *path, const TokenFileInfo *info, Error *error);
/* `in_loss` false: left out of the loss, in a file with a loss mask. Ids outside the vocabulary: EXIT_INTERNAL. */
bool token_writer_add(TokenWriter *writer, const int32_t *ids, size_t count, bool in_loss, Error *error);
bool token_writer_commit(TokenWriter *writer, int64_t documents, int64_t bytes, Error *error);
void token_writer_abort(TokenWriter *writer); /* deletes what was written; harmless after the others */

/* ---- reading ---- */

typedef struct TokenFile {
  MappedFile file;
  char *path;
  dev_t device; /* of the file, and its number there */
  ino_t number;
  TokenFileInfo info;
} TokenFile;

/* EXIT_CHECKPOINT for a file that is missing, damaged or cut short. The caller decides by info.fingerprint whether it
 * is stale. */
bool token_file_open(TokenFile *out, const char *path, Error *error);
void token_file_close(TokenFile *file);

/* False when it was cut short since, by whoever writes into it: to read what is gone would end the program.
 * EXIT_INPUT. */
bool token_file_check(const TokenFile *file, Error *error);

/* Tokens [begin, begin + count), which must lie inside. EXIT_CHECKPOINT for an id outside of the vocabulary: the file
 * was damaged. */
bool token_file_read(const TokenFile *file, int64_t begin, int64_t count, int32_t *ids, Error *error);
/* The same as targets: `ignored` in the place of tokens that are left out of the loss. */
bool token_file_read_targets(const TokenFile *file, int64_t begin, int64_t count, int32_t ignored, int32_t *targets,
                             Error *error);
/* Reads all tokens and compares their checksum; `progress` counts them. EXIT_CHECKPOINT for a damaged file; the error
 * of `progress`. */
bool token_file_verify(const TokenFile *file, Progress progress, Error *error);
/* From now on tokens are read from anywhere in the file: the kernel should not read ahead. */
void token_file_read_randomly(const TokenFile *file);
/* These tokens are read soon: the disk may begin. */
void token_file_prefetch(const TokenFile *file, int64_t begin, int64_t count);
/* Drops what was read from memory; it comes back when it is read again. */
void token_file_drop_pages(const TokenFile *file);

/* ---- parts of a file: what is trained on, and what is kept for validation ---- */

typedef struct TokenRange {
  const TokenFile *file;
  int64_t begin, end; /* tokens */
} TokenRange;

static inline int64_t token_range_size(const TokenRange *range) { return range->end - range->begin; }

/* `val` is the last `fraction` of the tokens, rounded up, but at most `max_val` of them; `train` is the rest. */
void token_range_split(const TokenFile *file, double fraction, int64_t max_val, TokenRange *train, TokenRange *val);

#endif
