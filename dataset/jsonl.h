/* JSON lines: every line of the file is one JSON object, and one or two of its fields make a document. */
#ifndef INKLING_DATASET_JSONL_H
#define INKLING_DATASET_JSONL_H

#include "util/error.h"
#include "dataset/record.h"

#include <stddef.h>
#include <stdint.h>

/* The most bytes of a line. Parsing needs three to four times a line's size in memory. */
#define JSONL_LINE_LIMIT ((size_t)1 << 30)

/* Names of fields, UTF-8. */
typedef struct JsonlFields {
  const char *prompt; /* NULL: the document is the field `text` */
  const char *text;   /* the whole document, or the response that follows the prompt */
} JsonlFields;

/* Parses one line, passed without its newline; it ignores a carriage return at the end. Messages use `file` and
 * `number` (from 1) for the position of the line. A line that has only spaces, tabs and carriage returns is no
 * document.
 * The JSON rules are jansson's: of equal keys the last one counts; invalid UTF-8, lone surrogates, more than 2048
 * levels, raw control characters in strings, \u0000 in a key and anything after the object are errors; \u0000 in a
 * value is kept. Numbers may go up to 1e308. EXIT_INPUT with file, line and cause; EXIT_MEMORY. */
bool jsonl_parse(Record *record, const JsonlFields *fields, const uint8_t *line, size_t size, const char *file,
                 int64_t number, Error *error);

#endif
