/* Finds documents in records: JSON that is not JSON lines, JSON lines under another name, and CSV. */
#include "text/doctor/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  NAME_BYTES = 64, /* longest name of a field that is reported */
  MOST_FIELDS = 50 /* in a record */
};

typedef struct Name {
  char text[NAME_BYTES + 1]; /* "": none, or a name with escapes or control characters */
} Name;

static Name name_of(const uint8_t *bytes, size_t size) {
  Name out = {""};
  for (size_t i = 0; i < size; i++)
    if (i == NAME_BYTES || bytes[i] < ' ' || bytes[i] == '\\') return out;
  memcpy(out.text, bytes, size);
  return out;
}

/* ---- the fields of a record ---- */

/* The fields that have texts. */
typedef struct Fields {
  Name names[MOST_FIELDS]; /* the first ones */
  int count;
  Name longest; /* the field of the longest text */
} Fields;

static void add_field(Fields *fields, const Name *name) {
  if (fields->count < MOST_FIELDS) fields->names[fields->count++] = *name;
}

static bool has_field(const Fields *fields, const char *name) {
  for (int i = 0; i < fields->count; i++)
    if (strcmp(fields->names[i].text, name) == 0) return true;
  return false;
}

/* Returns the first of the names, which end with NULL, that the record has, but not `other`; NULL: none. */
static const char *find_field(const Fields *fields, const char *const *names, const char *other) {
  for (; *names; names++)
    if (has_field(fields, *names) && !(other && strcmp(*names, other) == 0)) return *names;
  return NULL;
}

/* Makes jq print pairs. `piped`: it reads what the command prints; otherwise it is the command. */
__attribute__((format(printf, 3, 4))) static void make_pairs(Finding *finding, bool piped, const char *filter, ...) {
  char *command = finding->command;
  const size_t size = sizeof finding->command;
  va_list arguments;
  if (!piped) *command = '\0';
  text_append(command, size, "%sjq -c '", piped ? " | " : "");
  va_start(arguments, filter);
  text_append_list(command, size, filter, arguments);
  va_end(arguments);
  text_append(command, size, "'%s", piped ? "" : " @");
  strcpy(finding->options, " --prompt-field prompt --response-field response");
  finding->makes_fields = true;
  finding->replaces = false;
}

/* Sets the options that read the fields: a prompt and its response, else the longest text. If a prompt is in two
 * fields, jq joins them. `path`: jq's expression for the records. Returns whether the records are pairs. */
static bool set_fields(Finding *finding, const Fields *fields, const char *path, bool piped) {
  static const char *const prompts[] = {"prompt", "instruction", "question", "query", "input", "source", NULL},
                           *const more[] = {"input", "context", NULL}, *const responses[] = {"response", "completion",
                                                                                             "output",   "answer",
                                                                                             "chosen",   "target",
                                                                                             NULL};
  const char *prompt = find_field(fields, prompts, NULL), *response = find_field(fields, responses, NULL);
  const char *second = prompt ? find_field(fields, more, prompt) : NULL;
  char *options = finding->options;
  if (!prompt || !response) {
    snprintf(options, sizeof finding->options, " --jsonl-field %.300s",
             fields->longest.text[0] ? text_shell_word(fields->longest.text, NAME_BYTES).text : "text");
    return false;
  }
  strcpy(finding->prompt, prompt);
  strcpy(finding->response, response);
  if (second)
    make_pairs(finding, piped, "%s{prompt:([.%s,.%s|strings|select(.!=\"\")+\"\\n\"]|add//\"\"),response:.%s}", path, prompt,
               second, response);
  else snprintf(options, sizeof finding->options, " --prompt-field %s --response-field %s", prompt, response);
  return true;
}

/* ---- JSON ---- */

typedef struct Json {
  const uint8_t *bytes;
  size_t size, at;
} Json;

static void skip_blanks(Json *j) { j->at += doctor_skip_blanks(j->bytes + j->at, j->size - j->at); }

/* Skips blanks. Returns whether the character follows. */
static bool is_next(Json *j, char c) {
  skip_blanks(j);
  return j->at < j->size && j->bytes[j->at] == (uint8_t)c;
}

/* Does the same, and skips the character. */
static bool take(Json *j, char c) {
  const bool next = is_next(j, c);
  j->at += next;
  return next;
}

/* Reads a string: its bytes between the quotes. Returns false when the sample ends in it. */
static bool read_string(Json *j, const uint8_t **text, size_t *length) {
  const size_t begin = ++j->at;
  while (j->at < j->size && j->bytes[j->at] != '"') j->at += j->bytes[j->at] == '\\' ? 2 : 1;
  if (j->at >= j->size) {
    j->at = j->size;
    return false;
  }
  *text = j->bytes + begin;
  *length = j->at++ - begin;
  return true;
}

