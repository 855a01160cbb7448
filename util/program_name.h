/* The names of the programs as the user called them, so that the user can type the commands in messages unchanged:
 * `./train ...`, `train ...` from PATH, `/opt/inkling/train ...`. */
#ifndef INKLING_UTIL_PROGRAM_NAME_H
#define INKLING_UTIL_PROGRAM_NAME_H

#include "util/text.h"

/* Sets argv[0] and keeps the pointer. Call it once, at the start of main(), before threads start. */
void program_name_set(const char *called);

/* Returns "train" or "generate" as a word of a command line, with the directory of this program's name. Without
 * program_name_set() it is in the current directory: "./train". */
ShellWord program_name(const char *program);

#endif
