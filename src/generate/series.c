#include "generate/series.h"

#include "files/checkpoint/directory.h"
#include "files/formats/model_files.h"
#include "report/result.h"
#include "base/array.h"
#include "base/path.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool series_is(const char *dir) {
  return access(path_in(dir, CHECKPOINT_MANIFEST).text, F_OK) == 0 &&
         access(path_in(dir, MODEL_FILE_CONFIG).text, F_OK) != 0;
}

static bool add(ModelSeries *series, SeriesModel model, const char *dir, Error *error) {
  if (!array_reserve(&series->models, &series->capacity, series->count + 1, sizeof model) || !(model.dir = strdup(dir)))
    return error_memory(error, "a list of models");
  series->models[series->count++] = model;
  return true;
}

/* Returns whether a name is that of a directory beside the manifest, which can be printed anywhere. */
static bool is_name(const char *name) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  return name && *name && *name != '.' && !name[strspn(name, allowed)];
}

static bool is_count(const json_t *value) { return json_is_integer(value) && json_integer_value(value) >= 0; }

static bool is_number_or_null(const json_t *value) { return json_is_number(value) || json_is_null(value); }

static bool add_listed(ModelSeries *series, const char *dir, const json_t *item, size_t number, Error *error) {
  const PathText manifest = path_in(dir, CHECKPOINT_MANIFEST);
  const char *name = json_string_value(json_object_get(item, "model"));
  const json_t *step = json_object_get(item, "step"), *tokens = json_object_get(item, "tokens");
  if (!is_name(name))
    return fail(error, EXIT_CHECKPOINT,
                "%s is damaged: model %zu needs the name of a directory beside it (letters, digits, -, _ and .)%s%s",
                manifest.text, number, name ? ", not " : "", name ? text_one_line(name, 100).text : "");
  if (!is_count(step) || !is_count(tokens) || !is_number_or_null(json_object_get(item, "words")) ||
      !is_number_or_null(json_object_get(item, "val_loss")))
    return fail(error, EXIT_CHECKPOINT, "%s is damaged: model %zu, %s, needs step, tokens, words and val_loss",
                manifest.text, number, text_one_line(name, 100).text);
  const SeriesModel model = {.step = json_integer_value(step),
                             .tokens = json_integer_value(tokens),
                             .words = result_value(item, "words"),
                             .val_loss = result_value(item, "val_loss")};
  return add(series, model, path_in(dir, name).text, error);
}

bool series_add(ModelSeries *series, const char *dir, Error *error) {
  if (!series_is(dir))
    return add(series, (SeriesModel){.step = -1, .tokens = -1, .words = NAN, .val_loss = NAN}, dir, error);
  const PathText manifest = path_in(dir, CHECKPOINT_MANIFEST);
  Error why = {0};
  json_t *list = result_json(dir, CHECKPOINT_MANIFEST, &why), *item;
  size_t i;
  bool ok = true;
  if (why.code) ok = fail(error, why.code == EXIT_MEMORY ? EXIT_MEMORY : EXIT_CHECKPOINT, "%s", why.text);
  else if (!json_array_size(list)) ok = fail(error, EXIT_CHECKPOINT, "%s lists no models", manifest.text);
  json_array_foreach(list, i, item) ok = ok && add_listed(series, dir, item, i + 1, error);
  json_decref(list);
  return ok;
}

void series_free(ModelSeries *series) {
  for (size_t i = 0; i < series->count; i++) free(series->models[i].dir);
  free(series->models);
  *series = (ModelSeries){0};
}
