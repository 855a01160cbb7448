/* Short texts: names that others chose, made fit for a message, and numbers for people. */
#ifndef INKLING_UTIL_TEXT_H
#define INKLING_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { ONE_LINE_BYTES = 300 };

typedef struct OneLine {
  char text[ONE_LINE_BYTES];
} OneLine;

/* `text` in one line of valid UTF-8: control characters, newlines among them, and bytes that are not UTF-8 become '?'.
 * What is longer than `limit` bytes (at most ONE_LINE_BYTES - 1, at least 8) loses its middle: "/data/...ok.txt". */
OneLine text_one_line(const char *text, size_t limit);

/* The same as one word of a shell's command line: in quotes where it needs them, "./-x" where it would be an option. */
typedef struct ShellWord {
  char text[4 * ONE_LINE_BYTES + 8];
} ShellWord;
ShellWord text_shell_word(const char *text, size_t limit);

/* Control characters but newlines, and bytes that are not UTF-8, become '?', in place: names and contents of files end
 * up in messages, and what would move a terminal's cursor must not reach it. */
void text_make_visible(char *text);

/* Whether it is not empty and has no control characters: fit for a line of its own. */
bool text_is_plain(const char *text);

/* Whether it ends with `ending`, byte for byte. */
bool text_ends_with(const char *text, const char *ending);

/* Words of `text` from `column` on, and a newline; what would go beyond `limit` columns is continued in lines that
 * begin at `indent`. Columns are counted in characters. What belongs together ("> 0", "auto: preset") is not parted. */
void text_print_wrapped(FILE *stream, const char *text, int column, int indent, int limit);

/* ---- numbers: `printf("%s tok/s", text_count(48211).text)`; NaN: "-" ---- */

typedef struct ShortText {
  char text[32];
} ShortText;

ShortText text_count(double count);      /* 812, 48.2k, 1.2M, 3.4G, 5.6T */
ShortText text_bytes(double bytes);      /* 812 B, 3.1 MiB */
ShortText text_duration(double seconds); /* 0:21, 1:05, 2:03:10 */

/* A count and what is counted: "1 step", "1500 steps"; short, as text_count() writes it: "48.2k steps". A number that
 * is not whole has the digits of text_number(). */
typedef struct PluralText {
  char text[64];
} PluralText;
PluralText text_plural(double count, const char *noun);
PluralText text_plural_short(double count, const char *noun);

/* The shortest digits that read back as the same double, or with `single` as the same float: 0.1, 600, 1e-08. */
ShortText text_number(double value, bool single);

#endif
