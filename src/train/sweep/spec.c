#define _DEFAULT_SOURCE /* strsep() */
#include "train/sweep/internal.h"

#include "kernels/philox.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AXES = 32, VALUES = 1000 };

/* An option and its values: a list, or a range. */
typedef struct Axis {
  const char *name;
  const char *values[VALUES];
  int count; /* 0: a range */
  double low, high;
  bool whole; /* whole numbers are drawn */
} Axis;

typedef struct Reader {
  const Options *options;
  const TrainSettings *settings;
  const char *path; /* of the file; NULL: the description is on the command line */
  int line;
  json_t *runs, *seen; /* seen: an object whose keys are the runs, as text */
  Axis *axes;          /* [AXES], of the line */
  int count;
  Error *error;
} Reader;

__attribute__((format(printf, 2, 3))) static bool refuse(Reader *r, const char *format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return r->path ? fail(r->error, EXIT_USAGE, "%s:%d: %s", text_one_line(r->path, 200).text, r->line, text)
                 : fail(r->error, EXIT_USAGE, "--sweep: %s", text);
}

/* ---- words ---- */

static bool check_value(Reader *r, const char *name, const char *value, const Option **row) {
  Error wrong = {0};
  if (option_is_among("config help help-all version", name, strlen(name)))
    return refuse(r, "%s cannot differ between the runs of a sweep", name);
  *row = options_check(r->options, name, value, &wrong);
  return *row || refuse(r, "%s", wrong.text);
}

static const char SPACES[] = " \t\r";

/* Cuts off a value, which ends before a comma or a space, or is "quoted", with "" for a quote. Moves *at behind what
 * ends it, which is stored. NULL: a quote is missing. */
static char *cut_value(char **at, char *end, bool *quoted) {
  char *value = *at, *in = value, *out = value;
  *quoted = *in == '"';
  bool closed = !*quoted;
  if (closed)
    while (*in && *in != ',' && !strchr(SPACES, *in)) *out++ = *in++;
  for (in += *quoted; *in && !closed; in++) {
    closed = *in == '"' && in[1] != '"';
    if (*in == '"' && !closed) in++;
    if (!closed) *out++ = *in;
  }
  closed = closed && (!*in || *in == ',' || strchr(SPACES, *in));
  *end = *in;
  *at = in + (*in != 0);
  *out = 0;
  return closed ? value : NULL;
}

static bool take_range(Reader *r, Axis *axis, char *text, const Option **row) {
  char *dots = strstr(text, "..");
  *dots = 0;
  const char *high = dots + 2;
  if (!check_value(r, axis->name, text, row) || !check_value(r, axis->name, high, row)) return false;
  axis->whole = (*row)->kind == OPTION_WHOLE;
  axis->low = strtod(text, NULL);
  axis->high = strtod(high, NULL);
  if (!axis->whole && (*row)->kind != OPTION_REAL)
    return refuse(r, "%s=%s..%s: only numbers can be drawn; list the values: %s=A,B", axis->name, text, high,
                  axis->name);
  return axis->low < axis->high ||
         refuse(r, "%s=%s..%s: the first number must be smaller than the second", axis->name, text, high);
}

static bool take_values(Reader *r, Axis *axis, char **at, const Option **row) {
  for (char end = ','; end == ',';) {
    bool quoted;
    char *value = cut_value(at, &end, &quoted);
    if (!value)
      return refuse(r,
                    "%s: a quoted value must end with a quote and be followed by a comma or a space; write a quote "
                    "inside it as \"\"",
                    axis->name);
    const bool alone = !axis->count && end != ',' && !quoted;
    if (alone && strstr(value, "..") && !strchr(value, '/')) return take_range(r, axis, value, row);
    if (axis->count == VALUES) return refuse(r, "%s has more than %d values", axis->name, VALUES);
    if (!check_value(r, axis->name, value, row)) return false;
    axis->values[axis->count++] = value;
  }
  return true;
}

/* Takes a word "name=values" at *at, which is modified, and moves *at behind it. */
static bool take_word(Reader *r, char **at) {
  const Option *row = NULL;
  char *word = *at, *equals = word + strcspn(word, "= \t\r");
  if (*equals != '=' || equals == word) {
    *equals = 0;
    return refuse(r, "got \"%.100s\", need a file or OPTION=VALUE,...; values with spaces or commas need double quotes",
                  word);
  }
  if (r->count == AXES) return refuse(r, "more than %d options", AXES);
  Axis *axis = &r->axes[r->count++];
  *equals = 0;
  *axis = (Axis){.name = word + (strncmp(word, "--", 2) == 0 ? 2 : 0)};
  for (const Axis *other = r->axes; other < axis; other++)
    if (strcmp(other->name, axis->name) == 0) return refuse(r, "%s is given twice", axis->name);
  *at = equals + 1;
  if (!take_values(r, axis, at, &row)) return false;
  /* Runs are compared on the same text, after the same parts of their steps. */
  const bool compared =
      option_is_among("out minutes val val-frac eval-every eval-tokens threads", row->name, strlen(row->name));
  const bool timed = !isnan(r->settings->minutes) && option_is_among("steps epochs", row->name, strlen(row->name));
  return !(row->transient || row->positional || compared || timed) ||
         refuse(r, "%s cannot differ between the runs of a sweep%s", axis->name, timed ? " with --minutes" : "");
}

