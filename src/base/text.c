#include "base/text.h"

#include "base/path.h"
#include "base/shell.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

OneLine text_one_line(const char *text, size_t limit) {
  OneLine out;
  const size_t size = strlen(text);
  if (limit >= sizeof out.text) limit = sizeof out.text - 1;
  if (size <= limit) {
    strcpy(out.text, text);
  } else {
    size_t head = (limit - 3) / 2, tail = limit - 3 - head;
    while (head > 0 && utf8_continues((uint8_t)text[head])) head--;
    while (tail > 0 && utf8_continues((uint8_t)text[size - tail])) tail--;
    snprintf(out.text, sizeof out.text, "%.*s...%s", (int)head, text, text + size - tail);
  }
  text_make_visible(out.text);
  for (char *c = out.text; *c; c++) *c = *c == '\n' ? '?' : *c;
  return out;
}

bool text_append_list(char *out, size_t size, const char *format, va_list arguments) {
  const size_t used = strlen(out), left = size - used;
  const int length = vsnprintf(out + used, left, format, arguments);
  if (length >= 0 && (size_t)length < left) return true;
  out[length < 0 ? used : utf8_complete((const uint8_t *)out, size - 1)] = '\0';
  return false;
}

bool text_append(char *out, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const bool whole = text_append_list(out, size, format, arguments);
  va_end(arguments);
  return whole;
}

static bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (uint8_t)c >= 0x80 ||
         (c && strchr(SHELL_PLAIN, c));
}

static ShellWord shell_word(const char *text, size_t limit, const char *before) {
  ShellWord out;
  const OneLine line = text_one_line(text, limit);
  bool plain = line.text[0] != '\0';
  for (const char *c = line.text; *c; c++) plain = plain && is_plain(*c);
  char *to = out.text + sprintf(out.text, "%s%s", plain ? "" : SHELL_QUOTE, before);
  for (const char *c = line.text; *c; c++)
    if (*c == *SHELL_QUOTE) to += sprintf(to, SHELL_QUOTE_INSIDE);
    else *to++ = *c;
  strcpy(to, plain ? "" : SHELL_QUOTE);
  return out;
}

ShellWord text_shell_word(const char *text, size_t limit) {
  return shell_word(text, limit, text[0] == '-' ? "./" : "");
}
ShellWord text_shell_value(const char *text, size_t limit) { return shell_word(text, limit, ""); }

void text_make_visible(char *text) {
  for (char *c = text, *end = text + strlen(text); c < end;) {
    const size_t character = utf8_read_visible((const uint8_t *)c, (size_t)(end - c));
    if (!character && *c != '\n') *c = '?';
    c += character ? character : 1;
  }
}

bool text_is_plain(const char *text) {
  const char *at = text;
  while ((unsigned char)*at >= ' ' && *at != 0x7F) at++;
  return *text && !*at;
}

bool text_ends_with(const char *text, const char *ending) {
  const size_t length = strlen(text), tail = strlen(ending);
  return length >= tail && strcmp(text + length - tail, ending) == 0;
}

/* ---- numbers ---- */

/* Formats `value` in the largest unit that leaves at least 1, with one decimal below 100. */
static ShortText scaled(double value, double step, const char *const *units, int unit_count) {
  ShortText out;
  int unit = 0;
  if (!isfinite(value)) return (ShortText){"-"};
  while (unit + 1 < unit_count && fabs(value) >= step - 0.5) {
    value /= step;
    unit++;
  }
  bool whole = fabs(value) >= 99.95 || (unit == 0 && floor(value) == value);
  if (fabs(value) > 1e12) snprintf(out.text, sizeof out.text, "%.3g%s", value, units[unit]);
  else snprintf(out.text, sizeof out.text, "%.*f%s", whole ? 0 : 1, value, units[unit]);
  return out;
}

ShortText text_count(double count) {
  static const char *const units[] = {"", "k", "M", "G", "T"};
  return scaled(count, 1000, units, 5);
}

ShortText text_bytes(double bytes) {
  static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024, units, 5);
}

ShortText text_flops(double flops) {
  static const char *const units[] = {" FLOP/s", " kFLOP/s", " MFLOP/s", " GFLOP/s", " TFLOP/s"};
  return scaled(flops, 1000, units, 5);
}

