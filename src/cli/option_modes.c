/* Modes: finds the mode that the options select, and checks that it allows the other options. */
#include "cli/option_internal.h"
#include "base/text.h"

#include <string.h>

/* Returns whether the option is on: it is given, its value is known, and a switch is not at its default. */
static bool is_on(const Option *row) {
  const OptionValue value = option_load(row);
  const bool usual = option_is_switch(row) && value.integer == row->initial.integer;
  return row->origin != ORIGIN_DEFAULT && option_is_set(row, value) && !usual;
}

/* "-p" or "--score". */
static ShortText flag_of(const Option *row) {
  ShortText out;
  snprintf(out.text, sizeof out.text, row->letter ? "-%.1s" : "--%s", row->letter ? &row->letter : row->name);
  return out;
}

static void append(OneLine *names, const char *between, const char *text) {
  option_append(names->text, sizeof names->text, between, text);
}

/* Names what selects the modes: "training, --bench"; optionally with arguments. */
static OneLine modes_names(const Options *options, unsigned modes, bool arguments) {
  OneLine out = {""};
  if (modes & OPTION_DEFAULT_MODE) append(&out, "", options->default_mode);
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (!(row->selects & modes)) continue;
    append(&out, ", ", flag_of(row).text);
    if (arguments && !option_is_switch(row)) append(&out, " ", row->argument ? row->argument : "N");
  }
  return out;
}

static int count_modes(unsigned modes) {
  int count = 0;
  for (; modes; modes &= modes - 1) count++;
  return count;
}

void options_modes_text(const Options *options, unsigned modes, unsigned usual, char *out, size_t size) {
  unsigned all = OPTION_DEFAULT_MODE;
  for (const Option *row = options->rows; row < options->rows + options->count; row++) all |= row->selects;
  modes &= all, usual &= all;
  const unsigned more = modes & ~usual, fewer = usual & ~modes;
  *out = '\0';
  if (modes == usual) return;
  if (count_modes(modes) <= count_modes(more | fewer))
    snprintf(out, size, "with %s", modes_names(options, modes, false).text);
  else
    snprintf(out, size, "%s%s%s%s%s", more ? "also with " : "", modes_names(options, more, false).text,
             more && fewer ? "; " : "", fewer ? "not with " : "", modes_names(options, fewer, false).text);
}

static bool find_mode(Options *options, const Option **selector, Error *error) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++) {
    if (!row->selects || !is_on(row)) continue;
    if (*selector && row->modes & (*selector)->selects) continue;
    if (*selector && !((*selector)->modes & row->selects))
      return fail(error, EXIT_USAGE, "use only one of %s and %s", flag_of(*selector).text, flag_of(row).text);
    *selector = row;
  }
  options->mode = *selector ? (*selector)->selects : OPTION_DEFAULT_MODE;
  return true;
}

/* Returns the first of the named options that is on; NULL: none. */
static const Option *find_on(const Options *options, const char *names) {
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (option_is_among(names, row->name, strlen(row->name)) && is_on(row)) return row;
  return NULL;
}

/* Names the flags of options: "--score or --novelty". */
static OneLine flags_of(const Options *options, const char *names) {
  OneLine out = {""};
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (option_is_among(names, row->name, strlen(row->name))) append(&out, " or ", flag_of(row).text);
  return out;
}

static bool check_row(const Options *options, const Option *row, const Option *selector, Error *error) {
  const ShortText flag = flag_of(row);
  const bool typed = row->origin == ORIGIN_COMMAND_LINE;
  if (!(row->modes & options->mode) && selector)
    return fail(error, EXIT_USAGE, "%s does not go with %s; it is for %s", flag.text, flag_of(selector).text,
                modes_names(options, row->modes, true).text);
  if (!(row->modes & options->mode))
    return fail(error, EXIT_USAGE, "%s belongs to %s", flag.text, modes_names(options, row->modes, true).text);
  const Option *other = row->excludes ? find_on(options, row->excludes) : NULL;
  if (other)
    return fail(error, EXIT_USAGE, "%s does not go with %s; leave out one of the two", flag.text, flag_of(other).text);
  return !row->needs || !typed || find_on(options, row->needs) ||
         fail(error, EXIT_USAGE, "%s needs %s", flag.text, flags_of(options, row->needs).text);
}

bool options_check_modes(Options *options, Error *error) {
  const Option *selector = NULL;
  if (!find_mode(options, &selector, error)) return false;
  for (Option *row = options->rows; row < options->rows + options->count; row++)
    if (row->origin == ORIGIN_FILE && !(row->modes & options->mode)) option_reset(row);
  for (const Option *row = options->rows; row < options->rows + options->count; row++)
    if (is_on(row) && !check_row(options, row, selector, error)) return false;
  return true;
}
