#include "cli/console.h"

#include "base/system.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
  BAR_WIDTH = 12,
  LINE_LIMIT = 512, /* bytes of a progress line... */
  MESSAGE_INDENT = 2,
  ROW_LIMIT = 2048,  /* ...and of most messages */
  DEFAULT_WIDTH = 80 /* width of a terminal that does not report one */
};

static const double REDRAW_SECONDS = 0.1;
static const double WORK_DELAY = 0.5;   /* shorter work shows nothing */
static const double PLAIN_SECONDS = 10; /* between plain lines */

/* ---- the line ---- */

/* The fields in the order of the line. */
enum {
  FIELD_STEP,
  FIELD_BAR,
  FIELD_LOSS,
  FIELD_VAL,
  FIELD_TREND,
  FIELD_ACCURACY,
  FIELD_LR,
  FIELD_SPEED,
  FIELD_PEAK,
  FIELD_ETA,
  FIELDS
};

enum { FIELD_BYTES = 64 };
typedef char Field[FIELD_BYTES]; /* "": left out */

static void put_bar(Field field, const ConsoleProgress *numbers, bool utf8) {
  double done = (double)numbers->step / (double)numbers->steps;
  int filled = (int)((done < 0 ? 0 : done > 1 ? 1 : done) * (double)BAR_WIDTH);
  for (int i = 0; i < BAR_WIDTH; i++) strcat(field, i < filled ? (utf8 ? "█" : "#") : (utf8 ? "░" : "."));
}

/* Draws the newest CONSOLE_TREND losses as bars between the smallest and the largest. */
static void put_trend(Field field, const ConsoleProgress *numbers) {
  const int first = numbers->trend_count > CONSOLE_TREND ? numbers->trend_count - CONSOLE_TREND : 0;
  double low = INFINITY, high = -INFINITY;
  for (int i = first; i < numbers->trend_count; i++) {
    if (!isfinite(numbers->trend[i])) continue;
    low = fmin(low, numbers->trend[i]);
    high = fmax(high, numbers->trend[i]);
  }
  for (int i = first; i < numbers->trend_count; i++) {
    const double loss = numbers->trend[i], share = high > low ? (loss - low) / (high - low) : 0;
    /* U+2581 to U+2588 */
    char bar[] = {'\xE2', '\x96', (char)(0x81 + (isfinite(loss) ? (int)(share * 7.99) : 7)), '\0'};
    strcat(field, bar);
  }
}

static void fill_fields(Field fields[FIELDS], const ConsoleProgress *numbers, bool bar, bool utf8) {
  memset(fields, 0, FIELDS * sizeof *fields);
  bool ends = numbers->steps > 0;
  char steps[32] = "";
  if (ends) snprintf(steps, sizeof steps, "/%lld", (long long)numbers->steps);
  snprintf(fields[FIELD_STEP], FIELD_BYTES, "step %lld%s", (long long)numbers->step, steps);
  if (bar && ends) put_bar(fields[FIELD_BAR], numbers, utf8);
  /* Infinite values are shown; NaN means "not measured". */
  if (!isnan(numbers->loss)) snprintf(fields[FIELD_LOSS], FIELD_BYTES, "loss %.3f", numbers->loss);
  if (!isnan(numbers->val_loss)) snprintf(fields[FIELD_VAL], FIELD_BYTES, "val %.3f", numbers->val_loss);
  if (bar && utf8 && numbers->trend_count > 1) put_trend(fields[FIELD_TREND], numbers);
  if (!isnan(numbers->accuracy)) snprintf(fields[FIELD_ACCURACY], FIELD_BYTES, "acc %.1f%%", 100 * numbers->accuracy);
  if (!isnan(numbers->lr)) snprintf(fields[FIELD_LR], FIELD_BYTES, "lr %.1e", numbers->lr);
  if (!isnan(numbers->tokens_per_s))
    snprintf(fields[FIELD_SPEED], FIELD_BYTES, "%s tok/s", text_count(numbers->tokens_per_s).text);
  if (!isnan(numbers->peak)) {
    double percent = 100 * numbers->peak;
    snprintf(fields[FIELD_PEAK], FIELD_BYTES, "%.*f%% of peak", percent < 9.95 ? 1 : 0, percent);
  }
  if (!isnan(numbers->seconds_left))
    snprintf(fields[FIELD_ETA], FIELD_BYTES, "ETA %s", text_duration(numbers->seconds_left).text);
}

/* One space stands beside the bar and before the trend of a loss, two between other fields. */
static int gap_before(const Field fields[FIELDS], int field) {
  if (field == FIELD_STEP) return 0;
  return field == FIELD_BAR || field == FIELD_TREND || (field == FIELD_LOSS && *fields[FIELD_BAR]) ? 1 : 2;
}

