/* Lines of files: where they end, their names in messages, and their JSON objects. All readers of JSON Lines use these
 * functions. So they agree: a byte-order mark at the beginning of a file is dropped (utf8_mark()), a line ends in \n or
 * \r\n, blank lines are skipped, and a key whose value is null is absent. */
#ifndef INKLING_TEXT_DATASET_LINE_H
#define INKLING_TEXT_DATASET_LINE_H

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

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

/* Returns the line of a text that begins at *at < size, and moves *at behind it. *length does not count the end of the
 * line, which is \n, \r\n or the end of the text. */
const uint8_t *line_take(const uint8_t *text, size_t size, size_t *at, size_t *length);

/* Returns whether a line has only spaces, tabs and carriage returns. */
bool line_is_blank(const uint8_t *line, size_t size);

/* Parses a line that is one JSON object; record.h has the rules. The caller frees it with json_decref(). NULL:
 * EXIT_INPUT with file, line and cause; EXIT_MEMORY. */
json_t *line_object(const uint8_t *line, size_t size, const char *file, int64_t number, Error *error);

/* Returns the value of a key that may be left out; NULL: the object does not have it, or it is null. */
json_t *line_value(const json_t *object, const char *key);

const char *line_kind(const json_t *value); /* "a string" */

/* The first keys of an object, or only those of strings: "content", "id", ...; "": none. */
typedef struct LineKeys {
  char text[LINE_KEYS * (LINE_KEY_BYTES + 4) + 8];
} LineKeys;
LineKeys line_keys(json_t *object, bool strings);

#endif
