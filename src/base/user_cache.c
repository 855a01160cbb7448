#include "base/user_cache.h"

#include "base/file.h"
#include "base/path.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns the directory of all programs; "": there is none. */
static PathText cache_home(void) {
  const char *named = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (named && *named == '/') return path_in(named, ""); /* the specification ignores relative paths */
  return home && *home == '/' ? path_in(home, ".cache") : (PathText){""};
}

char *user_cache_read(const char *name) {
  const PathText home = cache_home();
  return *home.text ? file_read_text(path_in(path_in(home.text, "inkling").text, name).text, 1 << 20) : NULL;
}

void user_cache_write(const char *name, const char *text) {
  const PathText home = cache_home(), dir = path_in(home.text, "inkling");
  Error ignored = {0};
  if (!*home.text) return;
  mkdir(home.text, 0700);
  mkdir(dir.text, 0700);
  file_write_in(dir.text, name, text, strlen(text), &ignored);
}
