/* The command line, configuration files and --help, from one table of options:
 *
 *   TrainSettings s = {.lr = NAN};
 *   const Option rows[] = {
 *       GROUP("Optimizer"),
 *       FLOAT("lr", &s.lr, 0, 10, "auto", "peak learning rate", .above = true),
 *   };
 *   Options options = {.program = "train", .usage = "FILE... [options]"};
 *   options_init(&options, rows, sizeof rows / sizeof *rows);
 *   if (!options_parse(&options, argc, argv, &error)) ...
 *
 * The macros for rows are in cli/option_rows.h. The caller's variables hold the defaults before options_init(). Syntax:
 * `--key value`, `--key=value`, flags `--key` and `--no-key`, letters where a row has one (`-p TEXT`), `--` ends the
 * options, a lone `-` is a positional argument. Every program has --config FILE, --quiet, --help (-h), --help-all and
 * --version.
 *
 * Precedence: the command line, then --config, then files given to options_load() later. When an option is repeated on
 * the command line the last one counts; lists collect.
 *
 * Modes: a program may do one of several things (./generate continues a text, or scores one, ...). A mode is a bit. The
 * row of an option says which mode it selects and in which modes it is allowed. On the command line an option of
 * another mode is an error; in a file it is ignored, because the file may be for several calls. */
#ifndef INKLING_CLI_OPTIONS_H
#define INKLING_CLI_OPTIONS_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct TextList {
  const char **items; /* NULL while empty; must be empty before options_parse() */
  int count;
  size_t capacity;
} TextList;

/* `500` (steps), `90s`, `10m`, `2h`: one of the two is not zero. Both are zero for `0` (never). */
typedef struct Interval {
  int64_t steps;
  double seconds;
} Interval;

/* The type of the variable; what stands in it while the value is not known ("unset"). */
typedef enum OptionKind {
  OPTION_FLAG,     /* bool; - */
  OPTION_TRISTATE, /* int: 0, 1; -1 */
  OPTION_INT,      /* int; outside min..max */
  OPTION_INT64,    /* int64_t; outside min..max */
  OPTION_UINT64,   /* uint64_t; outside min..max */
  OPTION_FLOAT,    /* float; outside min..max, or NaN */
  OPTION_DOUBLE,   /* double; outside min..max, or NaN */
  OPTION_TEXT,     /* const char *; NULL */
  OPTION_OPTIONAL, /* const char *, "" when given without `=TEXT`; NULL */
  OPTION_CHOICE,   /* int, index into `choices`; -1 */
  OPTION_LIST,     /* TextList, repeatable; empty */
  OPTION_INTERVAL  /* Interval, the range is for steps; steps < 0 */
} OptionKind;

/* Where a value comes from; a higher one is never replaced by a lower one. */
typedef enum OptionOrigin { ORIGIN_DEFAULT = 0, ORIGIN_FILE = 1, ORIGIN_COMMAND_LINE = 2 } OptionOrigin;

typedef union OptionValue {
  bool flag;
  int64_t integer;
  uint64_t natural;
  double real;
  const char *text;
  Interval interval;
} OptionValue;

typedef struct Option {
  const char *name; /* "lr": `--lr` on the command line, `lr = ...` in a file; NULL: the row is only a heading */
  char letter;      /* 'p' for -p; 0: none */
  OptionKind kind;
  void *value;                /* the caller's variable, of the type that `kind` names */
  const char *help;           /* one sentence, no full stop; wrapped to fit */
  const char *argument;       /* shown in --help: "FILE"; NULL: N, X, TEXT or the choices */
  const char *shown_default;  /* instead of the variable's own value; begins with "auto": `auto` may be given too */
  const char *const *choices; /* OPTION_CHOICE: ends with NULL */
  double min, max;            /* both 0: no limit but the type's. One-sided: INFINITY from <math.h> */
  bool above, below;          /* min itself, max itself is out of the range */
  bool positional;            /* also takes arguments without a flag (OPTION_LIST: all, OPTION_TEXT: one) */
  bool seed;                  /* OPTION_UINT64: -1 draws one, which is then the value */
  bool transient;             /* an action (--resume, --dry-run): never written by options_write() */
  int exclusive;              /* rows with the same number > 0 exclude each other (--steps, --epochs, --minutes) */
  const char *group;          /* heading in --help and in files; options_add() copies it to the rows below it */
  unsigned selects;           /* the mode that the option selects; 0: none */
  unsigned modes;             /* in which the option is allowed; 0: those of the heading, else all */
  const char *needs;          /* names of options, one of which must be given too: "score novelty" */
  const char *excludes;       /* names of options that cannot be given together with this one */
  bool common;                /* --help prints it; --help-all prints the other rows, too */
  bool hidden;                /* written by programs: in no help */

  /* Filled by the parser. */
  unsigned group_modes; /* of the heading, with its default */
  OptionOrigin origin;
  int file, line; /* where in which configuration file; file 0: the command line */
  OptionValue initial;
} Option;

