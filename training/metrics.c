#include "training/metrics.h"

#include "util/file.h"
#include "util/text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINE_BYTES = 1024 };

struct Metrics {
  FILE *stream;
  char *path;
};

/* ---- writing ---- */

typedef struct Line {
  char text[LINE_BYTES];
  size_t used;
} Line;

static void add(Line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Line *line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line->text + line->used, sizeof line->text - line->used, format, arguments);
  va_end(arguments);
  if (length > 0) line->used += (size_t)length; /* 9 fields of at most 45 bytes: cannot overflow */
}

static void add_number(Line *line, const char *name, double value) {
  add(line, ",\"%s\":%s", name, isfinite(value) ? text_number(value, false).text : "null");
}

bool metrics_append(Metrics *metrics, const MetricsLine *line, Error *error) {
  const struct {
    unsigned bit;
    const char *name;
    double value;
  } fields[] = {{METRIC_LOSS, "loss", line->loss},
                {METRIC_VAL_LOSS, "val_loss", line->val_loss},
                {METRIC_BITS_PER_BYTE, "bits_per_byte", line->bits_per_byte},
                {METRIC_LR, "lr", line->lr},
                {METRIC_GRAD_NORM, "grad_norm", line->grad_norm},
                {METRIC_TOKENS_PER_S, "tokens_per_s", line->tokens_per_s},
                {METRIC_SECONDS, "seconds", line->seconds}};
  Line out = {.used = 0};
  add(&out, "{\"step\":%lld,\"tokens\":%lld", (long long)line->step, (long long)line->tokens);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (line->measured & fields[i].bit) add_number(&out, fields[i].name, fields[i].value);
  add(&out, "}\n");
  errno = 0;
  bool written = fwrite(out.text, 1, out.used, metrics->stream) == out.used;
  if (fflush(metrics->stream) != 0 || !written)
    return fail(error, EXIT_OUTPUT, "cannot write %s: %s", metrics->path, strerror(errno ? errno : EIO));
  return true;
}

/* ---- opening ---- */

/* Whether a whole line belongs to the steps that were not undone. A line that is no object with a step does not. */
static bool keeps(const char *line, size_t size, int64_t resumed_step) {
  json_t *object = json_loadb(line, size, 0, NULL);
  const json_t *step = json_object_get(object, "step"); /* NULL when the line is no object */
  bool keep = json_is_integer(step) && json_integer_value(step) <= resumed_step;
  json_decref(object);
  return keep;
}

static bool copy_kept(const MappedFile *old, FileWriter *file, int64_t resumed_step, Error *error) {
  const char *at = (const char *)old->bytes;
  size_t left = old->size;
  while (left > 0) {
    const char *newline = memchr(at, '\n', left);
    if (!newline) break; /* torn by a crash */
    size_t size = (size_t)(newline - at) + 1;
    if (keeps(at, size, resumed_step) && !file_writer_add(file, at, size, error)) return false;
    at += size;
    left -= size;
  }
  return true;
}

static bool cut(const char *path, int64_t resumed_step, Error *error) {
  MappedFile old;
  FileWriter file;
  if (!file_map(&old, path, EXIT_OUTPUT, error)) return false;
  bool done = file_writer_begin(&file, path, error);
  if (done) {
    done = copy_kept(&old, &file, resumed_step, error);
    if (done) done = file_writer_commit(&file, error);
    else file_writer_abort(&file);
  }
  file_unmap(&old);
  return done;
}

bool metrics_open(Metrics **out, const char *path, int64_t resumed_step, Error *error) {
  struct stat status;
  bool resumes = resumed_step >= 0 && stat(path, &status) == 0;
  *out = NULL;
  if (resumes && !cut(path, resumed_step, error)) return false;
  Metrics *metrics = calloc(1, sizeof *metrics);
  if (metrics) metrics->path = malloc(strlen(path) + 1);
  if (!metrics || !metrics->path) {
    metrics_close(metrics);
    return fail(error, EXIT_MEMORY, "out of memory while opening %s", path);
  }
  strcpy(metrics->path, path);
  metrics->stream = fopen(path, resumes ? "ab" : "wb");
  if (!metrics->stream) {
    fail(error, EXIT_OUTPUT, "cannot write %s: %s", path, strerror(errno));
    metrics_close(metrics);
    return false;
  }
  *out = metrics;
  return true;
}

void metrics_close(Metrics *metrics) {
  if (!metrics) return;
  if (metrics->stream) fclose(metrics->stream); /* every line was flushed: nothing left to fail */
  free(metrics->path);
  free(metrics);
}
