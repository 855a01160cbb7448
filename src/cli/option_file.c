/* Configuration files: reading and writing of `key = value` lines. */
#include "cli/option_internal.h"
#include "base/text.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_LIMIT = 1 << 20 /* bytes of a file */ };

/* ---- quoting ---- */

static const char escape_names[] = "nrt\"\\", escape_bytes[] = "\n\r\t\"\\";

/* Decodes a character of a quoted text. Returns the number of bytes that it takes there; 0: unknown escape. */
static int unescape(const char *text, char *out) {
  *out = text[0];
  if (text[0] != '\\') return 1;
  const char *at = text[1] ? strchr(escape_names, text[1]) : NULL;
  if (at) *out = escape_bytes[at - escape_names];
  if (at) return 2;
  if (text[1] != 'x' || !isxdigit((unsigned char)text[2]) || !isxdigit((unsigned char)text[3])) return 0;
  *out = (char)strtoul((const char[]){text[2], text[3], '\0'}, NULL, 16);
  return *out ? 4 : 0;
}

/* Reads "..." in place. Returns what follows the closing quote, or NULL and the reason. */
static char *unquote(char *text, const char **reason) {
  char *from = text + 1, *to = text;
  for (int used; *from && *from != '"'; from += used, to++) {
    char byte;
    used = unescape(from, &byte);
    if (!used) {
      *reason = "unknown escape; valid escapes are \\n \\r \\t \\\" \\\\ \\xHH";
      return NULL;
    }
    *to = byte;
  }
  if (*from != '"') {
    *reason = "the closing quote is missing";
    return NULL;
  }
  *to = '\0'; /* `to` is at or before the closing quote */
  return from + 1;
}

/* A text that looks like a number or a switch is quoted, so that a reader without the table of options sees that it is
 * a text. */
static bool is_plain(const char *text) {
  if (isdigit((unsigned char)text[strspn(text, "+-.")]) || strcmp(text, "yes") == 0 || strcmp(text, "no") == 0)
    return false;
  for (const char *c = text; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    if (!isalnum(byte) && byte < 0x80 && !strchr("_-./:+,@%=|", byte)) return false;
  }
  return *text != '\0';
}

/* Writes plain texts bare, others as "..." with escapes. */
static void write_text(FILE *stream, const char *text) {
  if (is_plain(text)) {
    fputs(text, stream);
    return;
  }
  fputc('"', stream);
  for (const char *c = text; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    const char *named = strchr(escape_bytes, byte);
    if (named) fprintf(stream, "\\%c", escape_names[named - escape_bytes]);
    else if (byte < 0x20 || byte == 0x7f) fprintf(stream, "\\x%02x", (unsigned)byte);
    else fputc(byte, stream);
  }
  fputc('"', stream);
}

/* ---- reading ---- */

/* The file is not mapped, because `--config <(command)` is a pipe. Files of a run are never pipes: opening one could
 * wait forever. */
