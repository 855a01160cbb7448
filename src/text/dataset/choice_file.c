#include "text/dataset/choice_file.h"

#include "text/dataset/line.h"
#include "base/array.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool choice_file_open(ChoiceFile *out, const char *path, Error *error) {
  *out = (ChoiceFile){.path = path, .format = text_format_of(path)};
  if (out->format != FORMAT_TSV && out->format != FORMAT_JSONL)
    return fail(error, EXIT_USAGE, "--choose %s: the name of a file of choices ends in .tsv or .jsonl",
                text_one_line(path, 250).text);
  if (!file_map(&out->file, path, EXIT_INPUT, error)) return false;
  out->at = utf8_mark(out->file.bytes, out->file.size);
  return true;
}

void choice_file_close(ChoiceFile *file) {
  json_decref(file->root);
  free(file->item.texts);
  file_unmap(&file->file);
  *file = (ChoiceFile){0};
}

/* ---- a line ---- */

static LineName name_of(const ChoiceFile *f) { return line_name(f->path, f->item.line); }

static bool add_text(ChoiceFile *f, ChoiceText text, Error *error) {
  ChoiceItem *item = &f->item;
  if (!text.size)
    return fail(error, EXIT_INPUT, "%s: text %zu is empty; write it, or delete the line", name_of(f).text,
                item->count + 1);
  if (!array_reserve(&item->texts, &f->capacity, item->count + 1, sizeof *item->texts))
    return error_memory(error, "a line of choices");
  item->texts[item->count++] = text;
  return true;
}

static bool parse_tsv(ChoiceFile *f, const uint8_t *line, size_t size, Error *error) {
  const uint8_t *const end = line + size;
  for (const uint8_t *at = line, *tab; at; at = tab ? tab + 1 : NULL) {
    tab = memchr(at, '\t', (size_t)(end - at));
    if (!add_text(f, (ChoiceText){at, (size_t)((tab ? tab : end) - at)}, error)) return false;
  }
  return f->item.count > 1 ||
         fail(error, EXIT_INPUT, "%s, has one text; write two or more, separated by tabs, the right one first",
              name_of(f).text);
}

static ChoiceText text_of(const json_t *string) {
  return (ChoiceText){(const uint8_t *)json_string_value(string), json_string_length(string)};
}

/* Returns the value of a key, which may have another name (NULL: none); NULL: there is no value, or an error. */
static json_t *value_of(const ChoiceFile *f, const char **key, const char *other, Error *error) {
  json_t *value = line_value(f->root, *key), *second = other ? line_value(f->root, other) : NULL;
  if (value && second)
    fail(error, EXIT_INPUT, "%s, has both \"%s\" and \"%s\"; leave out one of the two", name_of(f).text, *key, other);
  if (!second) return value;
  *key = other;
  return second;
}

/* Replaces *out by the string of a key, if the line has it. */
static bool take_string(const ChoiceFile *f, const char *key, const char *other, ChoiceText *out, Error *error) {
  const json_t *value = value_of(f, &key, other, error);
  if (!value) return !error->code;
  if (!json_is_string(value))
    return fail(error, EXIT_INPUT, "%s: \"%s\" is %s; write a string", name_of(f).text, key, line_kind(value));
  *out = text_of(value);
  return !error->code;
}

static bool take_answer(ChoiceFile *f, Error *error) {
  const char *key = "answer";
  const json_t *value = value_of(f, &key, "gold", error);
  if (!value) return !error->code;
  const double index = json_is_number(value) ? json_number_value(value) : -1;
  const size_t count = f->item.count;
  if (!(index >= 0 && index < (double)count && index == floor(index)))
    return fail(error, EXIT_INPUT, "%s: \"%s\" must be the index of a text, a whole number from 0 to %zu",
                name_of(f).text, key, count - 1);
  f->item.right = (size_t)index;
  return true;
}

static bool take_choices(ChoiceFile *f, const json_t *choices, Error *error) {
  if (!json_is_array(choices) || json_array_size(choices) < 2)
    return fail(error, EXIT_INPUT, "%s: \"choices\" must be a list of two or more texts", name_of(f).text);
  for (size_t i = 0; i < json_array_size(choices); i++) {
    const json_t *text = json_array_get(choices, i);
    if (!json_is_string(text))
      return fail(error, EXIT_INPUT, "%s: text %zu of \"choices\" is %s; write a string", name_of(f).text, i + 1,
                  line_kind(text));
    if (!add_text(f, text_of(text), error)) return false;
  }
  return take_string(f, "context", "query", &f->item.context, error) && take_answer(f, error);
}

static bool take_sentences(ChoiceFile *f, Error *error) {
  ChoiceText good = {0}, bad = {0};
  const bool pair = json_object_get(f->root, "sentence_good") && json_object_get(f->root, "sentence_bad");
  const LineKeys keys = line_keys(f->root, false);
  if (!pair)
    return fail(error, EXIT_INPUT, "%s, has %s; write \"choices\", or \"sentence_good\" and \"sentence_bad\"",
                name_of(f).text, *keys.text ? keys.text : "no fields");
  return take_string(f, "sentence_good", NULL, &good, error) && add_text(f, good, error) &&
         take_string(f, "sentence_bad", NULL, &bad, error) && add_text(f, bad, error);
}

static bool parse_jsonl(ChoiceFile *f, const uint8_t *line, size_t size, Error *error) {
  f->root = line_object(line, size, f->path, f->item.line, error);
  if (!f->root) return false;
  f->item.delimiter = (ChoiceText){(const uint8_t *)" ", 1};
  const json_t *choices = line_value(f->root, "choices");
  return (choices ? take_choices(f, choices, error) : take_sentences(f, error)) &&
         take_string(f, "delimiter", NULL, &f->item.delimiter, error);
}

/* ---- lines in order ---- */

bool choice_file_next(ChoiceFile *f, const ChoiceItem **item, Error *error) {
  *item = NULL;
  while (f->at < f->file.size) {
    size_t size;
    const uint8_t *line = line_take(f->file.bytes, f->file.size, &f->at, &size);
    json_decref(f->root);
    f->root = NULL;
    f->item = (ChoiceItem){.line = f->item.line + 1, .texts = f->item.texts};
    if (line_is_blank(line, size)) continue;
    *item = &f->item;
    return f->format == FORMAT_TSV ? parse_tsv(f, line, size, error) : parse_jsonl(f, line, size, error);
  }
  return true;
}
