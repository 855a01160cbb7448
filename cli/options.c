#include "cli/options.h"

#include "cli/option_value.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
  HELP_WIDTH = 100,
  HELP_COLUMN = 32,       /* where the sentences begin */
  CONFIG_LIMIT = 1 << 20, /* bytes of a configuration file */
  NAME_LIMIT = 64         /* bytes of an unknown flag that is compared with the known ones */
};

/* Where a value is being read from, for messages and precedence. */
typedef struct Source {
  OptionOrigin origin;
  ExitCode code;
  const char *path; /* of the file; NULL: command line */
  int line;
  const Option *ahead; /* the rows as they were before this file; NULL: command line */
} Source;

/* ---- rows ---- */

static int row_count(const Options *options) { return options->count + OPTION_BUILTINS; }

static Option *row_at(const Options *options, int index) {
  if (index < options->count) return &options->rows[index];
  return (Option *)&options->builtin[index - options->count];
}

static Option *row_named(const Options *options, const char *name, size_t length) {
  for (int i = 0; i < row_count(options); i++) {
    Option *row = row_at(options, i);
    if (strlen(row->name) == length && memcmp(row->name, name, length) == 0) return row;
  }
  return NULL;
}

static Option *row_lettered(const Options *options, char letter) {
  for (int i = 0; i < row_count(options); i++)
    if (letter && row_at(options, i)->letter == letter) return row_at(options, i);
  return NULL;
}

static const Option *row_of(const Options *options, const void *value) {
  for (int i = 0; i < row_count(options); i++)
    if (row_at(options, i)->value == value) return row_at(options, i);
  return NULL;
}

/* Fills the built-in rows and keeps the defaults. */
static void get_ready(Options *options) {
  if (options->ready) return;
  options->ready = true;
  options->builtin[0] = (Option){.group = "Other",
                                 .name = "config",
                                 .kind = OPTION_TEXT,
                                 .value = &options->config,
                                 .argument = "FILE",
                                 .transient = true,
                                 .help = "read `key = value` lines; the command line wins over the file"};
  options->builtin[1] = (Option){.name = "help",
                                 .letter = 'h',
                                 .kind = OPTION_FLAG,
                                 .value = &options->help,
                                 .transient = true,
                                 .help = "print this and stop"};
  options->builtin[2] = (Option){.name = "version",
                                 .kind = OPTION_FLAG,
                                 .value = &options->version,
                                 .transient = true,
                                 .help = "print version and backends and stop"};
  for (int i = 0; i < row_count(options); i++) row_at(options, i)->initial = option_load(row_at(options, i));
}

/* ---- storing a value ---- */

static char *keep_text(Options *options, const char *text) {
  char *copy = malloc(strlen(text) + 1);
  char **owned = copy ? realloc(options->owned, (options->owned_count + 1) * sizeof *owned) : NULL;
  if (!owned) {
    free(copy);
    return NULL;
  }
  options->owned = owned;
  options->owned[options->owned_count++] = copy;
  return strcpy(copy, text);
}

static bool list_append(TextList *list, const char *text) {
  const char **items = realloc(list->items, ((size_t)list->count + 1) * sizeof *items);
  if (!items) return false;
  list->items = items;
  list->items[list->count++] = text;
  return true;
}

/* "--lr" or "run.conf:12: lr" at the start of a message. */
static bool fail_at(const Source *source, const Option *row, Error *error, const char *reason) {
  if (!source->path) return fail(error, source->code, "--%s: %s", row->name, reason);
  return fail(error, source->code, "%.300s:%d: %s: %s", source->path, source->line, row->name, reason);
}

static bool fail_value(const Source *source, const Option *row, const char *text, Error *error) {
  char demand[300], reason[500];
  const char *of = row->kind == OPTION_CHOICE ? "one of " : "";
  option_demand_text(row, demand, sizeof demand);
  snprintf(reason, sizeof reason, "got \"%.100s\", need %s%s", text, of, demand);
  return fail_at(source, row, error, reason);
}

/* A second value from the same place: fine on a command line, a mistake in a file. Another row of the exclusive group
 * from the same place is a mistake in both. */
