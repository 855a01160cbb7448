/* The table of options and parsing of the command line. */
#include "cli/option_internal.h"
#include "cli/option_rows.h"
#include "base/array.h"
#include "base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LIMIT = 64 /* bytes of an unknown flag that is compared with the known ones */ };

/* ---- rows ---- */

void options_add(Options *options, const Option *table, size_t count) {
  Option heading = {.group = "Options"};
  if (options->count) heading = options->rows[options->count - 1], heading.setting = SETTING_UNKNOWN;
  else if (!options->default_modes) options->default_modes = OPTION_ALL_MODES;
  options->failed = options->failed || !array_reserve(&options->rows, &options->capacity,
                                                      (size_t)options->count + count, sizeof *options->rows);
  for (const Option *from = table; !options->failed && from < table + count; from++) {
    if (from->group) heading = (Option){.group = from->group, .group_modes = from->modes, .setting = from->setting};
    if (!heading.group_modes) heading.group_modes = options->default_modes;
    if (!from->name) continue;
    Option *row = &options->rows[options->count++];
    *row = *from;
    row->group = heading.group;
    row->group_modes = heading.group_modes;
    if (!row->setting && !option_is_text(row)) row->setting = heading.setting;
    row->modes = (from->modes || from->selects ? from->modes : heading.group_modes) | from->selects;
    row->initial = option_initial(row);
    option_store(row, row->initial);
  }
}

void options_init(Options *options, const Option *table, size_t count) {
  const Option builtin[] = {
      GROUP("Other", .modes = OPTION_ALL_MODES),
      TEXT("config", &options->config, "FILE", NULL,
           "read `key = value` lines from FILE; options on the command line take precedence", .transient = true,
           .setting = SETTING_PATH),
      FLAG("quiet", &options->quiet, "print only warnings and errors", .transient = true),
      FLAG("help", &options->help, "print the common options and exit", .letter = 'h', .transient = true,
           .common = true),
      FLAG("help-all", &options->help_all, "print all options and exit", .transient = true, .common = true),
      FLAG("version", &options->version, "print the version and the available backends and exit", .transient = true),
  };
  options_add(options, table, count);
  options_add(options, builtin, sizeof builtin / sizeof *builtin);
}

Option *option_named(const Options *options, const char *name, size_t length) {
  for (int i = 0; i < options->count; i++) {
    Option *row = &options->rows[i];
    if (strlen(row->name) == length && memcmp(row->name, name, length) == 0) return row;
  }
  return NULL;
}

bool option_is_command(const Options *options, const Option *row) {
  return row->value == &options->config || row->value == &options->help || row->value == &options->help_all ||
         row->value == &options->version;
}

static Option *row_lettered(const Options *options, char letter) {
  for (int i = 0; i < options->count; i++)
    if (letter && options->rows[i].letter == letter) return &options->rows[i];
  return NULL;
}

/* Returns the row of `--name`, or of the switch in `--no-name` (*negated). */
static Option *row_of_flag(const Options *options, const char *name, size_t length, bool *negated) {
  Option *row = option_named(options, name, length);
  *negated = !row && length > 3 && memcmp(name, "no-", 3) == 0;
  if (*negated) row = option_named(options, name + 3, length - 3);
  return *negated && row && !option_is_switch(row) ? NULL : row;
}

bool options_given(const Options *options, const void *value) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->value == value) return row->origin != ORIGIN_DEFAULT;
  return false;
}

SettingKind options_setting_kind(const Options *options, const char *name) {
  const Option *row = options ? option_named(options, name, strlen(name)) : NULL;
  return row ? row->setting : SETTING_UNKNOWN;
}

void option_reset(Option *row) {
  if (row->kind == OPTION_LIST) ((TextList *)row->value)->count = 0;
  else option_store(row, row->initial);
  row->origin = ORIGIN_DEFAULT;
}

