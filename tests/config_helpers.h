/* config.json of a test's directory, read and replaced. */
#ifndef INKLING_TESTS_CONFIG_HELPERS_H
#define INKLING_TESTS_CONFIG_HELPERS_H

#include "tests/checkpoint_helpers.h"

#include <jansson.h>

/* The text of config.json; the caller frees it. */
static inline char *config_text(void **state) {
  size_t size;
  return (char *)get(at(state, "config.json").text, &size);
}

static inline json_t *config_object(void **state) {
  char *text = config_text(state);
  json_t *root = json_loads(text, 0, NULL);
  assert_non_null(root);
  free(text);
  return root;
}

static inline void put_config(void **state, json_t *root) {
  char *text = json_dumps(root, 0);
  assert_non_null(text);
  put(at(state, "config.json").text, text, strlen(text));
  free(text);
}

#endif