static bool check_rivals(const Options *options, const Source *source, const Option *row, Error *error) {
  char reason[160];
  if (source->path && row->line && row->origin == source->origin && row->kind != OPTION_LIST) {
    snprintf(reason, sizeof reason, "given twice, first in line %d", row->line);
    return fail_at(source, row, error, reason);
  }
  for (int i = 0; row->exclusive && i < options->count; i++) {
    const Option *rival = &options->rows[i];
    if (rival == row || rival->exclusive != row->exclusive || rival->origin != source->origin) continue;
    snprintf(reason, sizeof reason, "excludes --%s: give one of the two", rival->name);
    return fail_at(source, row, error, reason);
  }
  return true;
}

/* Whether something that goes before `source` has set this row, or one that excludes it. */
static bool taken(const Options *options, const Source *source, const Option *row) {
  if (!source->ahead) return false;
  for (int i = 0; i < options->count; i++) {
    const Option *rival = &options->rows[i];
    bool counts = rival == row || (row->exclusive && rival->exclusive == row->exclusive);
    if (counts && source->ahead[i].origin != ORIGIN_DEFAULT) return true;
  }
  return false;
}

static bool assign(Options *options, const Source *source, Option *row, const char *text, Error *error) {
  OptionValue value;
  if (!option_parse(row, text, &value)) return fail_value(source, row, text, error);
  if (taken(options, source, row)) return true;
  if (!check_rivals(options, source, row, error)) return false;
  if (option_is_text(row) && value.text) { /* NULL: `auto` */
    value.text = keep_text(options, text);
    bool kept = value.text && (row->kind != OPTION_LIST || list_append(row->value, value.text));
    if (!kept) return fail(error, EXIT_MEMORY, "out of memory while reading the options");
  }
  option_store(row, value);
  row->origin = source->origin;
  row->line = source->line;
  return true;
}

/* ---- the nearest flag ---- */

static int smaller(int a, int b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap of neighbors) between two names: the optimal string alignment distance. */
static int edit_distance(const char *a, size_t length_a, const char *b, size_t length_b) {
  int rows[3][NAME_LIMIT + 1];
  if (length_a > NAME_LIMIT || length_b > NAME_LIMIT) return INT_MAX;
  for (size_t j = 0; j <= length_b; j++) rows[0][j] = (int)j;
  for (size_t i = 1; i <= length_a; i++) {
    int *now = rows[i % 3];
    const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t j = 1; j <= length_b; j++) {
      int replace = last[j - 1] + (a[i - 1] != b[j - 1]);
      now[j] = smaller(replace, smaller(last[j], now[j - 1]) + 1);
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = smaller(now[j], before[j - 2] + 1);
    }
  }
  return rows[length_a % 3][length_b];
}

/* How far `name` is from what was typed: smaller is nearer, `edits` decide between equals. Names that contain each
 * other (--temperature, --temp; --num-layers, --layers) are near however many letters lie between. */
static int name_distance(const char *given, size_t length, const char *name) {
  size_t known = strlen(name), shorter = length < known ? length : known;
  int edits = edit_distance(given, length, name, known);
  int rank = edits;
  if (known > NAME_LIMIT) return INT_MAX;
  if (shorter >= 2 && memcmp(given, name, shorter) == 0) rank = smaller(rank, 1);
  if (shorter >= 4 && memcmp(given + length - shorter, name + known - shorter, shorter) == 0) rank = smaller(rank, 2);
  return rank * (NAME_LIMIT + 1) + edits;
}

/* The nearest name to the `length` bytes at `given`, or NULL when none is near. */
static const char *nearest_name(const Options *options, const char *given, size_t length, bool *negated) {
  int limit = length <= 3 ? 1 : length <= 6 ? 2 : 3;
  int best = (limit + 1) * (NAME_LIMIT + 1);
  const char *found = NULL;
  *negated = false;
  if (length < 2 || length > NAME_LIMIT) return NULL;
  for (int i = 0; i < row_count(options); i++) {
    const Option *row = row_at(options, i);
    int distance = name_distance(given, length, row->name);
    bool no = option_is_switch(row) && length > 3 && memcmp(given, "no-", 3) == 0;
    if (no) distance = name_distance(given + 3, length - 3, row->name);
    if (distance >= best) continue;
    best = distance;
    found = row->name;
    *negated = no;
  }
  return found;
}