const char *options_typed(const Options *options, const char *names) {
  for (const char *name = names; *name; name += strspn(name, " ")) {
    const size_t length = strcspn(name, " ");
    if (!option_named(options, name, length)) return name;
    name += length;
  }
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->origin == ORIGIN_COMMAND_LINE && option_is_among(names, row->name, strlen(row->name))) return row->name;
  return NULL;
}

const char *options_typed_beside(const Options *options, const char *names) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->origin == ORIGIN_COMMAND_LINE && !option_is_among(names, row->name, strlen(row->name))) return row->name;
  return NULL;
}

void options_follow(Options *options, bool continues) {
  for (Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->origin == ORIGIN_FILE && row->follows && !(continues && row->stays) &&
        options_typed(options, row->follows))
      option_reset(row);
}

void options_drop_auto(Options *options) {
  for (Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->origin == ORIGIN_COMMAND_LINE && !option_known(row)) option_reset(row);
}

const Option *options_next_in(const Options *options, const Option *row, const void *object, size_t size) {
  for (row = row ? row + 1 : options->rows; row < options->rows + options->count; row++)
    if ((uintptr_t)row->value - (uintptr_t)object < size) return row;
  return NULL;
}

/* Returns a copy of the row for another variable. */
static Option row_at(const Option *row, const void *variable) {
  Option out = *row;
  out.value = (void *)(uintptr_t)variable;
  return out;
}

bool option_known(const Option *row) { return option_is_set(row, option_load(row)); }

void option_take(const Option *row, const void *variable) {
  const Option from = row_at(row, variable);
  option_store(row, option_load(&from));
}

void option_format_variable(const Option *row, const void *variable, char *out, size_t size) {
  const Option shown = row_at(row, variable);
  const OptionValue value = option_load(&shown);
  if (option_is_set(&shown, value)) option_format(&shown, value, out, size);
  else snprintf(out, size, "unset");
}

void options_free(Options *options) {
  for (int i = 0; i < options->count; i++) {
    const Option *row = &options->rows[i];
    if (row->kind == OPTION_LIST) {
      free(((TextList *)row->value)->items);
      *(TextList *)row->value = (TextList){0};
    } else if (option_is_text(row) && row->origin != ORIGIN_DEFAULT) {
      option_store(row, row->initial);
    }
  }
  for (int i = 0; i < options->texts.count; i++) free((void *)(uintptr_t)options->texts.items[i]);
  free(options->texts.items);
  options->texts = (TextList){0};
  free(options->rows);
  options->rows = NULL;
  options->count = 0;
  options->capacity = 0;
}

/* ---- storing a value ---- */

static bool list_append(TextList *list, const char *text) {
  if (!array_reserve(&list->items, &list->capacity, (size_t)list->count + 1, sizeof *list->items)) return false;
  list->items[list->count++] = text;
  return true;
}

/* Returns a copy of a given text that lives as long as the rows, and appends it to the row's list if it has one; NULL:
 * no memory. */
static const char *keep_text(Options *options, const Option *row, const char *text) {
  char *copy = strdup(text);
  if (!copy || !list_append(&options->texts, copy)) {
    free(copy);
    return NULL;
  }
  return row->kind != OPTION_LIST || list_append(row->value, copy) ? copy : NULL;
}

