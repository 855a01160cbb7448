/* Finds documents in records: JSON that is not JSON lines, JSON lines under another name, and CSV. */
#include "text/doctor/findings.h"

#include "text/dataset/conversation.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  NAME_BYTES = 64,   /* longest name of a field that is reported */
  MOST_FIELDS = 50,  /* an object with more of them is no record */
  LARGEST = 1 << 20, /* longest value that is parsed, in bytes: its tree takes about 20 times as much memory */
};

/* ---- the fields of a record ---- */

static bool has_text(const json_t *record, const char *field) { return json_is_string(json_object_get(record, field)); }

/* Returns the first of the names, which end with NULL, that the record has, but not `other`; NULL: none. */
static const char *find_field(const json_t *record, const char *const *names, const char *other) {
  for (; *names; names++)
    if (has_text(record, *names) && !(other && strcmp(*names, other) == 0)) return *names;
  return NULL;
}

/* Returns the field with the longest text; NULL: no field has a text. */
static const char *longest_field(json_t *record) {
  const char *name, *out = NULL;
  json_t *value;
  size_t longest = 0;
  json_object_foreach(record, name, value) {
    if (!json_is_string(value) || json_string_length(value) < longest) continue;
    longest = json_string_length(value);
    out = name;
  }
  return out;
}

static bool can_be_shown(const char *name) {
  for (const char *c = name; *c; c++)
    if ((uint8_t)*c < ' ') return false;
  return strlen(name) <= NAME_BYTES;
}

/* Makes jq print pairs. */
__attribute__((format(printf, 2, 3))) static void make_pairs(Finding *finding, const char *filter, ...) {
  char *command = finding->command;
  const size_t size = sizeof finding->command;
  va_list arguments;
  *command = '\0';
  text_append(command, size, "jq -c '");
  va_start(arguments, filter);
  text_append_list(command, size, filter, arguments);
  va_end(arguments);
  text_append(command, size, "' @");
  strcpy(finding->options, " --prompt-field prompt --response-field response");
  finding->makes_fields = true;
  finding->replaces = false;
}

/* Sets the options that read the fields: a prompt and its response, else the longest text. If a prompt is in two
 * fields, jq joins them. `path`: jq's expression for the records. Returns whether the records are pairs. */
static bool set_fields(Finding *finding, json_t *record, const char *path) {
  static const char *const prompts[] = {"prompt", "instruction", "question", "query", "input", "source", NULL},
                           *const more[] = {"input", "context", NULL}, *const responses[] = {"response", "completion",
                                                                                             "output",   "answer",
                                                                                             "chosen",   "target",
                                                                                             NULL};
  const char *prompt = find_field(record, prompts, NULL), *response = find_field(record, responses, NULL);
  const char *second = prompt ? find_field(record, more, prompt) : NULL, *longest = longest_field(record);
  char *options = finding->options;
  if (!prompt || !response) {
    if (!longest || !can_be_shown(longest)) longest = "text";
    snprintf(options, sizeof finding->options, " --jsonl-field %.300s", text_shell_word(longest, NAME_BYTES).text);
    return false;
  }
  strcpy(finding->prompt, prompt);
  strcpy(finding->response, response);
  if (second)
    make_pairs(finding, "%s{prompt:([.%s,.%s|strings|select(.!=\"\")+\"\\n\"]|add//\"\"),response:.%s}", path, prompt,
               second, response);
  else snprintf(options, sizeof finding->options, " --prompt-field %s --response-field %s", prompt, response);
  return true;
}

/* ---- lists of records ---- */

static bool is_record(const json_t *value) { return json_object_size(value) > 0; }

/* A name that jq takes without quotes. */
static bool is_plain_name(const char *name) {
  for (const char *c = name; *c; c++)
    if (!doctor_is_letter((uint8_t)*c) && *c != '_') return false;
  return *name && strlen(name) < NAME_BYTES;
}

/* Returns the first field whose value is an array of objects or strings; NULL: none, or jq would need quotes. */
static const char *list_field(json_t *object) {
  const char *name;
  json_t *value;
  json_object_foreach(object, name, value) {
    const json_t *first = json_array_get(value, 0);
    if (json_is_object(first) || json_is_string(first)) return is_plain_name(name) ? name : NULL;
  }
  return NULL;
}

/* Sets the options that read the records. A conversation is read as it is, if it has no text. */
static void set_record(Finding *finding, json_t *object, const char *path) {
  if (conversation_is(object)) strcpy(finding->options, " --jsonl-field text");
  else set_fields(finding, object, path);
}

/* ---- JSON ---- */

enum { VARIANT_ARRAY, VARIANT_INSIDE, VARIANT_STRINGS, VARIANT_OBJECTS, VARIANT_OBJECT };

static Finding *add_json(const DoctorView *view, Findings *out, int variant, const char *what, const char *command) {
  Finding *finding = doctor_add(out, FINDING_JSON, variant, command, "%s", what);
  if (view->format == FORMAT_JSONL) finding->level = FINDING_REFUSED; /* the reader of JSON lines would refuse it */
  return finding;
}

