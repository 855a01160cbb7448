/* Single lines of .jsonl and .tsv files: their names in messages, and their JSON objects. */
#ifndef INKLING_DATASET_LINE_H
#define INKLING_DATASET_LINE_H

#include "util/error.h"
#include "util/json.h"
#include "util/text.h"

#include <stddef.h>
#include <stdint.h>

/* The most bytes of a JSON line. Parsing needs three to four times a line's size in memory. */
#define JSONL_LINE_LIMIT ((size_t)1 << 30)

enum { LINE_KEYS = 8, LINE_KEY_BYTES = 40 /* of a key in a message */ };

/* "data.jsonl, line 3" */
typedef struct LineName {
  char text[ONE_LINE_BYTES + 32];
} LineName;
LineName line_name(const char *file, int64_t number);

/* Returns whether a line has only spaces, tabs and carriage returns. */
bool line_is_blank(const uint8_t *line, size_t size);

/* Parses a line that is one JSON object; record.h has the rules. The caller frees it with json_decref(). NULL:
 * EXIT_INPUT with file, line and cause; EXIT_MEMORY. */
json_t *line_object(const uint8_t *line, size_t size, const char *file, int64_t number, Error *error);

const char *line_kind(const json_t *value); /* "a string" */

/* The first keys of an object: "content", "id", ... */
typedef struct LineKeys {
  char text[LINE_KEYS * (LINE_KEY_BYTES + 4) + 8];
} LineKeys;
LineKeys line_keys(json_t *object);

#endif
