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

static int free_entries(struct dirent **entries, int count) {
  while (count > 0) free(entries[--count]);
  free(entries);
  return errno = ENOMEM, -1;
}

int scandir(const char *path, struct dirent ***out, int (*wanted)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **)) {
  struct dirent **entries = NULL;
  int count = 0;
  DIR *dir = opendir(path);
  (void)wanted, (void)compare;
  for (struct dirent *entry; dir && count >= 0 && (entry = readdir(dir));) {
    struct dirent **larger = realloc(entries, (size_t)(count + 1) * sizeof *entries), *copy = malloc(sizeof *copy);
    if (larger) entries = larger;
    if (larger && copy) *copy = *entry, entries[count++] = copy;
    else free(copy), count = free_entries(entries, count);
  }
  if (dir) closedir(dir);
  if (!dir || count < 0) return -1;
  if (count) qsort(entries, (size_t)count, sizeof *entries, by_name);
  *out = entries;
  return count;
}

/* ---- temporary files ---- */

/* Replaces the six letters at the end. */
static bool make_name(char *pattern, unsigned attempt) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  enum { RANDOM = 6, ATTEMPTS = 100 };
  unsigned char random[RANDOM];
  char *end = pattern + strlen(pattern) - RANDOM;
  if (attempt >= ATTEMPTS || getentropy(random, sizeof random) != 0) return false;
  for (int i = 0; i < RANDOM; i++) end[i] = letters[random[i] % (sizeof letters - 1)];
  return true;
}

int win_mkstemp(char *pattern) {
  for (unsigned attempt = 0; make_name(pattern, attempt); attempt++) {
    const int fd = open(pattern, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

char *mkdtemp(char *pattern) {
  for (unsigned attempt = 0; make_name(pattern, attempt); attempt++) {
    if (mkdir(pattern, 0700) == 0) return pattern;
    if (errno != EEXIST) return NULL;
  }
  return NULL;
}