static int columns_of(const Field fields[FIELDS]) {
  int columns = 0;
  for (int i = 0; i < FIELDS; i++) columns += *fields[i] ? gap_before(fields, i) + utf8_characters(fields[i]) : 0;
  return columns;
}

int console_format_progress(char *out, size_t size, const ConsoleProgress *numbers, int width, bool bar, bool utf8) {
  static const int least_important_first[] = {FIELD_TREND, FIELD_PEAK, FIELD_LR,   FIELD_BAR, FIELD_ACCURACY,
                                              FIELD_SPEED, FIELD_VAL,  FIELD_LOSS, FIELD_ETA};
  Field fields[FIELDS];
  if (size == 0) return 0;
  fill_fields(fields, numbers, bar, utf8);
  for (int i = 0; width > 0 && i < FIELDS - 1 && columns_of(fields) > width; i++)
    *fields[least_important_first[i]] = '\0';
  if (width > 0 && width < FIELD_BYTES)
    fields[FIELD_STEP][width] = '\0'; /* the step is ASCII and can be cut anywhere */
  out[0] = '\0';
  for (int i = 0; i < FIELDS; i++)
    if (*fields[i]) text_append(out, size, "%*s%s", gap_before(fields, i), "", fields[i]);
  return columns_of(fields);
}

/* ---- the console ---- */

/* Reads the environment as setlocale() would, which the programs never call. */
static bool locale_is_utf8(void) {
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  static const char *const spellings[] = {"UTF-8", "utf-8", "UTF8", "utf8"};
  const char *value = NULL;
  for (int i = 0; i < 3 && !(value && *value); i++) value = getenv(names[i]);
  for (int i = 0; i < 4; i++)
    if (value && strstr(value, spellings[i])) return true;
  return false;
}

bool console_can_mark(void) {
  const char *term = getenv("TERM");
  return term && *term && strcmp(term, "dumb") != 0;
}

Console console_open(const char *program, bool quiet) {
  const char *no_color = getenv("NO_COLOR");
  bool terminal = isatty(STDERR_FILENO) && console_can_mark();
  return (Console){.stream = stderr,
                   .program = program,
                   .quiet = quiet,
                   .terminal = terminal,
                   .color = terminal && !(no_color && *no_color),
                   .utf8 = locale_is_utf8(),
                   .drawn_at = -1};
}