static char *read_config(const char *path, ExitCode code, Error *error) {
  struct stat info;
  if (code != EXIT_USAGE && stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return fail(error, code, "%.300s is not a regular file", path), NULL;
  FILE *stream = fopen(path, "rb");
  char *text = stream ? malloc(CONFIG_LIMIT + 1) : NULL;
  size_t size = text ? fread(text, 1, CONFIG_LIMIT + 1, stream) : 0;
  const char *wrong = !stream || ferror(stream)          ? strerror(errno)
                      : size > CONFIG_LIMIT              ? "longer than 1 MiB: not a configuration file"
                      : text && memchr(text, '\0', size) ? "has a zero byte: not a configuration file"
                                                         : NULL;
  if (stream) fclose(stream);
  if (wrong) fail(error, !stream && errno == ENOMEM ? EXIT_MEMORY : code, "%.300s: %s", path, wrong);
  else if (!text) fail(error, EXIT_MEMORY, "out of memory while reading %.300s", path);
  else text[size] = '\0';
  if (!wrong) return text;
  free(text);
  return NULL;
}

static char *skip_blanks(char *text) { return text + strspn(text, " \t\r"); }

static void trim_end(char *begin, char *end) {
  while (end > begin && strchr(" \t\r", end[-1])) end--;
  *end = '\0';
}

/* Unquotes the value of a line in place; NULL and the reason when it is invalid. */
static const char *line_value(char *text, const char **reason) {
  if (*text == '"') {
    char *rest = unquote(text, reason);
    if (!rest) return NULL;
    rest = skip_blanks(rest);
    *reason = "unexpected text after the closing quote";
    return *rest == '\0' || *rest == '#' ? text : NULL;
  }
  char *end = text;
  while (*end && !(*end == '#' && (end == text || strchr(" \t", end[-1])))) end++;
  trim_end(text, end);
  *reason = "no value; an empty text is \"\"";
  return *text ? text : NULL;
}

/* ---- lines ---- */

static bool take_line(OptionLine *line, char *text, OptionTake *take, void *context, Error *error) {
  const char *reason;
  char *name = skip_blanks(text);
  if (*name == '\0' || *name == '#') return true;
  char *equals = strchr(name, '=');
  if (!equals)
    return fail(error, line->code, "%.300s:%d: \"%.100s\": need `key = value`", line->path, line->number, name);
  trim_end(name, equals);
  line->name = name;
  char *value = skip_blanks(equals + 1);
  line->quoted = *value == '"';
  line->value = line_value(value, &reason);
  line->wrong = line->value ? NULL : reason;
  return take(context, line, error);
}

bool option_file_read_text(char *text, const char *path, ExitCode code, OptionTake *take, void *context, Error *error) {
  OptionLine line = {.path = path, .code = code};
  char *at = text;
  bool ok = true;
  at += utf8_mark(at, strlen(at));
  while (ok && *at) {
    char *end = at + strcspn(at, "\n"), *next = *end ? end + 1 : end;
    *end = '\0';
    line.number++;
    ok = take_line(&line, at, take, context, error);
    at = next;
  }
  return ok;
}

bool option_file_read(const char *path, ExitCode code, OptionTake *take, void *context, Error *error) {
  char *text = read_config(path, code, error);
  const bool ok = text && option_file_read_text(text, path, code, take, context, error);
  free(text);
  return ok;
}

/* ---- values of options ---- */

static bool fail_key(const OptionSource *source, const char *name) {
  bool negated;
  const char *nearest = option_nearest(source->options, name, strlen(name), &negated);
  const Option *row = nearest ? option_named(source->options, nearest, strlen(nearest)) : NULL;
  if (!row || negated || option_is_command(source->options, row))
    return fail(source->error, source->code, "%.300s:%d: unknown key \"%.100s\"", source->path, source->line, name);
  return fail(source->error, source->code, "%.300s:%d: unknown key \"%.100s\": did you mean %s?", source->path,
              source->line, name, nearest);
}

static bool assign_line(void *context, const OptionLine *line, Error *error) {
  OptionSource *source = context;
  source->line = line->number;
  source->error = error;
  Option *row = option_named(source->options, line->name, strlen(line->name));
  if (!row || option_is_command(source->options, row)) return fail_key(source, line->name);
  return line->value ? option_assign(source, row, line->value) : option_fail(source, row, "%s", line->wrong);
}

bool options_load(Options *options, const char *path, ExitCode code, Error *error) {
  OptionSource source = {.options = options, .path = path, .code = code, .file = ++options->files};
  return option_file_read(path, code, assign_line, &source, error);
}

/* ---- writing ---- */

/* Writes the value of a row as a line, a list as a line for each item; or as arguments, each with a zero after it. */
static void write_row(FILE *stream, const Option *row, bool arguments, OptionsResolve *resolve, const void *context) {
  const OptionValue value = option_load(row);
  const TextList one = {.items = (const char *[]){value.text}, .count = 1};
  const TextList *texts = row->kind == OPTION_LIST ? row->value : &one;
  char text[400];
  option_format(row, value, text, sizeof text);
  for (int i = 0; i < texts->count; i++) {
    char *resolved = resolve && option_is_text(row) ? resolve(context, row, texts->items[i]) : NULL;
    const char *value_text = !option_is_text(row) ? text : resolved ? resolved : texts->items[i];
    if (!(arguments && row->positional)) fprintf(stream, arguments ? "--%s=" : "%s = ", row->name);
    if (!arguments && option_is_text(row)) write_text(stream, value_text);
    else fputs(value_text, stream);
    fputc(arguments ? 0 : '\n', stream);
    free(resolved);
  }
}

/* Only one of mutually exclusive rows may be written, or the file could not be read back. */
static bool loses_to_rival(const Options *options, const Option *row) {
  for (const Option *rival = options->rows; row->exclusive && rival < options->rows + options->count; rival++) {
    if (rival == row || rival->exclusive != row->exclusive || !option_is_set(rival, option_load(rival))) continue;
    if (rival->origin > row->origin || (rival->origin == row->origin && rival < row)) return true;
  }
  return false;
}

bool options_write(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context) {
  const char *group = NULL;
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (row->transient || !option_is_set(row, option_load(row)) || loses_to_rival(options, row)) continue;
    if (row->group != group) fprintf(stream, "%s# %s\n", group ? "\n" : "", row->group);
    group = row->group;
    write_row(stream, row, false, resolve, context);
  }
  return !ferror(stream);
}

bool options_write_arguments(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    const bool passed = row->value == &options->config || !row->transient;
    if (row->origin == ORIGIN_COMMAND_LINE && passed && option_is_set(row, option_load(row)))
      write_row(stream, row, true, resolve, context);
  }
  return !ferror(stream);
}

/* ---- a command line ---- */

/* Returns false if it does not fit, or cannot be shown in one line. */
static bool write_word(const Option *row, const char *text, char *out, size_t size) {
  const bool alone = option_is_switch(row) || (row->optional && !*text);
  const char *no = option_is_switch(row) && strcmp(text, "no") == 0 ? "no-" : "";
  const char *before = alone ? "" : row->optional ? "=" : " ";
  return text_append(out, size, " --%s%s%s%s", no, row->name, before,
                     alone ? "" : text_shell_value(text, ONE_LINE_BYTES - 1).text) &&
         strcmp(text_one_line(text, ONE_LINE_BYTES - 1).text, text) == 0;
}

bool options_write_command(const Options *options, const char *beside, char *out, size_t size) {
  char text[400];
  *out = '\0';
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (!row->name || row->origin != ORIGIN_COMMAND_LINE || option_is_among(beside, row->name, strlen(row->name)))
      continue;
    const OptionValue value = option_load(row);
    const TextList one = {.items = (const char *[]){value.text}, .count = 1};
    const TextList *texts = row->kind == OPTION_LIST ? row->value : &one;
    const bool known = option_is_set(row, value);
    if (known) option_format(row, value, text, sizeof text);
    for (int i = 0; i < texts->count; i++)
      if (!write_word(row, !known ? "auto" : option_is_text(row) ? texts->items[i] : text, out, size)) return false;
  }
  return true;
}
