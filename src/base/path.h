/* Paths. */
#ifndef INKLING_BASE_PATH_H
#define INKLING_BASE_PATH_H

#include <stdbool.h>

bool path_is_stdin(const char *path);         /* "-" */
const char *path_shown(const char *path);     /* for messages: "standard input", or the path itself */
bool path_same(const char *a, const char *b); /* both name the same file, which need not exist */
bool path_is_writable(const char *path);      /* permissions allow creating a file there */
char *path_last_name(const char *path);       /* the name of the file or directory there, for free();
                                                       NULL when memory is out */

/* A path as a value. */
typedef struct PathText {
  char text[4097]; /* PATH_MAX and one more: a name that is cut to fit is still too long for any system call */
} PathText;
PathText path_in(const char *dir, const char *name); /* dir + "/" + name */
PathText path_directory(const char *path);           /* the part before the last slash, or "." */

const char *path_base(const char *path); /* the part after the last slash, inside `path` */

#endif