ShortText text_duration(double seconds) {
  ShortText out;
  if (!isfinite(seconds) || seconds < 0 || seconds > 1e12) return (ShortText){"-"};
  long long total = llround(seconds), hours = total / 3600;
  int minutes = (int)(total / 60 % 60), rest = (int)(total % 60);
  if (hours > 0) snprintf(out.text, sizeof out.text, "%lld:%02d:%02d", hours, minutes, rest);
  else snprintf(out.text, sizeof out.text, "%d:%02d", minutes, rest);
  return out;
}

ShortText text_number(double value, bool single) {
  ShortText out;
  bool whole = floor(value) == value && fabs(value) < 1e15; /* %g would print 600 as 6e+02 */
  snprintf(out.text, sizeof out.text, "%.0f", whole ? value : 0);
  for (int digits = 1; !whole && digits <= 17; digits++) {
    snprintf(out.text, sizeof out.text, "%.*g", digits, value);
    double back = strtod(out.text, NULL);
    if (single ? (float)back == (float)value : back == value) break;
  }
  return out;
}

static PluralText plural_of(ShortText number, const char *noun) {
  PluralText out;
  snprintf(out.text, sizeof out.text, "%s %s%s", number.text, noun, strcmp(number.text, "1") == 0 ? "" : "s");
  return out;
}

PluralText text_plural(double count, const char *noun) { return plural_of(text_number(count, false), noun); }
PluralText text_plural_short(double count, const char *noun) { return plural_of(text_count(count), noun); }

/* ---- lines ---- */

void text_print_csv(FILE *stream, const char *text, size_t size, char separator) {
  bool quoted = false;
  for (size_t i = 0; i < size; i++) quoted = quoted || text[i] == separator || memchr("\"\r\n", text[i], 3);
  if (quoted) fputc('"', stream);
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '"') fputc('"', stream);
    fputc(text[i], stream);
  }
  if (quoted) fputc('"', stream);
}

void text_print_wrapped(FILE *stream, const char *text, int column, int indent, int limit) {
  bool first = true;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (length && strchr("<>=:", text[length - 1]) && text[length])
      length += 1 + strcspn(text + length + 1, " "); /* "> 0", "auto: preset" */
    int width = 0;
    for (size_t i = 0; i < length; i++) width += !utf8_continues((uint8_t)text[i]);
    if (!first && column + 1 + width > limit) {
      fprintf(stream, "\n%*s", indent, "");
      column = indent;
    } else if (!first) {
      fputc(' ', stream);
      column++;
    }
    fwrite(text, 1, length, stream);
    column += width;
    first = false;
    text += length;
    text += strspn(text, " ");
  }
  fputc('\n', stream);
}

void text_base64(const unsigned char *bytes, size_t count, char out[4]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned all =
      (unsigned)bytes[0] << 16 | (count > 1 ? (unsigned)bytes[1] << 8 : 0) | (count > 2 ? bytes[2] : 0u);
  for (size_t i = 0; i < 4; i++) out[i] = i <= count ? digits[all >> (18 - 6 * i) & 63] : '=';
}

/* ---- the names of the programs ---- */

static const char *name_of_this = "./";
static const char *command; /* that of `inkling`; NULL: this is ./train or ./generate */

void program_name_set(const char *called) {
  if (called && *called) name_of_this = called;
}

void program_name_set_command(const char *called) { command = called && *called ? called : "inkling"; }

const char *program_name_called(void) { return command ? command : name_of_this; }

bool program_name_is_command(void) { return command != NULL; }

/* Returns the length of the text before "train" or "generate": a directory, and a prefix if the programs were
 * renamed. */
static size_t prefix_size(const char *called) {
  static const char *const programs[] = {"train", "generate"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (text_ends_with(called, programs[i])) return strlen(called) - strlen(programs[i]);
  return (size_t)(path_base(called) - called);
}

static ShellWord two_words(const char *name, const char *program) {
  enum { PROGRAM_BYTES = 16 };
  ShellWord out = text_shell_word(name, ONE_LINE_BYTES - PROGRAM_BYTES);
  text_append(out.text, sizeof out.text, " %s", program);
  return out;
}

ShellWord program_name(const char *program) {
  char path[ONE_LINE_BYTES];
  if (command) return two_words(command, program);
  snprintf(path, sizeof path, "%.*s%s", (int)prefix_size(name_of_this), name_of_this, program);
  return text_shell_word(path, sizeof path - 1);
}

ShellWord program_name_elsewhere(const char *program) {
  char path[ONE_LINE_BYTES];
  if (command) return two_words("inkling", program);
  snprintf(path, sizeof path, "./%s", program);
  return text_shell_word(path, sizeof path - 1);
}
