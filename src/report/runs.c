#define _DEFAULT_SOURCE /* strsep() */
#include "report/runs.h"

#include "files/checkpoint/directory.h"
#include "report/find_runs.h"
#include "report/result.h"
#include "report/seeds.h"
#include "report/table.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 32, RESULTS = 6 };

/* ---- a run ---- */

/* What a row of several runs, which differ only in their seed, has in a column. */
typedef enum ColumnKind {
  EQUAL /* in all of them */,
  MEAN,
  DEVIATION /* from the mean in the column before */
} ColumnKind;

/* What a row has besides the settings of its run, in the order of the table; settings come after the first. A table for
 * people shows the first columns that have values. */
static const struct Column {
  const char *name;
  ColumnKind kind;
} columns[] = {{"run", MEAN},
               {"bits_per_byte", MEAN},
               {"bits_per_byte_sd", DEVIATION},
               {"seeds", MEAN},
               {"val_text", EQUAL},
               {"bits_per_byte_beginning", MEAN},
               {"bits_per_byte_beginning_sd", DEVIATION},
               {"exact", MEAN},
               {"exact_sd", DEVIATION},
               {"accuracy", MEAN},
               {"accuracy_sd", DEVIATION},
               {"state", EQUAL},
               {"val_loss", MEAN},
               {"val_loss_sd", DEVIATION},
               {"step", EQUAL},
               {"kept_step", MEAN},
               {"seconds", MEAN},
               {"params", MEAN},
               {"tokens_per_s", MEAN},
               {"tokens", MEAN},
               {"epochs", MEAN},
               {"val_loss_beginning", MEAN},
               {"val_loss_beginning_sd", DEVIATION},
               {"exact_beginning", MEAN},
               {"exact_beginning_sd", DEVIATION},
               {"accuracy_beginning", MEAN},
               {"accuracy_beginning_sd", DEVIATION}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static bool is_setting(const char *name) {
  for (int i = 0; i < COLUMNS; i++)
    if (strcmp(name, columns[i].name) == 0) return false;
  return true;
}

static void set(json_t *row, const char *name, json_t *value) { json_object_set_new(row, name, value); }

static json_t *number_or(const json_t *known, double other) {
  return json_is_number(known) ? json_deep_copy(known) : result_number(other);
}

static json_t *count_or(const json_t *known, const int64_t *other) {
  return json_is_integer(known) ? json_deep_copy(known) : other ? json_integer(*other) : json_null();
}

/* A measurement is null in one of two columns: on all of the validation text, or on its beginning alone. */
static void set_either(json_t *row, const char *name, const char *beginning, bool all, double number) {
  set(row, name, result_number(all ? number : (double)NAN));
  set(row, beginning, result_number(all ? (double)NAN : number));
}

static void set_measured(json_t *row, const char *state, const History *h, const json_t *result) {
  const MetricsLine none = {.val_loss = NAN, .bits_per_byte = NAN, .exact = NAN, .accuracy = NAN};
  const MetricsLine *kept = history_kept(h), *e = kept ? kept : &none;
  const HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  json_t *tokens = count_or(json_object_get(result, "tokens"), last ? &last->tokens : NULL);
  json_t *seconds = number_or(json_object_get(result, "seconds"), last ? last->seconds : (double)NAN);
  set_either(row, "bits_per_byte", "bits_per_byte_beginning", e->all, e->bits_per_byte);
  set_either(row, "val_loss", "val_loss_beginning", e->all, e->val_loss);
  set_either(row, "exact", "exact_beginning", history_counted_all(e), e->exact);
  set_either(row, "accuracy", "accuracy_beginning", history_counted_all(e), e->accuracy);
  set(row, "val_text", kept && h->val_text ? json_sprintf("%016" PRIx64, h->val_text) : json_null());
  set(row, "state", json_string(state));
  set(row, "step", count_or(json_object_get(result, "step"), last ? &last->step : NULL));
  set(row, "kept_step", kept ? json_integer(kept->step) : json_null());
  set(row, "seconds", seconds);
  set(row, "params", count_or(json_object_get(result, "params"), NULL));
  set(row, "tokens_per_s", result_number(json_number_value(tokens) / json_number_value(seconds)));
  set(row, "tokens", tokens);
  set(row, "epochs", number_or(json_object_get(result, "epochs"), (double)NAN));
}

/* Says why a run is damaged. */
static void warn_of_damage(Console *console, const char *dir, const History *history, const Error *damage) {
  if (console && damage->code) console_warning(console, "%s", text_one_line(damage->text, ONE_LINE_BYTES - 1).text);
  else if (console && history->damaged)
    console_warning(console, "%s: %s cannot be read", text_one_line(path_in(dir, CHECKPOINT_METRICS).text, 250).text,
                    text_plural((double)history->damaged, "line").text);
}

/* Adds a run as an object: its settings and the measurements, which replace settings of the same name. */
static bool add_run(json_t *rows, const char *dir, Console *console, Error *error) {
  Error damage = {0};
  History history = {0};
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &damage), *row = result_settings(dir, &damage);
  json_t *name = json_string(dir);
  set(row, "run", name ? name : json_string(text_one_line(dir, ONE_LINE_BYTES - 1).text));
  history_read(&history, path_in(dir, CHECKPOINT_METRICS).text, &damage);
  if (damage.code == EXIT_MEMORY) fail(error, EXIT_MEMORY, "%s", damage.text);
  else warn_of_damage(console, dir, &history, &damage);
  set_measured(row, damage.code || history.damaged ? "damaged" : result_state(dir, result), &history, result);
  history_free(&history);
  json_decref(result);
  json_array_append_new(rows, row);
  return error->code == EXIT_DONE && json_memory_ok(error, "a table of runs");
}

