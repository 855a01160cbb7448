/* --help. */
#include "cli/option_internal.h"
#include "util/utf8.h"

#include <math.h>
#include <string.h>

enum { HELP_WIDTH = 100, HELP_COLUMN = 32 /* where the sentences begin */ };

/* "  --[no-]tie", "  -p, --prompt TEXT", "  FILE..., --data FILE". Returns its width. */
static int flag_text(const Option *row, char *out, size_t size) {
  char argument[200] = "", letter[8] = "", bare[80] = "";
  bool optional = row->kind == OPTION_OPTIONAL;
  bool worth_a_no = row->kind == OPTION_TRISTATE || (row->kind == OPTION_FLAG && row->initial.flag);
  const char *kind = row->argument                  ? row->argument
                     : option_is_switch(row)        ? ""
                     : option_is_text(row)          ? "TEXT"
                     : option_is_whole(row)         ? "N"
                     : row->kind == OPTION_INTERVAL ? "N|10m"
                                                    : "X";
  if (row->kind == OPTION_CHOICE) option_choices_text(row, "|", argument, sizeof argument);
  else snprintf(argument, sizeof argument, "%s", kind);
  if (row->letter) snprintf(letter, sizeof letter, "-%c, ", row->letter);
  if (row->positional) snprintf(bare, sizeof bare, "%.70s%s, ", argument, row->kind == OPTION_LIST ? "..." : "");
  return snprintf(out, size, "  %s%s--%s%s%s%s%s", bare, letter, worth_a_no ? "[no-]" : "", row->name,
                  optional    ? "[="
                  : *argument ? " "
                              : "",
                  argument, optional ? "]" : "");
}

/* The limits that tell something: upper ones above 1 only catch typing errors, and few counts can be negative. */
static void range_text(const Option *row, char *out, size_t size) {
  Option shown = *row;
  if (shown.max > 1) shown.max = INFINITY;
  *out = '\0';
  if (shown.max <= 1 || shown.min > 2) option_range_text(&shown, out, size);
}

/* "weight decay [0.1; 0..1]". */
static void sentence_text(const Option *row, char *out, size_t size) {
  char standard[400] = "", range[80];
  range_text(row, range, sizeof range);
  if (row->shown_default) snprintf(standard, sizeof standard, "%s", row->shown_default);
  else if (row->kind == OPTION_TEXT && row->initial.text && *row->initial.text)
    snprintf(standard, sizeof standard, "%.300s", row->initial.text);
  else if (!option_is_text(row) && option_is_set(row, row->initial) &&
           !(row->kind == OPTION_FLAG && !row->initial.flag))
    option_value_text(row, row->initial, standard, sizeof standard);
  const char *between = *standard && *range ? "; " : "";
  if (*standard || *range) snprintf(out, size, "%s [%s%s%s]", row->help, standard, between, range);
  else snprintf(out, size, "%s", row->help);
}

/* Words of `text` from `column` on, continued in lines that begin at `indent`. Columns are counted in characters. */
static void print_wrapped(FILE *stream, const char *text, int column, int indent) {
  bool first = true;
  while (*text) {
    size_t length = strcspn(text, " ");
    if (length && strchr("<>=:", text[length - 1]) && text[length])
      length += 1 + strcspn(text + length + 1, " "); /* "> 0", "auto: preset" */
    int width = 0;
    for (size_t i = 0; i < length; i++) width += !utf8_continues((uint8_t)text[i]);
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

void options_help(const Options *options, FILE *stream) {
  char flag[300], sentence[1200];
  const char *group = "";
  fprintf(stream, "Usage: %s %s\n", options->program, options->usage);
  if (options->about) {
    fputc('\n', stream);
    print_wrapped(stream, options->about, 0, 0);
  }
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (strcmp(row->group, group) != 0) fprintf(stream, "\n%s\n", row->group);
    group = row->group;
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
