/* What the files of cli/option* share. */
#ifndef INKLING_CLI_OPTION_INTERNAL_H
#define INKLING_CLI_OPTION_INTERNAL_H

#include "cli/options.h"

/* ---- one value, between the caller's variable, an OptionValue and text: option_value.c ---- */

bool option_is_switch(const Option *row); /* needs no argument and has a --no- form */
bool option_is_whole(const Option *row);  /* a whole number */
bool option_is_text(const Option *row);   /* its value is the given text itself */

/* The caller's variable. A list is not read or written: its OptionValue is zero. */
OptionValue option_load(const Option *row);
void option_store(const Option *row, OptionValue value);

/* Whether the value is known: see OptionKind for what stands for "unset". Of a list it looks at the variable. */
bool option_is_set(const Option *row, OptionValue value);

/* Text to value, by the row's kind, range and choices; `auto`, where the row has it, gives the initial value. A text is
 * not copied. False when it is not such a value: option_demand_text() says what would be. */
bool option_parse(const Option *row, const char *text, OptionValue *out);

/* A known value as text that option_parse() reads back. Every kind but the texts, whose length has no bound. */
void option_value_text(const Option *row, OptionValue value, char *out, size_t size);

/* "1..64", ">= 1", "> 0, <= 10"; empty when there is no limit. */
void option_range_text(const Option *row, char *out, size_t size);

/* The choices of an OPTION_CHOICE with `between` between them. */
void option_choices_text(const Option *row, const char *between, char *out, size_t size);

/* What a value of this row must be, for the message about one that is not. */
void option_demand_text(const Option *row, char *out, size_t size);

/* ---- parts of --help, also for manual pages: option_help.c ---- */

bool option_is_worth_a_no(const Option *row); /* shown with its --no- form */

/* "TEXT", "f32|bf16"; empty for a switch. */
void option_argument_text(const Option *row, char *out, size_t size);

/* "weight decay [0.1; 0..1; not with --bench]": the help, the default and the range; `notes`: also the modes that allow
 * it. */
void option_sentence_text(const Options *options, const Option *row, bool notes, char *out, size_t size);

/* ---- the table: options.c ---- */

/* What values are read from. */
typedef struct OptionSource {
  Options *options;
  const char *path; /* of a configuration file; NULL: the command line */
  ExitCode code;    /* of errors */
  int file, line;
  Error *error;
} OptionSource;

Option *option_named(const Options *options, const char *name, size_t length);
/* --config, --help, --version: a file can neither read another file nor ask for help. */
bool option_is_command(const Options *options, const Option *row);

/* Checks a value and stores it, unless a source with precedence has set the row. */
bool option_assign(const OptionSource *source, Option *row, const char *text);

/* Fails with "--lr: ..." or "run.conf:12: lr: ...". */
bool option_fail(const OptionSource *source, const Option *row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The option takes part in this call: a value is known that is not the default, and a flag is not "no". */
bool option_is_on(const Option *row);

/* It has its default again. */
void option_reset(Option *row);

/* Whether the name is one of the words, which have blanks between them; '_' and '-' are the same. */
bool option_is_among(const char *words, const char *name, size_t length);

/* Finds the mode and checks every row that was given: option_modes.c. EXIT_USAGE. */
bool options_check_modes(Options *options, Error *error);

/* The nearest name to the `length` bytes at `given`, or NULL when none is near. *negated: it is a switch, and `given`
 * begins with "no-". */
const char *option_nearest(const Options *options, const char *given, size_t length, bool *negated);

#endif
