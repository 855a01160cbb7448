/* Values of tokenizer.json, and what to say where they are not as expected. */
#include "tokenizer/internal.h"

#include "util/file.h"
#include "util/json.h"
#include "util/path.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool json_refuse(const TokenizerReader *r, const char *reason) {
  return fail(r->error, EXIT_CHECKPOINT, "%s: %s", r->path, reason);
}

bool json_unsupported(const TokenizerReader *r, const char *format, ...) {
  char what[300];
  va_list values;
  va_start(values, format);
  vsnprintf(what, sizeof what, format, values);
  va_end(values);
  return fail(r->error, EXIT_CHECKPOINT,
              "%s: %s; supported are BPEs of bytes (GPT-2, Llama 3, Qwen) and of characters with byte_fallback "
              "(Llama 2)",
              r->path, what);
}

/* NULL-safe: jansson's accessors return NULL for an object that is not one. */
bool json_is_absent(const json_t *value) { return !value || json_is_null(value); }

bool json_has_text(const json_t *object, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(object, key));
  return value && strcmp(value, text) == 0;
}

const char *json_type_name(const json_t *object) {
  const char *type = json_string_value(json_object_get(object, "type"));
  return type ? type : json_is_absent(object) ? "null" : "unknown";
}

int32_t json_id(const json_t *value) {
  const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  return id >= 0 && id < JSON_ID_LIMIT ? (int32_t)id : -1;
}

json_t *json_read_beside(const char *path, const char *name) {
  enum { LIMIT = 16 << 20 };
  MappedFile file = {0};
  Error ignored = {0};
  json_t *root = NULL;
  char *dir = path_directory(path), *beside = dir ? path_join(dir, name) : NULL;
  if (beside && file_map(&file, beside, EXIT_CHECKPOINT, &ignored)) {
    if (file.size > 0 && file.size < LIMIT) root = json_parse(file.bytes, file.size, 0, NULL, beside, &ignored);
    file_unmap(&file);
  }
  free(beside);
  free(dir);
  return root;
}
