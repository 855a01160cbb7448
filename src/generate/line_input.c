#include "generate/line_input.h"

#include "cli/startup.h"
#include "text/dataset/line.h"
#include "base/array.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef INKLING_LIBEDIT
#include <dlfcn.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#endif

enum { READ_BYTES = 1 << 16, LINE_LIMIT = 64 << 20, REFUSALS_NAMED = 5 };

bool line_input_open(LineInput *out, const char *path, TextCheck *check, Error *error) {
  const bool standard = !path || path_is_stdin(path);
  *out = (LineInput){
      .fd = standard ? STDIN_FILENO : open(path, O_RDONLY), .name = path_shown(path ? path : "-"), .check = check};
  return out->fd >= 0 || fail(error, EXIT_INPUT, "cannot read %s: %s", path, strerror(errno));
}

/* Waits for input or its end; returns as poll(). */
static int wait_at_most(int fd, int milliseconds) {
  struct pollfd input = {.fd = fd, .events = POLLIN};
  return poll(&input, 1, milliseconds);
}

/* The same without a limit; returns false when a signal asks to stop. A signal interrupts no call of this thread, so
 * the loop checks for one. */
static bool wait_for(int fd) {
  while (!stop_signal)
    if (wait_at_most(fd, 100) != 0) return true;
  return false;
}

static bool read_more(LineInput *in, Error *error) {
  if (in->bytes && in->used > 0) memmove(in->bytes, in->bytes + in->used, in->size - in->used);
  in->size -= in->used;
  in->used = 0;
  if (in->size > LINE_LIMIT)
    return fail(error, EXIT_INPUT, "%s:%" PRId64 ": the line is longer than %d bytes", in->name, in->taken + 1,
                LINE_LIMIT);
  if (!array_reserve(&in->bytes, &in->capacity, in->size + READ_BYTES, 1)) return error_memory(error, "a line");
  const ssize_t got = read(in->fd, in->bytes + in->size, READ_BYTES);
  if (got < 0 && errno != EINTR) return fail(error, EXIT_INPUT, "cannot read %s: %s", in->name, strerror(errno));
  in->ended = got == 0;
  in->size += got > 0 ? (size_t)got : 0;
  return true;
}

/* Checks what was read until the first line was whole. */
static bool begin_text(LineInput *in, Error *error) {
  in->used = utf8_mark(in->bytes, in->size);
  return !in->check ||
         text_check(in->check, in->bytes, in->size, in->fd == STDIN_FILENO ? "-" : in->name, in->ended, error);
}

bool line_input_next(LineInput *in, bool wait, const uint8_t **line, size_t *size, Error *error) {
  for (size_t looked = 0;;) {
    const size_t waiting = in->bytes ? in->size - in->used : 0;
    const uint8_t *begin = in->bytes ? in->bytes + in->used : NULL;
    const uint8_t *end = waiting > looked ? memchr(begin + looked, '\n', waiting - looked) : NULL;
    *line = NULL;
    if (!end && !in->ended) {
      looked = waiting;
      if (!wait && wait_at_most(in->fd, 0) <= 0) return true;
      wait_for(in->fd);
      if (!startup_go_on("reading lines", error) || !read_more(in, error)) return false;
      continue;
    }
    if (!in->taken && !in->used && !begin_text(in, error)) return false;
    if (in->used == in->size) return true;
    *line = line_take(in->bytes, in->size, &in->used, size);
    in->taken++;
    return true;
  }
}

void line_input_refuse(LineInput *in, Console *console, const char *why) {
  if (++in->refused <= REFUSALS_NAMED) console_warning(console, "%s:%" PRId64 ": %s", in->name, in->taken, why);
}

bool line_input_check(const LineInput *in, const char *have, Error *error) {
  return !in->refused || fail(error, EXIT_INPUT, "%" PRId64 " of %s %s; the warnings say why%s", in->refused,
                              text_plural((double)in->taken, "line").text, have,
                              in->refused > REFUSALS_NAMED ? " for the first five" : "");
}

/* ---- libedit ---- */

#ifdef INKLING_LIBEDIT

#define LIBEDIT_FUNCTIONS(F)                                                                                           \
  F(el_init) F(el_end) F(el_set) F(el_gets) F(el_source) F(history) F(history_init) F(history_end)

/* There is one, for standard input. */
static struct {
  void *library;
  EditLine *edit; /* NULL: not open */
  History *lines;
  int failed; /* errno of reading from the terminal */
#define POINTER(name) __typeof__(name) *name;
  LIBEDIT_FUNCTIONS(POINTER)
#undef POINTER
} editor;

