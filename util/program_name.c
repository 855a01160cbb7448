#include "util/program_name.h"

#include "util/path.h"

#include <stdio.h>
#include <string.h>

static const char *name_of_this = "./";

void program_name_set(const char *called) {
  if (called && *called) name_of_this = called;
}

/* Returns the length of the text before "train" or "generate": a directory, and the prefix of installed programs. */
static size_t prefix_size(const char *called) {
  static const char *const programs[] = {"train", "generate"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
    if (text_ends_with(called, programs[i])) return strlen(called) - strlen(programs[i]);
  return (size_t)(path_base(called) - called);
}

ShellWord program_name(const char *program) {
  char path[ONE_LINE_BYTES];
  snprintf(path, sizeof path, "%.*s%s", (int)prefix_size(name_of_this), name_of_this, program);
  return text_shell_word(path, sizeof path - 1);
}