/* Adds an array that begins with `first`, an object or a string. `path`: jq's expression for the array. */
static bool add_array(const DoctorView *view, json_t *first, int variant, const char *path, Findings *out) {
  char command[200], records[80], what[160];
  const bool strings = json_is_string(first);
  if (!strings && !is_record(first)) return false;
  snprintf(what, sizeof what, "it looks like a JSON array of %s%s, not like plain text or JSON lines",
           strings ? "strings" : "objects", path[1] ? " in an object" : "");
  snprintf(command, sizeof command, "jq -c '%s[]%s' @", path, strings ? "|{text:.}" : "");
  snprintf(records, sizeof records, "%s[]|", path);
  Finding *finding = add_json(view, out, strings ? VARIANT_STRINGS : variant, what, command);
  if (!strings) set_record(finding, first, records);
  else strcpy(finding->options, " --jsonl-field text");
  finding->makes_fields = finding->makes_fields || strings;
  return true;
}

/* Adds the fields of JSON lines that are pairs. The first line tells. Conversations are read as they are. */
static bool add_fields(json_t *object, Findings *out) {
  if (conversation_is(object)) return false;
  Finding *finding = doctor_add(out, FINDING_FIELDS, 0, "cat @", "its records are pairs");
  finding->format = FORMAT_JSONL;
  if (!set_fields(finding, object, "")) {
    out->count--;
    return false;
  }
  snprintf(finding->what, sizeof finding->what, "its records have \"%s\" and \"%s\"", finding->prompt,
           finding->response);
  if (!has_text(object, "text")) finding->level = FINDING_REFUSED;
  return true;
}

static bool add_one_object(Findings *out) {
  Finding *finding = doctor_add(out, FINDING_JSON, VARIANT_OBJECT, "jq -r '.. | strings' @",
                                "it looks like one JSON object, not like plain text or JSON lines");
  finding->advice = "extract its strings";
  finding->format = FORMAT_TEXT;
  return true;
}

/* Adds what begins with an object. `alone`: nothing follows it. */
static bool add_object(const DoctorView *view, json_t *object, bool one_line, bool alone, Findings *out) {
  const char *list = list_field(object);
  char path[NAME_BYTES + 2];
  if (!is_record(object)) return false;
  if (view->format == FORMAT_JSONL) return one_line && add_fields(object, out);
  const bool is_chat = conversation_is(object);
  if (alone && list && !is_chat) {
    snprintf(path, sizeof path, ".%s", list);
    return add_array(view, json_array_get(json_object_get(object, list), 0), VARIANT_INSIDE, path, out);
  }
  if (alone && !is_chat && (!longest_field(object) || json_object_size(object) > MOST_FIELDS))
    return add_one_object(out);
  Finding *finding =
      one_line ? doctor_add(out, FINDING_JSON_LINES, 0, "cat @",
                            "it looks like JSON lines and is read as plain text (names of files of JSON lines end in "
                            ".jsonl)")
               : add_json(view, out, VARIANT_OBJECTS,
                          "it looks like JSON objects over many lines, not like plain text or JSON lines", "jq -c . @");
  set_record(finding, object, "");
  return true;
}

/* Parses the JSON value at the beginning, and sets *used to its size. NULL: it is not JSON, or (*longer) it does not
 * end in these bytes. */
static json_t *first_value(const uint8_t *bytes, size_t size, size_t *used, bool *longer) {
  json_error_t problem = {0};
  Error memory = {0}; /* then nothing is found */
  const size_t flags = JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
  json_t *out = json_parse(bytes, utf8_complete(bytes, size), flags, &problem, "a text", &memory);
  *used = out ? (size_t)problem.position : 0;
  *longer = !out && json_error_code(&problem) == json_error_premature_end_of_input;
  return out;
}

bool doctor_find_json(const DoctorView *view, Findings *out) {
  const DoctorSample *s = &view->samples[0];
  const size_t begin = doctor_skip_blanks(s->bytes, s->size);
  if (begin == s->size || (s->bytes[begin] != '[' && s->bytes[begin] != '{')) return false;
  const bool array = s->bytes[begin] == '[', text = view->format == FORMAT_TEXT;
  const uint8_t *at = s->bytes + begin + array, *end = view->bytes + view->size;
  const size_t sample = s->size - begin - array, left = (size_t)(end - at), limit = left < LARGEST ? left : LARGEST;
  bool longer, found = false;
  size_t used;
  json_t *value = first_value(at, sample, &used, &longer);
  if (longer && sample < limit) value = first_value(at, limit, &used, &longer);
  const uint8_t *rest = at + used;
  rest += doctor_skip_blanks(rest, (size_t)(end - rest));
  if (array && value)
    found = (rest == end || *rest == ',' || *rest == ']') && add_array(view, value, VARIANT_ARRAY, ".", out);
  else if (value) found = add_object(view, value, !memchr(at, '\n', used), rest == end, out);
  else if (text && longer && !array && left > LARGEST) found = add_one_object(out);
  json_decref(value);
  return found;
}

/* ---- CSV ---- */

bool doctor_find_csv(const DoctorView *view, Findings *out) {
  if (!text_ends_with(view->name, ".csv")) return false;
  Finding *finding = doctor_add(out, FINDING_CSV, 0,
                                "python3 -c 'import csv,json; [print(json.dumps(r)) for r in "
                                "csv.DictReader(open(0,encoding=\"utf-8-sig\",newline=\"\"))]' <@",
                                "it is a table and is read as plain text, with its commas and quotation marks");
  strcpy(finding->options, " --jsonl-field COLUMN");
  return true;
}
