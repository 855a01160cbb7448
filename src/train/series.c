/* Models kept on the way: --keep-at. Each is a Hugging Face model directory in the folder `series` of the run. */
#include "report/result.h"
#include "train/run.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static const char *const unit_names[] = {"steps", "tokens", "words", NULL}; /* as SeriesUnit */

static bool add_point(Series *series, double at, Error *error) {
  if (series->count == SERIES_MOST) return fail(error, EXIT_USAGE, "--keep-at: more than %d models", SERIES_MOST);
  if (series->count && at <= series->at[series->count - 1])
    return fail(error, EXIT_USAGE, "--keep-at: %.10g follows %.10g; write each number once, in increasing order", at,
                series->at[series->count - 1]);
  series->at[series->count++] = at;
  return true;
}

/* Adds a number such as 500, 2k, 1.5M or 1G. */
static bool add_number(Series *series, const char *text, size_t length, Error *error) {
  static const char suffixes[] = "kMG";
  char *end;
  double at = strtod(text, &end);
  const char *suffix = *end ? strchr(suffixes, *end) : NULL;
  if (suffix && end < text + length) {
    at *= pow(1000, (double)(suffix - suffixes + 1));
    end++;
  }
  if (end != text + length || end == text || !(at >= 0 && at <= 1e18))
    return fail(error, EXIT_USAGE, "--keep-at: got \"%.*s\", need a number such as 500, 10k or 1.5M",
                (int)(length < 100 ? length : 100), text);
  return add_point(series, at, error);
}

bool run_read_series(const TrainSettings *s, Series *series, Error *error) {
  *series = (Series){.words_per_token = NAN};
  if (!s->keep_at || strcmp(s->keep_at, "none") == 0) return true;
  if (strcmp(s->keep_at, "log") == 0) {
    add_point(series, 0, error);
    for (double at = 1; at <= (double)SETTINGS_MAX_STEPS; at *= 2) add_point(series, at, error);
    return true;
  }
  const char *colon = strchr(s->keep_at, ':');
  const size_t length = colon ? (size_t)(colon - s->keep_at) : 0;
  while (unit_names[series->unit] && !(colon && strlen(unit_names[series->unit]) == length &&
                                       memcmp(s->keep_at, unit_names[series->unit], length) == 0))
    series->unit++;
  if (!unit_names[series->unit])
    return fail(error, EXIT_USAGE,
                "--keep-at: got \"%.100s\", need log, or steps, tokens or words and numbers: words:1M,2M,10M",
                s->keep_at);
  for (const char *at = colon + 1; at; at = *at ? at + 1 : NULL) {
    const size_t size = strcspn(at, ",");
    if (!add_number(series, at, size, error)) return false;
    at += size;
  }
  return true;
}

/* ---- words ---- */

/* Counts the words of the training text: what white space or the end of a document separates. */
static bool count_words(const RunText *text, double *words, Error *error) {
  enum { BLOCK = 4096 };
  int32_t ids[BLOCK];
  bool inside = false;
  *words = 0;
  for (int64_t at = text->train.range.begin, count; at < text->train.range.end; at += count) {
    count = text->train.range.end - at < BLOCK ? text->train.range.end - at : BLOCK;
    if (!token_file_read(text->train.range.file, at, count, ids, error)) return false;
    for (int64_t i = 0; i < count; i++) {
      size_t size;
      const uint8_t *bytes = tokenizer_decode(text->tokenizer, ids[i], &size);
      if (!size) inside = false;
      for (size_t k = 0; k < size; k++) {
        const bool space = text_is_space(bytes[k]);
        *words += !space && !inside;
        inside = !space;
      }
    }
  }
  return true;
}

/* ---- before the run ---- */

static double tokens_at(const Run *r, int64_t step) {
  return (double)step * (double)settings_tokens_per_step(&r->settings);
}

static double amount_at(const Run *r, int64_t step) {
  const Series *series = &r->series;
  return series->unit == SERIES_STEPS    ? (double)step
         : series->unit == SERIES_TOKENS ? tokens_at(r, step)
                                         : tokens_at(r, step) * series->words_per_token;
}

/* Warns of models that the run ends too early for. */
static void tell_unreached(Run *r) {
  const Series *series = &r->series;
  const double end = amount_at(r, r->settings.steps);
  int missing = 0;
  while (missing < series->count && series->at[series->count - 1 - missing] > end) missing++;
  if (!missing || strcmp(r->settings.keep_at, "log") == 0) return;
  console_warning(&r->console, "%d of the %s of --keep-at will not be kept: the run ends after %s %s", missing,
                  text_plural(series->count, "model").text, text_count(floor(end)).text, unit_names[series->unit]);
}

bool run_open_series(Run *r, Error *error) {
  Series *series = &r->series;
  double words = 0;
  if (series->unit == SERIES_WORDS) {
    if (!count_words(&r->text, &words, error)) return false;
    series->words_per_token = words / (double)token_range_size(&r->text.train.range);
  }
  tell_unreached(r);
  return true;
}

/* ---- during the run ---- */

bool run_keeps_now(const Run *r) {
  const int64_t step = r->progress.step;
  const double now = amount_at(r, step), before = step ? amount_at(r, step - 1) : -1;
  for (int i = 0; i < r->series.count; i++)
    if (r->series.at[i] <= now && r->series.at[i] > before) return true;
  return false;
}

/* Adds the model to the list, in place of later ones, which a run that was resumed had kept before. */
static bool write_manifest(const Run *r, const char *folder, const char *name, Error *error) {
  Error none = {0};
  json_t *old = result_json(folder, CHECKPOINT_MANIFEST, &none), *all = json_array(), *item;
  size_t i;
  json_array_foreach(old, i, item) if (json_integer_value(json_object_get(item, "step")) < r->progress.step)
      json_array_append(all, item);
  const bool evaluated = r->progress.evaluated_step == r->progress.step;
  json_array_append_new(all,
                        json_pack("{s:s,s:I,s:I,s:o,s:o}", "model", name, "step", (json_int_t)r->progress.step,
                                  "tokens", (json_int_t)tokens_at(r, r->progress.step), "words",
                                  result_number(tokens_at(r, r->progress.step) * r->series.words_per_token), "val_loss",
                                  result_number(evaluated ? r->progress.newest_val_loss : (double)NAN)));
  char *text = json_text(all, JSON_INDENT(1) | JSON_REAL_PRECISION(12), CHECKPOINT_MANIFEST, error);
  const bool ok = text && file_write_in(folder, CHECKPOINT_MANIFEST, text, strlen(text), error);
  free(text);
  json_decref(all);
  json_decref(old);
  return ok;
}

static bool write_model(Run *r, Error *error) {
  char name[32];
  const PathText folder = path_in(r->files.dir, CHECKPOINT_SERIES);
  snprintf(name, sizeof name, "step-%09" PRId64, r->progress.step);
  const PathText dir = path_in(folder.text, name);
  return file_make_directory(folder.text, error) && file_make_directory(dir.text, error) &&
         run_write_model(r, dir.text, error) && write_manifest(r, folder.text, name, error);
}

static bool keep_model(Run *r, Error *error) {
  return run_download_weights(&r->model, error) && run_alone(r, write_model, error);
}

bool run_keep_model(Run *r, Error *error) { return run_in_phase(r, PHASE_FILES, keep_model, error); }
