#include "dataset/record.h"

#include "util/array.h"
#include "util/json.h"
#include "util/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_SHOWN = 8, KEY_SHOWN = 40 /* bytes */ };

/* ---- records ---- */

/* Clears the document and keeps the memory for the next line. */
static void clear(Record *record) {
  json_decref(record->root);
  record->root = NULL;
  record->text = NULL;
  record->size = record->prompt = 0;
}

/* Sets the text to the prompt followed by the response. */
static bool join(Record *record, const void *prompt, size_t prompt_size, const void *response, size_t response_size,
                 Error *error) {
  const size_t size = prompt_size + response_size;
  if (!array_reserve(&record->joined, &record->capacity, size, 1))
    return fail(error, EXIT_MEMORY, "out of memory for a document of %zu bytes", size);
  if (prompt_size > 0) memcpy(record->joined, prompt, prompt_size);
  if (response_size > 0) memcpy(record->joined + prompt_size, response, response_size);
  record->text = record->joined;
  record->size = size;
  record->prompt = prompt_size;
  return true;
}

void record_free(Record *record) {
  clear(record);
  free(record->joined);
  *record = (Record){0};
}

/* "data.jsonl, line 3" */
typedef struct LineName {
  char text[ONE_LINE_BYTES + 32];
} LineName;

static LineName line_name(const char *file, int64_t line) {
  LineName name;
  snprintf(name.text, sizeof name.text, "%s, line %lld", text_one_line(file, 250).text, (long long)line);
  return name;
}

/* ---- JSON lines ---- */

/* Returns whether a line has only spaces, tabs and carriage returns. */
static bool is_blank(const uint8_t *line, size_t size) {
  size_t at = 0;
  while (at < size && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) at++;
  return at == size;
}

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

static json_t *parse_object(const uint8_t *line, size_t size, const char *file, int64_t number, Error *error) {
  json_error_t cause;
  /* Numbers are not used. As doubles they cannot be "too big": unsigned 64-bit ids are common. */
  const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
  json_t *root = json_parse(line, size, flags, &cause, file, error);
  if (!root) {
    fail(error, EXIT_INPUT, "%s, is not valid JSON: %s (at column %d); every line must be one whole JSON object",
         line_name(file, number).text, text_one_line(cause.text, 160).text, cause.column);
    return NULL;
  }
  if (json_is_object(root)) return root;
  fail(error, EXIT_INPUT, "%s, is %s; every line must be one JSON object", line_name(file, number).text, kind_of(root));
  json_decref(root);
  return NULL;
}

/* Lists the first keys of an object: "content", "id", ... */
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

/* Returns the string of a field, or NULL with the error. `option` is the option that selects another field. */
static const json_t *string_field(json_t *root, const char *name, const char *option, const char *file, int64_t number,
                                  Error *error) {
  const json_t *value = json_object_get(root, name);
  if (json_is_string(value)) return value;
  OneLine shown = text_one_line(name, KEY_SHOWN);
  if (value) {
    fail(error, EXIT_INPUT, "%s: the field \"%s\" is %s, not a string; %s names another", line_name(file, number).text,
         shown.text, kind_of(value), option);
    return NULL;
  }
  char keys[KEYS_SHOWN * (KEY_SHOWN + 4) + 8];
  list_keys(keys, sizeof keys, root);
  fail(error, EXIT_INPUT, "%s, has no field \"%s\"; it has %s: %s names another", line_name(file, number).text,
       shown.text, keys, option);
  return NULL;
}

bool record_parse_jsonl(Record *record, const RecordFields *fields, const uint8_t *line, size_t size, const char *file,
                        int64_t number, Error *error) {
  clear(record);
  if (is_blank(line, size)) return true;
  if (size > JSONL_LINE_LIMIT)
    return fail(error, EXIT_INPUT,
                "%s, has more than the %zu bytes that a line may have; split it into several objects",
                line_name(file, number).text, JSONL_LINE_LIMIT);
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
  if (prompt)
    return join(record, json_string_value(prompt), json_string_length(prompt), json_string_value(text),
                json_string_length(text), error);
  record->text = (const uint8_t *)json_string_value(text);
  record->size = json_string_length(text);
  return true;
}

/* ---- TSV ---- */

bool record_parse_tsv(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number,
                      Error *error) {
  clear(record);
  if (size > 0 && line[size - 1] == '\r') size--;
  if (size == 0) return true;
  const uint8_t *tab = memchr(line, '\t', size);
  if (!tab)
    return fail(error, EXIT_INPUT, "%s, has one column; a line of a .tsv file is a prompt, a tab and a response",
                line_name(file, number).text);
  const uint8_t *response = tab + 1;
  const size_t left = size - (size_t)(response - line);
  const uint8_t *next = memchr(response, '\t', left);
  return join(record, line, (size_t)(tab - line), response, next ? (size_t)(next - response) : left, error);
}

/* ---- FASTA ---- */

static bool add_sequence(Record *record, const uint8_t *line, size_t size, Error *error) {
  if (!array_reserve(&record->joined, &record->capacity, record->size + size, 1))
    return fail(error, EXIT_MEMORY, "out of memory for a sequence of more than %zu bytes", record->size);
  for (size_t i = 0; i < size; i++)
    if (!strchr(" \t\r\v\f", line[i]) || !line[i]) record->joined[record->size++] = line[i];
  record->text = record->joined;
  return true;
}

bool record_parse_fasta(Record *record, const uint8_t *text, size_t size, size_t *bytes, int64_t *lines, Error *error) {
  clear(record);
  *lines = 0;
  size_t at = 0, length;
  for (; at < size; at += length, ++*lines) {
    const bool header = text[at] == '>' || text[at] == ';';
    const uint8_t *newline = memchr(text + at, '\n', size - at);
    length = newline ? (size_t)(newline - text) - at + 1 : size - at;
    if (header && record->size > 0) break;
    if (!header && !add_sequence(record, text + at, newline ? length - 1 : length, error)) return false;
  }
  *bytes = at;
  return true;
}
