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
  int64_t controls;          /* control characters that text does not have, including NUL */
  int64_t characters;        /* UTF-8 characters of at least two bytes */
  int64_t wrong;             /* bytes that are not UTF-8 */
  int64_t high, neighbors;   /* bytes >= 0x80; those that follow another of them */
  int64_t of[256];           /* number of each byte */
  int64_t inside[256];       /* number of each byte between two ASCII letters */
  int64_t pairs, low_trails; /* pairs of bytes whose first is >= 0x81; those whose second is below 0x7F */
  int64_t hangul, common;    /* pairs that are Korean; pairs that are GB 2312's comma, full stop or the word de */
} ByteCounts;

static bool is_control(uint8_t c) { return (c < ' ' && !(c >= '\b' && c <= '\r') && c != 0x1B) || c == 0x7F; }

/* Returns whether the next eight bytes are printable ASCII (0x20 to 0x7E), so that the counters can skip them. */
static bool are_plain(const uint8_t *bytes, size_t size) {
  const uint64_t ones = UINT64_MAX / 255, tops = ones << 7;
  uint64_t word;
  if (size < sizeof word) return false;
  memcpy(&word, bytes, sizeof word);
  const uint64_t low = (word - ones * 0x20) & ~word, high = (word + ones) | word; /* 0x7F + 1 sets a top bit */
  return ((low | high) & tops) == 0;
}

static void count_characters(ByteCounts *n, const uint8_t *bytes, size_t size) {
  for (size_t i = 0, length; i < size; i += length) {
    uint32_t point;
    if (are_plain(bytes + i, size - i)) {
      length = sizeof(uint64_t);
      continue;
    }
    length = utf8_read(bytes + i, size - i, &point);
    n->wrong += length == 0;
    n->characters += length > 1;
    length += length == 0;
  }
}

static void count_pairs(ByteCounts *n, const uint8_t *bytes, size_t size) {
  if (n->wrong == 0) return; /* only needed to guess an encoding */
  for (size_t i = 0; i + 1 < size; i++) {
    if (bytes[i] <= 0x80) continue;
    n->pairs++;
    n->low_trails += bytes[i + 1] >= 0x40 && bytes[i + 1] < 0x7F;
    n->hangul += bytes[i] >= 0xB0 && bytes[i] <= 0xC8 && bytes[i + 1] > 0xA0;
    const int pair = bytes[i] << 8 | bytes[i + 1];
    n->common += pair == 0xA3AC || pair == 0xA1A3 || pair == 0xB5C4;
    i++;
  }
}

static void count_each(ByteCounts *n, const uint8_t *bytes, size_t size) {
  for (size_t at = 0; at < size; at++) {
    while (are_plain(bytes + at, size - at)) at += sizeof(uint64_t);
    if (at == size) return;
    const uint8_t c = bytes[at];
    n->of[c]++;
    n->controls += is_control(c);
    n->high += c >= 0x80;
    n->neighbors += c >= 0x80 && at > 0 && bytes[at - 1] >= 0x80;
    n->inside[c] += at > 0 && at + 1 < size && doctor_is_letter(bytes[at - 1]) && doctor_is_letter(bytes[at + 1]);
  }
}

static ByteCounts count_bytes(const DoctorView *view) {
  ByteCounts n = {0};
  for (int i = 0; i < view->count; i++) {
    const uint8_t *bytes = view->samples[i].bytes;
    size_t size = view->samples[i].size, cut = 0; /* a character cut at the sample's beginning is not counted */
    while (i > 0 && cut < 3 && cut < size && utf8_continues(bytes[cut])) cut++;
    bytes += cut;
    size = utf8_complete(bytes, size - cut);
    count_each(&n, bytes, size);
    n.bytes += (int64_t)size;
    count_characters(&n, bytes, size);
    count_pairs(&n, bytes, size);
  }
  return n;
}

static int64_t sum(const int64_t counts[256], int first, int last) {
  int64_t out = 0;
  for (int c = first; c <= last; c++) out += counts[c];
  return out;
}

/* ---- which encoding ---- */

typedef enum Encoding {
  LATIN1,
  WINDOWS_1252,
  LATIN2,
  WINDOWS_1250,
  WINDOWS_1251,
  KOI8_R,
  GREEK,
  WINDOWS_1254,
  SHIFT_JIS,
  EUC_JP,
  EUC_KR,
  BIG5,
  GB18030,
  DAMAGED,
  UNKNOWN
} Encoding;

static const struct {
  const char *name, *iconv;
} encodings[] = {[LATIN1] = {"Latin-1", "latin1"},
                 [WINDOWS_1252] = {"Windows-1252", "windows-1252"},
                 [LATIN2] = {"ISO 8859-2", "iso-8859-2"},
                 [WINDOWS_1250] = {"Windows-1250", "windows-1250"},
                 [WINDOWS_1251] = {"Windows-1251", "windows-1251"},
                 [KOI8_R] = {"KOI8-R", "koi8-r"},
                 [GREEK] = {"ISO 8859-7", "iso-8859-7"},
                 [WINDOWS_1254] = {"Windows-1254", "windows-1254"},
                 [SHIFT_JIS] = {"Shift JIS", "shift_jis"},
                 [EUC_JP] = {"EUC-JP", "euc-jp"},
                 [EUC_KR] = {"EUC-KR", "euc-kr"},
                 [BIG5] = {"Big5", "big5"},
                 [GB18030] = {"GB18030", "gb18030"}};

