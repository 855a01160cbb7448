/* Finds text that is not UTF-8, and data that is hardly text, by counting bytes. */
#include "text/doctor/findings.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- UTF-16 and UTF-32 ---- */

/* Returns whether a UTF-16 unit is common in text: printable ASCII, white space, or a character below U+0700. */
static bool is_common(uint8_t high, uint8_t low) {
  return high == 0 ? (low >= ' ' && low != 0x7F) || low == '\n' || low == '\r' || low == '\t' : high < 7;
}

/* Detects wide text without a mark: in this byte order, at least 98 % of the units are common and 2 % are ASCII. */
static bool looks_wide(const DoctorSample *s, size_t unit, bool big) {
  const size_t units = s->size / unit;
  size_t common = 0, ascii = 0;
  for (size_t i = 0; i < units; i++) {
    const uint8_t *u = s->bytes + i * unit;
    const uint8_t low = u[big ? unit - 1 : 0], high = u[big ? unit - 2 : 1];
    const bool narrow = unit == 2 || (big ? !u[0] && !u[1] : !u[2] && !u[3]);
    common += narrow && is_common(high, low);
    ascii += narrow && high == 0;
  }
  return units >= 16 && common * 50 >= units * 49 && ascii * 50 >= units;
}

static bool find_wide(const DoctorView *view, Findings *out) {
  static const struct {
    const char *mark; /* NULL: found without a mark */
    const char *iconv;
    size_t unit; /* bytes of a unit, and of the mark */
    int variant;
    bool big;
  } kinds[] = {{"\xFF\xFE\0\0", "utf-32", 4, 0, false}, {"\0\0\xFE\xFF", "utf-32", 4, 0, true},
               {"\xFF\xFE", "utf-16", 2, 1, false},     {"\xFE\xFF", "utf-16", 2, 1, true},
               {NULL, "utf-32le", 4, 2, false},         {NULL, "utf-32be", 4, 3, true},
               {NULL, "utf-16le", 2, 4, false},         {NULL, "utf-16be", 2, 5, true}};
  const DoctorSample *s = &view->samples[0];
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *mark = kinds[i].mark;
    const size_t unit = kinds[i].unit;
    if (mark ? s->size < unit || memcmp(s->bytes, mark, unit) != 0 : !looks_wide(s, unit, kinds[i].big)) continue;
    Finding *finding = doctor_add(out, FINDING_WIDE, kinds[i].variant, NULL, "it is UTF-%zu (%s), not UTF-8", 8 * unit,
                                  mark ? "it begins with its byte-order mark" : "its bytes are text when read so");
    snprintf(finding->command, sizeof finding->command, "iconv -f %s -t utf-8 @", kinds[i].iconv);
    return true;
  }
  return false;
}

/* ---- counts ---- */

typedef struct ByteCounts {
  int64_t bytes;
  int64_t controls; /* control characters that text does not have, including NUL */
  int64_t nuls;
  int64_t characters; /* UTF-8 characters of at least two bytes */
  int64_t wrong;      /* bytes that are not UTF-8 */
} ByteCounts;

static bool is_control(uint32_t c) { return (c < ' ' && !(c >= '\b' && c <= '\r') && c != 0x1B) || c == 0x7F; }

static void count_sample(ByteCounts *n, const uint8_t *bytes, size_t size) {
  n->bytes += (int64_t)size;
  for (size_t i = 0, length; i < size; i += length) {
    uint32_t point;
    length = utf8_read(bytes + i, size - i, &point);
    n->controls += length == 1 && is_control(point);
    n->nuls += length == 1 && point == 0;
    n->characters += length > 1;
    n->wrong += length == 0;
    length += length == 0;
  }
}

static ByteCounts count_bytes(const DoctorView *view) {
  ByteCounts n = {0};
  for (int i = 0; i < view->count; i++) {
    const uint8_t *bytes = view->samples[i].bytes;
    size_t size = view->samples[i].size, cut = 0; /* a character cut at the sample's beginning is not counted */
    while (i > 0 && cut < 3 && cut < size && utf8_continues(bytes[cut])) cut++;
    bytes += cut;
    count_sample(&n, bytes, utf8_complete(bytes, size - cut));
  }
  return n;
}

/* ---- findings ---- */

static void add_encoding(const DoctorView *view, const ByteCounts *n, Findings *out) {
  const bool damaged = n->characters >= 4 * n->wrong;
  const OneLine wrong = doctor_percent(view, (double)n->wrong, (double)n->bytes);
  Finding *finding = doctor_add(out, FINDING_ENCODING, damaged,
                                damaged ? "iconv -c -f utf-8 -t utf-8 @" : "iconv -f ENCODING -t utf-8 @",
                                "%s are not UTF-8%s", wrong.text, damaged ? ", though the rest is" : "");
  finding->advice = damaged ? "remove them" : "convert it from its encoding, such as windows-1252";
}

bool doctor_find_encoding(const DoctorView *view, Findings *out) {
  if (find_wide(view, out)) return true;
  const ByteCounts n = count_bytes(view);
  if (n.controls * 20 >= n.bytes && n.controls >= 2)
    return doctor_add(out, FINDING_BINARY, 0, NULL, "%s are control characters: this is hardly text",
                      doctor_percent(view, (double)n.controls, (double)n.bytes).text);
  if (n.wrong >= 3 || n.wrong * 1000 > n.bytes) add_encoding(view, &n, out);
  if (n.nuls > 0)
    doctor_add(out, FINDING_NULS, 0, "tr -d '\\000' <@", "%s are NUL, which no text has",
               doctor_percent(view, (double)n.nuls, (double)n.bytes).text);
  return false;
}
