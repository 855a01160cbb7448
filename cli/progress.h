/* Everything that is said to a person while a program runs, on stderr: one updating line on a terminal, plain lines
 * elsewhere, and messages that do not break that line. */
#ifndef INKLING_CLI_PROGRESS_H
#define INKLING_CLI_PROGRESS_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* NaN means "not known": the field is left out. */
typedef struct ProgressNumbers {
  int64_t step, steps; /* steps <= 0: no end known, no bar */
  double loss, val_loss;
  double lr;
  double tokens_per_s;
  double peak;         /* fraction of the device's speed of light: 0.71 */
  double seconds_left; /* shown as ETA */
} ProgressNumbers;

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
Console console_stderr(const char *program, bool quiet);

/* On a terminal redraws the line, at most ten times a second unless `logged`; elsewhere prints a line when `logged`. */
void progress_update(Console *console, const ProgressNumbers *numbers, bool logged);
/* Leaves the last line standing and moves below it. Harmless when there is none. */
void progress_finish(Console *console);

/* Work that is no training: `encoding 1.2 GiB of 5.0 GiB, 231 MiB/s, ETA 0:17`. A name, always the same pointer, is one
 * piece of work, whose time begins with its first call. Nothing is shown in the first half second; elsewhere than on a
 * terminal a line every ten seconds. */
typedef struct ProgressWork {
  const char *name;
  double done, all; /* all 0: no end known */
  bool bytes;       /* otherwise they are counted */
} ProgressWork;
void progress_work(Console *console, const ProgressWork *work);
void progress_work_end(Console *console); /* wipes the line; harmless when there is none */
/* The text of such a line after so many seconds of work. */
void progress_work_format(char *out, size_t size, const ProgressWork *work, double seconds);

/* `train: ...`, `warning: ...`, `note: ...`, and a line as it is. The updating line is wiped first and comes back with
 * the next update. A newline is added. */
void message_error(Console *console, const Error *error);
void message_warning(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void message_note(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void message_line(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of a progress line, at most `width` columns wide (0: no limit), with a bar where `bar` is set. The least
 * important fields are left out first. Returns its width in columns. */
int progress_format(char *out, size_t size, const ProgressNumbers *numbers, int width, bool bar, bool utf8);

/* Numbers for people: `printf("%s tok/s", human_count(48211).text)`. NaN: "-". */
typedef struct Human {
  char text[32];
} Human;
Human human_count(double count);      /* 812, 48.2k, 1.2M, 3.4G, 5.6T */
Human human_bytes(double bytes);      /* 812 B, 3.1 MiB */
Human human_duration(double seconds); /* 0:21, 1:05, 2:03:10 */

/* The shortest digits that read back as the same double, or with `single` as the same float: 0.1, 600, 1e-08. */
Human number_exact(double value, bool single);

#endif