/* `name` lies inside `argument`, after its dashes and before its `=`. */
static bool fail_unknown(const Options *options, const char *argument, const char *name, size_t length, Error *error) {
  int shown = (int)(name - argument) + (int)(length < 100 ? length : 100);
  bool negated = false;
  for (int i = 0; i < options->hint_count; i++) {
    const OptionHint *hint = &options->hints[i];
    bool same = strlen(hint->given) == (size_t)(name - argument) + length &&
                memcmp(hint->given, argument, strlen(hint->given)) == 0;
    if (same) return fail(error, EXIT_USAGE, "unknown flag %.*s: %s", shown, argument, hint->text);
  }
  const char *nearest = nearest_name(options, name, length, &negated);
  if (!nearest)
    return fail(error, EXIT_USAGE, "unknown flag %.*s: `%s --help` lists them all", shown, argument, options->program);
  const char *no = negated ? "no-" : "";
  return fail(error, EXIT_USAGE, "unknown flag %.*s: did you mean --%s%s?", shown, argument, no, nearest);
}

/* ---- the command line ---- */

/* --key, --key=..., -k, or the --no- form: something that is a flag of ours and hardly meant as a value. */
static bool is_known_flag(const Options *options, const char *argument) {
  if (argument[0] != '-' || argument[1] == '\0') return false;
  if (strcmp(argument, "--") == 0) return true;
  if (argument[1] != '-') return argument[2] == '\0' && row_lettered(options, argument[1]);
  const char *name = argument + 2;
  size_t length = strcspn(name, "=");
  if (row_named(options, name, length)) return true;
  const Option *row = length > 3 && memcmp(name, "no-", 3) == 0 ? row_named(options, name + 3, length - 3) : NULL;
  return row && option_is_switch(row);
}

static Option *positional_row(const Options *options) {
  for (int i = 0; i < options->count; i++)
    if (options->rows[i].positional) return &options->rows[i];
  return NULL;
}

static bool take_positional(Options *options, const Source *source, const char *text, Error *error) {
  Option *row = positional_row(options);
  if (!row) return fail(error, EXIT_USAGE, "unexpected argument \"%.100s\": see `%s --help`", text, options->program);
  if (row->kind != OPTION_LIST && row->origin == ORIGIN_COMMAND_LINE) {
    const char *first = *(const char *const *)row->value;
    return fail(error, EXIT_USAGE, "unexpected argument \"%.100s\" after \"%.100s\": only one %s is taken", text, first,
                row->argument ? row->argument : row->name);
  }
  return assign(options, source, row, text, error);
}

/* A flag whose value, if it needs one, is `inline_value` or the next argument. Advances *index past what it used. */
static bool take_flag(Options *options, const Source *source, Option *row, const char *inline_value, int argc,
                      char **argv, int *index, Error *error) {
  const char *value = inline_value;
  if (!value && option_is_switch(row)) value = "yes";
  if (!value && row->kind == OPTION_OPTIONAL) value = "";
  if (value) return assign(options, source, row, value, error);
  if (*index + 1 >= argc) return fail(error, EXIT_USAGE, "--%s needs a value", row->name);
  value = argv[*index + 1];
  if (is_known_flag(options, value)) {
    return fail(error, EXIT_USAGE, "--%s needs a value, but %.100s follows, a flag. If it is the value: --%s=%.100s",
                row->name, value, row->name, value);
  }
  *index += 1;
  return assign(options, source, row, value, error);
}

static bool take_long(Options *options, const Source *source, int argc, char **argv, int *index, Error *error) {
  const char *argument = argv[*index], *name = argument + 2;
  size_t length = strcspn(name, "=");
  const char *value = name[length] == '=' ? name + length + 1 : NULL;
  Option *row = row_named(options, name, length);
  if (row) return take_flag(options, source, row, value, argc, argv, index, error);
  if (length > 3 && memcmp(name, "no-", 3) == 0) row = row_named(options, name + 3, length - 3);
  if (!row || !option_is_switch(row)) return fail_unknown(options, argument, name, length, error);
  if (value) return fail(error, EXIT_USAGE, "--no-%s takes no value, got \"%.100s\"", row->name, value);
  return assign(options, source, row, "no", error);
}

