/* Short texts for messages: untrusted names made printable, readable numbers, and the commands to type next. */
#ifndef INKLING_BASE_TEXT_H
#define INKLING_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { ONE_LINE_BYTES = 300 };

typedef struct OneLine {
  char text[ONE_LINE_BYTES];
} OneLine;

/* Returns `text` as one line of valid UTF-8: control characters, including newlines, and bytes that are not UTF-8
 * become '?'. A text longer than `limit` bytes (8 .. ONE_LINE_BYTES - 1) loses its middle: "/data/...ok.txt". */
OneLine text_one_line(const char *text, size_t limit);

/* The same as one word of a shell command: quoted where necessary, "./-x" where it would be an option. */
typedef struct ShellWord {
  char text[4 * ONE_LINE_BYTES + 8];
} ShellWord;
ShellWord text_shell_word(const char *text, size_t limit);
ShellWord text_shell_value(const char *text, size_t limit); /* without "./": no file name */

/* Replaces control characters except newlines, and bytes that are not UTF-8, by '?', in place. Messages contain names
 * and contents of files, and control sequences in them must not reach a terminal. */
void text_make_visible(char *text);

/* Returns whether the text is not empty and has no control characters, so that it can be printed as one line. */
bool text_is_plain(const char *text);

/* Appends formatted text to the string `out` of at most `size` bytes, including its zero. Text that does not fit is
 * cut, but not inside a UTF-8 character. Returns whether it fits. */
bool text_append(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool text_append_list(char *out, size_t size, const char *format, va_list arguments);

/* Returns whether a byte is white space of ASCII. */
static inline bool text_is_space(int byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* Returns whether the text ends with `ending`, byte for byte. */
bool text_ends_with(const char *text, const char *ending);

/* Prints the words of `text`, starting at `column`, and a newline; wraps at `limit` columns into lines that begin at
 * `indent`. A column is a character. It does not break groups such as "> 0" or "auto: preset". */
void text_print_wrapped(FILE *stream, const char *text, int column, int indent, int limit);

/* Prints a field of CSV as RFC 4180 says: in quotes if it has the separator, a quote or a line break. */
void text_print_csv(FILE *stream, const char *text, size_t size, char separator);

/* Stores the first 1 to 3 of `count` > 0 bytes as four characters of base64 (RFC 4648), without a zero. */
void text_base64(const unsigned char *bytes, size_t count, char out[4]);

/* ---- numbers: `printf("%s tok/s", text_count(48211).text)`; NaN: "-" ---- */

typedef struct ShortText {
  char text[32];
} ShortText;

ShortText text_count(double count);      /* 812, 48.2k, 1.2M, 3.4G, 5.6T */
ShortText text_bytes(double bytes);      /* 812 B, 3.1 MiB */
ShortText text_flops(double flops);      /* per second: 812 FLOP/s, 48.2 GFLOP/s, 788 TFLOP/s */
ShortText text_duration(double seconds); /* 0:21, 1:05, 2:03:10 */

/* A count with a noun: "1 step", "1500 steps"; the short form uses text_count(): "48.2k steps". A fraction has the
 * digits of text_number(). */
typedef struct PluralText {
  char text[64];
} PluralText;
PluralText text_plural(double count, const char *noun);
PluralText text_plural_short(double count, const char *noun);

/* Returns the shortest digits that read back as the same double, or with `single` as the same float: 0.1, 600,
 * 1e-08. */
ShortText text_number(double value, bool single);

/* ---- the names of the programs as the user called them, so that the user can type the commands in messages
 * unchanged: `./train ...`, `/opt/inkling/train ...`, `inkling train ...` ---- */

/* Sets argv[0] and keeps the pointer. Call it at the start of main(), before threads start. */
void program_name_set(const char *called);

/* The same for the program `inkling`, whose first argument is "train" or "generate"; program_name_set() has no
 * effect then. */
void program_name_set_command(const char *called);

/* Returns the first word of the command line that has called this program: "./train" or "inkling". */
const char *program_name_called(void);
/* Returns whether this is the program `inkling`, whose second word is "train" or "generate". */
bool program_name_is_command(void);

/* Returns "train" or "generate" as the beginning of a command line, with the directory of this program's name. Without
 * program_name_set() it is in the current directory: "./train". */
ShellWord program_name(const char *program);

/* The same for files that may be read on another machine: "./train" or "inkling train". */
ShellWord program_name_elsewhere(const char *program);

#endif
