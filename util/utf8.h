/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef INKLING_UTIL_UTF8_H
#define INKLING_UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_POINTS = 0x110000, UTF8_SURROGATES = 0xD800, UTF8_SURROGATES_END = 0xE000 };

/* Bytes of the well-formed character that starts at text[0], at most `size` > 0 of them, or 0; its point in *point. */
size_t utf8_read(const uint8_t *text, size_t size, uint32_t *point);

/* utf8_read(), and 0 also of a control character, which could move a terminal's cursor. */
size_t utf8_read_visible(const uint8_t *text, size_t size);

/* Writes a point that is no surrogate (jansson has a utf8_encode of its own); returns its 1 to 4 bytes. */
size_t utf8_write(uint32_t point, uint8_t *out);

/* A byte that is not the first of its character. */
static inline bool utf8_continues(uint8_t byte) { return (byte & 0xC0) == 0x80; }
int utf8_characters(const char *text); /* in a text that ends with a 0 */

/* How many of `size` bytes can be shown now: all but the beginning of a character that may still be completed. */
size_t utf8_complete(const uint8_t *text, size_t size);

#endif
