#include "report/metrics.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the numbers in a line ---- */

typedef struct Field {
  const char *name;
  size_t offset;  /* offset of a double in MetricsLine */
  unsigned kinds; /* kinds of lines that have the field: bits 1 << MetricsKind */
  bool optional;  /* NaN: left out if optional, else written as null */
} Field;

/* Kinds of lines with a validation loss. */
enum { MEASURED = 1u << METRICS_EVALUATION | 1u << METRICS_KEPT };

#define NUMBER(name, kinds, optional)                                                                                  \
  { #name, offsetof(MetricsLine, name), kinds, optional }
static const Field fields[] = {
    NUMBER(loss, 1u << METRICS_STEPS, false),
    NUMBER(lr, 1u << METRICS_STEPS, false),
    NUMBER(grad_norm, 1u << METRICS_STEPS, false),
    NUMBER(tokens_per_s, 1u << METRICS_STEPS, false),
    NUMBER(val_loss, MEASURED, false),
    NUMBER(bits_per_byte, MEASURED, false),
    NUMBER(exact, MEASURED, true),
    NUMBER(accuracy, MEASURED, true),
    NUMBER(chance, MEASURED, true),
    NUMBER(xz_bits_per_byte, MEASURED, true),
    NUMBER(seconds, 1u << METRICS_STEPS | MEASURED, false),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static double *number_of(MetricsLine *line, const Field *field) {
  return (double *)(void *)((char *)line + field->offset);
}

static bool is_of_machine(const Field *field) {
  return field->offset == offsetof(MetricsLine, seconds) || field->offset == offsetof(MetricsLine, tokens_per_s) ||
         field->offset == offsetof(MetricsLine, xz_bits_per_byte);
}

static bool differ(double a, double b, double *of_a, double *of_b) {
  *of_a = a;
  *of_b = b;
  return a != b && !(isnan(a) && isnan(b));
}

const char *metrics_difference(const MetricsLine *a, const MetricsLine *b, double *of_a, double *of_b) {
  MetricsLine own = *a, other = *b;
  if (differ((double)a->kind, (double)b->kind, of_a, of_b)) return "the kind of line";
  if (differ((double)a->step, (double)b->step, of_a, of_b)) return "step";
  if (differ((double)a->tokens, (double)b->tokens, of_a, of_b)) return "tokens";
  for (const Field *f = fields; f < fields + FIELDS; f++)
    if (f->kinds >> a->kind & 1 && !is_of_machine(f) && differ(*number_of(&own, f), *number_of(&other, f), of_a, of_b))
      return f->name;
  return NULL;
}

/* ---- writing ---- */

static void write_numbers(FILE *stream, const MetricsLine *line) {
  MetricsLine copy = *line;
  for (const Field *f = fields; f < fields + FIELDS; f++) {
    const double value = *number_of(&copy, f);
    if (!(f->kinds >> line->kind & 1) || (f->optional && isnan(value))) continue;
    fprintf(stream, ",\"%s\":%s", f->name, isfinite(value) ? text_number(value, false).text : "null");
  }
}

static bool write_text(FILE *stream, const char *name, const char *text) {
  json_t *string = json_string(text); /* NULL: not UTF-8 */
  fprintf(stream, ",\"%s\":", name);
  const bool ok = string && json_dumpf(string, stream, JSON_ENCODE_ANY) == 0;
  json_decref(string);
  return ok;
}

bool metrics_append(Metrics *metrics, const MetricsLine *line, Error *error) {
  FILE *stream = metrics->stream;
  bool ok = true;
  errno = 0;
  fprintf(stream, "{\"step\":%" PRId64 ",\"tokens\":%" PRId64, line->step, line->tokens);
  write_numbers(stream, line);
  if (MEASURED >> line->kind & 1)
    fprintf(stream, ",\"over\":\"%s\",\"val_text\":\"%016" PRIx64 "\"", line->all ? "all" : "beginning",
            line->val_text);
  if (line->kind == METRICS_EVALUATION) fprintf(stream, ",\"best\":%s", line->best ? "true" : "false");
  if (MEASURED >> line->kind & 1 && line->mean) fputs(",\"mean\":true", stream);
  if (line->kind == METRICS_KEPT) fputs(",\"kept\":true", stream);
  if (line->kind == METRICS_DIAGNOSIS)
    ok = write_text(stream, "verdict", line->diagnosis) && write_text(stream, "text", line->text);
  fputs("}\n", stream);
  if (ok && fflush(stream) == 0 && !ferror(stream)) return true;
  return file_fail_write(metrics->path, error);
}

/* ---- reading ---- */

static MetricsLine empty_line(void) {
  MetricsLine line = {.step = -1};
  for (const Field *f = fields; f < fields + FIELDS; f++) *number_of(&line, f) = NAN;
  return line;
}

static void copy_text(char *out, size_t size, const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  snprintf(out, size, "%.*s", (int)size - 1, text ? text_one_line(text, size - 1).text : "");
}

static bool parse_object(const json_t *object, MetricsLine *line) {
  const json_t *step = json_object_get(object, "step"), *tokens = json_object_get(object, "tokens");
  if (!json_is_integer(step) || json_integer_value(step) < 0) return false; /* also when `object` is an array */
  line->step = json_integer_value(step);
  line->tokens = json_is_integer(tokens) ? json_integer_value(tokens) : 0;
  if (line->tokens < 0) return false;
  for (const Field *f = fields; f < fields + FIELDS; f++) {
    const json_t *value = json_object_get(object, f->name);
    if (json_is_number(value)) *number_of(line, f) = json_number_value(value);
  }
  const char *over = json_string_value(json_object_get(object, "over"));
  const char *val_text = json_string_value(json_object_get(object, "val_text"));
  line->kind = json_object_get(object, "verdict")              ? METRICS_DIAGNOSIS
               : json_is_true(json_object_get(object, "kept")) ? METRICS_KEPT
               : json_object_get(object, "val_loss")           ? METRICS_EVALUATION
                                                               : METRICS_STEPS;
  line->val_text = val_text ? strtoull(val_text, NULL, 16) : 0;
  line->all = over && strcmp(over, "all") == 0;
  line->best = json_is_true(json_object_get(object, "best"));
  line->mean = json_is_true(json_object_get(object, "mean"));
  copy_text(line->diagnosis, sizeof line->diagnosis, object, "verdict");
  copy_text(line->text, sizeof line->text, object, "text");
  return true;
}

bool metrics_parse(const char *line, size_t size, MetricsLine *out) {
  *out = empty_line();
  Error memory = {0}; /* ignored: history_read() calls json_memory_ok() */
  json_t *object = json_parse(line, size, 0, NULL, "metrics", &memory);
  const bool ok = object && parse_object(object, out);
  json_decref(object);
  return ok;
}

/* ---- opening ---- */

bool metrics_open(Metrics *metrics, const char *path, int64_t kept_bytes, Error *error) {
  *metrics = (Metrics){0};
  if (kept_bytes >= 0 && !file_cut(path, kept_bytes, error)) return false;
  metrics->path = strdup(path);
  if (!metrics->path) return error_memory(error, path);
  metrics->stream = fopen(path, kept_bytes >= 0 ? "ab" : "wb");
  return metrics->stream || file_fail_write(path, error);
}

void metrics_close(Metrics *metrics) {
  if (metrics->stream) fclose(metrics->stream); /* cannot fail: every line was flushed */
  free(metrics->path);
  *metrics = (Metrics){0};
}
