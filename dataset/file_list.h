/* The files of a training corpus: found, sorted and measured before the first byte of one is read. */
#ifndef INKLING_DATASET_FILE_LIST_H
#define INKLING_DATASET_FILE_LIST_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* How a file is read: plain text, JSON lines, or prompts and responses in columns. */
typedef enum TextFormat { FORMAT_TEXT, FORMAT_JSONL, FORMAT_TSV } TextFormat;

typedef struct TextFile {
  char *path; /* owned */
  TextFormat format;
  int64_t size;                 /* bytes */
  int64_t seconds, nanoseconds; /* last modification, since 1970 */
  uint64_t device, inode;
} TextFile;

/* Begins as {0}, or with is_model alone; everything else in it is owned. */
typedef struct FileList {
  bool (*is_model)(const char *dir); /* which directories hold a model instead of text; NULL: none */
  TextFile *files;
  int count;
  size_t capacity;
  int64_t bytes;   /* sum of the sizes */
  int64_t skipped; /* names in directories: hidden ones, other endings, models, and what is not a regular file */
} FileList;

/* Adds a file, or the files of a directory and of the directories in it whose names end in .txt, .jsonl or .tsv (in
 * capitals too), sorted by path, byte for byte. A name that begins with a dot is skipped, file or directory, and so is
 * a directory that holds a model. Links are followed; a directory that is reached a second time, as by a link to a
 * directory above it, is not read again. EXIT_INPUT, with path and cause, for what is missing or unreadable, for a
 * pipe, socket or device, and for a directory without a file to read; EXIT_MEMORY. After an error only file_list_free
 * is of use. */
bool file_list_add(FileList *list, const char *path, Error *error);

/* Adds a file that need not be there yet; the index of it, or -1 for EXIT_MEMORY. */
int file_list_reserve(FileList *list, const char *path, TextFormat format, Error *error);
/* Examines the file once it is there. EXIT_INPUT. */
bool file_list_measure(FileList *list, int index, Error *error);

void file_list_free(FileList *list);

/* EXIT_INPUT when the file at that path no longer has the size, time and inode that it had when it was listed. */
bool file_list_unchanged(const TextFile *file, Error *error);

/* checksum_xxh64 over format, size, time and inode of every file, in order. Not over paths: a directory that was moved
 * holds the same text. */
uint64_t file_list_sum(const FileList *list, uint64_t seed);

#endif
