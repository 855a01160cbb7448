/* What a WebAssembly module has in place of the operating system: files in memory, one thread, and no clock. It takes
 * the places of base/file.c, base/system.c and base/threads.c. */
#include "tools/web/platform.h"

#include "base/file.h"
#include "base/system.h"
#include "base/threads.h"
#include "generate/pack.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- files ---- */

static const char *pack;
static size_t pack_size;

/* Returns the next entry, or NULL at the end; *at is the place of the entry after it. */
static const PackEntry *next_entry(size_t *at) {
  const PackEntry *entry = (const void *)(pack + *at);
  if (pack_size - *at < sizeof *entry || !entry->name[0] || !memchr(entry->name, '\0', sizeof entry->name)) return NULL;
  if (entry->size > pack_size || pack_padded(entry->size) > pack_size - *at - sizeof *entry) return NULL;
  *at += sizeof *entry + (size_t)pack_padded(entry->size);
  return entry;
}

bool platform_open_pack(const void *bytes, size_t size, Error *error) {
  size_t at = 0;
  pack = bytes;
  pack_size = size;
  while (next_entry(&at)) {
  }
  return (size - at == sizeof(PackEntry) && !pack[at + offsetof(PackEntry, name)]) ||
         fail(error, EXIT_CHECKPOINT, "the model's files are cut off at byte %zu", at);
}

const void *platform_find(const char *name, size_t *size) {
  size_t at = 0;
  name += strspn(name, "./"); /* of the directory, which is "" or "." */
  for (const PackEntry *entry; (entry = next_entry(&at));)
    if (strcmp(entry->name, name) == 0) {
      *size = (size_t)entry->size;
      return entry + 1;
    }
  return NULL;
}

bool file_map(MappedFile *out, const char *path, ExitCode code, Error *error) {
  out->bytes = platform_find(path, &out->size);
  return out->bytes || fail(error, code, "there is no %s", path);
}

void file_unmap(MappedFile *file) { *file = (MappedFile){0}; }

int64_t file_size(const char *path) {
  size_t size;
  return platform_find(path, &size) ? (int64_t)size : 0;
}

/* ---- memory ---- */

AvailableMemory memory_available(void) { return (AvailableMemory){INFINITY, INFINITY, NULL}; }

MemoryLimitText memory_limit_text(const AvailableMemory *available) {
  (void)available;
  return (MemoryLimitText){""};
}

void *memory_allocate(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return memory ? memset(memory, 0, bytes) : NULL;
}

void memory_release(void *memory, size_t bytes) {
  (void)bytes;
  free(memory);
}

/* ---- one thread ---- */

int threads_count(int wanted) {
  (void)wanted;
  return 1;
}

bool pool_open(Pool **out, int threads, Error *error) {
  (void)threads, (void)error;
  *out = NULL;
  return true;
}

void pool_close(Pool *pool) { (void)pool; }

void pool_run(Pool *pool, int count, int least, int most, PoolWork work, const void *job) {
  (void)pool, (void)least;
  for (int begin = 0; begin < count; begin += most) work(job, begin, count - begin < most ? count : begin + most, 0);
}

/* ---- no clock and no system calls ---- */

/* The page measures time. */
int clock_gettime(clockid_t clock, struct timespec *out) {
  (void)clock;
  *out = (struct timespec){0};
  return 0;
}

/* The seed of jansson's tables, which otherwise reads the clock. */
extern volatile uint32_t hashtable_seed;
volatile uint32_t hashtable_seed = 1;
void json_object_seed(size_t seed) { (void)seed; }

/* The C library's streams, which nothing uses, would import these system calls; a module without imports runs
 * anywhere. */
enum { NO_SYSTEM_CALL = 52 /* ENOSYS */ };
#define DEFINE(name, ...)                                                                                              \
  int __imported_wasi_snapshot_preview1_##name(__VA_ARGS__);                                                           \
  int __imported_wasi_snapshot_preview1_##name(__VA_ARGS__)
DEFINE(fd_close, int file) { return (void)file, NO_SYSTEM_CALL; }
DEFINE(fd_seek, int file, int64_t offset, int from, int out) {
  return (void)file, (void)offset, (void)from, (void)out, NO_SYSTEM_CALL;
}
DEFINE(fd_write, int file, int parts, int count, int out) {
  return (void)file, (void)parts, (void)count, (void)out, NO_SYSTEM_CALL;
}