bool option_fail(const OptionSource *source, const Option *row, const char *format, ...) {
  char reason[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  if (!source->path) return fail(source->error, source->code, "--%s: %s", row->name, reason);
  return fail(source->error, source->code, "%.300s:%d: %s: %s", source->path, source->line, row->name, reason);
}

/* Checks whether the row, or one that excludes it, is set already. *taken: by an earlier source, which takes
 * precedence. Within one source, rows must not exclude each other, and only the command line may repeat one. */
static bool check_rivals(const OptionSource *source, const Option *row, bool *taken) {
  for (int i = 0; i < source->options->count; i++) {
    const Option *rival = &source->options->rows[i];
    bool same = rival == row;
    if (rival->origin == ORIGIN_DEFAULT || !(same || (row->exclusive && rival->exclusive == row->exclusive))) continue;
    *taken = rival->file != source->file;
    if (*taken) return true;
    if (!same) return option_fail(source, row, "excludes --%s: give one of the two", rival->name);
    if (source->path && row->kind != OPTION_LIST)
      return option_fail(source, row, "given twice, first in line %d", row->line);
  }
  return true;
}

static bool parse_given(const OptionSource *source, const Option *row, const char *text, OptionValue *out) {
  char demand[300];
  if (option_parse(row, text, out)) return true;
  option_demand_text(row, demand, sizeof demand);
  return option_fail(source, row, "got \"%.100s\", need %s", text, demand);
}

bool option_assign(const OptionSource *source, Option *row, const char *text) {
  OptionValue value;
  bool taken = false;
  if (!parse_given(source, row, text, &value) || !check_rivals(source, row, &taken) || taken) return taken;
  if (option_is_text(row) && value.text) { /* NULL: `auto` */
    value.text = keep_text(source->options, row, text);
    if (!value.text) return fail(source->error, EXIT_MEMORY, "out of memory while reading the options");
  }
  option_store(row, value);
  row->origin = source->path ? ORIGIN_FILE : ORIGIN_COMMAND_LINE;
  row->file = source->file;
  row->line = source->line;
  return true;
}

/* ---- between processes ---- */

bool options_dump(const Options *options, FILE *stream) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    const OptionValue value = option_load(row);
    const TextList one = {.items = (const char *[]){value.text}, .count = value.text != NULL};
    const TextList *texts = row->kind == OPTION_LIST ? row->value : &one;
    fwrite(&row->origin, sizeof row->origin, 1, stream);
    fwrite(&value, sizeof value, 1, stream);
    if (!option_is_text(row)) continue;
    fwrite(&texts->count, sizeof texts->count, 1, stream);
    for (int i = 0; i < texts->count; i++) fwrite(texts->items[i], 1, strlen(texts->items[i]) + 1, stream);
  }
  return !ferror(stream);
}

static void take(const char **from, void *to, size_t size) {
  memcpy(to, *from, size);
  *from += size;
}

bool options_copy(Options *options, const char *dump, Error *error) {
  for (Option *row = options->rows; row < options->rows + options->count; row++) {
    OptionValue value;
    int texts = 0;
    take(&dump, &row->origin, sizeof row->origin);
    take(&dump, &value, sizeof value);
    if (row->kind == OPTION_LIST) ((TextList *)row->value)->count = 0;
    if (option_is_text(row)) {
      take(&dump, &texts, sizeof texts);
      value.text = NULL;
    }
    for (; texts > 0; texts--) {
      value.text = keep_text(options, row, dump);
      if (!value.text) return error_memory(error, "the options");
      dump += strlen(dump) + 1;
    }
    option_store(row, value);
  }
  return true;
}

bool options_set(Options *options, const char *name, const char *text, Error *error) {
  const OptionSource source = {.options = options, .code = EXIT_USAGE, .error = error};
  return option_assign(&source, option_named(options, name, strlen(name)), text);
}

void options_format_named(const Options *options, const char *name, char *out, size_t size) {
  const Option *row = option_named(options, name, strlen(name));
  option_format_variable(row, row->value, out, size);
}

/* ---- the nearest flag ---- */

static int smaller(int a, int b) { return a < b ? a : b; }

/* Returns the optimal string alignment distance of two names: insertions, deletions, replacements and swaps of
 * neighbors. */
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

/* Rates the similarity of `name` to what was typed: smaller is closer; `edits` decide ties. Names that contain each
 * other (--temperature, --temp; --num-layers, --layers) are close regardless of length. */
static int name_distance(const char *given, size_t length, const char *name) {
  size_t known = strlen(name), shorter = length < known ? length : known;
  int edits = edit_distance(given, length, name, known);
  int rank = edits;
  if (known > NAME_LIMIT) return INT_MAX;
  if (shorter >= 2 && memcmp(given, name, shorter) == 0) rank = smaller(rank, 1);
  if (shorter >= 4 && memcmp(given + length - shorter, name + known - shorter, shorter) == 0) rank = smaller(rank, 2);
  return rank * (NAME_LIMIT + 1) + edits;
}

