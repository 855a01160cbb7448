#include "base/json.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __wasm__ /* without setjmp(): the program ends when memory is out */
typedef int jmp_buf[1];
#define setjmp(at) ((void)(at), 0)
#define longjmp(at, value) __builtin_trap()
#else
#include <setjmp.h>
#endif

static atomic_bool failed;
static _Thread_local jmp_buf *parsing; /* NULL: nothing is being parsed */

void *json_allocate(size_t size) {
  void *memory = malloc(size);
  if (memory) return memory;
  failed = true;
  if (parsing) longjmp(*parsing, 1);
  return NULL;
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(json_allocate, free); }

/* A failure leaks the values parsed so far, because the program then ends. */
json_t *json_parse(const void *text, size_t size, size_t flags, json_error_t *cause, const char *what, Error *error) {
  jmp_buf before;
  json_t *root = NULL;
  if (size && memchr(text, '\0', size)) { /* invalid in JSON, but jansson accepts it after a number */
    if (cause) *cause = (json_error_t){.text = "a zero byte"};
    return NULL;
  }
  if (setjmp(before) == 0) {
    parsing = &before;
    root = json_loadb(text, size, flags, cause);
  } else {
    if (cause) *cause = (json_error_t){0};
    error_memory(error, what);
  }
  parsing = NULL;
  return root;
}

bool json_memory_ok(Error *error, const char *what) { return !failed || error_memory(error, what); }

char *json_text(const json_t *value, size_t flags, const char *what, Error *error) {
  char *text = value && !failed ? json_dumps(value, flags) : NULL;
  if (text && !failed) return text;
  free(text);
  error_memory(error, what);
  return NULL;
}

char *json_value_text(const json_t *value, int digits) {
  const char *string = json_is_string(value) ? json_string_value(value) : "";
  if (value && !json_is_string(value) && !json_is_null(value))
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION((size_t)digits));
  char *text = json_allocate(strlen(string) + 1);
  return text ? strcpy(text, string) : NULL;
}
