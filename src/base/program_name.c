#include "base/program_name.h"

#include "base/path.h"

#include <stdio.h>
#include <string.h>

static const char *name_of_this = "./";
static const char *command; /* that of `inkling`; NULL: this is ./train or ./generate */

void program_name_set(const char *called) {
  if (called && *called) name_of_this = called;
}

void program_name_set_command(const char *called) { command = called && *called ? called : "inkling"; }

const char *program_name_called(void) { return command ? command : name_of_this; }

bool program_name_is_command(void) { return command != NULL; }

/* Returns the length of the text before "train" or "generate": a directory, and a prefix if the programs were
 * renamed. */
static size_t prefix_size(const char *called) {
  static const char *const programs[] = {"train", "generate"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (text_ends_with(called, programs[i])) return strlen(called) - strlen(programs[i]);
  return (size_t)(path_base(called) - called);
}

static ShellWord two_words(const char *name, const char *program) {
  enum { PROGRAM_BYTES = 16 };
  ShellWord out = text_shell_word(name, ONE_LINE_BYTES - PROGRAM_BYTES);
  text_append(out.text, sizeof out.text, " %s", program);
  return out;
}

ShellWord program_name(const char *program) {
  char path[ONE_LINE_BYTES];
  if (command) return two_words(command, program);
  snprintf(path, sizeof path, "%.*s%s", (int)prefix_size(name_of_this), name_of_this, program);
  return text_shell_word(path, sizeof path - 1);
}

ShellWord program_name_elsewhere(const char *program) {
  char path[ONE_LINE_BYTES];
  if (command) return two_words("inkling", program);
  snprintf(path, sizeof path, "./%s", program);
  return text_shell_word(path, sizeof path - 1);
}
