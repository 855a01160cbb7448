#include "util/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_is_stdin(const char *path) { return strcmp(path, "-") == 0; }

const char *path_shown(const char *path) { return path_is_stdin(path) ? "standard input" : path; }

bool path_is_writable(const char *path) { return access(path_directory(path).text, W_OK | X_OK) == 0; }

char *path_last_name(const char *path) {
  char *real = realpath(path, NULL);
  char *out = real || errno != ENOMEM ? strdup(path_base(real && path_base(real)[0] ? real : path)) : NULL;
  free(real);
  return out;
}

PathText path_in(const char *dir, const char *name) {
  const size_t length = strlen(dir);
  PathText path;
  snprintf(path.text, sizeof path.text, "%s%s%s", dir, length == 0 || dir[length - 1] == '/' ? "" : "/", name);
  return path;
}

const char *path_base(const char *path) {
  const char *slash = strrchr(path, '/');
  return !slash ? path : slash + 1;
}

PathText path_directory(const char *path) {
  const int length = (int)(path_base(path) - path);
  PathText dir;
  snprintf(dir.text, sizeof dir.text, "%.*s", length > 0 ? length : 1, length > 0 ? path : ".");
  return dir;
}

static bool same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool path_same(const char *a, const char *b) {
  if (strcmp(a, b) == 0 || same_file(a, b)) return true;
  return strcmp(path_base(a), path_base(b)) == 0 && same_file(path_directory(a).text, path_directory(b).text);
}
