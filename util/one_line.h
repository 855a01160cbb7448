/* Names and keys that others chose, made fit for a message. */
#ifndef INKLING_UTIL_ONE_LINE_H
#define INKLING_UTIL_ONE_LINE_H

#include <stddef.h>

enum { ONE_LINE_BYTES = 300 };

typedef struct OneLine {
  char text[ONE_LINE_BYTES];
} OneLine;

/* `text` in one line of valid UTF-8: control characters, newlines among them, and bytes that are not UTF-8 become '?'.
 * What is longer than `limit` bytes (at most ONE_LINE_BYTES - 1, at least 8) loses its middle: "/data/...ok.txt". */
OneLine one_line(const char *text, size_t limit);

#endif
