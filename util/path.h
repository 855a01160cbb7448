/* Paths. What is returned in fresh memory is the caller's to free, and NULL when memory is out. */
#ifndef INKLING_UTIL_PATH_H
#define INKLING_UTIL_PATH_H

#include <stdbool.h>

bool path_is_stdin(const char *path);               /* "-" */
const char *path_shown(const char *path);           /* for messages: "standard input", or the path itself */
bool path_same(const char *a, const char *b);       /* of the same file, whether there is one or not */
bool path_is_writable(const char *path);            /* a file may be made there, as far as permissions say */
char *path_last_name(const char *path);             /* what the file or directory there is called, in fresh memory */
char *path_join(const char *dir, const char *name); /* dir + "/" + name in fresh memory */

/* The same as a value. */
typedef struct PathText {
  char text[4097]; /* PATH_MAX and one more: a name that is cut to fit is still too long for any system call */
} PathText;
PathText path_in(const char *dir, const char *name);

const char *path_base(const char *path); /* what follows the last slash, inside `path` */
char *path_directory(const char *path);  /* the part before it, "." where there is none, in fresh memory */

#endif
