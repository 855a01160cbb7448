#include "text/tokenizer/nfc.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Characters below U+0300 are normalized and do not compose with a character before them; the first byte of all other
 * characters is FIRST_LEAD or higher. LONGEST: the most code points that a character decomposes to. */
enum { FIRST_LEAD = 0xCC, LONGEST = 18, CLASSES = 256 };

void nfc_free(NfcScratch *scratch) {
  free(scratch->points);
  free(scratch->sorted);
  *scratch = (NfcScratch){0};
}

static uint8_t combining_class(int32_t point) { return (uint8_t)utf8proc_get_property(point)->combining_class; }

/* Sorts consecutive marks by combining class, in linear time; the time of utf8proc's own sort is quadratic. */
static void sort_marks(int32_t *points, size_t count, int32_t *sorted) {
  size_t begins[CLASSES + 1] = {0};
  for (size_t i = 0; i < count; i++) begins[combining_class(points[i]) + 1]++;
  for (int class = 0; class < CLASSES; class ++) begins[class + 1] += begins[class];
  for (size_t i = 0; i < count; i++) sorted[begins[combining_class(points[i])]++] = points[i];
  memcpy(points, sorted, count * sizeof *points);
}

static void sort_all_marks(int32_t *points, size_t count, int32_t *sorted) {
  for (size_t at = 0, end; at < count; at = end + 1) {
    for (end = at; end < count && combining_class(points[end]); end++) {
    }
    if (end - at > 1) sort_marks(points + at, end - at, sorted);
  }
}

/* Normalizes a run of characters, of which only the first may be below U+0300. */
static bool add_run(ByteBuffer *out, NfcScratch *s, const uint8_t *text, size_t size, Error *error) {
  size_t count = 0;
  for (size_t at = 0; at < size;) {
    uint32_t point = 0;
    int boundary = 0;
    at += utf8_read(text + at, size - at, &point);
    if (!array_reserve(&s->points, &s->points_capacity, count + LONGEST, sizeof *s->points))
      return error_memory(error, "a text");
    const utf8proc_ssize_t made = utf8proc_decompose_char((utf8proc_int32_t)point, s->points + count, LONGEST,
                                                          UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
    if (made < 0 || made > LONGEST)
      return fail(error, EXIT_INTERNAL, "utf8proc cannot decompose U+%04X", (unsigned)point);
    count += (size_t)made;
  }
  if (!array_reserve(&s->sorted, &s->sorted_capacity, count, sizeof *s->sorted)) return error_memory(error, "a text");
  sort_all_marks(s->points, count, s->sorted);
  const utf8proc_ssize_t left =
      utf8proc_normalize_utf32(s->points, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  for (utf8proc_ssize_t i = 0; i < left; i++) {
    uint8_t bytes[4];
    if (!byte_buffer_add(out, bytes, utf8_write((uint32_t)s->points[i], bytes), error)) return false;
  }
  return true;
}

bool nfc_add(ByteBuffer *out, NfcScratch *scratch, const uint8_t *text, size_t size, Error *error) {
  uint32_t point;
  for (size_t at = 0; at < size;) {
    size_t plain = at, end;
    while (plain < size && text[plain] < FIRST_LEAD) plain++;
    for (end = plain; end < size && text[end] >= FIRST_LEAD;) {
      const size_t length = utf8_read(text + end, size - end, &point);
      if (length == 0) break;
      end += length;
    }
    const int32_t last = end > plain && plain > at ? utf8_previous(text + at, plain - at) : UTF8_INVALID;
    const size_t begin = plain - (last == UTF8_INVALID ? 0 : last < 0x80 ? 1 : 2); /* the run may compose with it */
    if (!byte_buffer_add(out, text + at, begin - at, error) ||
        (end > begin && !add_run(out, scratch, text + begin, end - begin, error)))
      return false;
    if (end == plain && end < size && !byte_buffer_add(out, text + end++, 1, error))
      return false; /* belongs to no character */
    at = end;
  }
  return true;
}
