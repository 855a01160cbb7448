/* Files made for the tests of the text doctor: texts of several languages and encodings, and bytes. */
#ifndef INKLING_TESTS_TEXT_HELPERS_H
#define INKLING_TESTS_TEXT_HELPERS_H

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- files ---- */

typedef struct Bytes {
  uint8_t *bytes;
  size_t size, capacity;
} Bytes;

static inline void add(Bytes *out, const void *bytes, size_t size) {
  if (out->size + size > out->capacity) {
    out->capacity = 2 * (out->size + size);
    out->bytes = realloc(out->bytes, out->capacity);
    assert_non_null(out->bytes);
  }
  if (size) memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
}

static inline void add_text(Bytes *out, const char *text) { add(out, text, strlen(text)); }

static inline void format(Bytes *out, const char *pattern, ...) __attribute__((format(printf, 2, 3)));
static inline void format(Bytes *out, const char *pattern, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, pattern);
  const int length = vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  assert_in_range(length, 0, sizeof text - 1);
  add_text(out, text);
}

static inline uint32_t drawn(uint32_t *state) {
  *state = *state * 1664525 + 1013904223;
  return *state >> 8;
}

/* About `size` bytes of lines of random words, `joint` between them. */
static inline Bytes lines_of(const char *words, const char *joint, size_t size) {
  Bytes out = {0};
  const char *list[128];
  char copy[2048];
  int count = 0;
  uint32_t state = 7;
  strcpy(copy, words);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) list[count++] = word;
  while (out.size < size)
    for (int i = 0; i < 11; i++) {
      add_text(&out, list[drawn(&state) % (uint32_t)count]);
      add_text(&out, i < 10 ? joint : "\n");
    }
  return out;
}

static const char english[] =
    "the little old woman went down to river and saw that a stone lay there, where no stone had "
    "been; caf\u00e9 na\u00efve she said";
static const char polish[] = "za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144 a \u0142\u00f3d\u017a "
                             "p\u0142yn\u0119\u0142a po rzece by\u0142 to pi\u0119kny dzie\u0144 i wszyscy si\u0119 "
                             "\u015bmiali \u017ceby";
static const char russian[] =
    "\u043e\u0434\u043d\u0430\u0436\u0434\u044b \u0432 \u0441\u0442\u0443\u0434\u0451\u043d\u0443"
    "\u044e \u0437\u0438\u043c\u043d\u044e\u044e \u043f\u043e\u0440\u0443 \u042f \u0438\u0437 "
    "\u043b\u0435\u0441\u0443 \u0432\u044b\u0448\u0435\u043b \u0431\u044b\u043b \u0441\u0438"
    "\u043b\u044c\u043d\u044b\u0439 \u043c\u043e\u0440\u043e\u0437";
static const char chinese[] =
    "\u5929 \u5730 \u7384 \u9ec4 \u5b87 \u5b99 \u6d2a \u8352 \u65e5 \u6708 \u76c8 \u6603 \u3002 "
    "\uff0c \u662f \u4e00 \u6211 \u5728";

/* ---- conversions ---- */

typedef uint8_t Letter(uint32_t point);

static inline uint8_t latin1(uint32_t point) { return (uint8_t)point; }

/* The place of `point` among `points`, as a byte of `bytes`. */
static inline uint8_t look_up(uint32_t point, const uint32_t *points, const char *bytes) {
  for (int i = 0; points[i]; i++)
    if (points[i] == point) return (uint8_t)bytes[i];
  return (uint8_t)point; /* as in Latin-1 */
}

/* a, c, e, l, n, s, x, z */
static const uint32_t polish_points[] = {0x105, 0x107, 0x119, 0x142, 0x144, 0x15B, 0x17A, 0x17C, 0};
static inline uint8_t latin2(uint32_t p) { return look_up(p, polish_points, "\xB1\xE6\xEA\xB3\xF1\xB6\xBC\xBF"); }
static inline uint8_t windows_1251(uint32_t p) {
  return p == 0x451 ? 0xB8 : p >= 0x410 && p < 0x450 ? (uint8_t)(p - 0x410 + 0xC0) : (uint8_t)p;
}
/* The characters of a text of UTF-8 one after the other; 0 at the end. */
static inline uint32_t next_point(const Bytes *text, size_t *at) {
  uint32_t point = 0;
  if (*at < text->size) *at += utf8_read(text->bytes + *at, text->size - *at, &point);
  return point;
}

static inline Bytes in_letters(Bytes text, Letter *letter) {
  Bytes out = {0};
  uint32_t point;
  for (size_t at = 0; (point = next_point(&text, &at));) {
    const uint8_t byte = letter(point);
    add(&out, &byte, 1);
  }
  free(text.bytes);
  return out;
}

/* UTF-16 (without surrogates) or UTF-32. */
static inline Bytes in_units(Bytes text, int unit, bool big, bool mark) {
  Bytes out = {0};
  uint32_t point = mark ? 0xFEFF : 0;
  for (size_t at = 0; point || (point = next_point(&text, &at)); point = 0)
    for (int i = 0; i < unit; i++) {
      const uint8_t byte = (uint8_t)(point >> 8 * (big ? unit - 1 - i : i));
      add(&out, &byte, 1);
    }
  free(text.bytes);
  return out;
}

static inline Bytes replaced(Bytes text, char from, const char *by) {
  Bytes out = {0};
  for (size_t i = 0; i < text.size; i++)
    if (text.bytes[i] == (uint8_t)from) add_text(&out, by);
    else add(&out, text.bytes + i, 1);
  free(text.bytes);
  return out;
}

static inline Bytes literal(const void *bytes, size_t size, size_t zeros) {
  Bytes out = {0};
  add(&out, bytes, size);
  for (size_t i = 0; i < zeros; i++) add(&out, "", 1);
  return out;
}
#define LITERAL(text, zeros) literal(text, sizeof(text) - 1, zeros)

#endif
