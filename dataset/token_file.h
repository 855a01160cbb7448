/* A stream of tokens on disk: written once, mapped for training, larger than memory when it has to be.
 *
 * 80 bytes of header (token_file.c), then a word a token: 2 bytes where all ids fit, else 4, little-endian. In a file
 * with masks the highest bit of a word says that the token is not to be learned. Nothing of it is interpreted beyond
 * that; documents end with the tokenizer's end token. */
#ifndef INKLING_DATASET_TOKEN_FILE_H
#define INKLING_DATASET_TOKEN_FILE_H

#include "util/error.h"
#include "util/file.h"

#include <stddef.h>
#include <stdint.h>

typedef struct TokenFileInfo {
  int32_t vocab;        /* every id is below it */
  bool masked;          /* tokens have masks */
  uint64_t fingerprint; /* of the text and the tokenizer it was made from: a file with another one is stale */
  int64_t tokens, documents;
  int64_t bytes; /* of the files that they were made of */
  uint64_t sum;  /* of the tokens and masks: which text this is, whatever its files are called */
} TokenFileInfo;

/* ---- writing: to a temporary file that takes the name when it is whole ---- */

typedef struct TokenWriter {
  FileWriter file;
  TokenFileInfo info;
  void *words; /* not written yet */
  size_t held;
} TokenWriter;

/* `info`: vocab, masked and fingerprint are read. EXIT_OUTPUT, EXIT_MEMORY. After a failure of any of the three nothing
 * is left to free. */
bool token_writer_begin(TokenWriter *writer, const char *path, const TokenFileInfo *info, Error *error);
/* `learn` false: masked. Ids outside the vocabulary: EXIT_INTERNAL. */
bool token_writer_add(TokenWriter *writer, const int32_t *ids, size_t count, bool learn, Error *error);
bool token_writer_commit(TokenWriter *writer, int64_t documents, int64_t bytes, Error *error);
void token_writer_abort(TokenWriter *writer); /* deletes what was written; harmless after the others */

/* ---- reading ---- */

typedef struct TokenFile {
  MappedFile file;
  char *path;
  TokenFileInfo info;
} TokenFile;

/* EXIT_CHECKPOINT for a file that is missing, damaged or cut short. Whether it is stale is the caller's to say, by
 * info.fingerprint. */
bool token_file_open(TokenFile *out, const char *path, Error *error);
void token_file_close(TokenFile *file);

/* Tokens [begin, begin + count), which must lie inside. EXIT_CHECKPOINT for an id outside of the vocabulary: the file
 * was damaged. */
bool token_file_read(const TokenFile *file, int64_t begin, int64_t count, int32_t *ids, Error *error);
/* The same as targets to be learned: `masked` stands for those that are not. */
bool token_file_read_targets(const TokenFile *file, int64_t begin, int64_t count, int32_t masked, int32_t *targets,
                             Error *error);
/* Whether the tokens are those that were written: reads them all. `tick` (may be NULL) hears how many were looked at;
 * false, with `error` filled, stops. EXIT_CHECKPOINT for a damaged file. */
bool token_file_verify(const TokenFile *file, bool (*tick)(void *context, int64_t tokens, Error *error), void *context,
                       Error *error);
/* What is read from now on lies anywhere in the file: nothing is to be read ahead. */
void token_file_random(const TokenFile *file);
/* These tokens are read soon: the disk may begin. */
void token_file_expect(const TokenFile *file, int64_t begin, int64_t count);
/* Takes what was read out of memory; it comes back when it is read again. */
void token_file_let_go(const TokenFile *file);

#endif