/* "-temp", "-n5", "-x": letters take their value as the next argument, and are not run together. */
static bool fail_single_dash(const Options *options, const char *argument, Error *error) {
  const char *name = argument + 1;
  size_t length = strcspn(name, "=");
  const Option *row = row_lettered(options, *name);
  if (row && length == strlen(name) && !row_named(options, name, length)) {
    const char *value = option_is_switch(row) ? "" : name + 1, *blank = *value ? " " : "";
    return fail(error, EXIT_USAGE, "unknown flag %.100s: write -%c%s%.100s, or --%s", argument, *name, blank, value,
                row->name);
  }
  return fail_unknown(options, argument, name, length, error);
}

static bool take_argument(Options *options, const Source *source, int argc, char **argv, int *index, Error *error) {
  const char *argument = argv[*index];
  if (argument[0] != '-' || argument[1] == '\0') return take_positional(options, source, argument, error);
  if (argument[1] == '-') return take_long(options, source, argc, argv, index, error);
  Option *row = argument[2] == '\0' ? row_lettered(options, argument[1]) : NULL;
  if (!row) return fail_single_dash(options, argument, error);
  return take_flag(options, source, row, NULL, argc, argv, index, error);
}

bool options_parse(Options *options, int argc, char **argv, Error *error) {
  Source source = {.origin = ORIGIN_COMMAND_LINE, .code = EXIT_USAGE};
  bool only_positional = false;
  get_ready(options);
  for (int i = 1; i < argc && !options->help && !options->version; i++) {
    if (!only_positional && strcmp(argv[i], "--") == 0) {
      only_positional = true;
    } else if (only_positional) {
      if (!take_positional(options, &source, argv[i], error)) return false;
    } else if (!take_argument(options, &source, argc, argv, &i, error)) {
      return false;
    }
  }
  if (options->help || options->version || !options->config) return true;
  return options_load(options, options->config, EXIT_USAGE, error);
}

/* ---- configuration files ---- */

/* Not mapped: `--config <(command)` is a pipe. */
static char *read_config(const char *path, ExitCode code, Error *error) {
  FILE *stream = fopen(path, "rb");
  if (!stream) {
    fail(error, code, "%.300s: %s", path, strerror(errno));
    return NULL;
  }
  char *text = malloc(CONFIG_LIMIT + 1);
  size_t size = text ? fread(text, 1, CONFIG_LIMIT + 1, stream) : 0;
  int cause = text && ferror(stream) ? errno : 0;
  fclose(stream);
  if (!text) {
    fail(error, EXIT_MEMORY, "out of memory while reading %.300s", path);
  } else if (cause) {
    fail(error, code, "%.300s: %s", path, strerror(cause));
  } else if (size > CONFIG_LIMIT) {
    fail(error, code, "%.300s: longer than %d bytes, that is no configuration file", path, CONFIG_LIMIT);
  } else if (memchr(text, '\0', size)) {
    fail(error, code, "%.300s: has a zero byte, that is no configuration file", path);
  } else {
    text[size] = '\0';
    return text;
  }
  free(text);
  return NULL;
}

static char *skip_blanks(char *text) { return text + strspn(text, " \t\r"); }

static void trim_end(char *begin, char *end) {
  while (end > begin && strchr(" \t\r", end[-1])) end--;
  *end = '\0';
}

/* The value of a line, unquoted, in place. */
static bool line_value(char *text, char **value, const char **reason) {
  *value = text;
  if (*text == '"') {
    char *rest = option_unquote(text, reason);
    if (!rest) return false;
    rest = skip_blanks(rest);
    if (*rest == '\0' || *rest == '#') return true;
    *reason = "something stands behind the closing quote";
    return false;
  }
  char *end = text;
  while (*end && !(*end == '#' && (end == text || strchr(" \t", end[-1])))) end++;
  trim_end(text, end);
  if (*text) return true;
  *reason = "no value; an empty text is \"\"";
  return false;
}

/* A file can neither read another file nor ask for help. */
static bool is_builtin(const Options *options, const Option *row) {
  for (int i = 0; i < OPTION_BUILTINS; i++)
    if (row == &options->builtin[i]) return true;
  return false;
}

