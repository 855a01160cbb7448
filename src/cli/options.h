/* The command line, configuration files and --help, from one table of options:
 *
 *   TrainSettings s = {.clip = 1};
 *   const Option rows[] = {
 *       GROUP("Optimizer"),
 *       FLOAT("lr", &s.lr, 0, 10, "auto", "peak learning rate", .above = true),
 *   };
 *   Options options = {.program = "train", .usage = "FILE... [options]"};
 *   options_init(&options, rows, sizeof rows / sizeof *rows);
 *   if (!options_parse(&options, argc, argv, &error)) ...
 *
 * The macros for rows are in cli/option_rows.h. The caller's variables hold the defaults before options_init(); where
 * the shown default begins with "auto", the variable becomes unset. Syntax: `--key value`, `--key=value`, flags
 * `--key` and `--no-key`, letters where a row has one (`-p TEXT`), `--` ends the options, a lone `-` is a positional
 * argument. Every program has --config FILE, --quiet, --help (-h), --help-all and --version.
 *
 * Precedence: the command line, then --config, then files given to options_load() later. When an option is repeated on
 * the command line the last one counts; lists collect.
 *
 * Modes: a program may do one of several things (./generate continues a text, or scores one, ...). A mode is a bit. The
 * row of an option says which mode it selects and in which modes it is allowed. On the command line an option of
 * another mode is an error; in a file it is ignored, because the file may be for several calls. */
#ifndef INKLING_CLI_OPTIONS_H
#define INKLING_CLI_OPTIONS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct TextList {
  const char **items; /* NULL while empty; must be empty before options_parse() */
  int count;
  size_t capacity;
} TextList;

/* An interval: `500` (steps), `90s`, `10m`, `2h`: one member is not zero. Both are zero for `0` (never). */
typedef struct Interval {
  int64_t steps;
  double seconds;
} Interval;

/* The types of the variable, and after the semicolon its value while the option is "unset". */
typedef enum OptionKind {
  OPTION_SWITCH,  /* bool, always set; or int 0 or 1; -1 */
  OPTION_WHOLE,   /* int, int64_t, with `natural` uint64_t; outside min..max */
  OPTION_REAL,    /* float, double; outside min..max, or NaN */
  OPTION_TEXT,    /* const char *; NULL. With `letters` char[max + 1]; "" */
  OPTION_CHOICE,  /* int, index into `choices`; -1 */
  OPTION_LIST,    /* TextList, repeatable; empty */
  OPTION_INTERVAL /* Interval; steps < 0 */
} OptionKind;

/* The source of a value; a lower source never replaces a higher one. */
typedef enum OptionOrigin { ORIGIN_DEFAULT = 0, ORIGIN_FILE = 1, ORIGIN_COMMAND_LINE = 2 } OptionOrigin;

/* What a setting of a run is to those who see its published model or compare it with other runs. */
typedef enum SettingKind {
  SETTING_UNKNOWN,  /* the program has no such option, or its row does not say; never published */
  SETTING_OF_MODEL, /* a part of the recipe: who repeats the run gives it, too */
  SETTING_PATH,     /* may be the path of a file: private */
  SETTING_ASIDE,    /* does not affect the model: output files, intervals, machine; or depends on the file format */
  SETTING_INTERNAL  /* needed only to repeat the run; not shown */
} SettingKind;

typedef union OptionValue {
  int64_t integer; /* of a switch: 0 or 1 */
  uint64_t natural;
  double real;
  const char *text;
  Interval interval;
} OptionValue;

