#include "report/result.h"

#include "files/checkpoint/directory.h"
#include "cli/options.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const run_end_names[RUN_ENDS + 1] = {"done", "minutes", "patience", "signal", "nonfinite", NULL};

double result_value(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

json_t *result_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Replaces bytes that are not UTF-8, which JSON cannot have. */
static json_t *string_of(const char *text) {
  json_t *string = json_string(text);
  return string ? string : json_string(text_one_line(text, ONE_LINE_BYTES - 1).text);
}

/* ---- settings ---- */

/* Returns a number, a switch or a text. */
static json_t *setting_value(const char *text, bool quoted) {
  char *end;
  if (quoted || !*text) return string_of(text);
  const long long whole = strtoll(text, &end, 10);
  if (!*end && whole > INT64_MIN && whole < INT64_MAX) return json_integer(whole);
  const double real = strtod(text, &end);
  if (!*end && isfinite(real) && !text[strspn(text, "+-.0123456789eE")]) return json_real(real);
  if (strcmp(text, "yes") == 0 || strcmp(text, "no") == 0) return json_boolean(text[0] == 'y');
  return string_of(text);
}

/* The values of a repeated setting (data) become a list. */
static bool add_setting(void *context, const OptionLine *line, Error *error) {
  const OneLine name = text_one_line(line->name, ONE_LINE_BYTES - 1); /* any bytes in a damaged file */
  json_t *settings = context, *before = json_object_get(settings, name.text);
  if (!line->value) return true;
  json_t *value = setting_value(line->value, line->quoted);
  if (json_is_array(before)) return json_array_append_new(before, value) == 0 || error_memory(error, "result.json");
  if (before) value = json_pack("[O,o]", before, value);
  return json_object_set_new(settings, name.text, value) == 0 || error_memory(error, "result.json");
}

json_t *result_settings(const char *dir, Error *error) {
  json_t *settings = json_object();
  option_file_read(path_in(dir, CHECKPOINT_SETTINGS).text, EXIT_INPUT, add_setting, settings, error);
  return settings;
}

/* ---- states ---- */

const char *result_state(const char *dir, const json_t *result) {
  const char *end = json_string_value(json_object_get(result, "end"));
  for (int i = 0; end && i < RUN_ENDS; i++)
    if (strcmp(end, run_end_names[i]) == 0) return run_end_names[i];
  return result ? "damaged" : checkpoint_is_locked(dir) ? "running" : "killed";
}

const char *result_state_words(const char *state, bool brief) {
  static const char *const shown[RUN_ENDS][2] = {{"done", "done"},
                                                 {"done", "done (the time was up)"},
                                                 {"early stop", "done (stopped early: --patience)"},
                                                 {"interrupted", "stopped (can be resumed)"},
                                                 {"not finite", "failed: loss not finite"}};
  for (int i = 0; i < RUN_ENDS; i++)
    if (strcmp(state, run_end_names[i]) == 0) return shown[i][!brief];
  return state;
}

json_t *result_json(const char *dir, const char *name, Error *error) {
  const PathText path = path_in(dir, name);
  MappedFile file;
  if (access(path.text, F_OK) != 0 && errno == ENOENT) return NULL;
  if (!file_map(&file, path.text, EXIT_INPUT, error)) return NULL;
  json_t *result = json_parse(file.bytes, file.size, 0, NULL, path.text, error);
  file_unmap(&file);
  if (!result) fail(error, EXIT_INPUT, "%s is not valid JSON", path.text);
  return result;
}

json_t *result_settings_text(char *text, Error *error) {
  json_t *settings = json_object();
  option_file_read_text(text, CHECKPOINT_SETTINGS, EXIT_INTERNAL, add_setting, settings, error);
  return settings;
}

/* ---- measurements ---- */

/* Returns tokens per second of training, without evaluating, saving and sampling. NaN: nothing was logged. */
static double training_speed(const History *h) {
  double tokens = 0, seconds = 0;
  for (int i = 0; i < h->count; i++) {
    tokens += h->points[i].timed_tokens;
    seconds += h->points[i].timed_seconds;
  }
  return seconds > 0 ? tokens / seconds : (double)NAN;
}

static json_t *evaluation_of(const MetricsLine *e) {
  if (!e) return json_null();
  json_t *object = json_pack("{s:I,s:s,s:o,s:o}", "step", (json_int_t)e->step, "over", e->all ? "all" : "beginning",
                             "loss", result_number(e->val_loss), "bits_per_byte", result_number(e->bits_per_byte));
  if (object && !isnan(e->exact)) json_object_set_new(object, "exact", result_number(e->exact));
  if (object && !isnan(e->accuracy)) json_object_set_new(object, "accuracy", result_number(e->accuracy));
  return object;
}

static json_t *diagnoses(const History *h) {
  json_t *list = json_array();
  for (size_t i = 0; i < h->diagnosis_count; i++)
    json_array_append_new(list, json_pack("{s:I,s:s,s:s}", "step", (json_int_t)h->diagnoses[i].step, "verdict",
                                          h->diagnoses[i].diagnosis, "text", h->diagnoses[i].text));
  return list;
}

/* ---- the whole result ---- */

/* A failed allocation is reported by json_text(). */
static void set(json_t *object, const char *name, json_t *value) { json_object_set_new(object, name, value); }

static json_t *phases_of(const PhaseClock *clock) {
  json_t *object = json_object();
  for (int i = 0; i < PHASES; i++) set(object, phase_names[i], json_real(clock->seconds[i]));
  return object;
}

static json_t *result_object(const RunResult *r, const History *h, Error *error) {
  json_t *out = json_object();
  set(out, "end", json_string(run_end_names[r->end]));
  set(out, "run", string_of(r->dir));
  set(out, "version", json_string(r->version));
  set(out, "device", json_string(r->device));
  set(out, "dtype", json_string(r->dtype));
  set(out, "params", json_integer(r->parameters));
  set(out, "params_without_embeddings", json_integer(r->without_embeddings));
  set(out, "flops_per_step", json_real(r->flops_per_step));
  set(out, "step", json_integer(r->step));
  set(out, "tokens", json_integer(r->tokens));
  set(out, "epochs", result_number(r->epochs));
  set(out, "seconds", result_number(r->seconds));
  set(out, "phases", phases_of(r->phases));
  set(out, "tokens_per_s", result_number((double)r->tokens / r->seconds));
  set(out, "train_tokens_per_s", result_number(training_speed(h)));
  set(out, "loss", result_number(h->count ? h->last_loss : (double)NAN));
  set(out, "kept", evaluation_of(history_kept(h)));
  set(out, "last", evaluation_of(history_last(h)));
  set(out, "val_text", h->val_text ? json_sprintf("%016" PRIx64, h->val_text) : json_null());
  set(out, "xz_bits_per_byte", result_number(h->xz_bits_per_byte > 0 ? h->xz_bits_per_byte : (double)NAN));
  set(out, "budgets", r->budgets ? r->budgets : json_array());
  set(out, "verdicts", diagnoses(h));
  set(out, "settings", result_settings(r->dir, error));
  return out;
}

bool result_write(const RunResult *result, const History *history, Error *error) {
  json_t *object = result_object(result, history, error);
  char *text =
      error->code ? NULL : json_text(object, JSON_INDENT(2) | JSON_REAL_PRECISION(10), CHECKPOINT_RESULT, error);
  const bool ok = text && file_write_in(result->dir, CHECKPOINT_RESULT, text, strlen(text), error);
  free(text);
  json_decref(object);
  return ok;
}
