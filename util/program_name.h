/* How the programs were called, so that the commands in messages can be typed as they are: `./train ...`, `train ...`
 * from PATH, `/opt/inkling/train ...`. */
#ifndef INKLING_UTIL_PROGRAM_NAME_H
#define INKLING_UTIL_PROGRAM_NAME_H

#include "util/text.h"

/* argv[0], which is kept: once, at the start of main(), before there are threads. */
void program_name_set(const char *called);

/* "train" or "generate" as a word of a command line, called in the way this program was. Without a name that was set
 * it is in the current directory: "./train". */
ShellWord program_name(const char *program);

#endif
