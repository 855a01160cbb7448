/* Finds text that is not UTF-8, and data that is hardly text, by counting bytes. */
#include "doctor/findings.h"

#include "util/text.h"
#include "util/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- UTF-16 and UTF-32 ---- */

static bool add_wide(TextFindings *out, int variant, const char *name, const char *iconv, bool marked) {
  TextFinding *finding = text_findings_add(out, TEXT_WIDE, variant);
  snprintf(finding->what, sizeof finding->what, "it is %s (%s), not UTF-8", name,
           marked ? "it begins with its byte-order mark" : "its bytes are text when read so");
  snprintf(finding->command, sizeof finding->command, "iconv -f %s -t utf-8 @", iconv);
  return true;
}

/* A unit of UTF-16 that text is full of: ASCII without control characters, or of an alphabet below U+0700. */
static bool is_common(uint8_t high, uint8_t low) {
  return high == 0 ? (low >= ' ' && low != 0x7F) || low == '\n' || low == '\r' || low == '\t' : high < 7;
}

/* Without a mark: all but 2 % of the units are common ones in one order of bytes, and some are ASCII. */
static bool looks_wide(const TextSample *s, size_t unit, bool big) {
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

static bool find_wide(const TextView *view, TextFindings *out) {
  const TextSample *s = &view->samples[0];
  if (s->size >= 4 && memcmp(s->bytes, "\xFF\xFE\0\0", 4) == 0) return add_wide(out, 0, "UTF-32", "utf-32", true);
  if (s->size >= 4 && memcmp(s->bytes, "\0\0\xFE\xFF", 4) == 0) return add_wide(out, 0, "UTF-32", "utf-32", true);
  if (s->size >= 2 && memcmp(s->bytes, "\xFF\xFE", 2) == 0) return add_wide(out, 1, "UTF-16", "utf-16", true);
  if (s->size >= 2 && memcmp(s->bytes, "\xFE\xFF", 2) == 0) return add_wide(out, 1, "UTF-16", "utf-16", true);
  if (looks_wide(s, 4, false)) return add_wide(out, 2, "UTF-32", "utf-32le", false);
  if (looks_wide(s, 4, true)) return add_wide(out, 3, "UTF-32", "utf-32be", false);
  if (looks_wide(s, 2, false)) return add_wide(out, 4, "UTF-16", "utf-16le", false);
  return looks_wide(s, 2, true) && add_wide(out, 5, "UTF-16", "utf-16be", false);
}

/* ---- counts ---- */

typedef struct ByteCounts {
  int64_t bytes;
  int64_t nuls, controls;    /* controls: those that no text has, NULs included */
  int64_t characters;        /* of UTF-8, of two bytes and more */
  int64_t wrong;             /* bytes that are of no such character */
  int64_t high, neighbors;   /* bytes from 0x80 on; those of them that follow another */
  int64_t of[256];           /* each */
  int64_t inside[256];       /* those between two ASCII letters */
  int64_t pairs, low_trails; /* bytes from 0x81 on read two by two; those whose second is below 0x7F */
  int64_t hangul, common;    /* those that are Korean; the commonest of Chinese in GB 2312: a comma, a stop, de */
} ByteCounts;

static bool is_control(uint8_t c) { return (c < ' ' && !(c >= '\b' && c <= '\r') && c != 0x1B) || c == 0x7F; }

/* Whether the next eight bytes are printable ASCII, and not worth a look each: none is below 0x20 or above 0x7E. */
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
  if (n->wrong == 0) return; /* they serve to guess the encoding */
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
    n->inside[c] += at > 0 && at + 1 < size && text_is_letter(bytes[at - 1]) && text_is_letter(bytes[at + 1]);
  }
}

