/* Questions about paths that only the file system can answer. */
#include "base/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_is_writable(const char *path) { return access(path_directory(path).text, W_OK | X_OK) == 0; }

char *path_last_name(const char *path) {
  char *real = realpath(path, NULL);
  char *out = real || errno != ENOMEM ? strdup(path_base(real && path_base(real)[0] ? real : path)) : NULL;
  free(real);
  return out;
}

static bool same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool path_same(const char *a, const char *b) {
  if (strcmp(a, b) == 0 || same_file(a, b)) return true;
  return strcmp(path_base(a), path_base(b)) == 0 && same_file(path_directory(a).text, path_directory(b).text);
}
