/* Messages and progress on stderr: on a terminal one line that is updated in place, plain lines elsewhere. Messages do
 * not break that line. */
#ifndef INKLING_CLI_CONSOLE_H
#define INKLING_CLI_CONSOLE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CONSOLE_TREND = 12 }; /* so many losses are drawn at most */

/* The progress line of training. A field that is NaN is left out. */
typedef struct ConsoleProgress {
  int64_t step, steps; /* steps <= 0: no end known, no bar */
  double loss, val_loss;
  double lr;
  double tokens_per_s;
  double peak;         /* fraction of the device's peak FLOP/s: 0.71 */
  double seconds_left; /* shown as ETA */
  const double *trend; /* the newest validation losses, drawn as bars in a wide line; NULL: none */
  int trend_count;
} ConsoleProgress;

typedef struct Console {
  FILE *stream;        /* stderr */
  const char *program; /* "train": begins every error */
  bool quiet;          /* warnings and errors only */
  bool silent;         /* errors only: another process of the same run says the rest */
  bool terminal;       /* one updated line; otherwise plain lines */
  bool color;          /* on a terminal, unless NO_COLOR is set */
  bool utf8;           /* bar of block characters; otherwise of # and . */
  bool line_shown;     /* the cursor is on the updated line */
  double drawn_at;     /* clock_seconds() of the last update; negative: draw at once */
  const char *work;    /* name of the work in progress; NULL: none */
  double work_began;
  bool work_shown; /* the updated line is its line */
} Console;

/* Looks at stderr, TERM, NO_COLOR, LC_ALL, LC_CTYPE and LANG. `program` must outlive the console. */
Console console_open(const char *program, bool quiet);
void console_silence(Console *console);

/* Redraws the line, at most ten times a second unless `logged`; without a terminal prints a line when `logged`. */
void console_progress(Console *console, const ConsoleProgress *numbers, bool logged);
/* Keeps the updated line, if there is one, and moves below it. */
void console_end_line(Console *console);

/* Work before and between training: `encoding 1.2 GiB of 5.0 GiB, 231 MiB/s, ETA 0:17`. Calls with the same name (the
 * same pointer) are one piece of work, which began with the first of them. Nothing is shown in the first half second;
 * where there is no terminal a line every ten seconds. */
typedef struct ConsoleWork {
  const char *name;
  double done, total; /* total 0: no end known */
  bool bytes;         /* of bytes; otherwise a count */
} ConsoleWork;
void console_work(Console *console, const ConsoleWork *work);
void console_work_end(Console *console); /* clears the line, if there is one */
/* The text of such a line after so many seconds of work. */
void console_format_work(char *out, size_t size, const ConsoleWork *work, double seconds);

/* `train: ...`, `warning: ...`, `note: ...`, which are folded at a terminal's width, and a bare line, each with a
 * newline. The updated line is cleared first and comes back with the next update. */
void console_error(Console *console, const Error *error);
void console_warning(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_note(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_line(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A row of a table: `name` in its first column, "" to go on with the one before; folded at the terminal's width. */
void console_row(Console *console, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether TERM names a terminal that understands more than text. */
bool console_can_mark(void);

/* Columns of the terminal that a stream writes to; 0: it is none, or it does not say. */
int console_width(FILE *stream);

/* The text of a progress line, at most `width` columns wide (0: no limit), with or without a bar; the least important
 * fields are left out first. Returns its width in columns. */
int console_format_progress(char *out, size_t size, const ConsoleProgress *numbers, int width, bool bar, bool utf8);

#endif
