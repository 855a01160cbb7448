#include "util/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_is_stdin(const char *path) { return strcmp(path, "-") == 0; }

const char *path_shown(const char *path) { return path_is_stdin(path) ? "standard input" : path; }

bool path_is_writable(const char *path) {
  char *dir = path_directory(path);
  const bool ok = dir && access(dir, W_OK | X_OK) == 0;
  free(dir);
  return ok;
}

char *path_last_name(const char *path) {
  char *real = realpath(path, NULL);
  char *out = real || errno != ENOMEM ? strdup(path_base(real && path_base(real)[0] ? real : path)) : NULL;
  free(real);
  return out;
}

char *path_join(const char *dir, const char *name) {
  size_t length = strlen(dir), name_length = strlen(name);
  bool slash = length > 0 && dir[length - 1] != '/';
  char *path = malloc(length + (slash ? 1 : 0) + name_length + 1);
  if (!path) return NULL;
  memcpy(path, dir, length);
  if (slash) path[length++] = '/';
  memcpy(path + length, name, name_length + 1);
  return path;
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

char *path_directory(const char *path) {
  size_t length = (size_t)(path_base(path) - path);
  char *dir = malloc(length + 2);
  if (!dir) return NULL;
  memcpy(dir, length > 0 ? path : ".", length > 0 ? length : 1);
  dir[length > 0 ? length : 1] = '\0';
  return dir;
}

static bool same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool path_same(const char *a, const char *b) {
  if (strcmp(a, b) == 0 || same_file(a, b)) return true;
  if (strcmp(path_base(a), path_base(b)) != 0) return false;
  char *one = path_directory(a), *other = path_directory(b);
  const bool same = one && other && same_file(one, other);
  free(one);
  free(other);
  return same;
}
