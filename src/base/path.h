/* Paths. */
#ifndef INKLING_BASE_PATH_H
#define INKLING_BASE_PATH_H

#include <stdbool.h>

bool path_is_stdin(const char *path);     /* "-" */
const char *path_shown(const char *path); /* for messages: "standard input", or the path itself */

/* A path as a value. */
typedef struct PathText {
  char text[4097]; /* PATH_MAX and one more: a name that is cut to fit is still too long for any system call */
} PathText;
PathText path_in(const char *dir, const char *name); /* dir + "/" + name */
PathText path_directory(const char *path);           /* the part before the last slash, or "." */

const char *path_base(const char *path); /* the part after the last slash, inside `path` */

#endif