/* ---- seeds ---- */

static bool has_deviation(const struct Column *column) {
  return column + 1 < columns + COLUMNS && column[1].kind == DEVIATION;
}

/* Returns what is equal in runs that differ only in their seed: settings, validation text, how and where they ended. */
static json_t *shared_values(const json_t *row) {
  const char *state = json_string_value(json_object_get(row, "state"));
  json_t *same = json_copy((json_t *)row);
  for (int i = 0; i < COLUMNS; i++)
    if (columns[i].kind != EQUAL) json_object_del(same, columns[i].name);
  if (state && strcmp(state, run_end_names[RUN_PATIENCE]) == 0) json_object_del(same, "step");
  return same;
}

/* Replaces a value of the first row of a group by the mean over the rows, and sets its standard deviation. Equal values
 * stay as they are; a value that a row lacks is unknown. */
static void set_mean(const json_t *rows, const int *groups, int first, const struct Column *column) {
  json_t *row = json_array_get(rows, (size_t)first), *own = json_object_get(row, column->name);
  SeedSum sum = {0};
  bool equal = true, known = true;
  for (int i = first; i < (int)json_array_size(rows); i++) {
    const json_t *value = json_object_get(json_array_get(rows, (size_t)i), column->name);
    if (groups[i] != first) continue;
    equal = equal && json_equal(own, value);
    known = known && json_is_number(value);
    seeds_add(&sum, json_number_value(value));
  }
  if (!equal) set(row, column->name, result_number(known ? seeds_mean(&sum) : (double)NAN));
  if (has_deviation(column)) set(row, column[1].name, result_number(known ? seeds_deviation(&sum) : (double)NAN));
}

/* Makes the first row of a group that of the whole group: it keeps its name and lists the seeds. */
static json_t *group_row(const json_t *rows, const int *groups, int first) {
  json_t *row = json_array_get(rows, (size_t)first), *seeds = json_array();
  for (int i = 1; i < COLUMNS; i++)
    if (columns[i].kind != DEVIATION) set_mean(rows, groups, first, &columns[i]);
  for (int i = first; i < (int)json_array_size(rows); i++)
    if (groups[i] == first) {
      json_t *seed = json_object_get(json_array_get(rows, (size_t)i), "seed");
      json_array_append(seeds, seed ? seed : json_null());
    }
  set(row, "seeds", json_integer((json_int_t)json_array_size(seeds)));
  if (json_array_size(seeds) > 1) json_object_set(row, "seed", seeds);
  json_decref(seeds);
  return row;
}

