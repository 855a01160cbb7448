/* The order of runs in a table: best first among comparable runs. */
#include "report/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ranking_is_per_token(const char *column) { return strncmp(column, "val_loss", strlen("val_loss")) == 0; }

/* Returns whether a column is measured on validation text. */
static bool is_measured(const char *column) {
  return ranking_is_per_token(column) || strncmp(column, "bits_per_byte", strlen("bits_per_byte")) == 0 ||
         strncmp(column, "exact", strlen("exact")) == 0;
}

/* Returns the value in a column; NULL: none. */
static const json_t *value_of(const json_t *row, const char *column) {
  const json_t *value = json_object_get(row, column);
  return json_is_null(value) ? NULL : value;
}

static bool was_measured(const json_t *row) {
  return value_of(row, "bits_per_byte") || value_of(row, "bits_per_byte_beginning");
}

/* ---- groups: rows with the same validation text ---- */

static const char UNKNOWN[] = "?";

/* Returns the fingerprint of the validation text. NULL: nothing was measured. */
static const char *text_of(const json_t *row) {
  const char *text = json_string_value(json_object_get(row, "val_text"));
  return text ? text : was_measured(row) ? UNKNOWN : NULL;
}

/* Numbers the texts: 0 for the known text of most rows with a value in the column (the first one if several have as
 * many), then the others in order, the unknown one last. */
static json_t *group_texts(json_t *const *rows, size_t count, const char *column) {
  json_t *texts = json_object(), *measured;
  const char *leading = NULL, *text;
  json_int_t most = -1;
  for (size_t i = 0; i < count; i++) {
    if (!(text = text_of(rows[i]))) continue;
    const json_int_t before = json_integer_value(json_object_get(texts, text));
    json_object_set_new(texts, text, json_integer(before + (value_of(rows[i], column) != NULL)));
  }
  json_object_foreach(texts, text, measured) {
    if (strcmp(text, UNKNOWN) == 0 || json_integer_value(measured) <= most) continue;
    leading = text;
    most = json_integer_value(measured);
  }
  json_int_t next = leading != NULL;
  json_object_foreach(texts, text, measured) {
    const bool unknown = strcmp(text, UNKNOWN) == 0, leads = leading && strcmp(text, leading) == 0;
    const json_int_t group = leads ? 0 : unknown ? (json_int_t)json_object_size(texts) - 1 : next++;
    json_object_set_new(texts, text, json_integer(group));
  }
  return texts;
}

/* ---- tokens ---- */

/* Returns the ratio of bits per byte to nats per token. For the same text it is equal if the number of tokens is equal.
 * NaN: unknown. */
static double bits_per_nat(const json_t *row) {
  const json_t *loss = json_object_get(row, "val_loss"), *bits = json_object_get(row, "bits_per_byte");
  return json_is_number(loss) && json_is_number(bits) ? json_number_value(bits) / json_number_value(loss) : (double)NAN;
}

/* Returns whether rows with the same validation text have different ratios. */
static bool tokens_differ(json_t *const *rows, size_t count) {
  const double tolerance = 1e-4;
  json_t *ratios = json_object(); /* the ratio of each text's first row */
  bool differ = false;
  for (size_t i = 0; i < count; i++) {
    const double ratio = bits_per_nat(rows[i]);
    const char *text = json_string_value(json_object_get(rows[i], "val_text"));
    if (!text || !isfinite(ratio)) continue;
    const json_t *before = json_object_get(ratios, text);
    differ = differ || (before && !(fabs(ratio / json_real_value(before) - 1) <= tolerance));
    if (!before) json_object_set_new(ratios, text, json_real(ratio));
  }
  json_decref(ratios);
  return differ;
}

/* ---- order ---- */

typedef struct Ranked {
  json_t *row;
  const json_t *value; /* NULL: none */
  json_int_t group;
  bool largest_first;
} Ranked;

