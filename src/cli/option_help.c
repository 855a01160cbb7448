/* Prints --help and --help-all. */
#include "cli/console.h"
#include "cli/option_internal.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_WIDTH = 40, USUAL_WIDTH = 80, MOST_COLUMN = 32 /* where the sentences begin, at most */ };

bool option_is_worth_a_no(const Option *row) {
  return option_is_switch(row) && row->initial.integer; /* the default is yes, or not known */
}

/* "  --[no-]tie", "  -p, --prompt TEXT", "  FILE..., --data FILE". Returns its width. */
static int flag_text(const Option *row, char *out, size_t size) {
  char argument[200], letter[8] = "", bare[80] = "";
  option_argument_text(row, argument, sizeof argument);
  if (row->letter) snprintf(letter, sizeof letter, "-%c, ", row->letter);
  if (row->positional) snprintf(bare, sizeof bare, "%.70s%s, ", argument, row->kind == OPTION_LIST ? "..." : "");
  return snprintf(out, size, "  %s%s--%s%s%s%s%s", bare, letter, option_is_worth_a_no(row) ? "[no-]" : "", row->name,
                  row->optional ? "[="
                  : *argument   ? " "
                                : "",
                  argument, row->optional ? "]" : "");
}

/* Only informative limits are shown: upper limits above 1 only catch typing errors, and few counts can be negative. */
static void range_text(const Option *row, char *out, size_t size) {
  Option shown = *row;
  if (shown.max > 1) shown.max = INFINITY;
  *out = '\0';
  if (shown.max <= 1 || shown.min > 2) option_range_text(&shown, out, size);
}

void option_sentence_text(const Options *options, const Option *row, bool notes, char *out, size_t size) {
  char standard[600] = "", range[80], modes[400] = "";
  range_text(row, range, sizeof range);
  const unsigned usual = row->selects ? row->selects : row->group_modes;
  if (notes) options_modes_text(options, row->modes, usual, modes, sizeof modes);
  if (row->shown_default) snprintf(standard, sizeof standard, "%s", row->shown_default);
  else if (option_is_set(row, row->initial) && !(option_is_switch(row) && !row->initial.integer))
    option_format(row, row->initial, standard, sizeof standard);
  option_append(standard, sizeof standard, "; ", range);
  option_append(standard, sizeof standard, "; ", modes);
  if (*standard) snprintf(out, size, "%s [%s]", row->help, standard);
  else snprintf(out, size, "%s", row->help);
}

/* Returns $COLUMNS, else the terminal's width, else the default. The last column stays free. */
static int help_width(FILE *stream) {
  const char *columns = getenv("COLUMNS");
  const int given = columns ? atoi(columns) : 0, terminal = given > 0 ? given : console_width(stream);
  const int width = terminal > 0 ? terminal : USUAL_WIDTH;
  return width > LEAST_WIDTH ? width - 1 : LEAST_WIDTH - 1;
}

static void print_row(const Options *options, const Option *row, bool notes, int width, FILE *stream) {
  char flag[300], sentence[1500];
  const int begin = width / 3 < MOST_COLUMN ? width / 3 : MOST_COLUMN;
  int column = flag_text(row, flag, sizeof flag);
  fputs(flag, stream);
  if (column > begin - 2) {
    fputc('\n', stream);
    column = 0;
  }
  fprintf(stream, "%*s", begin - column, "");
  option_sentence_text(options, row, notes, sentence, sizeof sentence);
  text_print_wrapped(stream, sentence, begin, begin, width);
}

static void print_group(const Options *options, const Option *row, int width, FILE *stream) {
  char modes[400], title[500];
  options_modes_text(options, row->group_modes, options->default_modes, modes, sizeof modes);
  if (*modes) snprintf(title, sizeof title, "%s (%s)", row->group, modes);
  else snprintf(title, sizeof title, "%s", row->group);
  fputc('\n', stream);
  text_print_wrapped(stream, title, 0, 0, width);
}

static bool has_common_rows(const Options *options) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->common && !option_is_command(options, row)) return true;
  return false;
}

#define STATUS(name, number, words) ", " #number " " words

void options_help(const Options *options, FILE *stream) {
  static const char statuses[] = EXIT_STATUSES(STATUS);
  const bool all = options->help_all || !has_common_rows(options);
  const int width = help_width(stream);
  const char *group = "";
  fprintf(stream, "Usage: %s %s\n", program_name(options->program).text, options->usage);
  if (options->about) {
    fputc('\n', stream);
    text_print_wrapped(stream, options->about, 0, 0, width);
  }
  if (!all) fputs("\nCommon options\n", stream);
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (row->hidden || !(all || row->common)) continue;
    if (all && strcmp(row->group, group) != 0) print_group(options, row, width, stream);
    group = row->group;
    print_row(options, row, all, width, stream);
  }
  if (!all) return;
  fputs("\nExit status: ", stream);
  text_print_wrapped(stream, &statuses[2], sizeof "Exit status: " - 1, 0, width);
}