typedef struct Option {
  const char *name; /* "lr": `--lr` on the command line, `lr = ...` in a file; NULL: the row is only a heading */
  char letter;      /* 'p' for -p; 0: none */
  OptionKind kind;
  void *value;                /* the caller's variable, of a type that `kind` names */
  size_t size;                /* of that type: it tells int from int64_t, and float from double */
  const char *help;           /* one sentence, no full stop; wrapped to fit */
  const char *argument;       /* shown in --help: "FILE"; NULL: N, X, TEXT or the choices */
  const char *shown_default;  /* shown instead of the variable's value; begins with "auto": `auto` may be given */
  const char *const *choices; /* OPTION_CHOICE: ends with NULL */
  const char *letters;        /* OPTION_TEXT: the text is 1 to `max` of these; NULL: any */
  bool optional;              /* OPTION_TEXT: "" when it is given without `=TEXT` */
  bool natural;               /* OPTION_WHOLE: not negative */
  double min, max;            /* both 0: only the type's limits. One-sided: INFINITY from <math.h> */
  bool above, below;          /* min itself, max itself is excluded */
  bool positional;            /* also takes arguments without a flag (OPTION_LIST: all, OPTION_TEXT: one) */
  bool seed;                  /* with `natural`: -1 sets a random value */
  bool transient;             /* an action (--resume, --dry-run): never written by options_write() */
  SettingKind setting;        /* unknown: that of the heading, except for a text, which may be private */
  int exclusive;              /* rows with the same number > 0 exclude each other (--steps, --epochs, --minutes) */
  const char *group;          /* heading in --help and in files; options_add() copies it to the rows below it */
  unsigned selects;           /* the mode that the option selects, unless another one of `modes` is; 0: none */
  unsigned modes;             /* the modes that allow the option; 0: those of the heading, else all; with
                               * `selects`: no others */
  const char *needs;          /* names of options, one of which must also be given: "score novelty" */
  const char *excludes;       /* names of options that cannot be given together with this one */
  const char *follows;        /* names of options that the automatic value depends on, see options_follow() */
  bool stays;                 /* options_follow() leaves it in a call that continues a run */
  bool common;                /* shown by --help; --help-all also shows the other rows */
  bool hidden;                /* written by programs: not in any help */

  /* Filled by the parser. */
  unsigned group_modes; /* modes of the heading, with its default */
  OptionOrigin origin;
  int file, line; /* position in a configuration file; file 0: the command line */
  OptionValue initial;
} Option;

enum { OPTION_DEFAULT_MODE = 1, OPTION_ALL_MODES = 0x7FFFFFFF };

/* A hint for a flag of another program: {"learning-rate max-lr", "that is --lr here"}. `given`: names without dashes,
 * separated by a blank; '_' and '-' are equal. */
typedef struct OptionHint {
  const char *given, *text;
} OptionHint;

/* The table of options. It must not be copied or moved after options_init(): the built-in rows point into it. */
typedef struct Options {
  const char *program; /* "train" */
  const char *usage;   /* usage after the program's name: "FILE... [options]" */
  const char *about;   /* a paragraph under the usage line; NULL: none */
  const OptionHint *hints;
  int hint_count;
  const char *default_mode; /* name of OPTION_DEFAULT_MODE, selected by no option: "training"; NULL: no modes */
  unsigned default_modes;   /* modes of rows and headings without any; 0 becomes all */

  /* Results. With `help` or `version` the rest of the command line is not parsed. */
  bool help, version, quiet;
  bool help_all;      /* then `help` is also true */
  const char *config; /* --config FILE, already read; NULL when not given */
  unsigned mode;      /* the selected mode */

  /* Internal. */
  Option *rows; /* the program's, then the built-in ones */
  bool failed;  /* the rows could not be allocated */
  int count;
  size_t capacity;
  int files;      /* files read so far */
  TextList texts; /* copies of the given ones */
} Options;

/* Appends copies of rows; rows without a heading belong to the last one before them. */
void options_add(Options *options, const Option *rows, size_t count);
/* Appends the last rows and the built-in ones. options_parse() reports a failed allocation. */
void options_init(Options *options, const Option *table, size_t count);

/* Parses the command line. EXIT_USAGE: the message names the flag, the given value, the range and, for an unknown flag,
 * the most similar one; or an option that the mode or another option does not allow. Call options_free() also after a
 * failure. */
bool options_parse(Options *options, int argc, char **argv, Error *error);

/* Reads `key = value` lines for every row that has no value yet (nor a row that it excludes). Errors have `code` and
 * name file and line. */
bool options_load(Options *options, const char *path, ExitCode code, Error *error);

/* A line `name = value` of a configuration file. */
typedef struct OptionLine {
  const char *name, *value; /* value NULL: the line is invalid, and `wrong` says why */
  const char *wrong, *path;
  bool quoted;   /* the value was quoted, so it is a text */
  int number;    /* from 1 */
  ExitCode code; /* of errors */
} OptionLine;
typedef bool OptionTake(void *context, const OptionLine *line, Error *error);

/* Calls `take` for every line of a file, regardless of names. Errors have `code`; returns false as soon as `take`
 * does. */