static ByteCounts count_bytes(const TextView *view) {
  ByteCounts n = {0};
  for (int i = 0; i < view->count; i++) {
    const uint8_t *bytes = view->samples[i].bytes;
    size_t size = view->samples[i].size, cut = 0; /* a character that the sample cuts is nobody's fault */
    while (i > 0 && cut < 3 && cut < size && utf8_continues(bytes[cut])) cut++;
    bytes += cut;
    size = utf8_complete(bytes, size - cut);
    count_each(&n, bytes, size);
    n.bytes += (int64_t)size;
    count_characters(&n, bytes, size);
    count_pairs(&n, bytes, size);
  }
  n.nuls = n.of[0];
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

/* Letters from 0xC0 on. KOI8-R has the small ones first; Windows-1251 has them last, as Greek, which has no letter in
 * the place of its a. Others are not told: Hebrew has nothing before 0xE0, Arabic and ISO 8859-5 little behind 0xEF. */
static Encoding guess_alphabet(const ByteCounts *n, int64_t first, int64_t second) {
  if (second * 6 < first) return KOI8_R;
  const bool mac = sum(n->of, 0x80, 0x9F) > sum(n->of, 0xC0, 0xDE); /* its capitals */
  if (sum(n->of, 0xF0, 0xFF) * 5 < first + second || first * 200 < second || mac) return UNKNOWN;
  return n->of[0xE0] * 100 < second ? GREEK : WINDOWS_1251;
}

/* Most letters are not Latin. The first bytes of kana are few; the second bytes of Big5 are often ASCII. */
static Encoding guess_foreign(const ByteCounts *n) {
  const int64_t first = sum(n->of, 0xC0, 0xDF), second = sum(n->of, 0xE0, 0xFF);
  if ((first + second) * 20 >= n->high * 17) return guess_alphabet(n, first, second);
  if (sum(n->of, 0x82, 0x83) * 5 >= n->high) return SHIFT_JIS;
  if (n->low_trails * 7 >= n->pairs) return sum(n->of, 0x81, 0xA0) * 10 < n->high ? BIG5 : UNKNOWN;
  if (sum(n->of, 0xA4, 0xA5) * 5 >= n->high) return EUC_JP;
  if (n->hangul * 20 >= n->pairs * 17) return EUC_KR;
  return n->common * 50 >= n->pairs ? GB18030 : UNKNOWN;
}

/* Latin letters with accents. Where Latin-1 has superscripts and fractions, ISO 8859-2 has letters of Central Europe,
 * and so has Windows-1250, but some of them stand below 0xA0; there Windows-1252 has quotes, dashes and few more.
 * Hungarian has o and u with two strokes where Portuguese and Estonian have an o with a tilde, but neither their a with
 * a tilde nor that with dots; the Turkish i without a dot, a y of Icelandic elsewhere, is a common letter. */
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

static void add_encoding(const TextView *view, const ByteCounts *n, TextFindings *out) {
  const Encoding encoding = guess(n);
  TextFinding *finding = text_findings_add(out, TEXT_ENCODING, (int)encoding);
  const TextShare share = text_share((double)n->wrong, (double)n->bytes);
  const TextExtent extent = text_extent(view);
  char *what = finding->what, *command = finding->command;
  if (encoding == DAMAGED) {
    snprintf(what, sizeof finding->what, "%s %s are not UTF-8, though the rest is", share.text, extent.text);
    strcpy(command, "iconv -c -f utf-8 -t utf-8 @");
    finding->advice = "without them";
  } else if (encoding == UNKNOWN) {
    snprintf(what, sizeof finding->what, "%s %s are not UTF-8, nor of an encoding that is recognized", share.text,
             extent.text);
    strcpy(command, "iconv -f ENCODING -t utf-8 @");
    finding->advice = "convert it from what it is";
  } else {
    snprintf(what, sizeof finding->what, "%s %s are not UTF-8 (it looks like %s)", share.text, extent.text,
             encodings[encoding].name);
    snprintf(command, sizeof finding->command, "iconv -f %s -t utf-8 @", encodings[encoding].iconv);
  }
}

bool text_find_encoding(const TextView *view, TextFindings *out) {
  if (find_wide(view, out)) return true;
  const ByteCounts n = count_bytes(view);
  if (n.controls * 20 >= n.bytes && n.controls >= 2) {
    TextFinding *finding = text_findings_add(out, TEXT_BINARY, 0);
    snprintf(finding->what, sizeof finding->what, "%s %s are control characters: this is hardly text",
             text_share((double)n.controls, (double)n.bytes).text, text_extent(view).text);
    return true;
  }
  if (n.wrong >= 3 || n.wrong * 1000 > n.bytes) add_encoding(view, &n, out);
  if (n.nuls > 0) {
    TextFinding *finding = text_findings_add(out, TEXT_NULS, 0);
    snprintf(finding->what, sizeof finding->what, "%s %s are NUL, which no text has",
             text_share((double)n.nuls, (double)n.bytes).text, text_extent(view).text);
    strcpy(finding->command, "tr -d '\\000' <@");
  }
  return false;
}
