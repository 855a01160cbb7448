/* The list of the files of a training corpus: it finds, sorts and measures them before any file is read. */
#ifndef INKLING_TEXT_DATASET_FILE_LIST_H
#define INKLING_TEXT_DATASET_FILE_LIST_H

#include "base/error.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The format of a file: plain text, JSON lines, a JSON array, prompts and responses in columns, sequences with header
 * lines, or conversations as lines with names. */
typedef enum TextFormat {
  FORMAT_TEXT,
  FORMAT_JSONL,
  FORMAT_JSON,
  FORMAT_TSV,
  FORMAT_FASTA,
  FORMAT_CHAT,
  TEXT_FORMATS
} TextFormat;
TextFormat text_format_of(const char *path); /* from the ending of its name, in upper or lower case */
/* Returns whether the name ends as that of some format, so that the file is read in a directory. */
bool text_has_ending(const char *path);
const char *text_ending(TextFormat format); /* ".txt" */

#define TEXT_FILE_NAMES ".txt, .jsonl, .json, .tsv, .chat or FASTA file" /* that is read in a directory */

typedef struct TextFile {
  char *path; /* owned */
  TextFormat format;
  int group;          /* of CorpusOptions.groups */
  int64_t size;       /* bytes */
  int64_t begin, end; /* the bytes of it that are read; all, unless it is a part of a list */
  struct timespec modified;
  uint64_t device, inode;
} TextFile;

/* Begins as {0}, or with only is_model set; the list owns everything else in it. */
typedef struct FileList {
  bool (*is_model)(const char *dir); /* returns whether a directory holds a model instead of text; NULL: none does */
  TextFile *files;
  int count;
  size_t capacity;
  int64_t bytes; /* sum of what is read of them */
  /* the paths of skipped names in directories: hidden names, other endings, models, special files */
  char **skipped;
  size_t skipped_count, skipped_capacity;
} FileList;

/* Adds a file, or the files of a directory and of the directories in it whose names end in .txt, .jsonl, .json, .tsv,
 * .chat, .fa, .fasta, .fna or .faa (in upper or lower case), sorted bytewise by path. It skips names that begin with
 * a dot, files and directories, and directories that hold a model. It follows links and reads no directory twice, for
 * example through a link to a parent directory. EXIT_INPUT, with path and cause, for a missing or unreadable file,
 * for a pipe, socket or device, and for a directory without a file to read; EXIT_MEMORY. After an error only
 * file_list_free may be called. */
bool file_list_add(FileList *list, const char *path, Error *error);

/* Adds a file that need not exist yet. Returns its index, or -1 with EXIT_MEMORY. */
int file_list_reserve(FileList *list, const char *path, TextFormat format, Error *error);
/* Measures a reserved file after it was written. EXIT_INPUT. */
bool file_list_measure(FileList *list, int index, Error *error);

/* Adds what is at [begin, end) of all bytes of a list to `out`, without skipped paths. EXIT_MEMORY. */
bool file_list_part(FileList *out, const FileList *list, int64_t begin, int64_t end, Error *error);

void file_list_free(FileList *list);

/* Returns the first of the skipped paths, from number `from`: "book/6.docx, book/8.md, book/.git and 2 more"; "": none.
 * `texts`: only those whose names end as those of documents or of compressed texts, which the user may want to read. */
OneLine file_list_skipped(const FileList *list, size_t from, bool texts);

/* Checks that the file at that path still has the size, time and inode that it had when it was listed. EXIT_INPUT. */
bool file_list_unchanged(const TextFile *file, Error *error);

/* Returns checksum_xxh64 over format, size, time and inode of every file, in order, over the part of a file that is
 * read, if it is not all, and over its group, if it is not 0. It does not cover paths, because a directory that was
 * moved holds the same text. */
uint64_t file_list_sum(const FileList *list, uint64_t seed);

#endif
