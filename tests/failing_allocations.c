/* Memory that runs out on purpose, for tests/failures.py: linked into programs whose calls of malloc() and the like go
 * through the functions below (ld's --wrap). INKLING_FAIL_ALLOCATION=N in the environment: the N-th allocation of the
 * process fails, all others are as they were; 0: none does. At its end the process writes how many there were into the
 * file INKLING_COUNT_ALLOCATIONS. Functions of the C library that allocate count as an allocation each. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long count;
static long failing;

static void write_count(void) {
  const char *path = getenv("INKLING_COUNT_ALLOCATIONS");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file, "%ld\n", atomic_load(&count));
  fclose(file);
}

/* What libraries allocate before main() does not count: CUDA's registers its kernels. */
int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);
int __wrap_main(int argc, char **argv) {
  const char *number = getenv("INKLING_FAIL_ALLOCATION");
  failing = number ? strtol(number, NULL, 10) : 0;
  atomic_store(&count, 0);
  atexit(write_count);
  return __real_main(argc, argv);
}

static int fails(void) {
  if (atomic_fetch_add(&count, 1) + 1 != failing) return 0;
  errno = ENOMEM;
  return 1;
}

#define WRAP(RESULT, NAME, FAILED, PARAMETERS, ARGUMENTS)                                                              \
  RESULT __real_##NAME PARAMETERS;                                                                                     \
  RESULT __wrap_##NAME PARAMETERS;                                                                                     \
  RESULT __wrap_##NAME PARAMETERS { return fails() ? FAILED : __real_##NAME ARGUMENTS; }

WRAP(void *, malloc, NULL, (size_t size), (size))
WRAP(void *, calloc, NULL, (size_t items, size_t size), (items, size))
WRAP(void *, realloc, NULL, (void *old, size_t size), (old, size))
WRAP(void *, aligned_alloc, NULL, (size_t alignment, size_t size), (alignment, size))
WRAP(char *, strdup, NULL, (const char *text), (text))
WRAP(char *, strndup, NULL, (const char *text, size_t size), (text, size))
WRAP(char *, realpath, NULL, (const char *path, char *out), (path, out))
WRAP(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
WRAP(FILE *, fdopen, NULL, (int fd, const char *mode), (fd, mode))
WRAP(FILE *, open_memstream, NULL, (char **text, size_t *size), (text, size))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP(int, scandir, -1,
     (const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, names, filter, compare))
WRAP(char *, mkdtemp, NULL, (char *path), (path))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument),
     (thread, attributes, start, argument))