/* Returns rows in which runs that differ only in their seed are one; `apart`: each run is a row. EXIT_MEMORY. */
static json_t *group_rows(const json_t *rows, bool apart, Error *error) {
  const int count = (int)json_array_size(rows);
  int *groups = malloc((size_t)count * sizeof *groups);
  json_t *out = json_array(), *known = json_object();
  if (!groups) error_memory(error, "a table of runs");
  for (int i = 0; groups && i < count; i++) {
    json_t *same = shared_values(json_array_get(rows, (size_t)i));
    groups[i] = apart ? i : seeds_group(known, same, i, error);
    json_decref(same);
  }
  for (int i = 0; groups && i < count; i++)
    if (groups[i] == i) json_array_append(out, group_row(rows, groups, i));
  free(groups);
  json_decref(known);
  return out;
}

/* ---- names ---- */

/* Returns whether runs differ in a setting. A damaged run without any settings is ignored. */
static bool differs(json_t *const *rows, size_t count, const char *name) {
  const json_t *first = NULL; /* the first run that has settings */
  for (size_t i = 0; i < count; i++) {
    if (json_object_size(rows[i]) == COLUMNS) continue;
    if (!first) first = rows[i];
    const json_t *one = json_object_get(first, name), *other = json_object_get(rows[i], name);
    if (!one != !other || (one && !json_equal(one, other))) return true;
  }
  return false;
}

/* Returns the names of all values in the rows, in table order. A name is true when it is a column of the whole table,
 * and false when it is a setting that is equal in all runs, or the directory. */
static json_t *known_columns(const RunsTable *runs, json_t *const *rows, size_t count) {
  json_t *known = json_object(), *value;
  const char *name;
  set(known, columns[0].name, json_true());
  for (size_t i = 0; i < count; i++) {
    json_object_foreach(rows[i], name, value) {
      const bool internal = options_setting_kind(runs->options, name) == SETTING_INTERNAL;
      if (!is_setting(name) || internal || json_object_get(known, name)) continue;
      set(known, name, json_boolean(strcmp(name, "out") != 0 && differs(rows, count, name)));
    }
  }
  for (int i = 1; i < COLUMNS; i++) set(known, columns[i].name, json_true());
  return known;
}

static bool fail_column(const json_t *known, const char *flag, const char *given, Error *error) {
  const char *name, *between = "";
  json_t *listed;
  fail(error, EXIT_USAGE, "%s: there is no column %s; the columns are ", flag, text_one_line(given, 60).text);
  json_object_foreach((json_t *)known, name, listed) {
    if (!json_is_true(listed)) continue;
    error_append(error, "%s%s", between, text_one_line(name, WIDEST).text);
    between = ", ";
  }
  return false;
}

static bool check_sort(const json_t *known, const char *sort, Error *error) {
  return !sort || json_is_true(json_object_get(known, sort + (sort[0] == '-'))) ||
         fail_column(known, "--sort", sort, error);
}

/* ---- the most informative columns ---- */

/* A number of seeds says nothing where it is one in all rows. */
static bool is_empty(const Table *table, const char *name) {
  const bool seeds = strcmp(name, "seeds") == 0;
  for (size_t i = 0; i < table->row_count; i++) {
    const json_t *value = json_object_get(table->rows[i], name);
    if (value && !json_is_null(value) && !(seeds && json_integer_value(value) == 1)) return false;
  }
  return true;
}

/* Returns whether a column has values that can be compared. */
static bool is_comparable(const Table *table, const Ranking *ranking, const char *name) {
  return !is_empty(table, name) && !(strcmp(name, "val_text") == 0 && ranking->texts < 2) &&
         !(ranking_is_per_token(name) && ranking->tokens_differ);
}

/* Lists the settings that differ: the ones that people vary first, then those that depend on them. A path whose last
 * part is equal in all runs does not differ. */
static json_t *informative_settings(const RunsTable *runs, const Table *table, const json_t *known) {
  static const char *const first[] = {"dim",  "layers", "lr",        "muon-lr", "ctx",   "arch",    "data",
                                      "init", "val",    "tokenizer", "steps",   "batch", "dropout", "seed"};
  json_t *settings = json_object(), *listed;
  const char *name;
  for (size_t i = 0; i < sizeof first / sizeof *first; i++)
    if (json_is_true(json_object_get(known, first[i])) && differs(table->rows, table->row_count, first[i]))
      json_object_set_new(settings, first[i], json_true());
  json_object_foreach((json_t *)known, name, listed) {
    if (json_is_true(listed) && is_setting(name) && options_setting_kind(runs->options, name) != SETTING_ASIDE &&
        differs(table->rows, table->row_count, name))
      json_object_set_new(settings, name, json_true());
  }
  return settings;
}

