/* The command line: one table of rows drives the parser, --help and the configuration file.
 *
 *   TrainSettings s = {.lr = 1e-3, .schedule = SCHEDULE_COSINE};
 *   Option rows[] = {
 *     {.group = "data", .name = "data", .kind = OPTION_LIST, .value = &s.data, .positional = true,
 *      .argument = "FILE", .help = "text to learn from"},
 *     {.group = "optimizer", .name = "lr", .kind = OPTION_DOUBLE, .value = &s.lr, .max = 10, .above = true,
 *      .shown_default = "auto", .help = "peak learning rate"},
 *   };
 *   Options options = {.program = "train", .usage = "FILE... | DIR | - [options]", .rows = rows, .count = 2};
 *   if (!options_parse(&options, argc, argv, &error)) ...
 *
 * What stands in the caller's variables before options_parse() is the default. Syntax: `--key value`, `--key=value`,
 * flags `--key` and `--no-key`, letters where a row has one (`-p TEXT`), `--` ends the options, a lone `-` is a
 * positional argument. --help (-h), --version and --config FILE are known to every program.
 *
 * Precedence: the command line, then --config, then files given to options_load() later. Of an option that is repeated
 * on the command line the last one counts; lists collect. */
#ifndef INKLING_CLI_OPTIONS_H
#define INKLING_CLI_OPTIONS_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct TextList {
  const char **items; /* NULL while empty; must be empty before options_parse() */
  int count;
} TextList;

/* `500` (steps), `90s`, `10m`, `2h`: one of the two is not zero. Both are zero for `0` (never). */
typedef struct Interval {
  int64_t steps;
  double seconds;
} Interval;

typedef enum OptionKind {                  /* type of the variable          not known yet ("unset") */
                          OPTION_FLAG,     /* bool                          -                */
                          OPTION_TRISTATE, /* int: 0, 1                     -1               */
                          OPTION_INT,      /* int                           outside min..max */
                          OPTION_INT64,    /* int64_t                       outside min..max */
                          OPTION_UINT64,   /* uint64_t                      outside min..max */
                          OPTION_FLOAT,    /* float                         outside, or NaN  */
                          OPTION_DOUBLE,   /* double                        outside, or NaN  */
                          OPTION_TEXT,     /* const char *                  NULL             */
                          OPTION_OPTIONAL, /* const char *; "" when given without `=TEXT`; NULL */
                          OPTION_CHOICE,   /* int, index into `choices`     -1               */
                          OPTION_LIST,     /* TextList, repeatable          empty            */
                          OPTION_INTERVAL  /* Interval; the range is for steps; steps < 0    */
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
  const char *group; /* heading in --help; NULL: the same as in the row before */
  const char *name;  /* "lr": `--lr` on the command line, `lr = ...` in a file */
  char letter;       /* 'p' for -p; 0: none */
  OptionKind kind;
  void *value;                /* the caller's variable, of the type that `kind` names */
  const char *help;           /* one sentence, no full stop; wrapped to fit */
  const char *argument;       /* shown in --help: "FILE"; NULL: N, X, TEXT or the choices */
  const char *shown_default;  /* instead of the variable's own value; begins with "auto": `auto` may be given too */
  const char *const *choices; /* OPTION_CHOICE: ends with NULL */
  double min, max;            /* both 0: no limit but the type's. One-sided: INFINITY from <math.h> */
  bool above, below;          /* min itself, max itself is out of the range */
  bool positional;            /* also takes arguments without a flag (OPTION_LIST: all, OPTION_TEXT: one) */
  bool transient;             /* says what to do now (--resume, --dry-run): never written by options_write() */
  int exclusive;              /* rows with the same number > 0 exclude each other (--steps, --epochs, --minutes) */

  /* Filled by the parser. */
  OptionOrigin origin;
  int line; /* in the configuration file */
  OptionValue initial;
} Option;

/* What to say about a flag of some other program: {"-t", "did you mean --temp?"}. */
typedef struct OptionHint {
  const char *given, *text;
} OptionHint;

enum { OPTION_BUILTINS = 3 };

/* Not to be copied or moved once it was used: the built-in rows point into it. */
typedef struct Options {
  const char *program; /* "train" */
  const char *usage;   /* what follows the program's name: "FILE... | DIR | - [options]" */
  const char *about;   /* a paragraph under the usage line; NULL: none */
  Option *rows;
  int count;
  const OptionHint *hints;
  int hint_count;

  /* Results. With `help` or `version` the rest of the command line was not looked at. */
  bool help, version;
  const char *config; /* --config FILE, already read; NULL when not given */

  /* Internal. */
  Option builtin[OPTION_BUILTINS];
  char **owned;
  size_t owned_count;
  bool ready;
} Options;

/* EXIT_USAGE, with a message that names the flag, what was given, the range and, for an unknown flag, the nearest one.
 * Call options_free() after a failure too. */
bool options_parse(Options *options, int argc, char **argv, Error *error);

/* Reads `key = value` lines for every row that nothing before has set (nor a row that it excludes). Errors have `code`
 * and name file and line. */
bool options_load(Options *options, const char *path, ExitCode code, Error *error);

/* Where the variable's value comes from; whether from anywhere but the default. `value` is the address in the row. A
 * given `auto` counts as given. */
OptionOrigin options_origin(const Options *options, const void *value);
bool options_given(const Options *options, const void *value);

/* All values that are known now in the form options_load() reads, transient rows left out; of rows that exclude each
 * other the one that was given, else the first. False when the stream has an error. */
bool options_write(const Options *options, FILE *stream);

/* The table, at most 100 columns wide. */
void options_help(Options *options, FILE *stream);

/* Frees every text and list that the parser stored in the caller's variables. */
void options_free(Options *options);

#endif
