#include "report/runs.h"

#include "checkpoint/directory.h"
#include "report/columns.h"
#include "report/find_runs.h"
#include "report/ranking.h"
#include "report/result.h"
#include "util/file.h"
#include "util/json.h"
#include "util/path.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ---- */

static void set(json_t *row, const char *name, json_t *value) { json_object_set_new(row, name, value); }

static json_t *number_or(const json_t *known, double other) {
  return json_is_number(known) ? json_deep_copy(known) : result_number(other);
}

static json_t *count_or(const json_t *known, const int64_t *other) {
  return json_is_integer(known) ? json_deep_copy(known) : other ? json_integer(*other) : json_null();
}

/* A measurement on all of the validation text, or on its beginning alone, is null in the other column. */
static json_t *measured_on(const HistoryEvaluation *kept, bool all, double number) {
  return result_number(kept && kept->all == all ? number : (double)NAN);
}

static json_t *exact_on(const HistoryEvaluation *kept, bool all) {
  return result_number(kept && history_counted_all(kept) == all ? kept->exact : (double)NAN);
}

/* The order matters: a table for people shows the first columns that have values. */
static void set_measured(json_t *row, const char *state, const History *h, const json_t *result) {
  const HistoryEvaluation *kept = history_kept(h);
  const HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  const double loss = kept ? kept->loss : (double)NAN, bits = kept ? kept->bits_per_byte : (double)NAN;
  json_t *tokens = count_or(json_object_get(result, "tokens"), last ? &last->tokens : NULL);
  json_t *seconds = number_or(json_object_get(result, "seconds"), last ? last->seconds : (double)NAN);
  set(row, "bits_per_byte", measured_on(kept, true, bits));
  set(row, "val_text", kept && h->val_text ? json_sprintf("%016" PRIx64, h->val_text) : json_null());
  set(row, "bits_per_byte_beginning", measured_on(kept, false, bits));
  set(row, "exact", exact_on(kept, true));
  set(row, "state", json_string(state));
  set(row, "val_loss", measured_on(kept, true, loss));
  set(row, "step", count_or(json_object_get(result, "step"), last ? &last->step : NULL));
  set(row, "kept_step", kept ? json_integer(kept->step) : json_null());
  set(row, "seconds", seconds);
  set(row, "params", count_or(json_object_get(result, "params"), NULL));
  set(row, "tokens_per_s", result_number(json_number_value(tokens) / json_number_value(seconds)));
  set(row, "tokens", tokens);
  set(row, "val_loss_beginning", measured_on(kept, false, loss));
  set(row, "exact_beginning", exact_on(kept, false));
}

/* Adds a run as an object: run, settings (an object), and the measurements. */
static bool add_run(json_t *rows, const char *dir, Error *error) {
  Error damage = {0};
  History history = {0};
  json_t *row = json_object(), *name = json_string(dir);
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &damage);
  set(row, "run", name ? name : json_string(text_one_line(dir, ONE_LINE_BYTES - 1).text));
  set(row, TABLE_SETTINGS, result_settings(dir, &damage));
  history_read(&history, path_in(dir, CHECKPOINT_METRICS).text, &damage);
  if (damage.code == EXIT_MEMORY) fail(error, EXIT_MEMORY, "%s", damage.text);
  set_measured(row, damage.code || history.damaged ? "damaged" : result_state(dir, result), &history, result);
  history_free(&history);
  json_decref(result);
  json_array_append_new(rows, row);
  return error->code == EXIT_DONE && json_memory_ok(error, "a table of runs");
}

/* ---- the table ---- */

/* Sorts the rows, and replaces states, fingerprints and paths by words, labels and names in a table for people. */
static bool order(const RunsTable *runs, Table *table, Ranking *ranking, Error *error) {
  const char *sort = runs->sort ? runs->sort : "bits_per_byte";
  if (!ranking_sort(ranking, table->rows, table->row_count, sort, error)) return false;
  if (runs->format > TABLE_MARKDOWN) return true;
  ranking_label(table->rows, table->row_count);
  for (size_t i = 0; i < table->row_count; i++) columns_make_readable(table->rows[i]);
  return true;
}

static void print_notes(const RunsTable *runs, const Ranking *ranking, size_t left_out) {
  if (runs->format > TABLE_MARKDOWN) return;
  ranking_tell(ranking, runs->sort ? runs->sort : "bits_per_byte", runs->console);
  if (left_out)
    console_note(runs->console, "%s: --columns all, or -O csv", text_plural((double)left_out, "more column").text);
}

static bool print_rows(const RunsTable *runs, const json_t *found, FILE *stream, Error *error) {
  Table table = {.row_count = json_array_size(found)};
  Ranking ranking;
  size_t left_out = 0;
  table.rows = malloc(table.row_count * sizeof *table.rows);
  if (!table.rows) return error_memory(error, "a table of runs");
  for (size_t i = 0; i < table.row_count; i++) table.rows[i] = json_array_get(found, i);
  json_t *known = columns_known(table.rows, table.row_count);
  bool ok = columns_check_sort(known, runs->sort, error) && order(runs, &table, &ranking, error) &&
            columns_choose(&table, known, runs, &ranking, &left_out, error) && json_memory_ok(error, "a table of runs");
  if (ok) table_print(&table, runs->format, stream);
  ok = ok && file_flush(stream, "stdout", error) && json_memory_ok(error, "a table of runs");
  if (ok) print_notes(runs, &ranking, left_out);
  free(table.rows);
  free(table.columns);
  json_decref(known);
  return ok;
}

bool runs_print(const RunsTable *table, FILE *stream, Error *error) {
  FoundRuns found = {0};
  json_t *rows = json_array();
  bool ok = find_runs(&found, table->dirs, table->count, error);
  for (int i = 0; ok && i < found.count; i++) ok = add_run(rows, found.items[i].dir, error);
  ok = ok && print_rows(table, rows, stream, error);
  json_decref(rows);
  find_runs_free(&found);
  return ok;
}
