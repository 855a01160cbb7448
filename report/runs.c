#include "report/runs.h"

#include "checkpoint/directory.h"
#include "report/find_runs.h"
#include "report/result.h"
#include "util/file.h"
#include "util/json.h"
#include "util/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const table_format_names[] = {"md", "csv", "json", NULL};

/* ---- a run ---- */

static void set(json_t *row, const char *name, json_t *value) { json_object_set_new(row, name, value); }

static void set_measured(json_t *row, const History *h, const json_t *result) {
  const HistoryEvaluation *kept = history_kept(h), *final = history_final(h);
  const HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  const json_t *seconds = json_object_get(result, "seconds");
  const json_t *params = json_object_get(result, "params");
  const double nan = (double)NAN;
  set(row, "step", last ? json_integer(last->step) : json_null());
  set(row, "params", json_is_integer(params) ? json_deep_copy(params) : json_null());
  set(row, "best_step", kept ? json_integer(kept->step) : json_null());
  set(row, "best_loss", result_number(kept ? kept->loss : nan));
  set(row, "bits_per_byte", result_number(kept ? kept->bits_per_byte : nan));
  set(row, "final_loss", result_number(final ? final->loss : nan));
  set(row, "tokens_per_s", result_number(result_speed(h)));
  set(row, "seconds", result_number(json_is_number(seconds) ? json_number_value(seconds) : last ? last->seconds : nan));
}

/* A run as an object: run, settings (an object, until it is known which differ), state and what was measured. */
static bool add_run(void *context, const char *dir, Error *error) {
  json_t *rows = context;
  Error damage = {0};
  History history = {0};
  json_t *row = json_object(), *name = json_string(dir);
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &damage);
  set(row, "run", name ? name : json_string(text_one_line(dir, ONE_LINE_BYTES - 1).text));
  set(row, "settings", result_settings(dir, &damage));
  history_read(&history, checkpoint_path(dir, CHECKPOINT_METRICS).text, &damage);
  if (damage.code == EXIT_MEMORY) fail(error, EXIT_MEMORY, "%s", damage.text);
  set(row, "state", json_string(damage.code || history.damaged ? "damaged" : result_state(dir, result)));
  set_measured(row, &history, result);
  history_free(&history);
  json_decref(result);
  json_array_append_new(rows, row);
  return error->code == EXIT_DONE && json_memory_ok(error, "a table of runs");
}

/* ---- columns ---- */

/* Whether rows differ in that setting, and it says something of the model. A row without any settings, for its run is
 * damaged, differs in none. */
static bool differs(const json_t *rows, const char *name) {
  const json_t *first = NULL; /* its settings */
  if (strcmp(name, "out") == 0) return false;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *settings = json_object_get(json_array_get(rows, i), "settings");
    if (json_object_size(settings) == 0) continue;
    if (!first) first = settings;
    const json_t *one = json_object_get(first, name), *other = json_object_get(settings, name);
    if (!one != !other || (one && !json_equal(one, other))) return true;
  }
  return false;
}

/* The names of all settings of all runs, each with whether it differs. */
static json_t *setting_names(const json_t *rows) {
  json_t *names = json_object();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *settings = json_object_get(json_array_get(rows, i), "settings");
    for (void *at = json_object_iter(settings); at; at = json_object_iter_next(settings, at)) {
      const char *name = json_object_iter_key(at);
      if (!json_object_get(names, name)) set(names, name, json_boolean(differs(rows, name)));
    }
  }
  return names;
}

/* Settings of that name that a row has by itself, which an edited config.txt may name, are left out. */
static void add_settings(json_t *out, const json_t *row, const json_t *settings, json_t *names) {
  for (void *at = json_object_iter(names); at; at = json_object_iter_next(names, at)) {
    const char *name = json_object_iter_key(at);
    json_t *own = json_object_get(settings, name);
    if (json_is_true(json_object_iter_value(at)) && !json_object_get(row, name))
      json_object_set(out, name, own ? own : json_null());
  }
}

/* In the order of the table, the settings that differ behind the name. */
static json_t *columns_of(json_t *row, json_t *names) {
  json_t *out = json_object();
  for (void *at = json_object_iter(row); at; at = json_object_iter_next(row, at)) {
    const char *name = json_object_iter_key(at);
    json_t *value = json_object_iter_value(at);
    if (strcmp(name, "settings") == 0) add_settings(out, row, value, names);
    else json_object_set(out, name, value);
  }
  return out;
}

static json_t *make_columns(const json_t *rows) {
  json_t *names = setting_names(rows), *out = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++)
    json_array_append_new(out, columns_of(json_array_get(rows, i), names));
  json_decref(names);
  return out;
}

/* ---- order ---- */

typedef struct Sorting {
  const char *column;
  bool largest_first;
} Sorting;
static Sorting sorting; /* qsort() has no context */

static int compare_values(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b))
    return (json_number_value(a) > json_number_value(b)) - (json_number_value(a) < json_number_value(b));
  if (json_is_number(a) || json_is_number(b)) return json_is_number(a) ? -1 : 1;
  if (json_is_string(a) && json_is_string(b)) return strcmp(json_string_value(a), json_string_value(b));
  return json_is_true(b) - json_is_true(a);
}