bool option_file_read(const char *path, ExitCode code, OptionTake *take, void *context, Error *error);

/* Does the same for a text in memory, which is modified. `path`: its name in errors. */
bool option_file_read_text(char *text, const char *path, ExitCode code, OptionTake *take, void *context, Error *error);

/* Returns whether the command line or a file gives the option whose variable is at `value`. A given `auto` counts. */
bool options_given(const Options *options, const void *value);

/* Returns the kind of a setting. `options`: of the program that has written it; NULL: unknown. */
SettingKind options_setting_kind(const Options *options, const char *name);

/* Returns whether the name is one of the words, which are separated by blanks; '_' and '-' are equal. */
bool option_is_among(const char *words, const char *name, size_t length);

/* Returns the name of the first of the options `names` that the command line gives; NULL: none of them. If a name is no
 * option it returns that name and the rest, so that a misspelled name shows at the first call. */
const char *options_typed(const Options *options, const char *names);
/* The same for options that are not among `names`. */
const char *options_typed_beside(const Options *options, const char *names);

/* Settings files contain all values of a run, also automatic ones. For each option on the command line, this function
 * resets the rows that follow it, unless the command line gives them too, so that their values are chosen again.
 * `continues`: rows that stay are left. Call it after all files were read. */
void options_follow(Options *options, bool continues);
/* Forgets each `auto` of the command line, so that a file read later gives the value. */
void options_drop_auto(Options *options);

/* Returns the next row after `row` (NULL: the first row) whose variable lies in the object; NULL: no more. */
const Option *options_next_in(const Options *options, const Option *row, const void *object, size_t size);
/* Returns whether the value of a row is known: it is neither unset nor `auto`. */
bool option_known(const Option *row);
/* Sets the variable of a row, which is no list, to that of another object, which has the row's type. */
void option_take(const Option *row, const void *variable);
/* Formats a variable of the row's type, which is no text, as it could be given; "unset" when it is unknown. It need not
 * be the row's own variable: see options_format_named(). */
void option_format_variable(const Option *row, const void *variable, char *out, size_t size);

/* Returns the text to write instead of `text` for the row, in allocated memory; NULL: `text` itself. */
typedef char *OptionsResolve(const void *context, const Option *row, const char *text);

/* Writes all known values in the form that options_load() reads, without transient rows; of mutually exclusive rows the
 * given one, else the first. `resolve`: NULL, or called for each text, with `context`. Returns false when the stream
 * has an error. */
bool options_write(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context);

/* Writes all values, known or not, and their sources, for options_copy() in another process of the same program.
 * Returns false when the stream has an error. */
bool options_dump(const Options *options, FILE *stream);
/* Sets all values from options_dump() of another process. EXIT_MEMORY. */
bool options_copy(Options *options, const char *dump, Error *error);

/* Sets the value of the named row as the command line does; may be repeated. EXIT_USAGE, as options_parse(). */
bool options_set(Options *options, const char *name, const char *text, Error *error);
/* Does what option_format_variable() does for the named row's own variable. */
void options_format_named(const Options *options, const char *name, char *out, size_t size);

/* Returns the row of an option that has this value on the command line. EXIT_USAGE, with the message of
 * options_parse(). */
const Option *options_check(const Options *options, const char *name, const char *value, Error *error);
/* Writes what the command line gave as arguments for another call of the program, each with a zero after it, without
 * transient rows. `resolve` as for options_write(). Returns false when the stream has an error. */
bool options_write_arguments(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context);
/* Writes what the command line gave, except for the options `beside`, as words for a shell, each after a space. Returns
 * false if that is longer than `size`, or not one line of visible text. */
bool options_write_command(const Options *options, const char *beside, char *out, size_t size);

/* Returns a random seed. */
uint64_t options_random_seed(void);

/* Prints the common rows or, with help_all or when no row is common, all. Lines are as wide as $COLUMNS, else as the
 * terminal, else 80 columns. */
void options_help(const Options *options, FILE *stream);

/* Formats the modes of a row or heading when they are not the usual ones: "not with --score, --lens"; else empty. */
void options_modes_text(const Options *options, unsigned modes, unsigned usual, char *out, size_t size);

/* Frees the rows and every text and list that the parser stored in the caller's variables. */
void options_free(Options *options);

#endif
