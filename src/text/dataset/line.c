#include "text/dataset/line.h"

#include <stdio.h>
#include <string.h>

LineName line_name(const char *file, int64_t number) {
  LineName name;
  snprintf(name.text, sizeof name.text, "%s, line %lld", text_one_line(file, 250).text, (long long)number);
  return name;
}

const uint8_t *line_take(const uint8_t *text, size_t size, size_t *at, size_t *length) {
  const uint8_t *line = text + *at, *newline = memchr(line, '\n', size - *at);
  *length = newline ? (size_t)(newline - line) : size - *at;
  *at += *length + (newline != NULL);
  if (*length && line[*length - 1] == '\r') --*length;
  return line;
}

bool line_is_blank(const uint8_t *line, size_t size) {
  size_t at = 0;
  while (at < size && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) at++;
  return at == size;
}

json_t *line_value(const json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

const char *line_kind(const json_t *value) {
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

json_t *line_object(const uint8_t *line, size_t size, const char *file, int64_t number, Error *error) {
  json_error_t cause;
  if (size > JSONL_LINE_LIMIT) {
    fail(error, EXIT_INPUT, "%s, has more than the %zu bytes that a line may have; split it into several objects",
         line_name(file, number).text, JSONL_LINE_LIMIT);
    return NULL;
  }
  /* As doubles, numbers cannot be "too big": unsigned 64-bit ids are common. */
  const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
  json_t *root = json_parse(line, size, flags, &cause, file, error);
  if (!root) {
    fail(error, EXIT_INPUT, "%s, is not valid JSON: %s (at column %d); every line must be one whole JSON object",
         line_name(file, number).text, text_one_line(cause.text, 160).text, cause.column);
    return NULL;
  }
  if (json_is_object(root)) return root;
  fail(error, EXIT_INPUT, "%s, is %s; every line must be one JSON object", line_name(file, number).text,
       line_kind(root));
  json_decref(root);
  return NULL;
}

LineKeys line_keys(json_t *object, bool strings) {
  LineKeys out = {""};
  int count = 0;
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    if (strings && !json_is_string(value)) continue;
    const char *gap = count > 0 ? ", " : "";
    if (count++ == LINE_KEYS) {
      text_append(out.text, sizeof out.text, ", ...");
      break;
    }
    text_append(out.text, sizeof out.text, "%s\"%s\"", gap, text_one_line(key, LINE_KEY_BYTES).text);
  }
  return out;
}