static int compare_values(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b))
    return (json_number_value(a) > json_number_value(b)) - (json_number_value(a) < json_number_value(b));
  if (json_is_number(a) || json_is_number(b)) return json_is_number(a) ? -1 : 1;
  if (json_is_string(a) && json_is_string(b)) return strcmp(json_string_value(a), json_string_value(b));
  return json_is_true(b) - json_is_true(a);
}

static int compare_rows(const void *x, const void *y) {
  const Ranked *a = x, *b = y;
  if (!a->value != !b->value) return !a->value - !b->value;
  if (a->group != b->group) return a->group < b->group ? -1 : 1;
  const int order = a->largest_first ? compare_values(b->value, a->value) : compare_values(a->value, b->value);
  return order ? order
               : strcmp(json_string_value(json_object_get(a->row, "run")),
                        json_string_value(json_object_get(b->row, "run")));
}

static void count_row(Ranking *ranking, const Ranked *ranked) {
  const char *text = text_of(ranked->row);
  const bool unknown = text && strcmp(text, UNKNOWN) == 0;
  ranking->no_text += ranked->value && unknown;
  ranking->other_text += ranked->value && !unknown && ranked->group > 0;
  ranking->beginning += !ranked->value && value_of(ranked->row, "bits_per_byte_beginning");
}

bool ranking_sort(Ranking *ranking, json_t **rows, size_t count, const char *sort, Error *error) {
  const char *column = sort + (sort[0] == '-');
  const bool measured = is_measured(column);
  json_t *texts = group_texts(rows, count, column);
  Ranked *ranked = malloc(count * sizeof *ranked);
  *ranking = (Ranking){.texts = json_object_size(texts), .tokens_differ = tokens_differ(rows, count)};
  for (size_t i = 0; ranked && i < count; i++) {
    const char *text = text_of(rows[i]);
    const json_int_t group = text ? json_integer_value(json_object_get(texts, text)) : (json_int_t)ranking->texts;
    ranked[i] = (Ranked){rows[i], value_of(rows[i], column), measured ? group : 0, sort[0] == '-'};
    count_row(ranking, &ranked[i]);
  }
  if (count == 1) *ranking = (Ranking){.texts = ranking->texts}; /* nothing to compare */
  if (ranked) qsort(ranked, count, sizeof *ranked, compare_rows);
  for (size_t i = 0; ranked && i < count; i++) rows[i] = ranked[i].row;
  const bool ok = ranked || error_memory(error, "a table of runs");
  free(ranked);
  json_decref(texts);
  return ok;
}

/* ---- labels and notes ---- */

void ranking_label(json_t **rows, size_t count) {
  json_t *texts = group_texts(rows, count, "bits_per_byte");
  for (size_t i = 0; i < count; i++) {
    const char *text = text_of(rows[i]);
    const int group = text ? (int)json_integer_value(json_object_get(texts, text)) : 0;
    if (!text) continue;
    char label[16] = {(char)('A' + group % 26)}; /* A, ..., Z, A1, ... */
    if (group >= 26) snprintf(label + 1, sizeof label - 1, "%d", group / 26);
    json_object_set_new(rows[i], "val_text", json_string(strcmp(text, UNKNOWN) == 0 ? UNKNOWN : label));
  }
  json_decref(texts);
}

static void tell_rows(Console *console, size_t rows, const char *which) {
  if (rows) console_note(console, "runs %s: %zu", which, rows);
}

void ranking_tell(const Ranking *ranking, const char *sort, Console *console) {
  if (is_measured(sort + (sort[0] == '-'))) {
    tell_rows(console, ranking->other_text, "validated on another text, which are not ranked with the others");
    tell_rows(console, ranking->no_text, "that do not say which text they were validated on");
    tell_rows(console, ranking->beginning,
              "measured only on the beginning of their validation text, which are not ranked with the others");
  }
  if (ranking->tokens_differ)
    console_note(console, "the losses of the runs are means over different tokens: nats per token (val_loss) cannot be "
                          "compared, bits per byte can");
}