const char *option_nearest(const Options *options, const char *given, size_t length, bool *negated) {
  int limit = length < 6 ? 1 : length < 9 ? 2 : 3; /* at most a third of the name may differ */
  int best = (limit + 1) * (NAME_LIMIT + 1);
  const char *found = NULL;
  *negated = false;
  if (length < 2 || length > NAME_LIMIT) return NULL;
  for (int i = 0; i < options->count; i++) {
    const Option *row = &options->rows[i];
    bool no = option_is_switch(row) && length > 3 && memcmp(given, "no-", 3) == 0;
    int distance = name_distance(given + (no ? 3 : 0), length - (no ? 3 : 0), row->name);
    if (distance >= best) continue;
    best = distance;
    found = row->name;
    *negated = no;
  }
  return found;
}

bool option_is_among(const char *words, const char *name, size_t length) {
  for (size_t size; *words; words += size + (words[size] == ' ')) {
    size_t same = 0;
    size = strcspn(words, " ");
    while (same < length && same < size && (name[same] == '_' ? '-' : name[same]) == words[same]) same++;
    if (same == length && same == size) return true;
  }
  return false;
}

/* Reports an unknown flag, with a suggestion. `name` is a part of `argument`: after its dashes, before its `=`. */
static bool fail_unknown(const OptionSource *source, const char *argument, const char *name, size_t length) {
  const Options *options = source->options;
  const size_t size = (size_t)(name - argument) + length;
  const int shown = (int)(size < 100 ? size : 100);
  for (int i = 0; i < options->hint_count; i++) {
    const OptionHint *hint = &options->hints[i];
    if (length && option_is_among(hint->given, name, length))
      return fail(source->error, EXIT_USAGE, "unknown flag %.*s: %s", shown, argument, hint->text);
  }
  bool negated;
  const char *nearest = option_nearest(options, name, length, &negated);
  if (!nearest)
    return fail(source->error, EXIT_USAGE, "unknown flag %.*s: `%s --help-all` lists them all", shown, argument,
                program_name(options->program).text);
  return fail(source->error, EXIT_USAGE, "unknown flag %.*s: did you mean --%s%s?", shown, argument,
              negated ? "no-" : "", nearest);
}

const Option *options_check(const Options *options, const char *name, const char *value, Error *error) {
  const OptionSource source = {.code = EXIT_USAGE, .error = error};
  const Option *row = option_named(options, name, strlen(name));
  OptionValue parsed;
  char flag[NAME_LIMIT];
  if (!row || row->hidden || option_is_command(options, row)) {
    snprintf(flag, sizeof flag, "--%s", name);
    fail_unknown(&(OptionSource){.options = (Options *)options, .error = error}, flag, flag + 2, strlen(flag + 2));
    return NULL;
  }
  return parse_given(&source, row, value, &parsed) ? row : NULL;
}

/* ---- the command line ---- */

typedef struct CommandLine {
  OptionSource source;
  int argc;
  char **argv;
  int index; /* of the argument that is read */
} CommandLine;

/* Returns whether the argument is one of our flags: --key, --key=..., -k or --no-key; it is hardly meant as a value. */
static bool is_known_flag(const Options *options, const char *argument) {
  bool negated;
  if (argument[0] != '-' || argument[1] == '\0') return false;
  if (argument[1] != '-') return argument[2] == '\0' && row_lettered(options, argument[1]);
  return argument[2] == '\0' || row_of_flag(options, argument + 2, strcspn(argument + 2, "="), &negated);
}

