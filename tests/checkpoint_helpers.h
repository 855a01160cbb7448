/* What the tests of files/ and base/file share: a fresh directory for every test, whole files, expected errors. */
#ifndef INKLING_TESTS_CHECKPOINT_HELPERS_H
#define INKLING_TESTS_CHECKPOINT_HELPERS_H

#include "base/file.h"
#include "base/path.h"

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- a fresh directory for every test, its name in *state ---- */

static inline int make_scratch(void **state) {
  const char *base = getenv("TMPDIR");
  char *dir = strdup(path_in(base ? base : "/tmp", "inkling-checkpoint.XXXXXX").text);
  *state = dir;
  return dir && mkdtemp(dir) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static inline int remove_scratch(void **state) {
  int result = nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  free(*state);
  return result;
}

typedef struct Path {
  char text[512];
} Path;

static inline Path at(void **state, const char *name) {
  Path path;
  snprintf(path.text, sizeof path.text, "%s/%s", (const char *)*state, name);
  return path;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)

/* ---- whole files, expected errors ---- */

static inline void put(const char *path, const void *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
}

/* The whole file in fresh memory, with a NUL behind it. */
static inline uint8_t *get(const char *path, size_t *size) {
  Error error = {0};
  MappedFile file;
  if (!file_map(&file, path, EXIT_INPUT, &error)) fail_msg("%s", error.text);
  uint8_t *copy = calloc(file.size + 1, 1);
  assert_non_null(copy);
  if (file.size > 0) memcpy(copy, file.bytes, file.size);
  *size = file.size;
  file_unmap(&file);
  return copy;
}

static inline int entries(const char *dir) {
  DIR *d = opendir(dir);
  assert_non_null(d);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(d));)
    count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  closedir(d);
  return count;
}

static inline void expect_error(bool done, const Error *error, ExitCode code, const char *text) {
  if (done) fail_msg("accepted; expected an error with \"%s\"", text);
  if (!strstr(error->text, text)) fail_msg("expected \"%s\" in \"%s\"", text, error->text);
  assert_int_equal(error->code, code);
}

static inline void expect_done(bool done, const Error *error) {
  if (!done) fail_msg("%s", error->text);
  assert_int_equal(error->code, EXIT_DONE);
}

/* Limits the size of files until the result is set again: the nearest thing to a full disk that needs no file system of
 * its own. */
static inline struct rlimit limit_file_size(rlim_t bytes) {
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, SIG_IGN);
  return before;
}

/* ---- safetensors, byte by byte ---- */

#define T(dtype, shape, begin, end)                                                                                    \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static inline void put_safetensors(const char *path, const char *header, int64_t claimed, const void *data,
                                   size_t data_size) {
  static const uint8_t zeros[64];
  size_t length = strlen(header);
  uint64_t size = claimed == -1 ? length : (uint64_t)claimed;
  uint8_t *bytes = malloc(8 + length + data_size);
  assert_non_null(bytes);
  memcpy(bytes, &size, 8);
  memcpy(bytes + 8, header, length);
  memcpy(bytes + 8 + length, data ? data : zeros, data_size);
  put(path, bytes, 8 + length + data_size);
  free(bytes);
}

#endif
