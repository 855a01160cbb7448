/* --help. */
#include "cli/option_internal.h"
#include "util/program_name.h"
#include "util/text.h"

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

void options_help(const Options *options, FILE *stream) {
  char flag[300], sentence[1200];
  const char *group = "";
  fprintf(stream, "Usage: %s %s\n", program_name(options->program).text, options->usage);
  if (options->about) {
    fputc('\n', stream);
    text_print_wrapped(stream, options->about, 0, 0, HELP_WIDTH);
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
    text_print_wrapped(stream, sentence, HELP_COLUMN, HELP_COLUMN, HELP_WIDTH);
  }
  fputs("\nExit status: 0 done, 1 a bug, 2 flags and values, 3 text or prompt, 4 model or tokenizer, 5 memory,\n"
        "6 not finite, 7 output, 8 the run is in use, 128 + n stopped by signal n\n",
        stream);
}