static bool fail_key(const Options *options, const Source *source, const char *name, Error *error) {
  bool negated;
  const char *nearest = nearest_name(options, name, strlen(name), &negated);
  const Option *row = nearest ? row_named(options, nearest, strlen(nearest)) : NULL;
  if (!row || negated || is_builtin(options, row))
    return fail(error, source->code, "%.300s:%d: unknown key \"%.100s\"", source->path, source->line, name);
  return fail(error, source->code, "%.300s:%d: unknown key \"%.100s\": did you mean %s?", source->path, source->line,
              name, nearest);
}

static bool take_line(Options *options, const Source *source, char *line, Error *error) {
  const char *reason = NULL;
  char *name = skip_blanks(line), *value;
  if (*name == '\0' || *name == '#') return true;
  char *equals = strchr(name, '=');
  if (!equals)
    return fail(error, source->code, "%.300s:%d: \"%.100s\": need `key = value`", source->path, source->line, name);
  trim_end(name, equals);
  Option *row = row_named(options, name, strlen(name));
  if (!row || is_builtin(options, row)) return fail_key(options, source, name, error);
  if (!line_value(skip_blanks(equals + 1), &value, &reason)) return fail_at(source, row, error, reason);
  return assign(options, source, row, value, error);
}

static bool take_lines(Options *options, Source *source, char *text, Error *error) {
  if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3; /* byte order mark */
  while (*text) {
    char *end = text + strcspn(text, "\n");
    bool last = *end == '\0';
    *end = '\0';
    source->line++;
    if (!take_line(options, source, text, error)) return false;
    text = last ? end : end + 1;
  }
  return true;
}

bool options_load(Options *options, const char *path, ExitCode code, Error *error) {
  get_ready(options);
  char *text = read_config(path, code, error);
  if (!text) return false;
  Option *ahead = malloc(((size_t)options->count + 1) * sizeof *ahead);
  bool done = false;
  if (ahead) {
    for (int i = 0; i < options->count; i++) {
      ahead[i] = options->rows[i];
      options->rows[i].line = 0;
    }
    Source source = {.origin = ORIGIN_FILE, .code = code, .path = path, .ahead = ahead};
    done = take_lines(options, &source, text, error);
  } else {
    fail(error, EXIT_MEMORY, "out of memory while reading %.300s", path);
  }
  free(ahead);
  free(text);
  return done;
}

/* ---- what became of it ---- */

OptionOrigin options_origin(const Options *options, const void *value) {
  const Option *row = row_of(options, value);
  return row ? row->origin : ORIGIN_DEFAULT;
}

bool options_given(const Options *options, const void *value) {
  return options_origin(options, value) != ORIGIN_DEFAULT;
}

static void write_row(FILE *stream, const Option *row) {
  OptionValue value = option_load(row);
  char text[400];
  if (row->kind == OPTION_LIST) {
    const TextList *list = row->value;
    for (int i = 0; i < list->count; i++) {
      fprintf(stream, "%s = ", row->name);
      option_write_text(stream, list->items[i]);
      fputc('\n', stream);
    }
    return;
  }
  fprintf(stream, "%s = ", row->name);
  option_value_text(row, value, text, sizeof text);
  if (option_is_text(row)) option_write_text(stream, value.text);
  else fputs(text, stream);
  fputc('\n', stream);
}

/* Of rows that exclude each other only one may be written, or the file could not be read back. */
static bool loses_to_rival(const Options *options, int index) {
  const Option *row = &options->rows[index];
  for (int i = 0; row->exclusive && i < options->count; i++) {
    const Option *rival = &options->rows[i];
    if (i == index || rival->exclusive != row->exclusive || !option_is_set(rival, option_load(rival))) continue;
    if (rival->origin > row->origin || (rival->origin == row->origin && i < index)) return true;
  }
  return false;
}

bool options_write(const Options *options, FILE *stream) {
  const char *group = NULL, *written = NULL;
  for (int i = 0; i < options->count; i++) {
    const Option *row = &options->rows[i];
    if (row->group) group = row->group;
    if (row->transient || !option_is_set(row, option_load(row)) || loses_to_rival(options, i)) continue;
    if (group && group != written) fprintf(stream, "%s# %s\n", written ? "\n" : "", group);
    written = group;
    write_row(stream, row);
  }
  return !ferror(stream);
}

/* ---- --help ---- */

