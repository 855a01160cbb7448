/* A corpus: documents one after the other, from any number of files, directories and standard input.
 *
 * One file is mapped at a time. Memory grows with the number of file names and with the largest JSON line, not with the
 * corpus. Pages of the map that stay resident belong to the file cache; the kernel takes them back when it needs them.
 *
 * Text files: a line that is exactly <|endoftext|> (ended by \n, \r\n or the end of the file) separates documents and
 * belongs to none; so does the end of every file. All other bytes are handed out as they are: CRLF, NUL, invalid
 * UTF-8. One exception: a UTF-8 byte-order mark (EF BB BF) at the very beginning of a file of any format is dropped.
 *
 * JSON lines (file names that end in .jsonl): see dataset/jsonl.h. Blank lines are skipped.
 *
 * TSV (file names that end in .tsv), a prompt and a response a line: see dataset/tsv.h. Empty lines are skipped.
 *
 * Documents without a byte are skipped everywhere. */
#ifndef INKLING_DATASET_CORPUS_H
#define INKLING_DATASET_CORPUS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/file_list.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Corpus Corpus;

/* All may be NULL or false; nothing is kept of it that the caller owns. */
typedef struct CorpusOptions {
  const char *field;                         /* of JSON lines; NULL: "text" */
  const char *prompt_field, *response_field; /* both or neither, and then no `field` */
  bool tsv;                                  /* standard input is TSV */
  const char *spool;                         /* file that standard input is copied to; needed for "-" */
  bool spooled;                              /* it is there already, from an earlier run */
  Progress copying;                          /* bytes of standard input */
  bool (*is_model)(const char *dir);         /* which directories hold a model instead of text */
} CorpusOptions;

typedef struct Document {
  const uint8_t *text; /* NULL: the corpus is at its end */
  size_t size;         /* bytes, at least 1 */
  size_t prompt;       /* bytes at its beginning that the loss leaves out; may be all of them */
  const char *file;    /* path; valid as long as the corpus */
  int64_t line;        /* of JSON lines and TSV, from 1; 0 in a text file */
  int64_t offset;      /* bytes of the file before the document, or before its line */
} Document;

/* Finds, sorts and measures all files of the sources, in the order given. A source is a file (its name says of which
 * format), a directory (dataset/file_list.h says which files of it), or "-", once: standard input, TSV where the
 * options say so, else of JSON lines if a field is named. It is copied to options->spool before this returns, after all
 * other sources have been found to be there.
 *
 * `options` may be NULL. EXIT_INPUT, with path and cause, for no sources, missing or unreadable ones, pipes and
 * devices, directories without text, and when all files are empty; EXIT_USAGE for options that contradict each other
 * and for a second "-"; EXIT_OUTPUT when the spool file cannot be written; EXIT_MEMORY. On failure *out is NULL. */
bool corpus_open(Corpus **out, const char *const *sources, int count, const CorpusOptions *options, Error *error);
void corpus_close(Corpus *corpus); /* NULL is harmless; the spool file stays */

int corpus_files(const Corpus *corpus);
const TextFile *corpus_file(const Corpus *corpus, int index);
bool corpus_is_stdin(const Corpus *corpus, int index); /* that file is the copy of standard input */
int corpus_jsonl_files(const Corpus *corpus);          /* those of JSON lines */
int64_t corpus_skipped(const Corpus *corpus);          /* names in directories that were not taken */
int64_t corpus_bytes(const Corpus *corpus);            /* sum of the files' sizes */
int64_t corpus_stdin_bytes(const Corpus *corpus);      /* those of them that came from standard input */
int64_t corpus_position(const Corpus *corpus);         /* bytes consumed so far, corpus_bytes at the end */

/* Documents are prompts and responses: fields of JSON lines, or there is a TSV. In other files prompts are empty. */
bool corpus_has_prompts(const Corpus *corpus);

/* The next document, valid until the next call of corpus_next, corpus_rewind or corpus_close. A corpus of separators
 * and blank lines is at its end at once.
 *
 * EXIT_INPUT for a line that jsonl_parse or tsv_parse refuses, with the numbers of all such lines of its file, and for
 * a file that is no longer what corpus_open measured (size, time, inode). This is checked when the file is mapped,
 * between documents once a MiB has been consumed, and at its end. Not covered: a file that is cut short between two
 * checks ends the program when a missing page is touched (SIGBUS, see cli/startup.c), and one that is overwritten in
 * place and whose time is then restored is not noticed. EXIT_MEMORY; the error of the progress that corpus_rewind was
 * given. After an error only corpus_rewind and corpus_close are of use. */
bool corpus_next(Corpus *corpus, Document *out, Error *error);
/* To the first document. From then on `progress` gets corpus_position several times a second while the end of a large
 * document is searched for. */
void corpus_rewind(Corpus *corpus, Progress progress);

/* Drops the pages of the current file before `text` from memory, where `text` lies in a document of a text file. They
 * come back when they are read again. corpus_next does so with what it has passed. */
void corpus_drop_pages(const Corpus *corpus, const uint8_t *text);

/* 64 bits that change when the documents may have changed: XXH64 over the field names and, in order, every file's
 * format, size, modification time (ns) and inode, as corpus_open found them. Not over paths, nor over where the spool
 * file lies. What is made from the corpus may be kept as long as this is equal. */
uint64_t corpus_fingerprint(const Corpus *corpus);

#endif