int console_width(FILE *stream) {
  struct winsize size;
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Returns 0 for no limit. The last column stays free, because some terminals wrap as soon as it is written. */
static int line_width(const Console *console) {
  if (!console->terminal) return 0;
  const int width = console_width(console->stream);
  return width == 0 ? DEFAULT_WIDTH - 1 : width > 1 ? width - 1 : 1;
}

static void clear_line(Console *console) {
  if (console->line_shown) fputs("\r\033[K", console->stream);
  console->line_shown = false;
}

static void draw_line(Console *console, const char *line, double now) {
  fprintf(console->stream, console->terminal ? "\r%s\033[K" : "%s\n", line);
  fflush(console->stream);
  console->line_shown = console->terminal;
  console->drawn_at = now;
}

void console_progress(Console *console, const ConsoleProgress *numbers, bool logged) {
  const double now = clock_seconds();
  bool redraw = console->terminal && (console->drawn_at < 0 || now - console->drawn_at >= REDRAW_SECONDS);
  if (console->quiet || !(logged || redraw)) return;
  char line[LINE_LIMIT];
  console_format_progress(line, sizeof line, numbers, line_width(console), console->terminal, console->utf8);
  draw_line(console, line, now);
}

void console_end_line(Console *console) {
  if (console->line_shown) fputc('\n', console->stream);
  console->line_shown = false;
  console->drawn_at = -1;
  fflush(console->stream);
}

void console_format_work(char *out, size_t size, const ConsoleWork *work, double seconds) {
  const double speed = seconds > 0 ? work->done / seconds : 0;
  ShortText (*shown)(double) = work->bytes ? text_bytes : text_count;
  char total[40] = "", eta[48] = "";
  if (work->total > 0) snprintf(total, sizeof total, " of %s", shown(work->total).text);
  if (work->total > 0 && speed > 0)
    snprintf(eta, sizeof eta, ", ETA %s", text_duration((work->total - work->done) / speed).text);
  snprintf(out, size, "%s %s%s, %s/s%s", work->name, shown(work->done).text, total, shown(speed).text, eta);
}

void console_work(Console *console, const ConsoleWork *work) {
  const double now = clock_seconds(), wait = console->terminal ? REDRAW_SECONDS : PLAIN_SECONDS;
  if (console->work != work->name) {
    console->work = work->name;
    console->work_began = now;
    console->work_shown = false;
    console->drawn_at = console->terminal ? now + WORK_DELAY - wait : now;
  }
  if (console->quiet || now - console->drawn_at < wait) return;
  char line[LINE_LIMIT];
  const size_t width = (size_t)line_width(console);
  console_format_work(line, sizeof line, work, now - console->work_began);
  if (width && strlen(line) > width) line[width] = '\0';
  draw_line(console, line, now);
  console->work_shown = console->terminal;
}

void console_work_end(Console *console) {
  if (console->work_shown) clear_line(console);
  console->work_shown = false;
  console->work = NULL;
  console->drawn_at = -1;
}

/* Returns whether the text begins with a command of the program, alone or after a pipe. */
static bool is_command(const char *text, const char *program) {
  const ShellWord name = program_name(program);
  const size_t size = strlen(name.text);
  const char *pipe = strstr(text, " | ");
  return (strncmp(text, name.text, size) == 0 && text[size] == ' ') || (pipe && is_command(pipe + 3, program));
}

/* Returns where the command begins that ends a message; NULL: it has none. */
static char *find_command(char *text) {
  char *end = NULL;
  for (char *colon = text; (colon = strstr(colon, ": ")); colon++) end = colon + 2;
  return end && (is_command(end, "train") || is_command(end, "generate")) ? end : NULL;
}

/* Prints `text` and a newline; `column` is the cursor's. On a terminal it is folded at spaces, except for a final
 * command, which is meant to be copied. */
static void print_folded(const Console *console, char *text, int column, int indent) {
  const int width = line_width(console);
  if (width == 0 || column + utf8_characters(text) <= width || strchr(text, '\n')) {
    fprintf(console->stream, "%s\n", text);
    return;
  }
  char *command = find_command(text);
  if (command) command[-1] = '\0';
  text_print_wrapped(console->stream, text, column, indent, width);
  if (command) fprintf(console->stream, "%*s%s\n", indent, "", command);
}

/* Prints `head`, which takes `columns`, and a text that is folded, unless there is no head. */
static void print_after(Console *console, const char *head, int columns, int indent, const char *format,
                        va_list arguments) {
  char row[ROW_LIMIT], *text = row;
  va_list again;
  va_copy(again, arguments);
  const int size = vsnprintf(row, sizeof row, format, arguments);
  if (size >= ROW_LIMIT && (text = malloc((size_t)size + 1))) vsnprintf(text, (size_t)size + 1, format, again);
  va_end(again);
  if (!text) text = row; /* out of memory: print only the beginning */
  text_make_visible(text);
  clear_line(console);
  fputs(head, console->stream);
  if (*head) print_folded(console, text, columns, indent);
  else fprintf(console->stream, "%s\n", text);
  if (text != row) free(text);
  fflush(console->stream);
  console->drawn_at = -1; /* the next update draws the line again */
}

static void print_message(Console *console, const char *prefix, const char *color, const char *format,
                          va_list arguments) {
  char head[80];
  snprintf(head, sizeof head, "%s%s:%s ", console->color ? color : "", prefix, console->color ? "\033[0m" : "");
  print_after(console, head, (int)strlen(prefix) + 2, MESSAGE_INDENT, format, arguments);
}

void console_silence(Console *console) { console->quiet = console->silent = true; }

void console_warning(Console *console, const char *format, ...) {
  va_list arguments;
  if (console->silent) return;
  va_start(arguments, format);
  print_message(console, "warning", "\033[33m", format, arguments);
  va_end(arguments);
}

void console_note(Console *console, const char *format, ...) {
  va_list arguments;
  if (console->quiet) return;
  va_start(arguments, format);
  print_message(console, "note", "\033[36m", format, arguments);
  va_end(arguments);
}

void console_line(Console *console, const char *format, ...) {
  va_list arguments;
  if (console->quiet) return;
  va_start(arguments, format);
  print_after(console, "", 0, 0, format, arguments);
  va_end(arguments);
}

void console_row(Console *console, const char *name, const char *format, ...) {
  enum { NAME_COLUMNS = 9 };
  char head[80];
  va_list arguments;
  if (console->quiet) return;
  snprintf(head, sizeof head, "%-*s", NAME_COLUMNS, name);
  va_start(arguments, format);
  print_after(console, head, NAME_COLUMNS, NAME_COLUMNS, format, arguments);
  va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void print_error(Console *console, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_message(console, console->program, "\033[31m", format, arguments);
  va_end(arguments);
}

void console_error(Console *console, const Error *error) {
  print_error(console, "%s", error->text[0] ? error->text : "unknown error");
}

void console_open_page(Console *console, const char *path) {
  const char *cause = system_open_page(path);
  if (cause) console_warning(console, "%s; open %s yourself", cause, text_one_line(path, 250).text);
}
