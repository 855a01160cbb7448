/* Everything that is said to a person while a program runs, on stderr: one updating line on a terminal, plain lines
 * elsewhere, and messages that do not break that line. */
#ifndef INKLING_CLI_CONSOLE_H
#define INKLING_CLI_CONSOLE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* NaN means "not known": the field is left out. */
typedef struct ConsoleProgress {
  int64_t step, steps; /* steps <= 0: no end known, no bar */
  double loss, val_loss;
  double lr;
  double tokens_per_s;
  double peak;         /* fraction of the device's speed of light: 0.71 */
  double seconds_left; /* shown as ETA */
} ConsoleProgress;

typedef struct Console {
  FILE *stream;        /* stderr */
  const char *program; /* "train": begins every error */
  bool quiet;          /* no progress, no notes, no plain lines; warnings and errors stay */
  bool terminal;       /* updating line; otherwise plain lines */
  bool color;          /* a terminal, and NO_COLOR is not set */
  bool utf8;           /* bar of block characters; otherwise of # and . */
  bool line_shown;     /* an updating line stands on the screen */
  double drawn_at;     /* seconds, monotonic clock */
  const char *work;    /* name of the work that goes on; NULL: none */
  double work_began;
  bool work_shown; /* its line stands on the screen */
} Console;

/* Looks at stderr, TERM, NO_COLOR, LC_ALL, LC_CTYPE and LANG. `program` must outlive the console. */
Console console_open(const char *program, bool quiet);

/* On a terminal redraws the line, at most ten times a second unless `logged`; elsewhere prints a line when `logged`. */
void console_progress(Console *console, const ConsoleProgress *numbers, bool logged);
/* Leaves the last line standing and moves below it. Harmless when there is none. */
void console_end_line(Console *console);

/* Work that is no training: `encoding 1.2 GiB of 5.0 GiB, 231 MiB/s, ETA 0:17`. A name, always the same pointer, is one
 * piece of work, whose time begins with its first call. Nothing is shown in the first half second; elsewhere than on a
 * terminal a line every ten seconds. */
typedef struct ConsoleWork {
  const char *name;
  double done, all; /* all 0: no end known */
  bool bytes;       /* otherwise they are counted */
} ConsoleWork;
void console_work(Console *console, const ConsoleWork *work);
void console_work_end(Console *console); /* wipes the line; harmless when there is none */
/* The text of such a line after so many seconds of work. */
void console_format_work(char *out, size_t size, const ConsoleWork *work, double seconds);

/* `train: ...`, `warning: ...`, `note: ...`, and a line as it is. The updating line is wiped first and comes back with
 * the next update. A newline is added. */
void console_error(Console *console, const Error *error);
void console_warning(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_note(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_line(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a progress line, at most `width` columns wide (0: no limit), with a bar where `bar` is set. The least
 * important fields are left out first. Returns its width in columns. */
int console_format_progress(char *out, size_t size, const ConsoleProgress *numbers, int width, bool bar, bool utf8);

#endif