static bool take_positional(CommandLine *line) {
  const OptionSource *source = &line->source;
  const Options *options = source->options;
  const char *text = line->argv[line->index];
  Option *row = NULL;
  for (int i = 0; !row && i < options->count; i++)
    if (options->rows[i].positional) row = &options->rows[i];
  if (!row)
    return fail(source->error, EXIT_USAGE, "unexpected argument \"%.100s\": see `%s --help`", text,
                program_name(options->program).text);
  if (row->kind != OPTION_LIST && row->origin == ORIGIN_COMMAND_LINE)
    return fail(source->error, EXIT_USAGE, "unexpected argument \"%.100s\" after \"%.100s\": only one %s is allowed",
                text, option_load(row).text, row->argument ? row->argument : row->name);
  return option_assign(source, row, text);
}

/* Parses a flag; its value, if it needs one, is `value` or the next argument. */
static bool take_flag(CommandLine *line, Option *row, const char *value) {
  const OptionSource *source = &line->source;
  if (!value && option_is_switch(row)) value = "yes";
  if (!value && row->optional) value = "";
  if (value) return option_assign(source, row, value);
  if (line->index + 1 >= line->argc) return fail(source->error, EXIT_USAGE, "--%s needs a value", row->name);
  value = line->argv[++line->index];
  if (!is_known_flag(source->options, value)) return option_assign(source, row, value);
  return fail(source->error, EXIT_USAGE,
              "--%s needs a value, but the flag %.100s follows. If it is the value: --%s=%.100s", row->name, value,
              row->name, value);
}

static bool take_long(CommandLine *line) {
  const OptionSource *source = &line->source;
  const char *argument = line->argv[line->index], *name = argument + 2;
  size_t length = strcspn(name, "=");
  const char *value = name[length] == '=' ? name + length + 1 : NULL;
  bool negated;
  Option *row = row_of_flag(source->options, name, length, &negated);
  if (!row) return fail_unknown(source, argument, name, length);
  if (!negated) return take_flag(line, row, value);
  if (!value) return option_assign(source, row, "no");
  return fail(source->error, EXIT_USAGE, "--no-%s takes no value, got \"%.100s\"", row->name, value);
}

/* Reports "-temp", "-n5" or "-x": letters cannot be combined, and their value is the next argument. */
static bool fail_single_dash(const OptionSource *source, const char *argument) {
  const char *name = argument + 1;
  size_t length = strcspn(name, "=");
  const Option *row = row_lettered(source->options, *name);
  if (!row || name[length] || option_named(source->options, name, length))
    return fail_unknown(source, argument, name, length);
  const char *value = option_is_switch(row) ? "" : name + 1, *blank = *value ? " " : "";
  return fail(source->error, EXIT_USAGE, "unknown flag %.100s: write -%c%s%.100s, or --%s", argument, *name, blank,
              value, row->name);
}

static bool take_argument(CommandLine *line) {
  const char *argument = line->argv[line->index];
  if (strncmp(argument, "\xE2\x80\x93", 3) == 0 || strncmp(argument, "\xE2\x80\x94", 3) == 0)
    return fail(line->source.error, EXIT_USAGE, "\"%.100s\" begins with a typographic dash; write --%.100s", argument,
                argument + strspn(argument, "-\xE2\x80\x93\x94"));
  if (argument[0] != '-' || argument[1] == '\0') return take_positional(line);
  if (argument[1] == '-') return take_long(line);
  Option *row = argument[2] == '\0' ? row_lettered(line->source.options, argument[1]) : NULL;
  return row ? take_flag(line, row, NULL) : fail_single_dash(&line->source, argument);
}

bool options_parse(Options *options, int argc, char **argv, Error *error) {
  CommandLine line = {{.options = options, .code = EXIT_USAGE, .error = error}, argc, argv, 1};
  bool only_positional = false;
  if (options->failed) return error_memory(error, "the options");
  for (; line.index < argc && !options->help && !options->version; line.index++) {
    bool ends = !only_positional && strcmp(argv[line.index], "--") == 0;
    if (!ends && !(only_positional ? take_positional(&line) : take_argument(&line))) return false;
    only_positional = only_positional || ends;
    options->help = options->help || options->help_all;
  }
  if (options->help || options->version) return true;
  return (!options->config || options_load(options, options->config, EXIT_USAGE, error)) &&
         options_check_modes(options, error);
}