static bool load(void) {
  static const char *const names[] = {"libedit.so.2", "libedit.so.0", "libedit.so", "libedit.dylib"};
  for (size_t i = 0; !editor.library && i < sizeof names / sizeof *names; i++)
    editor.library = dlopen(names[i], RTLD_NOW);
  const struct {
    const char *name;
    void *pointer;
#define ROW(name) {#name, &editor.name},
  } functions[] = {LIBEDIT_FUNCTIONS(ROW)};
#undef ROW
  for (size_t i = 0; editor.library && i < sizeof functions / sizeof *functions; i++) {
    void *found = dlsym(editor.library, functions[i].name);
    if (!found) return false;
    memcpy(functions[i].pointer, &found, sizeof found);
  }
  return editor.library;
}

/* Reads a character from the terminal; invalid UTF-8 becomes U+FFFD. A signal ends the line. */
static int read_character(EditLine *edit, wchar_t *out) {
  uint8_t bytes[4];
  uint32_t point = 0xFFFD;
  (void)edit;
  for (size_t size = 0, length = 0; size < sizeof bytes && !length && (!size || utf8_complete(bytes, size) < size);) {
    if (!wait_for(STDIN_FILENO)) return -1;
    const ssize_t got = read(STDIN_FILENO, bytes + size, 1);
    if (got < 0) editor.failed = errno;
    if (got <= 0) return (int)got;
    length = utf8_read(bytes, ++size, &point);
  }
  *out = (wchar_t)point;
  return 1;
}

static char *prompt(EditLine *edit) {
  static char text[] = "> ";
  (void)edit;
  return text;
}

/* libedit edits characters beyond ASCII only in a UTF-8 locale. */
static void take_locale(void) {
  setlocale(LC_CTYPE, "");
  if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/* Sets *edits unless the library is missing. */
static bool open_libedit(bool *edits, Error *error) {
  HistEvent event;
  if (!load()) return true;
  take_locale();
  editor.edit = editor.el_init("generate", stdin, stderr, stderr);
  editor.lines = editor.edit ? editor.history_init() : NULL;
  if (!editor.lines) return error_memory(error, "a line");
  editor.history(editor.lines, &event, H_SETSIZE, 1000);
  editor.history(editor.lines, &event, H_SETUNIQUE, 1);
  editor.el_set(editor.edit, EL_SIGNAL, 0);
  editor.el_set(editor.edit, EL_EDITOR, "emacs");
  editor.el_set(editor.edit, EL_HIST, editor.history, editor.lines);
  editor.el_set(editor.edit, EL_PROMPT, prompt);
  editor.el_set(editor.edit, EL_GETCFN, read_character);
  editor.el_source(editor.edit, NULL); /* ~/.editrc, if there is one */
  return *edits = true;
}

/* The library stays loaded, because it keeps data about terminals until the program ends. */
static void close_libedit(void) {
  if (editor.lines) editor.history_end(editor.lines);
  if (editor.edit) editor.el_end(editor.edit);
}

static bool edit_line(const uint8_t **line, size_t *size, Error *error) {
  HistEvent event;
  int count = 0;
  editor.failed = 0;
  editor.el_set(editor.edit, EL_PREP_TERM, 1); /* before the prompt; otherwise an early Ctrl-D becomes a zero byte */
  const char *text = editor.el_gets(editor.edit, &count);
  if (!text || count <= 0)
    return !editor.failed || fail(error, EXIT_INPUT, "cannot read the terminal: %s", strerror(editor.failed));
  *line = (const uint8_t *)text;
  *size = (size_t)count - (text[count - 1] == '\n');
  if (*size) editor.history(editor.lines, &event, H_ENTER, text);
  return true;
}

#else

static bool open_libedit(bool *edits, Error *error) { return (void)edits, (void)error, true; }
static void close_libedit(void) {}
static bool edit_line(const uint8_t **line, size_t *size, Error *error) {
  return (void)line, (void)size, (void)error, false;
}

#endif

/* ---- a session ---- */

bool line_input_open_session(LineInput *out, Error *error) {
  if (!line_input_open(out, NULL, NULL, error)) return false;
  out->terminal = isatty(STDIN_FILENO);
  return !out->terminal || open_libedit(&out->edits, error);
}

void line_input_close(LineInput *in) {
  if (in->terminal) close_libedit();
  if (in->fd > STDIN_FILENO) close(in->fd);
  free(in->bytes);
  *in = (LineInput){.fd = -1};
}

bool line_input_ask(LineInput *in, const uint8_t **line, size_t *size, Error *error) {
  *line = NULL;
  if (in->edits) return edit_line(line, size, error);
  if (in->terminal) fputs("> ", stderr);
  Error stopped = {0};
  if (line_input_next(in, true, line, size, &stopped)) return true;
  return stop_signal || fail(error, stopped.code, "%s", stopped.text);
}
