/* The names of the programs as the user called them, so that the user can type the commands in messages unchanged:
 * `./train ...`, `/opt/inkling/train ...`, `inkling train ...`. */
#ifndef INKLING_BASE_PROGRAM_NAME_H
#define INKLING_BASE_PROGRAM_NAME_H

#include "base/text.h"

/* Sets argv[0] and keeps the pointer. Call it at the start of main(), before threads start. */
void program_name_set(const char *called);

/* The same for the program `inkling`, whose first argument is "train" or "generate"; program_name_set() has no
 * effect then. */
void program_name_set_command(const char *called);

/* Returns the first word of the command line that has called this program: "./train" or "inkling". */
const char *program_name_called(void);
/* Returns whether this is the program `inkling`, whose second word is "train" or "generate". */
bool program_name_is_command(void);

/* Returns "train" or "generate" as the beginning of a command line, with the directory of this program's name. Without
 * program_name_set() it is in the current directory: "./train". */
ShellWord program_name(const char *program);

/* The same for files that may be read on another machine: "./train" or "inkling train". */
ShellWord program_name_elsewhere(const char *program);

#endif