/* ---- runs ---- */

static double drawn(const Reader *r, int axis, int draw) {
  const Axis *a = &r->axes[axis];
  const PhiloxWords words = philox(r->settings->seed, (uint32_t)axis, SITE_SWEEP, (uint32_t)draw, (uint32_t)r->line);
  const double u = (double)philox_uniform(words.word[0]);
  if (a->low > 0 && a->high >= 10 * a->low) return a->low * pow(a->high / a->low, u);
  return a->low + u * (a->high - a->low);
}

/* Returns a drawn number with as many digits as its range needs, at least three. */
static json_t *number_text(const Axis *a, double number) {
  const double most = 0.005 * fmin(fabs(number), a->high - a->low);
  char text[32];
  for (int digits = 3; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, number);
    const double rounded = strtod(text, NULL);
    if (rounded >= a->low && rounded <= a->high && fabs(rounded - number) <= most) break;
  }
  return json_string(text);
}

static json_t *value_of(const Reader *r, int axis, int index, int draw) {
  const Axis *a = &r->axes[axis];
  if (a->count) return json_string(a->values[index]);
  return a->whole ? json_sprintf("%.0f", drawn(r, axis, draw)) : number_text(a, drawn(r, axis, draw));
}

/* Adds the combination with this number, counted with the last axis fastest. */
static void add_run(Reader *r, int number, int draw) {
  int index[AXES];
  for (int i = r->count - 1; i >= 0; i--) {
    const int count = r->axes[i].count ? r->axes[i].count : 1;
    index[i] = number % count;
    number /= count;
  }
  json_t *run = json_object();
  for (int i = 0; i < r->count; i++) json_object_set_new(run, r->axes[i].name, value_of(r, i, index[i], draw));
  char *key = json_text(run, JSON_SORT_KEYS, "a sweep", r->error);
  if (key && !json_object_get(r->seen, key)) json_array_append(r->runs, run);
  if (key) json_object_set_new(r->seen, key, json_true());
  free(key);
  json_decref(run);
}

static bool take_line(Reader *r, char *line) {
  r->count = 0;
  for (line += strspn(line, SPACES); *line && *line != '#'; line += strspn(line, SPACES))
    if (!take_word(r, &line)) return false;
  int64_t combinations = r->count > 0;
  bool range = false;
  for (int i = 0; i < r->count && combinations <= SWEEP_MAX_RUNS; i++)
    if (r->axes[i].count) combinations *= r->axes[i].count;
    else range = true;
  const int draws = range ? r->settings->draws : 1;
  if (combinations * draws + (int64_t)json_array_size(r->runs) > SWEEP_MAX_RUNS)
    return refuse(r, "more than %d runs", SWEEP_MAX_RUNS);
  for (int draw = 0; draw < draws; draw++)
    for (int i = 0; i < (int)combinations; i++) add_run(r, i, draw);
  return true;
}

/* `text` has `size` bytes. */
static bool take_text(Reader *r, char *text, size_t size) {
  json_t *whole = json_stringn(text, size);
  json_decref(whole);
  if (!whole && !json_memory_ok(r->error, "a sweep")) return false;
  if (!whole || strlen(text) < size) return refuse(r, "the description is not UTF-8 text");
  if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3;
  r->axes = malloc(AXES * sizeof *r->axes);
  if (!r->axes) return error_memory(r->error, "a sweep");
  bool ok = true;
  for (char *line; ok && (line = strsep(&text, "\n"));) {
    r->line++;
    ok = take_line(r, line);
  }
  free(r->axes);
  return ok && json_memory_ok(r->error, "a sweep") &&
         (json_array_size(r->runs) > 0 || refuse(r, "no run is described"));
}

json_t *sweep_spec_read(const Options *options, const TrainSettings *settings, Error *error) {
  const char *given = settings->sweep;
  const bool is_file = access(given, F_OK) == 0;
  Reader r = {.options = options,
              .settings = settings,
              .path = is_file ? given : NULL,
              .runs = json_array(),
              .seen = json_object(),
              .error = error};
  MappedFile file = {(const uint8_t *)given, strlen(given)};
  if (!is_file || file_map(&file, given, EXIT_INPUT, error)) {
    char *text = calloc(file.size + 1, 1);
    if (text && file.size) memcpy(text, file.bytes, file.size);
    if (text) take_text(&r, text, file.size);
    else error_memory(error, "a sweep");
    free(text);
    if (is_file) file_unmap(&file);
  }
  json_decref(r.seen);
  if (!error->code) return r.runs;
  json_decref(r.runs);
  return NULL;
}
