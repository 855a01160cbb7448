/* Internal to cli/option*: declarations that these files share. */
#ifndef INKLING_CLI_OPTION_INTERNAL_H
#define INKLING_CLI_OPTION_INTERNAL_H

#include "cli/options.h"

/* ---- one value, between the caller's variable, an OptionValue and text: option_value.c ---- */

bool option_is_switch(const Option *row); /* needs no argument and has a --no- form */
bool option_is_text(const Option *row);   /* its value is the given text itself */

/* Read and write the caller's variable, except for a list: its first text is read, and nothing is written. */
OptionValue option_load(const Option *row);
void option_store(const Option *row, OptionValue value);

/* Returns the value before options are read: unset for a row with an automatic value, else that of the variable. */
OptionValue option_initial(const Option *row);

/* Returns whether the value is known; OptionKind defines the "unset" values. */
bool option_is_set(const Option *row, OptionValue value);

/* Parses text by the row's kind, range and choices; `auto`, if the row allows it, gives the initial value. A text is
 * not copied. Returns false for an invalid value; option_demand_text() describes valid ones. */
bool option_parse(const Option *row, const char *text, OptionValue *out);

/* Formats a known value so that option_parse() can read it, unless it is a text that is too long. */
void option_format(const Option *row, OptionValue value, char *out, size_t size);

/* Formats the range: "1..64", ">= 1", "> 0, <= 10"; empty when there is no limit. */
void option_range_text(const Option *row, char *out, size_t size);

/* Formats the argument in help: "TEXT", "f32|bf16"; empty for a switch. */
void option_argument_text(const Option *row, char *out, size_t size);

/* Describes the valid values of a row, for error messages. */
void option_demand_text(const Option *row, char *out, size_t size);

/* Appends `text`, unless it is empty, to the string `out`, with `between` before it when `out` is not empty. */
void option_append(char *out, size_t size, const char *between, const char *text);

/* ---- parts of --help, also for manual pages: option_help.c ---- */

bool option_is_worth_a_no(const Option *row); /* shown with its --no- form */

/* Formats help, default and range: "weight decay [0.1; 0..1; not with --bench]"; `notes`: also the modes that allow the
 * option. */
void option_sentence_text(const Options *options, const Option *row, bool notes, char *out, size_t size);

/* ---- the table: options.c ---- */

/* The source of values. */
typedef struct OptionSource {
  Options *options;
  const char *path; /* of a configuration file; NULL: the command line */
  ExitCode code;    /* exit code of errors */
  int file, line;
  Error *error;
} OptionSource;

Option *option_named(const Options *options, const char *name, size_t length);
/* Returns whether the row is --config, --help or --version, which are not allowed in files. */
bool option_is_command(const Options *options, const Option *row);

/* Checks a value and stores it, unless a source with precedence has set the row. */
bool option_assign(const OptionSource *source, Option *row, const char *text);

/* Fails with "--lr: ..." or "run.conf:12: lr: ...". */
bool option_fail(const OptionSource *source, const Option *row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Resets the row to its default. */
void option_reset(Option *row);

/* Finds the mode and checks every given row (option_modes.c). EXIT_USAGE. */
bool options_check_modes(Options *options, Error *error);

/* Returns the name most similar to the `length` bytes at `given`, or NULL when none is similar. *negated: it is a
 * switch, and `given` begins with "no-". */
const char *option_nearest(const Options *options, const char *given, size_t length, bool *negated);

#endif
