#include "report/fit.h"

#include "report/result.h"
#include "report/scaling_law.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_LOSS 1e6
#define MOST_EPOCHS 4.0 /* until here repeated text teaches almost as much as new text (Muennighoff et al. 2023) */

/* ---- the points ---- */

typedef struct Points {
  LawPoint *items;
  const char **names; /* of the runs */
  int count;
  const char *column;                 /* of the loss */
  int without_loss, other, repeating; /* left out: no final loss, another text; taken: runs that repeat their text */
} Points;

static const char *text_of(const json_t *row, const char *name) {
  const char *text = json_string_value(json_object_get(row, name));
  return text ? text : "";
}

/* Returns whether the run is a point already: a run may be in two of the directories. */
static bool is_taken(const Points *points, const json_t *row) {
  for (int i = 0; i < points->count; i++)
    if (strcmp(points->names[i], text_of(row, "run")) == 0) return true;
  return false;
}

static bool is_finished(const json_t *row) {
  const char *state = text_of(row, "state");
  for (RunEnd end = RUN_DONE; end <= RUN_PATIENCE; end++)
    if (strcmp(state, run_end_names[end]) == 0) return true;
  return false;
}

/* Takes rows that ranking_sort() has sorted: the largest group with the same validation text comes first. */
static bool take_points(Points *out, json_t *const *rows, size_t count, Error *error) {
  const char *text = NULL;
  out->items = calloc(count + 1, sizeof *out->items);
  out->names = calloc(count + 1, sizeof *out->names);
  if (!out->items || !out->names) return error_memory(error, "a fit");
  for (size_t i = 0; i < count; i++) {
    const double step = result_value(rows[i], "step"), kept = result_value(rows[i], "kept_step");
    const LawPoint point = {.params = result_value(rows[i], "params"),
                            .tokens = result_value(rows[i], "tokens") * kept / step,
                            .loss = result_value(rows[i], out->column)};
    if (!text) text = text_of(rows[i], "val_text");
    if (is_taken(out, rows[i])) continue;
    if (!is_finished(rows[i]) || !(point.params > 0 && point.tokens > 0 && point.loss > 0 && point.loss < LARGEST_LOSS))
      out->without_loss++;
    else if (strcmp(text_of(rows[i], "val_text"), text) != 0) out->other++;
    else {
      out->repeating += result_value(rows[i], "epochs") * kept / step > MOST_EPOCHS;
      out->names[out->count] = text_of(rows[i], "run");
      out->items[out->count++] = point;
    }
  }
  return true;
}

/* ---- what is printed ---- */

static bool fail_fit(const Points *points, const LawFit *fit, LawProblem problem, Error *error) {
  if (problem == LAW_NOTHING_VARIES)
    fail(error, EXIT_INPUT,
         "--fit: neither the parameters nor the tokens of %s vary enough: it needs at least %d sizes or lengths, the "
         "largest at least %g times the smallest",
         text_plural(points->count, "finished run").text, LAW_LEAST_VALUES, LAW_LEAST_SPAN);
  else
    fail(error, EXIT_INPUT, "--fit needs at least %s, and there %s %d",
         text_plural(law_points_needed(fit->of_params || !fit->of_tokens, fit->of_tokens), "finished run").text,
         points->count == 1 ? "is" : "are", points->count);
  if (points->without_loss) error_append(error, "; without a final loss: %d", points->without_loss);
  if (points->other) error_append(error, "; with another validation text: %d", points->other);
  return false;
}

static const char *unit_of(const Points *points) {
  return strcmp(points->column, "val_loss") == 0 ? "nats per token" : "bits per byte";
}

static json_t *rows_of(const LawFit *fit, const char *unit) {
  static const char *const meanings[LAW_TERMS] = {"what remains of the loss with any size and text",
                                                  "A/N^a: the loss from a limited size", "",
                                                  "B/D^b: the loss from limited training", ""};
  json_t *rows = json_array();
  for (int t = 0; t < LAW_TERMS; t++) {
    if (isnan(fit->terms[t])) continue;
    json_t *meaning = t == LAW_E ? json_sprintf("%s, in %s", meanings[t], unit) : json_string(meanings[t]);
    json_array_append_new(rows, json_pack("{s:s,s:o,s:o,s:o,s:o}", "name", law_term_names[t], "value",
                                          result_number(fit->terms[t]), "low", result_number(fit->low[t]), "high",
                                          result_number(fit->high[t]), "meaning", meaning));
  }
  return rows;
}

