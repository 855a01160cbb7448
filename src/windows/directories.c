/* Directories, and temporary files and directories. */
#include "windows/internal.h"

#include <dirent.h>

struct DIR {
  HANDLE search;
  WIN32_FIND_DATAW data;
  bool first; /* data has not been returned */
  struct dirent entry;
};

DIR *opendir(const char *path) {
  char pattern[WINDOWS_NAME + 2];
  struct stat st;
  if (stat(path, &st) != 0) return NULL;
  if (!S_ISDIR(st.st_mode)) return errno = ENOTDIR, NULL;
  DIR *dir = calloc(1, sizeof *dir);
  if (!dir) return NULL;
  snprintf(pattern, sizeof pattern, "%s/*", path);
  dir->search = FindFirstFileW(windows_path(pattern).text, &dir->data);
  dir->first = true;
  if (dir->search != INVALID_HANDLE_VALUE) return dir;
  windows_failed();
  free(dir);
  return NULL;
}

struct dirent *readdir(DIR *dir) {
  if (!dir->first && !FindNextFileW(dir->search, &dir->data)) return NULL;
  dir->first = false;
  windows_narrow(dir->data.cFileName, dir->entry.d_name, sizeof dir->entry.d_name);
  return &dir->entry;
}

int closedir(DIR *dir) {
  FindClose(dir->search);
  free(dir);
  return 0;
}

int alphasort(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int by_name(const void *a, const void *b) {
  return alphasort((const struct dirent **)(uintptr_t)a, (const struct dirent **)(uintptr_t)b);
}

/* In the order of names alone. When memory is out, so is the program. */
int scandir(const char *path, struct dirent ***out, int (*wanted)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **)) {
  size_t count = 0;
  DIR *dir = opendir(path);
  *out = NULL;
  (void)wanted, (void)compare;
  if (!dir) return -1;
  for (struct dirent *entry; (entry = readdir(dir)); count++) {
    struct dirent **larger = realloc(*out, (count + 1) * sizeof *larger);
    if (larger) *out = larger;
    if (!larger || !(larger[count] = malloc(sizeof *entry))) return closedir(dir), errno = ENOMEM, -1;
    *larger[count] = *entry;
  }
  closedir(dir);
  if (count) qsort(*out, count, sizeof **out, by_name);
  return (int)count;
}

/* ---- temporary files ---- */

/* Replaces the six letters at the end. Returns a descriptor, 0 for a directory, -1 with errno. */
static int make_temporary(char *pattern, bool directory) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  enum { RANDOM = 6, ATTEMPTS = 100 };
  unsigned char random[RANDOM];
  char *end = pattern + strlen(pattern) - RANDOM;
  int made = -1;
  for (int attempt = 0; made < 0 && attempt < ATTEMPTS; attempt++) {
    if (getentropy(random, sizeof random) != 0) return -1;
    for (int i = 0; i < RANDOM; i++) end[i] = letters[random[i] % (sizeof letters - 1)];
    made = directory ? mkdir(pattern, 0700) : open(pattern, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (made < 0 && errno != EEXIST) return -1;
  }
  return made;
}

int win_mkstemp(char *pattern) { return make_temporary(pattern, false); }
char *mkdtemp(char *pattern) { return make_temporary(pattern, true) < 0 ? NULL : pattern; }
