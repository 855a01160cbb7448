/* Messages and progress on stderr: one line that is updated in place on a terminal, plain lines elsewhere. Messages do
 * not break the updated line. */
#ifndef INKLING_CLI_CONSOLE_H
#define INKLING_CLI_CONSOLE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CONSOLE_TREND = 12 }; /* the largest number of losses drawn */

/* The progress line of training. A field that is NaN is left out. */
typedef struct ConsoleProgress {
  int64_t step, steps; /* steps <= 0: unknown number of steps, no bar */
  double loss, val_loss;
  double accuracy; /* fraction of right answers (--choose) */
  double lr;
  double tokens_per_s;
  double peak;         /* fraction of the device's peak FLOP/s: 0.71 */
  double seconds_left; /* shown as ETA */
  const double *trend; /* the newest validation losses, drawn as bars in a wide line; NULL: none */
  int trend_count;
} ConsoleProgress;

typedef struct Console {
  FILE *stream;        /* stderr */
  const char *program; /* "train": the prefix of every error */
  bool quiet;          /* warnings and errors only */
  bool silent;         /* errors only, because another process of the same run prints the rest */
  bool terminal;       /* stderr is a terminal: one updated line; otherwise plain lines */
  bool color;          /* on a terminal, unless NO_COLOR is set */
  bool utf8;           /* bar of block characters; otherwise of # and . */
  bool line_shown;     /* the cursor is on the updated line */
  double drawn_at;     /* clock_seconds() of the last update; negative: draw at once */
  const char *work;    /* name of the work in progress; NULL: none */
  double work_began;
  bool work_shown; /* the updated line shows this work */
} Console;

/* Makes a console from the properties of stderr and TERM, NO_COLOR, LC_ALL, LC_CTYPE and LANG. `program` must outlive
 * it. */
Console console_open(const char *program, bool quiet);
void console_silence(Console *console);

/* Redraws the line, at most ten times per second unless `logged`. Without a terminal it prints a line if `logged`. */
void console_progress(Console *console, const ConsoleProgress *numbers, bool logged);
/* Ends the updated line, if any, and moves below it. */
void console_end_line(Console *console);

/* The progress of work other than training: `encoding 1.2 GiB of 5.0 GiB, 231 MiB/s, ETA 0:17`. Calls with the same
 * name (the same pointer) belong to one piece of work, which starts at the first call. Nothing is shown in the first
 * half second; without a terminal a line is printed every ten seconds. */
typedef struct ConsoleWork {
  const char *name;
  double done, total; /* total 0: unknown */
  bool bytes;         /* counts bytes; otherwise items */
} ConsoleWork;
void console_work(Console *console, const ConsoleWork *work);
void console_work_end(Console *console); /* clears the line, if any */
/* Formats such a line after `seconds` of work. */
void console_format_work(char *out, size_t size, const ConsoleWork *work, double seconds);

/* Print `train: ...`, `warning: ...` and `note: ...`, folded at a terminal's width, and a plain line, each with a
 * newline. The updated line is cleared first and returns at the next update. */
void console_error(Console *console, const Error *error);
void console_warning(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_note(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_line(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a row of a table: `name` in the first column, "" to continue the previous row; folded at the terminal's
 * width. */
void console_row(Console *console, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Opens a page in the browser (--open), or warns why it does not. */
void console_open_page(Console *console, const char *path);

/* Returns whether TERM names a terminal that supports more than plain text. */
bool console_can_mark(void);

/* Returns the width in columns of the terminal that a stream writes to; 0: not a terminal, or unknown. */
int console_width(FILE *stream);

/* Formats a progress line, at most `width` columns wide (0: no limit), with or without a bar; the least important
 * fields are left out first. Returns its width in columns. */
int console_format_progress(char *out, size_t size, const ConsoleProgress *numbers, int width, bool bar, bool utf8);

#endif