static void tell_left_out(bool in_law, const char *what, Console *console) {
  if (in_law) return;
  console_note(console,
               "the %s have fewer than %d values, or the largest is less than %g times the smallest: their part "
               "of the loss is in E",
               what, LAW_LEAST_VALUES, LAW_LEAST_SPAN);
}

static void tell_exponent(const LawFit *fit, LawTerm exponent, Console *console) {
  if (isnan(fit->terms[exponent]) || law_is_determined(fit, exponent)) return;
  console_note(console,
               "the runs do not determine %s, whose interval is %.2g to %.2g; more runs, and larger differences in %s, "
               "would narrow it",
               law_term_names[exponent], fit->low[exponent], fit->high[exponent],
               exponent == LAW_EXPONENT_A ? "parameters" : "tokens");
}

static void tell(const Points *points, const LawFit *fit, Console *console) {
  double most = 0, params, tokens;
  console_note(console, "%s; error %.2g %% (root mean square), largest %+.2g %%: %s",
               text_plural(points->count, "run").text, 100 * fit->error, 100 * fit->worst_error,
               points->names[fit->worst]);
  if (points->without_loss)
    console_note(console, "runs without a final loss, which are left out: %d", points->without_loss);
  if (points->other) console_note(console, "runs with another validation text, which are left out: %d", points->other);
  if (points->repeating)
    console_note(console, "%s read the text more than %g times: repeated tokens teach less than the law assumes",
                 text_plural(points->repeating, "run").text, MOST_EPOCHS);
  tell_left_out(fit->of_params, "parameters", console);
  tell_left_out(fit->of_tokens, "tokens", console);
  tell_exponent(fit, LAW_EXPONENT_A, console);
  tell_exponent(fit, LAW_EXPONENT_B, console);
  if (!fit->of_params || !fit->of_tokens || !law_is_determined(fit, LAW_EXPONENT_A) ||
      !law_is_determined(fit, LAW_EXPONENT_B))
    return;
  for (int i = 0; i < points->count; i++) most = fmax(most, 6 * points->items[i].params * points->items[i].tokens);
  law_optimum(fit, most, &params, &tokens);
  console_note(console,
               "the most operations of a run are %.2g (6 N D): by the law, the best use of them is %s parameters "
               "and %s tokens, with a loss of %.4f %s",
               most, text_count(params).text, text_count(tokens).text, law_loss(fit, params, tokens), unit_of(points));
}

static bool print(const Points *points, const LawFit *fit, TableFormat format, FILE *stream, Console *console,
                  Error *error) {
  static const char *columns[] = {"name", "value", "low", "high", "meaning"};
  enum { COLUMNS = sizeof columns / sizeof *columns, WIDEST = 80 };
  json_t *rows = rows_of(fit, unit_of(points));
  json_t *items[LAW_TERMS];
  Table table = {.rows = items, .columns = columns, .column_count = COLUMNS, .widest = WIDEST};
  for (size_t i = 0; i < json_array_size(rows); i++) items[table.row_count++] = json_array_get(rows, i);
  const bool built = json_memory_ok(error, "a fit");
  if (built) table_print(&table, format, stream);
  json_decref(rows);
  if (!built || !file_flush(stream, "stdout", error)) return false;
  if (format <= TABLE_LAST_FOR_PEOPLE) tell(points, fit, console);
  return true;
}

bool fit_print(json_t *rows, TableFormat format, FILE *stream, Console *console, Error *error) {
  const size_t count = json_array_size(rows);
  Points points = {.column = "val_loss"};
  LawFit fit;
  LawProblem problem;
  Ranking ranking;
  json_t **sorted = malloc((count + 1) * sizeof *sorted);
  if (!sorted) return error_memory(error, "a fit");
  for (size_t i = 0; i < count; i++) {
    sorted[i] = json_array_get(rows, i);
    if (json_is_number(json_object_get(sorted[i], "bits_per_byte"))) points.column = "bits_per_byte";
  }
  const bool ok = ranking_sort(&ranking, sorted, count, points.column, error) &&
                  take_points(&points, sorted, count, error) &&
                  law_fit(&fit, points.items, points.count, &problem, error) &&
                  (problem == LAW_FITS || fail_fit(&points, &fit, problem, error)) &&
                  print(&points, &fit, format, stream, console, error);
  free(sorted);
  free(points.items);
  free(points.names);
  return ok;
}