/* "  --[no-]tie", "  -p, --prompt TEXT", "  FILE, --data FILE". Returns its width. */
static int flag_text(const Option *row, char *out, size_t size) {
  char argument[200] = "";
  bool optional = row->kind == OPTION_OPTIONAL;
  bool worth_a_no = row->kind == OPTION_TRISTATE || (row->kind == OPTION_FLAG && row->initial.flag);
  const char *prefix = worth_a_no ? "[no-]" : "";
  if (row->argument) {
    snprintf(argument, sizeof argument, "%s", row->argument);
  } else if (row->kind == OPTION_CHOICE) {
    option_choices_text(row, "|", argument, sizeof argument);
  } else if (!option_is_switch(row)) {
    const char *kind = option_is_text(row)            ? "TEXT"
                       : option_is_whole(row)         ? "N"
                       : row->kind == OPTION_INTERVAL ? "N|10m"
                                                      : "X";
    snprintf(argument, sizeof argument, "%s", kind);
  }
  char letter[8] = "", bare[80] = "";
  if (row->letter) snprintf(letter, sizeof letter, "-%c, ", row->letter);
  if (row->positional) snprintf(bare, sizeof bare, "%.70s, ", argument);
  const char *before = optional ? "[=" : *argument ? " " : "", *after = optional ? "]" : "";
  return snprintf(out, size, "  %s%s--%s%s%s%s%s", bare, letter, prefix, row->name, before, argument, after);
}

/* "peak learning rate [auto; > 0, <= 10]". */
static void sentence_text(const Option *row, char *out, size_t size) {
  char standard[400] = "", range[80];
  option_range_text(row, range, sizeof range);
  if (row->shown_default) snprintf(standard, sizeof standard, "%s", row->shown_default);
  else if (row->kind == OPTION_TEXT && row->initial.text && *row->initial.text)
    snprintf(standard, sizeof standard, "%.300s", row->initial.text);
  else if (!option_is_text(row) && option_is_set(row, row->initial) &&
           !(row->kind == OPTION_FLAG && !row->initial.flag))
    option_value_text(row, row->initial, standard, sizeof standard);
  bool both = *standard && *range, none = !*standard && !*range;
  snprintf(out, size, "%s%s%s%s%s%s", row->help ? row->help : "", none ? "" : " [", standard, both ? "; " : "", range,
           none ? "" : "]");
}

/* Words of `text` from `column` on, continued in lines that begin at `indent`. Columns are counted in characters. */
static void print_wrapped(FILE *stream, const char *text, int column, int indent) {
  bool first = true;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (length && strchr("<>=", text[length - 1]) && text[length])
      length += 1 + strcspn(text + length + 1, " "); /* "> 0" */
    int width = 0;
    for (size_t i = 0; i < length; i++) width += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (!first && column + 1 + width > HELP_WIDTH) {
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

void options_help(Options *options, FILE *stream) {
  char flag[300], sentence[1200];
  const char *group = NULL;
  get_ready(options);
  fprintf(stream, "Usage: %s %s\n", options->program, options->usage ? options->usage : "[options]");
  if (options->about) {
    fputc('\n', stream);
    print_wrapped(stream, options->about, 0, 0);
  }
  for (int i = 0; i < row_count(options); i++) {
    const Option *row = row_at(options, i);
    if (row->group && !(group && strcmp(group, row->group) == 0)) fprintf(stream, "\n%s\n", row->group);
    if (row->group) group = row->group;
    int column = flag_text(row, flag, sizeof flag);
    fputs(flag, stream);
    if (column > HELP_COLUMN - 2) {
      fputc('\n', stream);
      column = 0;
    }
    fprintf(stream, "%*s", HELP_COLUMN - column, "");
    sentence_text(row, sentence, sizeof sentence);
    print_wrapped(stream, sentence, HELP_COLUMN, HELP_COLUMN);
  }
}

void options_free(Options *options) {
  for (size_t i = 0; i < options->owned_count; i++) free(options->owned[i]);
  free(options->owned);
  options->owned = NULL;
  options->owned_count = 0;
  for (int i = 0; i < options->count; i++) {
    const Option *row = &options->rows[i];
    if (row->kind == OPTION_LIST) {
      free(((TextList *)row->value)->items);
      *(TextList *)row->value = (TextList){NULL, 0};
    } else if (option_is_text(row) && row->origin != ORIGIN_DEFAULT) {
      option_store(row, row->initial);
    }
  }
}
