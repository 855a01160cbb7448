/* What the tests of text/tokenizer/tokenizer and tokenizer_json share: a directory for every test, and files that are
 * changed. */
#ifndef INKLING_TESTS_TOKENIZER_HELPERS_H
#define INKLING_TESTS_TOKENIZER_HELPERS_H

#include "text/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct Fixture {
  char dir[64];
  char path[128], config[128]; /* dir/tokenizer.json, dir/tokenizer_config.json */
  Tokenizer *tokenizer;
} Fixture;

static inline int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-tokenizer-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  snprintf(f->path, sizeof f->path, "%s/tokenizer.json", f->dir);
  snprintf(f->config, sizeof f->config, "%s/tokenizer_config.json", f->dir);
  f->tokenizer = tokenizer_byte();
  assert_non_null(f->tokenizer);
  *state = f;
  return 0;
}

static inline int tear_down(void **state) {
  Fixture *f = *state;
  unlink(f->path);
  unlink(f->config);
  rmdir(f->dir);
  tokenizer_free(f->tokenizer);
  free(f);
  return 0;
}

static inline json_t *saved_json(const Fixture *f) {
  Error error = {0};
  assert_true(tokenizer_save(f->tokenizer, f->dir, 64, &error));
  json_t *root = json_load_file(f->path, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(root);
  return root;
}

static inline void expect_refused(const Fixture *f, const char *what, const char *part) {
  Error error = {0};
  Tokenizer *loaded = (Tokenizer *)&error;
  bool ok = tokenizer_load(&loaded, f->path, &error);
  if (ok || error.code != EXIT_CHECKPOINT || !strstr(error.text, part))
    fail_msg("%s: ok %d, code %d, \"%s\" lacks \"%s\"", what, ok, error.code, error.text, part);
  assert_null(loaded);
}

/* A change at a path like "model.merges" (list entries as numbers), to the value in JSON; "-" deletes. */
static inline void change(json_t *root, const char *path, const char *value) {
  char name[64];
  json_t *at = root;
  const char *dot;
  while ((dot = strchr(path, '.'))) {
    snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
    path = dot + 1;
  }
  if (strcmp(value, "-") == 0) {
    assert_int_equal(json_object_del(at, path), 0);
  } else {
    json_t *fresh = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(fresh);
    assert_int_equal(json_object_set_new(at, path, fresh), 0);
  }
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
