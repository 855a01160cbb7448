/* Items of multiple choice (--choose): each line of a .tsv or .jsonl file has two or more texts, one of which is right.
 * TSV: the texts, separated by tabs; the first one is right. There are no escapes, quotes or header line.
 * JSON Lines, one of two kinds of objects, in which other keys are ignored:
 *   {"context": "Two and two is", "choices": ["four", "five"], "answer": 0}    "query" and "gold" are other names
 *   {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}
 * As in lm-eval, each text of a JSON line follows the context and "delimiter", by default a space, also where there is
 * no context. "answer" counts from 0; without it, the first text is right.
 * Byte-order marks, ends of lines, blank lines and null are treated as described in text/dataset/line.h. */
#ifndef INKLING_TEXT_DATASET_CHOICE_FILE_H
#define INKLING_TEXT_DATASET_CHOICE_FILE_H

#include "text/dataset/file_list.h"
#include "base/error.h"
#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ChoiceText {
  const uint8_t *bytes; /* not zero-terminated; may contain zeros and, from TSV, invalid UTF-8 */
  size_t size;
} ChoiceText;

typedef struct ChoiceItem {
  int64_t line;                  /* from 1 */
  ChoiceText context, delimiter; /* before each text; may be empty */
  ChoiceText *texts;             /* not empty */
  size_t count, right;           /* count >= 2, right < count */
} ChoiceItem;

/* Starts zeroed. */
typedef struct ChoiceFile {
  const char *path;
  TextFormat format;
  MappedFile file;
  size_t at; /* bytes that were read */
  struct json_t *root;
  size_t capacity; /* of item.texts */
  ChoiceItem item;
} ChoiceFile;

/* Opens a file; `path` must outlive it. EXIT_USAGE for another ending of the name, EXIT_INPUT. */
bool choice_file_open(ChoiceFile *out, const char *path, Error *error);
/* Reads the next item, valid until the next call; NULL: the end. EXIT_INPUT with file, line and cause; EXIT_MEMORY. */
bool choice_file_next(ChoiceFile *file, const ChoiceItem **item, Error *error);
void choice_file_close(ChoiceFile *file); /* harmless on a zeroed struct */

#endif
