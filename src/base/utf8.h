/* UTF-8 as defined by RFC 3629: no overlong forms, no surrogates, no code points above U+10FFFF. */
#ifndef INKLING_BASE_UTF8_H
#define INKLING_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_POINTS = 0x110000, UTF8_SURROGATES = 0xD800, UTF8_SURROGATES_END = 0xE000 };

/* Returns the number of bytes of the well-formed character at text[0], at most `size` > 0, or 0; stores its code
 * point. */
size_t utf8_read(const uint8_t *text, size_t size, uint32_t *point);

/* Returns the code point of the character at text[0], or UTF8_INVALID for a byte that is not UTF-8, and its number of
 * bytes in *length; size > 0. */
enum { UTF8_INVALID = -1 };
int32_t utf8_next(const uint8_t *text, size_t size, size_t *length);
/* Returns the same for the character that ends before text[at], at > 0; a character or an invalid byte must begin at
 * text[at]. */
int32_t utf8_previous(const uint8_t *text, size_t at);

/* Does the same as utf8_read(), but returns 0 also for a control character, which could move a terminal's cursor. */
size_t utf8_read_visible(const uint8_t *text, size_t size);

/* Writes a code point that is not a surrogate; returns its number of bytes, 1 to 4 (jansson uses the name
 * utf8_encode). */
size_t utf8_write(uint32_t point, uint8_t *out);

/* Returns the size of the byte-order mark at the beginning of a text: 3, or 0 where there is none. */
size_t utf8_mark(const void *text, size_t size);

/* Returns whether a byte is not the first of its character. */
static inline bool utf8_continues(uint8_t byte) { return (byte & 0xC0) == 0x80; }
int utf8_characters(const char *text); /* number of characters in a zero-terminated text */

/* Returns how many of `size` bytes can be shown now: all but an incomplete character at the end, which later bytes may
 * complete. */
size_t utf8_complete(const uint8_t *text, size_t size);

#endif