typedef struct Fit {
  const Table *table;
  json_t *chosen; /* an object with the names */
  int left;       /* characters left in the line */
} Fit;

static void add_if_it_fits(Fit *fit, const char *name) {
  const int width = table_column_width(fit->table, name);
  if (width > fit->left || json_object_get(fit->chosen, name)) return;
  json_object_set_new(fit->chosen, name, json_true());
  fit->left -= width + TABLE_GAP;
}

/* Chooses the run, its score and validation text, then settings and measurements in turn, as long as they fit. */
static json_t *choose_informative(const RunsTable *runs, const Table *table, const json_t *known,
                                  const Ranking *ranking) {
  enum { SCORES = 6 }; /* the score, the number of seeds, the validation text, the score on its beginning */
  Fit fit = {table, json_object(), runs->width};
  json_t *settings = informative_settings(runs, table, known);
  void *setting = json_object_iter(settings);
  int results = 0;
  add_if_it_fits(&fit, "run");
  for (int i = 1; i <= SCORES; i++)
    if (is_comparable(table, ranking, columns[i].name)) add_if_it_fits(&fit, columns[i].name);
  for (int i = 1; setting || i < COLUMNS; i++) {
    while (i < COLUMNS && !is_comparable(table, ranking, columns[i].name)) i++;
    if (setting) add_if_it_fits(&fit, json_object_iter_key(setting));
    if (i < COLUMNS && results++ < RESULTS) add_if_it_fits(&fit, columns[i].name);
    setting = setting ? json_object_iter_next(settings, setting) : NULL;
  }
  json_decref(settings);
  return fit.chosen;
}

/* ---- the requested columns ---- */

/* Adds a column unless the table has it. The names of columns point into `known`. */
static void add_column(Table *table, json_t *known, const char *name) {
  for (size_t i = 0; i < table->column_count; i++)
    if (strcmp(table->columns[i], name) == 0) return;
  table->columns[table->column_count++] = json_object_iter_key(json_object_iter_at(known, name));
}

static bool choose_named(Table *table, json_t *known, const char *names, Error *error) {
  char *copy = strdup(names), *rest = copy;
  if (!copy) return error_memory(error, "the columns of a table");
  for (const char *name; (name = strsep(&rest, ",")) && !error->code;)
    if (json_object_get(known, name)) add_column(table, known, name);
    else fail_column(known, "--columns", name, error);
  free(copy);
  return !error->code;
}

/* Chooses the columns of `table` and the width of its widest cell. The caller frees table->columns. *left_out: the
 * number of other columns. EXIT_USAGE. */
static bool choose_columns(Table *table, json_t *known, const RunsTable *runs, const Ranking *ranking, size_t *left_out,
                           Error *error) {
  const bool for_people = runs->format <= TABLE_LAST_FOR_PEOPLE, all = runs->columns && !strcmp(runs->columns, "all");
  const size_t most = json_object_size(known) + (runs->columns ? strlen(runs->columns) : 0);
  json_t *listed;
  const char *name;
  table->widest = runs->width < 2 * WIDEST ? runs->width / 2 : WIDEST;
  table->columns = malloc((most + 1) * sizeof *table->columns);
  if (!table->columns) return error_memory(error, "the columns of a table");
  if (runs->columns && !all) return choose_named(table, known, runs->columns, error);
  json_t *informative = for_people && !all ? choose_informative(runs, table, known, ranking) : NULL;
  json_object_foreach(known, name, listed) {
    if (!json_is_true(listed) || (for_people && is_empty(table, name))) continue;
    if (!informative || json_object_get(informative, name)) add_column(table, known, name);
    else ++*left_out;
  }
  json_decref(informative);
  return true;
}

/* ---- values for people ---- */

