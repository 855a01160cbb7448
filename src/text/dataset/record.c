#include "text/dataset/record.h"

#include "text/dataset/conversation.h"
#include "text/dataset/line.h"
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* ---- records ---- */

/* Clears the document and keeps the memory for the next line. */
static void clear(Record *record) {
  json_decref(record->root);
  record->root = NULL;
  record->text = NULL;
  record->size = record->prompt = record->turn_count = 0;
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
  free(record->turns);
  *record = (Record){0};
}

/* ---- conversations ---- */

void record_begin_turns(Record *record) {
  record->size = record->prompt = record->turn_count = 0;
  record->text = NULL;
}

bool record_add_turn(Record *record, ChatRole role, const void *text, size_t size, Error *error) {
  const size_t count = record->turn_count;
  const bool joins = count > 0 && record->turns[count - 1].role == role;
  if (!array_reserve(&record->joined, &record->capacity, record->size + size + 2, 1) ||
      !array_reserve(&record->turns, &record->turn_capacity, count + 1, sizeof *record->turns))
    return fail(error, EXIT_MEMORY, "out of memory for a conversation of more than %zu bytes", record->size);
  if (joins) record->joined[record->size++] = '\n';
  if (size > 0) memcpy(record->joined + record->size, text, size);
  record->size += size;
  if (joins) record->turns[count - 1].size += size + 1;
  else record->turns[record->turn_count++] = (ChatTurn){.role = role, .size = size};
  return true;
}

void record_end_turns(Record *record) {
  const uint8_t *text = record->text = record->joined;
  for (size_t i = 0; i < record->turn_count; text += record->turns[i++].size) record->turns[i].text = text;
}

/* ---- JSON lines ---- */

/* Returns the string of a field, or NULL with the error. `option` is the option that selects another field. */
static const json_t *string_field(json_t *root, const char *name, const char *option, const char *file, int64_t number,
                                  Error *error) {
  const json_t *value = json_object_get(root, name);
  if (json_is_string(value)) return value;
  const OneLine shown = text_one_line(name, LINE_KEY_BYTES);
  const LineKeys texts = line_keys(root, true), all = line_keys(root, false);
  if (value)
    fail(error, EXIT_INPUT, "%s: the field \"%s\" is %s, not a string", line_name(file, number).text, shown.text,
         line_kind(value));
  else fail(error, EXIT_INPUT, "%s, has no field \"%s\"", line_name(file, number).text, shown.text);
  if (*texts.text) error_append(error, "; use %s to choose a field with text: %s", option, texts.text);
  else if (*all.text) error_append(error, "; the object has no field with text, only %s", all.text);
  else error_append(error, "; the object is empty");
  return NULL;
}

bool record_parse_jsonl(Record *record, const RecordFields *fields, const uint8_t *line, size_t size, const char *file,
                        int64_t number, Error *error) {
  clear(record);
  if (line_is_blank(line, size)) return true;
  record->root = line_object(line, size, file, number, error);
  if (!record->root) return false;
  const bool chosen = fields->named && json_is_string(json_object_get(record->root, fields->text));
  if (fields->conversations && !chosen && conversation_is(record->root))
    return conversation_take(record, record->root, true, file, number, error);
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

/* ---- a JSON array ---- */

const uint8_t *record_json_element(const uint8_t *text, size_t size, size_t *at, size_t *length) {
  size_t begin = *at, end, depth = 0;
  bool quoted = false;
  while (begin < size && strchr(" \t\r\n,[]", text[begin]) && text[begin]) begin++;
  for (end = begin; end < size; end++) {
    const uint8_t byte = text[end];
    if (quoted && byte == '\\') end++;
    else if (byte == '"') quoted = !quoted;
    else if (quoted) continue;
    else if (byte == '{' || byte == '[') depth++;
    else if (!depth && (byte == ',' || byte == ']')) break;
    else if ((byte == '}' || byte == ']') && (!depth || !--depth)) {
      end++;
      break;
    }
  }
  if (end > size) end = size;
  *at = end;
  *length = end - begin;
  return begin < size ? text + begin : NULL;
}

/* ---- TSV ---- */

bool record_parse_tsv(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number,
                      Error *error) {
  clear(record);
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

static bool is_of_sequence(uint8_t byte) { return !strchr(" \t\r\n\v\f", byte) || !byte; }

static bool add_sequence(Record *record, const uint8_t *line, size_t size, Error *error) {
  if (!array_reserve(&record->joined, &record->capacity, record->size + size, 1))
    return fail(error, EXIT_MEMORY, "out of memory for a sequence of more than %zu bytes", record->size);
  for (size_t i = 0; i < size; i++)
    if (is_of_sequence(line[i])) record->joined[record->size++] = line[i];
  record->text = record->joined;
  return true;
}

bool record_parse_fasta(Record *record, const uint8_t *text, size_t size, size_t *bytes, int64_t *lines, Error *error) {
  clear(record);
  *lines = 0;
  size_t at = 0, length;
  for (; at < size; at += length, ++*lines) {
    const bool header = record_is_fasta_header(text[at]);
    const uint8_t *newline = memchr(text + at, '\n', size - at);
    length = newline ? (size_t)(newline - text) - at + 1 : size - at;
    if (header && record->size > 0) break;
    if (!header && !add_sequence(record, text + at, newline ? length - 1 : length, error)) return false;
  }
  *bytes = at;
  return true;
}

int64_t record_fasta_lines_before(const uint8_t *text, size_t size, size_t at) {
  int64_t lines = 0;
  bool header = false;
  for (const uint8_t *byte = text; byte < text + size; byte++) {
    if (byte == text || byte[-1] == '\n') header = record_is_fasta_header(*byte);
    lines += *byte == '\n';
    if (!header && is_of_sequence(*byte) && at-- == 0) break;
  }
  return lines;
}
