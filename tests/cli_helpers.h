/* What the tests of cli/ share: a file for a test, and what it holds as text. */
#ifndef INKLING_TESTS_CLI_HELPERS_H
#define INKLING_TESTS_CLI_HELPERS_H

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TEXT_BYTES = 1 << 16, PATH_BYTES = 64 };

/* Makes an empty file. */
static inline void make_file(char path[PATH_BYTES]) {
  snprintf(path, PATH_BYTES, "/tmp/inkling-cli-XXXXXX");
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
}

/* A file for a test that needs nothing else. */
typedef struct Scratch {
  char path[PATH_BYTES];
  Error error;
} Scratch;

static inline int make_scratch(void **state) {
  Scratch *f = calloc(1, sizeof *f);
  assert_non_null(f);
  make_file(f->path);
  *state = f;
  return 0;
}

static inline int remove_scratch(void **state) {
  Scratch *f = *state;
  unlink(f->path);
  free(f);
  return 0;
}

#define WITH_SCRATCH(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)

static inline void put_text(const char *path, const char *text) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  fputs(text, stream);
  assert_int_equal(fclose(stream), 0);
}

static inline char *get_text(const char *path) {
  static char text[TEXT_BYTES];
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  text[fread(text, 1, sizeof text - 1, stream)] = '\0';
  fclose(stream);
  return text;
}

#endif