/* Returns the last part of a path; of a list of paths "a.txt, b.txt". */
static json_t *bases_of(const json_t *paths) {
  json_t *all = NULL;
  for (size_t i = 0; i < (json_is_array(paths) ? json_array_size(paths) : 1); i++) {
    const char *path = json_string_value(json_is_array(paths) ? json_array_get(paths, i) : paths);
    if (!path) continue;
    const char *base = path_base(path)[0] ? path_base(path) : path;
    json_t *before = all;
    all = before ? json_sprintf("%s, %s", json_string_value(before), base) : json_string(base);
    json_decref(before);
  }
  return all ? all : json_null();
}

/* Writes means and standard deviations into one cell. */
static void join_deviations(json_t *row, const char *sign) {
  for (int i = 0; i < COLUMNS; i++) {
    if (!has_deviation(&columns[i])) continue;
    const char *name = columns[i].name, *deviation = columns[i + 1].name;
    const double mean = result_value(row, name), width = result_value(row, deviation);
    if (!isnan(width)) set(row, name, json_sprintf("%.5g %s %.2g", mean, sign, width));
    set(row, deviation, json_null());
  }
}

/* Replaces the state by words, and each path by the part after its last slash. */
static void make_readable(const RunsTable *runs, json_t *row) {
  json_t *value;
  const char *name, *state = json_string_value(json_object_get(row, "state"));
  json_object_set_new(row, "state", json_string(state ? result_state_words(state, true) : NULL));
  json_object_foreach(row, name, value) {
    const bool path = options_setting_kind(runs->options, name) == SETTING_PATH;
    if (path && (json_is_string(value) || json_is_array(value))) set(row, name, bases_of(value));
  }
}

/* ---- the table ---- */

/* Sorts the rows, and replaces states, fingerprints and paths by words, labels and names in a table for people. */
static bool order(const RunsTable *runs, Table *table, Ranking *ranking, Error *error) {
  const char *sort = runs->sort ? runs->sort : "bits_per_byte";
  if (!ranking_sort(ranking, table->rows, table->row_count, sort, error)) return false;
  if (runs->format > TABLE_LAST_FOR_PEOPLE) return true;
  ranking_label(table->rows, table->row_count);
  for (size_t i = 0; i < table->row_count; i++) {
    make_readable(runs, table->rows[i]);
    if (!runs->columns)
      join_deviations(table->rows[i], runs->format != TABLE_TEXT || runs->console->utf8 ? "\xC2\xB1" : "+-");
  }
  return true;
}

static void print_notes(const RunsTable *runs, const Table *table, const Ranking *ranking, size_t left_out) {
  size_t means = 0;
  if (runs->format > TABLE_LAST_FOR_PEOPLE) return;
  for (size_t i = 0; i < table->row_count; i++) means += result_value(table->rows[i], "seeds") > 1;
  if (means)
    console_note(runs->console,
                 "rows with several seeds: %zu; they have the mean and the standard deviation of runs that differ only "
                 "in their seed, and the name of the first; --by-seed shows each run",
                 means);
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
  json_t *known = known_columns(runs, table.rows, table.row_count);
  bool ok = check_sort(known, runs->sort, error) && order(runs, &table, &ranking, error) &&
            choose_columns(&table, known, runs, &ranking, &left_out, error) && json_memory_ok(error, "a table of runs");
  if (ok) table_print(&table, runs->format, stream);
  ok = ok && (!runs->console || file_flush(stream, "stdout", error)) && json_memory_ok(error, "a table of runs");
  if (ok && runs->console) print_notes(runs, &table, &ranking, left_out);
  free(table.rows);
  free(table.columns);
  json_decref(known);
  return ok;
}

bool runs_print(const RunsTable *table, FILE *stream, Error *error) {
  FoundRuns found = {.console = table->console};
  json_t *rows = json_array();
  bool ok = find_runs(&found, table->dirs, table->count, error);
  for (int i = 0; ok && i < found.count; i++) ok = add_run(rows, found.items[i].dir, table->console, error);
  if (ok) {
    json_t *grouped = group_rows(rows, table->by_seed, error);
    ok = !error->code && print_rows(table, grouped, stream, error);
    json_decref(grouped);
  }
  json_decref(rows);
  find_runs_free(&found);
  return ok;
}
