#include "training/metrics.h"

#include "util/file.h"
#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- writing ---- */

bool metrics_append(Metrics *metrics, int64_t step, int64_t tokens, const Metric *values, size_t count, Error *error) {
  FILE *stream = metrics->stream;
  errno = 0;
  fprintf(stream, "{\"step\":%" PRId64 ",\"tokens\":%" PRId64, step, tokens);
  for (const Metric *m = values; m < values + count; m++)
    fprintf(stream, ",\"%s\":%s", m->name, isfinite(m->value) ? text_number(m->value, false).text : "null");
  fputs("}\n", stream);
  if (fflush(stream) == 0 && !ferror(stream)) return true;
  return fail(error, EXIT_OUTPUT, "cannot write %s: %s", metrics->path, strerror(errno ? errno : EIO));
}

/* ---- opening ---- */

/* Whether a line belongs to the steps that were not undone; what is not an object with a step does not. */
static bool is_kept(const char *line, size_t size, int64_t resumed_step) {
  json_t *object = json_loadb(line, size, 0, NULL);
  const json_t *step = json_object_get(object, "step"); /* NULL when the line is not an object */
  bool kept = json_is_integer(step) && json_integer_value(step) <= resumed_step;
  json_decref(object);
  return kept;
}

/* What follows the last newline was torn by a crash. */
static bool copy_kept(const MappedFile *old, FileWriter *file, int64_t resumed_step, Error *error) {
  const char *line = (const char *)old->bytes, *end = line + old->size, *newline;
  for (; line < end && (newline = memchr(line, '\n', (size_t)(end - line))); line = newline + 1) {
    const size_t size = (size_t)(newline + 1 - line);
    if (is_kept(line, size, resumed_step) && !file_writer_add(file, line, size, error)) return false;
  }
  return true;
}

static bool cut(const char *path, int64_t resumed_step, Error *error) {
  MappedFile old;
  FileWriter file;
  if (!file_map(&old, path, EXIT_OUTPUT, error)) return false;
  bool ok = file_writer_begin(&file, path, error) && copy_kept(&old, &file, resumed_step, error) &&
            file_writer_commit(&file, error);
  file_unmap(&old);
  return ok;
}

bool metrics_open(Metrics *metrics, const char *path, int64_t resumed_step, Error *error) {
  struct stat status;
  const bool resumes = resumed_step >= 0 && stat(path, &status) == 0;
  *metrics = (Metrics){0};
  if (resumes && !cut(path, resumed_step, error)) return false;
  metrics->path = strdup(path);
  if (!metrics->path) return error_memory(error, path);
  metrics->stream = fopen(path, resumes ? "ab" : "wb");
  return metrics->stream || fail(error, EXIT_OUTPUT, "cannot write %s: %s", path, strerror(errno));
}

void metrics_close(Metrics *metrics) {
  if (metrics->stream) fclose(metrics->stream); /* every line was flushed: nothing left to fail */
  free(metrics->path);
  *metrics = (Metrics){0};
}