enum { OPTION_DEFAULT_MODE = 1, OPTION_ALL_MODES = 0x7FFFFFFF };

/* What to say about a flag of some other program: {"learning-rate max-lr", "that is --lr here"}. `given`: names without
 * their dashes, a blank between two; '_' and '-' are the same. */
typedef struct OptionHint {
  const char *given, *text;
} OptionHint;

/* Not to be copied or moved after options_init(): the built-in rows point into it. */
typedef struct Options {
  const char *program; /* "train" */
  const char *usage;   /* what follows the program's name: "FILE... [options]" */
  const char *about;   /* a paragraph under the usage line; NULL: none */
  const OptionHint *hints;
  int hint_count;
  const char *default_mode; /* name of OPTION_DEFAULT_MODE, which no option selects: "training"; NULL: no modes */
  unsigned default_modes;   /* of rows and headings that say nothing; 0 becomes all */

  /* Results. With `help` or `version` the rest of the command line was not looked at. */
  bool help, version, quiet;
  bool help_all;      /* then `help` is true, too */
  const char *config; /* --config FILE, already read; NULL when not given */
  unsigned mode;      /* the selected one */

  /* Internal. */
  Option *rows; /* the program's, then the built-in ones */
  bool failed;  /* they could not be allocated */
  int count;
  size_t capacity;
  int files; /* read so far */
  struct OptionText *texts;
} Options;

/* Copies rows behind those that are there; what has no heading goes on under the last one. */
void options_add(Options *options, const Option *rows, size_t count);
/* The last rows, and the built-in ones behind them. What could not be allocated options_parse() reports. */
void options_init(Options *options, const Option *table, size_t count);

/* EXIT_USAGE, with a message that names the flag, what was given, the range and, for an unknown flag, the nearest one;
 * and for an option that the mode or another option does not allow. Call options_free() after a failure too. */
bool options_parse(Options *options, int argc, char **argv, Error *error);

/* Reads `key = value` lines for every row that has no value yet (nor a row that it excludes). Errors have `code` and
 * name file and line. */
bool options_load(Options *options, const char *path, ExitCode code, Error *error);

/* A line `name = value` of such a file. */
typedef struct OptionLine {
  const char *name, *value; /* value NULL: it is none, and `wrong` says why */
  const char *wrong, *path;
  bool quoted;   /* the value, and so it is a text whatever it looks like */
  int number;    /* from 1 */
  ExitCode code; /* of errors */
} OptionLine;
typedef bool OptionTake(void *context, const OptionLine *line, Error *error);

/* Every such line of a file, whatever the names. Errors have `code`; false as soon as `take` is false. */
bool option_file_read(const char *path, ExitCode code, OptionTake *take, void *context, Error *error);

/* The same of a text in memory, which is changed. `path`: its name in errors. */
bool option_text_read(char *text, const char *path, ExitCode code, OptionTake *take, void *context, Error *error);

/* Where the variable's value comes from; whether from anywhere but the default. `value` is the address in the row. A
 * given `auto` counts as given. */
OptionOrigin options_origin(const Options *options, const void *value);
bool options_given(const Options *options, const void *value);

/* Takes back what a file gave the variable, a number or a switch: it has its default again. */
void options_forget(Options *options, const void *value);

/* What is written instead of a text of the row with this `value`, in fresh memory; NULL: the text itself. */
typedef char *OptionsResolve(const void *context, const void *value, const char *text);

/* All values that are known now in the form options_load() reads, transient rows left out; of rows that exclude each
 * other the one that was given, else the first. `resolve`: NULL, or asked for each text, with `context`. False when the
 * stream has an error. */
bool options_write(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context);

/* All values, known or not, and where they are from, for options_copy() of a process that runs the same program. False
 * when the stream has an error. */
bool options_dump(const Options *options, FILE *stream);
/* All values become those of the other process. EXIT_MEMORY. */
bool options_copy(Options *options, const char *dump, Error *error);

/* A value for the row of that name as on the command line, which may be given again and again. EXIT_USAGE as there. */
bool options_set(Options *options, const char *name, const char *text, Error *error);
/* The value of such a row, which is no text, as it could be given; "unset" where it is not known. */
void options_value(const Options *options, const char *name, char *out, size_t size);

/* A seed for random numbers that nobody has chosen. */
uint64_t options_random_seed(void);

/* The common rows or, with help_all or where no row is common, all. Lines are as wide as $COLUMNS says, else as the
 * terminal, else 80 columns. */
void options_help(const Options *options, FILE *stream);

/* "not with --score, --lens": the modes of a row or a heading, where they are not the usual ones; else empty. */
void options_modes_text(const Options *options, unsigned modes, unsigned usual, char *out, size_t size);

/* Frees the rows and every text and list that the parser stored in the caller's variables. */
void options_free(Options *options);

#endif