/* Skips a value of any kind. Returns false when the sample ends in it. */
static bool skip_value(Json *j) {
  int depth = 0;
  for (; j->at < j->size;) {
    const uint8_t c = j->bytes[j->at];
    const uint8_t *text;
    size_t length;
    if (c == '"') {
      if (!read_string(j, &text, &length)) return false;
      if (depth == 0) return true;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    j->at++;
    if (depth == 0 && (c == '}' || c == ']')) return true;
  }
  return false;
}

typedef struct JsonObject {
  bool closed;    /* it ends in the sample */
  Fields texts;   /* the fields with strings */
  int fields;     /* number of fields */
  Name list;      /* the first field whose value is an array of objects or strings */
  size_t list_at; /* the offset of that array */
} JsonObject;

static void note_value(const Json *j, JsonObject *out, const Name *key, size_t *longest) {
  Json value = *j;
  const uint8_t *text;
  size_t length;
  const bool is_text = is_next(&value, '"') && read_string(&value, &text, &length);
  if (is_text) add_field(&out->texts, key);
  if (is_text && length >= *longest) {
    *longest = length;
    out->texts.longest = *key;
  }
  if (out->list.text[0] || !is_next(&value, '[')) return;
  const size_t at = value.at++;
  if (!is_next(&value, '{') && !is_next(&value, '"')) return;
  out->list = *key;
  out->list_at = at;
}

/* Reads an object from its bracket; a closed object is skipped. */
static JsonObject read_object(Json *j) {
  JsonObject out = {0};
  size_t longest = 0;
  const uint8_t *key;
  size_t length;
  j->at++;
  do {
    if (!is_next(j, '"') || !read_string(j, &key, &length) || !take(j, ':')) return out;
    out.fields++;
    const Name name = name_of(key, length);
    note_value(j, &out, &name, &longest);
    if (!skip_value(j)) return out;
  } while (take(j, ','));
  out.closed = take(j, '}');
  return out;
}

/* Returns jq's expression for a field; "" when it would need quotes. */
static Name path_of(const Name *field) {
  Name out = {"."};
  for (const char *c = field->text; *c; c++)
    if (!((*c | 0x20) >= 'a' && (*c | 0x20) <= 'z') && *c != '_') return (Name){""};
  if (strlen(field->text) < NAME_BYTES) strcpy(out.text + 1, field->text);
  return out;
}

/* Makes pairs of chats: of each answer, and of all messages before it. Returns whether the object is a chat, a list of
 * messages: {"role": "user", "content": "Hello"} or {"from": "human", "value": "Hello"}. */
static bool set_chat(Finding *finding, const JsonObject *object, const Json *j, const char *path) {
  static const char *const keys[][3] = {{"role", "content", "assistant"}, {"from", "value", "gpt"}};
  const Name list = path_of(&object->list);
  Json at = {j->bytes, j->size, object->list_at + 1};
  if (!list.text[0] || !list.text[1] || !is_next(&at, '{')) return false;
  const JsonObject message = read_object(&at);
  const char *const *key = keys[!has_field(&message.texts, keys[0][0])];
  if (!has_field(&message.texts, key[0]) || !has_field(&message.texts, key[1])) return false;
  make_pairs(finding, false,
             "%s%s|range(length)as$i|select(.[$i].%s==\"%s\" and(.[$i].%s|type)==\"string\")|{prompt:(.[:$i]|"
             "map(\"\\(.%s)\\n\\(.%s)\\n\\n\")|add+\"%s\\n\"),response:.[$i].%s}",
             path, list.text, key[0], key[2], key[1], key[0], key[1], key[2], key[1]);
  finding->advice = "make a prompt and a response of each answer";
  return true;
}

/* Sets the options, and for chats the command, that read the records. */
static void set_record(Finding *finding, const JsonObject *object, const Json *j, const char *path) {
  if (!set_chat(finding, object, j, path)) set_fields(finding, &object->texts, path, false);
}

enum { JSON_ARRAY, JSON_INSIDE, JSON_STRINGS, JSON_OBJECTS, JSON_OBJECT };

static Finding *add_json(const DoctorView *view, Findings *out, int variant, const char *what, const char *command) {
  Finding *finding = doctor_add(out, FINDING_JSON, variant, command, "%s", what);
  if (view->format == FORMAT_JSONL) finding->level = FINDING_REFUSED; /* the reader of JSON lines would refuse it */
  return finding;
}

/* Finds an array of objects or strings at `j`. `path`: jq's expression for it. */
static bool find_array(const DoctorView *view, Json *j, int variant, const char *path, Findings *out) {
  char command[200], records[80], what[160];
  j->at++;
  const bool strings = is_next(j, '"');
  if (strings) {
    const uint8_t *text;
    size_t length;
    if (read_string(j, &text, &length)) skip_blanks(j);
    if (j->at < j->size && !is_next(j, ',') && !is_next(j, ']')) return false;
  }
  JsonObject first = {0};
  if (!strings && is_next(j, '{')) first = read_object(j);
  if (!strings && first.fields == 0) return false;
  snprintf(what, sizeof what, "it looks like a JSON array of %s%s, not like plain text or JSON lines",
           strings ? "strings" : "objects", path[1] ? " in an object" : "");
  snprintf(command, sizeof command, "jq -c '%s[]%s' @", path, strings ? "|{text:.}" : "");
  snprintf(records, sizeof records, "%s[]|", path);
  Finding *finding = add_json(view, out, strings ? JSON_STRINGS : variant, what, command);
  if (!strings) set_record(finding, &first, j, records);
  else strcpy(finding->options, " --jsonl-field text");
  finding->makes_fields = finding->makes_fields || strings;
  return true;
}

/* Finds the fields of JSON lines that are pairs or chats. The first line tells. */
static bool find_fields(const Json *j, const JsonObject *object, Findings *out) {
  Finding *finding = doctor_add(out, FINDING_FIELDS, 0, "cat @", "its records are chats");
  finding->format = FORMAT_JSONL;
  if (set_chat(finding, object, j, "")) {
    strcpy(finding->prompt, object->list.text);
    snprintf(finding->what, sizeof finding->what,
             "its records are chats (\"%s\"), but only prompts with responses are "
             "read",
             object->list.text);
  } else if (set_fields(finding, &object->texts, "", false)) {
    snprintf(finding->what, sizeof finding->what, "its records have \"%s\" and \"%s\"", finding->prompt,
             finding->response);
  } else {
    out->count--;
    return false;
  }
  if (!has_field(&object->texts, "text")) finding->level = FINDING_REFUSED;
  return true;
}

static bool find_objects(const DoctorView *view, Json *j, Findings *out) {
  const size_t begin = j->at;
  const JsonObject object = read_object(j);
  if (object.fields == 0) return false;
  const bool one_line = !memchr(j->bytes + begin, '\n', j->at - begin);
  skip_blanks(j);
  const bool follows = object.closed && is_next(j, '{'), alone = !follows && (!object.closed || j->at == j->size);
  const Name path = path_of(&object.list);
  Finding chat = {0};
  if (view->format == FORMAT_JSONL) return one_line && find_fields(j, &object, out);
  if (alone && path.text[0] && path.text[1] && !set_chat(&chat, &object, j, "")) {
    Json list = {j->bytes, j->size, object.list_at};
    return find_array(view, &list, JSON_INSIDE, path.text, out);
  }
  if (alone && (object.texts.count == 0 || object.fields > MOST_FIELDS) && !chat.command[0]) {
    Finding *finding = doctor_add(out, FINDING_JSON, JSON_OBJECT, "jq -r '.. | strings' @",
                                  "it looks like one JSON object, not like plain text or JSON lines");
    finding->advice = "extract its strings";
    finding->format = FORMAT_TEXT;
    return true;
  }
  Finding *finding =
      one_line ? doctor_add(out, FINDING_JSON_LINES, 0, "cat @",
                            "it looks like JSON lines and is read as plain text (names of files of JSON lines end in "
                            ".jsonl)")
               : add_json(view, out, JSON_OBJECTS,
                          "it looks like JSON objects over many lines, not like plain text or JSON lines", "jq -c . @");
  set_record(finding, &object, j, "");
  return true;
}

bool doctor_find_json(const DoctorView *view, Findings *out) {
  Json j = {view->samples[0].bytes, view->samples[0].size, 0};
  if (is_next(&j, '[')) return find_array(view, &j, JSON_ARRAY, ".", out);
  return is_next(&j, '{') && find_objects(view, &j, out);
}

/* ---- CSV ---- */

/* SENTENCES, NAMES: least average number of letters in a field of sentences, or of names. */
enum { COLUMNS = 32, LEAST_RECORDS = 8, SENTENCES = 12, NAMES = 2 };

typedef struct Csv {
  char comma;
  int columns;
  Name names[COLUMNS];
  int64_t records, uneven;  /* uneven: records with another number of columns */
  int64_t letters[COLUMNS]; /* in all fields of a column */
  int again;                /* fields of this record that equal the name of their column */
  int64_t unlike;           /* records with such fields, which speak against a header line */
} Csv;

/* Moves *at to the comma or newline after a field. Returns false when the sample ends in the field. */
static bool skip_field(const DoctorSample *s, size_t *at, char comma) {
  bool quoted = false;
  for (; *at < s->size; ++*at) {
    const uint8_t c = s->bytes[*at];
    if (c == '"') quoted = !quoted;
    else if (!quoted && (c == (uint8_t)comma || c == '\n')) return true;
  }
  return false;
}

/* Returns whether a field of the first line can be the name of a column: short, and not a sentence. */
static bool is_heading(const uint8_t *bytes, size_t size) {
  if (size == 0 || size > 40 || !(((bytes[0] | 0x20) >= 'a' && (bytes[0] | 0x20) <= 'z') || bytes[0] == '_'))
    return false;
  for (size_t i = 0; i < size; i++)
    if (bytes[i] < ' ' || bytes[i] == '"' || strchr(".!?;(){}[]=<>", bytes[i])) return false;
  return bytes[size - 1] != ' ';
}

/* Adds a field of the current record. Returns false when it is in the first line and cannot be a name. */
static bool take_field(Csv *csv, int column, const uint8_t *bytes, size_t size) {
  while (size > 0 && bytes[size - 1] == '\r') size--;
  if (size >= 2 && bytes[0] == '"' && bytes[size - 1] == '"') {
    bytes++;
    size -= 2;
  }
  if (column >= COLUMNS) return csv->records > 0;
  if (csv->records == 0) {
    csv->names[column] = name_of(bytes, size);
    return is_heading(bytes, size);
  }
  csv->again += strlen(csv->names[column].text) == size && memcmp(csv->names[column].text, bytes, size) == 0;
  for (size_t i = 0; i < size; i++) csv->letters[column] += (bytes[i] | 0x20) >= 'a' || bytes[i] >= 0x80;
  return true;
}

/* Reads the records of a sample. Returns false when it does not look like CSV. */
static bool read_records(Csv *csv, const DoctorSample *s) {
  int column = 0;
  for (size_t at = 0; at < s->size; at++) {
    const size_t begin = at;
    if (!skip_field(s, &at, csv->comma)) break;
    if (!take_field(csv, column++, s->bytes + begin, at - begin)) return false;
    if (s->bytes[at] == (uint8_t)csv->comma) continue;
    if (csv->records == 0) csv->columns = column;
    if (csv->columns < 2 || csv->uneven > LEAST_RECORDS + csv->records / 50) return false;
    csv->uneven += column != csv->columns;
    csv->unlike += csv->again > 0 && csv->again < csv->columns;
    csv->again = 0;
    csv->records++;
    column = 0;
  }
  return csv->columns >= 2 && csv->columns <= COLUMNS && csv->records > LEAST_RECORDS &&
         csv->uneven * 50 <= csv->records;
}

/* Returns the column with the most text, or -1 when this is not a table of texts. The lines of a log, a list or a poem
 * may also have equal numbers of commas. But a table does not repeat the names of its first line, and if its fields are
 * short, it has a column of numbers or many columns. */
static int text_column(const Csv *csv) {
  const int64_t fields = csv->records - 1;
  int out = 0;
  bool numbers = false;
  for (int i = 0; i < csv->columns; i++) {
    if (csv->letters[i] > csv->letters[out]) out = i;
    numbers = numbers || csv->letters[i] == 0;
  }
  if (!csv->names[out].text[0] || csv->unlike * 50 > csv->records) return -1;
  if (csv->letters[out] >= SENTENCES * fields) return out;
  return csv->letters[out] >= NAMES * fields && (numbers || csv->columns > 2) ? out : -1;
}

static bool find_separated(const DoctorView *view, char comma, Findings *out) {
  Csv csv = {.comma = comma};
  if (!read_records(&csv, &view->samples[0])) return false;
  const int column = text_column(&csv);
  if (column < 0) return false;
  Finding *finding = doctor_add(
      out, FINDING_CSV, comma, NULL,
      "it looks like CSV (%d columns%s, the longest texts in \"%.64s\") and is read as plain text", csv.columns,
      comma == '\t' ? " between tabs" : "", text_one_line(csv.names[column].text, NAME_BYTES).text);
  snprintf(finding->command, sizeof finding->command,
           "python3 -c 'import csv,json; [print(json.dumps(r)) for r in "
           "csv.DictReader(open(0,encoding=\"utf-8-sig\",newline=\"\")%s)]' <@",
           comma == ';'    ? ",delimiter=\";\""
           : comma == '\t' ? ",delimiter=\"\\t\""
                           : "");
  Fields fields = {.longest = csv.names[column]};
  for (int i = 0; i < csv.columns; i++) add_field(&fields, &csv.names[i]);
  set_fields(finding, &fields, "", true);
  return true;
}

bool doctor_find_csv(const DoctorView *view, Findings *out) {
  return find_separated(view, ',', out) || find_separated(view, ';', out) || find_separated(view, '\t', out);
}