static int compare_rows(const void *x, const void *y) {
  const json_t *const *first = x, *const *second = y;
  const json_t *a = json_object_get(*first, sorting.column), *b = json_object_get(*second, sorting.column);
  if (json_is_null(a) != json_is_null(b)) return json_is_null(a) - json_is_null(b);
  const int order = sorting.largest_first ? compare_values(b, a) : compare_values(a, b);
  return order ? order
               : strcmp(json_string_value(json_object_get(*first, "run")),
                        json_string_value(json_object_get(*second, "run")));
}

static bool sort_rows(const RunsTable *table, json_t **rows, size_t count, Error *error) {
  const char *column = table->sort ? table->sort : "bits_per_byte";
  sorting = (Sorting){column + (column[0] == '-'), column[0] == '-'};
  if (!json_object_get(rows[0], sorting.column))
    return fail(error, EXIT_USAGE, "--sort %s: there is no such column; the columns are those of ./train --runs DIR",
                text_one_line(table->sort, 100).text);
  qsort(rows, count, sizeof(json_t *), compare_rows);
  return true;
}

/* ---- formats ---- */

enum { DIGITS = 10 };

/* As a person reads it. */
static void markdown_value(FILE *stream, const json_t *value) {
  char *text = json_value_text(value, DIGITS);
  const double real = json_real_value(value); /* 0 of what is none */
  if (json_is_real(value)) fprintf(stream, fabs(real) < 1e5 ? "%.5g" : "%.0f", real);
  else if (json_is_boolean(value)) fputs(json_is_true(value) ? "yes" : "no", stream);
  else
    for (const char *c = text ? text : ""; *c; c++)
      fprintf(stream, "%s%c", *c == '|' ? "\\" : "", (unsigned char)*c < ' ' || *c == 0x7F ? ' ' : *c);
  free(text);
}

/* As RFC 4180 has it. */
static void csv_text(FILE *stream, const char *text) {
  const bool quoted = strpbrk(text, ",\"\r\n");
  if (quoted) fputc('"', stream);
  for (const char *c = text; *c; c++) fprintf(stream, "%s%c", *c == '"' ? "\"" : "", *c);
  if (quoted) fputc('"', stream);
}

static void csv_value(FILE *stream, const json_t *value) {
  char *text = json_value_text(value, DIGITS);
  csv_text(stream, text ? text : "");
  free(text);
}

static void print_markdown(FILE *stream, json_t *const *rows, size_t count) {
  size_t columns = 0;
  for (void *at = json_object_iter(rows[0]); at; at = json_object_iter_next(rows[0], at), columns++)
    fprintf(stream, "| %s ", text_one_line(json_object_iter_key(at), ONE_LINE_BYTES - 1).text);
  fputs("|\n", stream);
  for (size_t i = 0; i < columns; i++) fputs("|---", stream);
  fputs("|\n", stream);
  for (size_t i = 0; i < count; i++) {
    for (void *at = json_object_iter(rows[i]); at; at = json_object_iter_next(rows[i], at)) {
      fputs("| ", stream);
      markdown_value(stream, json_object_iter_value(at));
      fputc(' ', stream);
    }
    fputs("|\n", stream);
  }
}

static void print_csv(FILE *stream, json_t *const *rows, size_t count) {
  const char *between = "";
  for (void *at = json_object_iter(rows[0]); at; at = json_object_iter_next(rows[0], at), between = ",") {
    fputs(between, stream);
    csv_text(stream, json_object_iter_key(at));
  }
  fputs("\r\n", stream);
  for (size_t i = 0; i < count; i++) {
    between = "";
    for (void *at = json_object_iter(rows[i]); at; at = json_object_iter_next(rows[i], at), between = ",") {
      fputs(between, stream);
      csv_value(stream, json_object_iter_value(at));
    }
    fputs("\r\n", stream);
  }
}

static void print_json(FILE *stream, json_t *const *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    fputs(i ? ",\n " : "[", stream);
    json_dumpf(rows[i], stream, JSON_REAL_PRECISION(DIGITS));
  }
  fputs("]\n", stream);
}

/* ---- all of it ---- */

static bool print_rows(const RunsTable *table, json_t *columns, FILE *stream, Error *error) {
  const size_t count = json_array_size(columns);
  json_t **rows = malloc(count * sizeof *rows);
  if (!rows) return error_memory(error, "a table of runs");
  for (size_t i = 0; i < count; i++) rows[i] = json_array_get(columns, i);
  const bool ok = sort_rows(table, rows, count, error);
  if (ok)
    (table->format == TABLE_CSV    ? print_csv
     : table->format == TABLE_JSON ? print_json
                                   : print_markdown)(stream, rows, count);
  free(rows);
  return ok && file_flush(stream, "stdout", error);
}

bool runs_print(const RunsTable *table, FILE *stream, Error *error) {
  json_t *rows = json_array();
  bool ok = find_runs(table->dirs, table->count, add_run, rows, error);
  json_t *columns = ok ? make_columns(rows) : NULL;
  ok = ok && json_memory_ok(error, "a table of runs") && print_rows(table, columns, stream, error) &&
       json_memory_ok(error, "a table of runs");
  json_decref(columns);
  json_decref(rows);
  return ok;
}