/* Guesses an alphabet from its letters, bytes >= 0xC0: `first` below 0xE0, `second` from there. KOI8-R has the small
 * letters first, Windows-1251 and Greek have them last, and Greek has no letter at 0xE0, the small a of Windows-1251.
 * Others stay unknown: Hebrew has nothing below 0xE0, Arabic and ISO 8859-5 have little above 0xEF. */
static Encoding guess_alphabet(const ByteCounts *n, int64_t first, int64_t second) {
  if (second * 6 < first) return KOI8_R;
  const bool mac = sum(n->of, 0x80, 0x9F) > sum(n->of, 0xC0, 0xDE); /* MacCyrillic has its capitals at 0x80 */
  if (sum(n->of, 0xF0, 0xFF) * 5 < first + second || first * 200 < second || mac) return UNKNOWN;
  return n->of[0xE0] * 100 < second ? GREEK : WINDOWS_1251;
}

/* Guesses the encoding of a text whose letters are mostly not Latin. Few bytes begin a kana; the second bytes of Big5
 * are often ASCII. */
static Encoding guess_foreign(const ByteCounts *n) {
  const int64_t first = sum(n->of, 0xC0, 0xDF), second = sum(n->of, 0xE0, 0xFF);
  if ((first + second) * 20 >= n->high * 17) return guess_alphabet(n, first, second);
  if (sum(n->of, 0x82, 0x83) * 5 >= n->high) return SHIFT_JIS;
  if (n->low_trails * 7 >= n->pairs) return sum(n->of, 0x81, 0xA0) * 10 < n->high ? BIG5 : UNKNOWN;
  if (sum(n->of, 0xA4, 0xA5) * 5 >= n->high) return EUC_JP;
  if (n->hangul * 20 >= n->pairs * 17) return EUC_KR;
  return n->common * 50 >= n->pairs ? GB18030 : UNKNOWN;
}

/* Guesses the encoding of Latin letters with accents. Where Latin-1 has superscripts and fractions, ISO 8859-2 and
 * Windows-1250 have Central European letters; Windows-1250 has some below 0xA0, where Windows-1252 has mostly quotes
 * and dashes. Hungarian has o and u with double acute accents (0xF5, 0xFB); Portuguese and Estonian have o with a tilde
 * at 0xF5, but also a with a tilde or dots (0xE3, 0xE4). The dotless i of Turkish (0xFD) is a common letter; elsewhere
 * that byte is an Icelandic y. */
static Encoding guess_accented(const ByteCounts *n) {
  const int64_t *in = n->inside, windows = sum(n->of, 0x80, 0x9F), all = sum(in, 0x80, 0xFF);
  const int64_t central = in[0xB3] + in[0xB1] + in[0xB6] + in[0xB9] + in[0xBA] + in[0xBC] + in[0xBE] + in[0x9A] +
                          in[0x9D] + in[0x9E] + in[0x9F];
  const int64_t usual = n->of[0x80] + n->of[0x85] + sum(n->of, 0x91, 0x97) + n->of[0x99] + n->of[0x9C];
  const int64_t *of = n->of;
  const bool strokes = (of[0xF5] + of[0xFB]) * 20 >= n->high && of[0xFB] > 0 && of[0xF5] > of[0xE3] + of[0xE4];
  if ((windows - usual) * 2 >= n->high) return UNKNOWN;
  if ((central * 12 >= all && central > 0) || strokes) return windows ? WINDOWS_1250 : LATIN2;
  if (in[0xFD] * 8 >= all && in[0xFD] > 0) return WINDOWS_1254;
  if ((windows - usual) * 3 >= n->high) return UNKNOWN;
  return windows ? WINDOWS_1252 : LATIN1;
}

static Encoding guess(const ByteCounts *n) {
  if (n->characters >= 4 * n->wrong) return DAMAGED;
  return n->neighbors * 5 >= n->high * 2 ? guess_foreign(n) : guess_accented(n);
}

static void add_encoding(const DoctorView *view, const ByteCounts *n, Findings *out) {
  const int encoding = (int)guess(n);
  const OneLine wrong = doctor_percent(view, (double)n->wrong, (double)n->bytes);
  if (encoding == DAMAGED) {
    doctor_add(out, FINDING_ENCODING, encoding, "iconv -c -f utf-8 -t utf-8 @", "%s are not UTF-8, though the rest is",
               wrong.text)
        ->advice = "remove them";
  } else if (encoding == UNKNOWN) {
    doctor_add(out, FINDING_ENCODING, encoding, "iconv -f ENCODING -t utf-8 @",
               "%s are not UTF-8, and the encoding is unknown", wrong.text)
        ->advice = "convert it from its encoding";
  } else {
    Finding *finding = doctor_add(out, FINDING_ENCODING, encoding, NULL, "%s are not UTF-8 (it looks like %s)",
                                  wrong.text, encodings[encoding].name);
    snprintf(finding->command, sizeof finding->command, "iconv -f %s -t utf-8 @", encodings[encoding].iconv);
  }
}

bool doctor_find_encoding(const DoctorView *view, Findings *out) {
  if (find_wide(view, out)) return true;
  const ByteCounts n = count_bytes(view);
  if (n.controls * 20 >= n.bytes && n.controls >= 2)
    return doctor_add(out, FINDING_BINARY, 0, NULL, "%s are control characters: this is hardly text",
                      doctor_percent(view, (double)n.controls, (double)n.bytes).text);
  if (n.wrong >= 3 || n.wrong * 1000 > n.bytes) add_encoding(view, &n, out);
  if (n.of[0] > 0)
    doctor_add(out, FINDING_NULS, 0, "tr -d '\\000' <@", "%s are NUL, which no text has",
               doctor_percent(view, (double)n.of[0], (double)n.bytes).text);
  return false;
}
