#include "base/path.h"

#include <stdio.h>
#include <string.h>

bool path_is_stdin(const char *path) { return strcmp(path, "-") == 0; }

const char *path_shown(const char *path) { return path_is_stdin(path) ? "standard input" : path; }

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
