#include "generating/line_editor.h"

#include "cli/startup.h"
#include "generating/line_input.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef INKLING_LIBEDIT
#include <dlfcn.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>

#define LIBEDIT_FUNCTIONS(F)                                                                                           \
  F(el_init) F(el_end) F(el_set) F(el_gets) F(el_source) F(history) F(history_init) F(history_end)
#endif

struct LineEditor {
  LineInput input; /* used without libedit */
  bool terminal;
  int failed; /* errno of reading from the terminal */
#ifdef INKLING_LIBEDIT
  void *library;
  EditLine *edit; /* NULL: lines come from `input` */
  History *lines;
#define POINTER(name) __typeof__(name) *name;
  LIBEDIT_FUNCTIONS(POINTER)
#undef POINTER
#endif
};

#ifdef INKLING_LIBEDIT

/* ---- libedit ---- */

static bool load(LineEditor *e) {
  static const char *const names[] = {"libedit.so.2", "libedit.so.0", "libedit.so", "libedit.dylib"};
  for (size_t i = 0; !e->library && i < sizeof names / sizeof *names; i++) e->library = dlopen(names[i], RTLD_NOW);
  const struct {
    const char *name;
    void *pointer;
#define ROW(name) {#name, &e->name},
  } functions[] = {LIBEDIT_FUNCTIONS(ROW)};
#undef ROW
  for (size_t i = 0; e->library && i < sizeof functions / sizeof *functions; i++) {
    void *found = dlsym(e->library, functions[i].name);
    if (!found) return false;
    memcpy(functions[i].pointer, &found, sizeof found);
  }
  return e->library;
}

static LineEditor *reading; /* the editor that libedit's calls belong to; there is one standard input */

/* Reads a character from the terminal; invalid UTF-8 becomes U+FFFD. A signal ends the line. */
static int read_character(EditLine *edit, wchar_t *out) {
  uint8_t bytes[4];
  uint32_t point = 0xFFFD;
  (void)edit;
  for (size_t size = 0, length = 0; size < sizeof bytes && !length && (!size || utf8_complete(bytes, size) < size);) {
    if (!line_input_wait(STDIN_FILENO)) return -1;
    const ssize_t got = read(STDIN_FILENO, bytes + size, 1);
    if (got < 0) reading->failed = errno;
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

static bool open_libedit(LineEditor *e, Error *error) {
  HistEvent event;
  if (!load(e)) return true;
  take_locale();
  reading = e;
  e->edit = e->el_init("generate", stdin, stderr, stderr);
  e->lines = e->edit ? e->history_init() : NULL;
  if (!e->lines) return error_memory(error, "a line");
  e->history(e->lines, &event, H_SETSIZE, 1000);
  e->history(e->lines, &event, H_SETUNIQUE, 1);
  e->el_set(e->edit, EL_SIGNAL, 0);
  e->el_set(e->edit, EL_EDITOR, "emacs");
  e->el_set(e->edit, EL_HIST, e->history, e->lines);
  e->el_set(e->edit, EL_PROMPT, prompt);
  e->el_set(e->edit, EL_GETCFN, read_character);
  e->el_source(e->edit, NULL); /* ~/.editrc, if there is one */
  return true;
}

/* The library stays loaded, because it keeps data about terminals until the program ends. */
static void close_libedit(LineEditor *e) {
  if (e->lines) e->history_end(e->lines);
  if (e->edit) e->el_end(e->edit);
}

static bool edit_line(LineEditor *e, const uint8_t **line, size_t *size, Error *error) {
  HistEvent event;
  int count = 0;
  e->failed = 0;
  e->el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt; otherwise an early Ctrl-D becomes a zero byte */
  const char *text = e->el_gets(e->edit, &count);
  if (!text || count <= 0)
    return !e->failed || fail(error, EXIT_INPUT, "cannot read the terminal: %s", strerror(e->failed));
  *line = (const uint8_t *)text;
  *size = (size_t)count - (text[count - 1] == '\n');
  if (*size) e->history(e->lines, &event, H_ENTER, text);
  return true;
}

#else

static bool open_libedit(LineEditor *e, Error *error) { return (void)e, (void)error, true; }
static void close_libedit(LineEditor *e) { (void)e; }

#endif

/* ---- either ---- */

bool line_editor_open(LineEditor **out, Error *error) {
  LineEditor *e = *out = calloc(1, sizeof *e);
  if (!e) return error_memory(error, "a line");
  e->terminal = isatty(STDIN_FILENO);
  return (!e->terminal || open_libedit(e, error)) && line_input_open(&e->input, NULL, error);
}

void line_editor_close(LineEditor *e) {
  if (!e) return;
  close_libedit(e);
  line_input_close(&e->input);
  free(e);
}

bool line_editor_is_terminal(const LineEditor *e) { return e->terminal; }

bool line_editor_edits(const LineEditor *e) {
#ifdef INKLING_LIBEDIT
  return e->edit;
#else
  return (void)e, false;
#endif
}

bool line_editor_read(LineEditor *e, const uint8_t **line, size_t *size, Error *error) {
  *line = NULL;
#ifdef INKLING_LIBEDIT
  if (e->edit) return edit_line(e, line, size, error);
#endif
  if (e->terminal) fputs("> ", stderr);
  Error stopped = {0};
  if (line_input_next(&e->input, true, line, size, &stopped)) return true;
  return stop_signal || fail(error, stopped.code, "%s", stopped.text);
}
