#include "dataset/jsonl.h"

#include "util/array.h"
#include "util/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_SHOWN = 8, KEY_SHOWN = 40 /* bytes */ };

/* Where a message says to look: "data.jsonl, line 3". */
typedef struct Place {
  char text[ONE_LINE_BYTES + 32];
} Place;

static Place place_of(const char *file, int64_t number) {
  Place place;
  snprintf(place.text, sizeof place.text, "%s, line %lld", text_one_line(file, 250).text, (long long)number);
  return place;
}

bool jsonl_blank(const uint8_t *line, size_t size) {
  size_t at = 0;
  while (at < size && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) at++;
  return at == size;
}

/* ---- one object ---- */

static const char *kind_of(const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "an array";
  case JSON_STRING: return "a string";
  case JSON_INTEGER:
  case JSON_REAL: return "a number";
  case JSON_TRUE: return "true";
  case JSON_FALSE: return "false";
  default: return "null";
  }
}

static bool broken(const json_error_t *cause, const char *file, int64_t number, Error *error) {
  /* jansson reports a failed allocation by its code, or by an empty text. */
  if (json_error_code(cause) == json_error_out_of_memory || cause->text[0] == '\0')
    return fail(error, EXIT_MEMORY, "out of memory while reading %s", place_of(file, number).text);
  return fail(error, EXIT_INPUT, "%s, is not valid JSON: %s (at column %d); every line must be one whole JSON object",
              place_of(file, number).text, text_one_line(cause->text, 160).text, cause->column);
}

static json_t *parse_object(const uint8_t *line, size_t size, const char *file, int64_t number, Error *error) {
  json_error_t cause;
  /* Numbers are not looked at, and as doubles they cannot be "too big": unsigned 64-bit ids are common. */
  const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
  json_t *root = json_loadb((const char *)line, size, flags, &cause);
  if (!root) {
    broken(&cause, file, number, error);
    return NULL;
  }
  if (json_is_object(root)) return root;
  fail(error, EXIT_INPUT, "%s, is %s; every line must be one JSON object", place_of(file, number).text, kind_of(root));
  json_decref(root);
  return NULL;
}

/* ---- its fields ---- */

/* "content", "id", ...: the first few. */
static void list_keys(char *out, size_t size, json_t *object) {
  size_t used = 0;
  int count = 0;
  const char *key;
  json_t *value;
  snprintf(out, size, "no fields at all");
  json_object_foreach(object, key, value) {
    const char *gap = count > 0 ? ", " : "";
    int length = count == KEYS_SHOWN
                     ? snprintf(out + used, size - used, ", ...")
                     : snprintf(out + used, size - used, "%s\"%s\"", gap, text_one_line(key, KEY_SHOWN).text);
    if (count++ == KEYS_SHOWN || length < 0 || (size_t)length >= size - used) return;
    used += (size_t)length;
  }
}

/* The string of a field; NULL with the error. `option` is what chooses another field. */
static const json_t *string_field(json_t *root, const char *name, const char *option, const char *file, int64_t number,
                                  Error *error) {
  const json_t *value = json_object_get(root, name);
  if (json_is_string(value)) return value;
  OneLine shown = text_one_line(name, KEY_SHOWN);
  if (value) {
    fail(error, EXIT_INPUT, "%s: the field \"%s\" is %s, not a string; %s names another", place_of(file, number).text,
         shown.text, kind_of(value), option);
    return NULL;
  }
  char keys[KEYS_SHOWN * (KEY_SHOWN + 4) + 8];
  list_keys(keys, sizeof keys, root);
  fail(error, EXIT_INPUT, "%s, has no field \"%s\"; it has %s: %s names another", place_of(file, number).text,
       shown.text, keys, option);
  return NULL;
}

/* Prompt and response side by side. */
static bool join(JsonlRecord *record, const json_t *prompt, const json_t *text, Error *error) {
  size_t before = json_string_length(prompt), after = json_string_length(text), size = before + after;
  if (!array_reserve(&record->joined, &record->capacity, size, 1))
    return fail(error, EXIT_MEMORY, "out of memory for a document of %zu bytes", size);
  if (before > 0) memcpy(record->joined, json_string_value(prompt), before);
  if (after > 0) memcpy(record->joined + before, json_string_value(text), after);
  record->text = record->joined;
  record->size = size;
  record->prompt = before;
  return true;
}

bool jsonl_parse(JsonlRecord *record, const JsonlFields *fields, const uint8_t *line, size_t size, const char *file,
                 int64_t number, Error *error) {
  record->text = NULL;
  record->size = record->prompt = 0;
  json_decref(record->root);
  record->root = NULL;
  if (size > JSONL_LINE_LIMIT)
    return fail(error, EXIT_INPUT,
                "%s, has more than the %zu bytes that a line may have; split it into several objects",
                place_of(file, number).text, JSONL_LINE_LIMIT);
  record->root = parse_object(line, size, file, number, error);
  if (!record->root) return false;
  const char *option = fields->prompt ? "--response-field" : "--jsonl-field";
  const json_t *prompt = NULL;
  if (fields->prompt) {
    prompt = string_field(record->root, fields->prompt, "--prompt-field", file, number, error);
    if (!prompt) return false;
  }
  const json_t *text = string_field(record->root, fields->text, option, file, number, error);
  if (!text) return false;
  if (prompt) return join(record, prompt, text, error);
  record->text = (const uint8_t *)json_string_value(text);
  record->size = json_string_length(text);
  return true;
}

void jsonl_free(JsonlRecord *record) {
  json_decref(record->root);
  free(record->joined);
  *record = (JsonlRecord){0};
}
