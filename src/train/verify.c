#include "train/verify.h"

#include "files/checkpoint/directory.h"
#include "cli/processes.h"
#include "files/formats/model_files.h"
#include "files/formats/safetensors.h"
#include "report/metrics.h"
#include "report/result.h"
#include "text/tokenizer/tokenizer.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The run and its repetition. */
typedef struct Pair {
  const char *dir, *again;
  int64_t lines; /* of metrics.jsonl */
} Pair;

static bool differ(const char *file, const char *where, Error *error) {
  return fail(error, EXIT_CHECKPOINT, "not reproduced: %s differs %s", file, where);
}

/* ---- metrics.jsonl ---- */

/* The next line that can be read; false: there is none. */
static bool next_line(MappedFile *rest, MetricsLine *out) {
  while (rest->size) {
    const uint8_t *newline = memchr(rest->bytes, '\n', rest->size);
    const size_t size = newline ? (size_t)(newline - rest->bytes) : rest->size;
    const bool valid = metrics_parse((const char *)rest->bytes, size, out);
    rest->bytes += size + (newline != NULL);
    rest->size -= size + (newline != NULL);
    if (valid) return true;
  }
  return false;
}

static bool compare_metrics(Pair *pair, MappedFile a, MappedFile b, Error *error) {
  MetricsLine own, other;
  for (;; pair->lines++) {
    char where[300];
    double x, y;
    const bool more = next_line(&a, &own), more_of_other = next_line(&b, &other);
    if (!more && !more_of_other) return true;
    if (!more || !more_of_other)
      snprintf(where, sizeof where, "after step %" PRId64 ": one of the two ends there", more ? own.step : other.step);
    else {
      const char *name = metrics_difference(&own, &other, &x, &y);
      if (!name) continue;
      const bool other_rate = own.lr < other.lr || own.lr > other.lr; /* not NaN, in lines that have none */
      snprintf(where, sizeof where, "at step %" PRId64 ": %s is %.9g, and %.9g now%s", own.step, name, x, y,
               other_rate ? "; another learning rate is expected if --resume changed the number of steps" : "");
    }
    return differ(CHECKPOINT_METRICS, where, error);
  }
}

/* ---- files ---- */

static bool compare_bytes(MappedFile a, MappedFile b, const char *name, Error *error) {
  char where[100];
  size_t at = 0;
  while (at < a.size && at < b.size && a.bytes[at] == b.bytes[at]) at++;
  if (at == a.size && at == b.size) return true;
  snprintf(where, sizeof where, "at byte %zu", at);
  return differ(name, where, error);
}

/* Compares a file of both; one that neither has is equal. */
static bool compare_file(Pair *pair, const char *name, Error *error) {
  MappedFile a = {0}, b = {0};
  const PathText path = path_in(pair->dir, name), again = path_in(pair->again, name);
  if (access(path.text, F_OK) != 0 && access(again.text, F_OK) != 0) return true;
  bool ok = file_map(&a, path.text, EXIT_CHECKPOINT, error) && file_map(&b, again.text, EXIT_CHECKPOINT, error);
  if (ok)
    ok = strcmp(name, CHECKPOINT_METRICS) == 0 ? compare_metrics(pair, a, b, error) : compare_bytes(a, b, name, error);
  file_unmap(&a);
  file_unmap(&b);
  return ok;
}

static bool compare_tensors(const SafeTensors *a, const SafeTensors *b, Error *error) {
  char where[300];
  for (int i = 0; i < a->count; i++) {
    const SafeTensor *own = &a->tensors[i], *other = safetensors_find(b, own->name);
    const bool alike = other && safetensors_same_shape(own, other) && own->bytes == other->bytes;
    if (alike && memcmp(own->data, other->data, own->bytes) == 0) continue;
    size_t at = 0;
    while (alike && ((const char *)own->data)[at] == ((const char *)other->data)[at]) at++;
    snprintf(where, sizeof where, "in the tensor %.200s, at byte %zu of it", own->name, at);
    return differ(MODEL_FILE_WEIGHTS, where, error);
  }
  return a->count == b->count || differ(MODEL_FILE_WEIGHTS, "in its tensors", error);
}

static bool compare_weights(const Pair *pair, Error *error) {
  SafeTensors a = {0}, b = {0};
  const bool ok = safetensors_open(&a, path_in(pair->dir, MODEL_FILE_WEIGHTS).text, error) &&
                  safetensors_open(&b, path_in(pair->again, MODEL_FILE_WEIGHTS).text, error) &&
                  compare_tensors(&a, &b, error);
  safetensors_close(&a);
  safetensors_close(&b);
  return ok;
}

/* Compares in the order in which a run writes: what differs first is nearest to the cause. */
static bool compare(Pair *pair, Error *error) {
  static const char *const files[] = {TOKENIZER_JSON, MODEL_FILE_CONFIG, CHECKPOINT_METRICS, CHECKPOINT_SAMPLES};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (!compare_file(pair, files[i], error)) return false;
  return compare_weights(pair, error);
}

/* ---- the repetition ---- */

/* Returns the run's copy of its standard input; "": it read files. */
static PathText copy_of_stdin(const char *dir) {
  static const char *const names[] = {CHECKPOINT_STDIN_TEXT, CHECKPOINT_STDIN_JSONL, CHECKPOINT_STDIN_TSV,
                                      CHECKPOINT_STDIN_FASTA};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (access(path_in(dir, names[i]).text, R_OK) == 0) return path_in(dir, names[i]);
  return (PathText){""};
}

static bool repeat(const Pair *pair, bool quiet, Error *error) {
  const PathText in = copy_of_stdin(pair->dir);
  char config[sizeof(PathText) + 16], out[sizeof(PathText) + 16];
  snprintf(config, sizeof config, "--config=%s", path_in(pair->dir, CHECKPOINT_SETTINGS).text);
  snprintf(out, sizeof out, "--out=%s", pair->again);
  const char *const arguments[] = {config, out, quiet ? "--quiet" : NULL, NULL};
  Process process = {.arguments = arguments, .in = *in.text ? in.text : NULL};
  if (!processes_run(&process, 1, 1, NULL, NULL, error)) return false;
  return process.status == EXIT_DONE || fail(error, (ExitCode)process.status, "the repetition has failed");
}

/* Refuses a run that cannot be repeated. */
static bool check_run(const char *dir, Error *error) {
  if (!checkpoint_is_run(dir)) return fail(error, EXIT_USAGE, "--verify: %s is no run", dir);
  json_t *result = result_json(dir, CHECKPOINT_RESULT, error);
  const char *state = error->code ? "" : result_state(dir, result);
  const bool ended = strcmp(state, run_end_names[RUN_DONE]) == 0 || strcmp(state, run_end_names[RUN_MINUTES]) == 0 ||
                     strcmp(state, run_end_names[RUN_PATIENCE]) == 0;
  json_decref(result);
  return !error->code &&
         (ended || fail(error, EXIT_USAGE, "--verify: %s has not ended (%s); only a finished run can be repeated", dir,
                        result_state_words(state, false)));
}

bool verify_run(const char *dir, Console *console, Error *error) {
  char *scratch = NULL;
  if (!check_run(dir, error) || !file_temporary_directory(&scratch, error)) return false;
  const PathText again = path_in(scratch, "again.run");
  Pair pair = {dir, again.text, 0};
  const bool repeated = repeat(&pair, console->quiet, error), ok = repeated && compare(&pair, error);
  if (ok)
    printf("%s is reproduced: %s of " CHECKPOINT_METRICS ", samples and weights are equal\n",
           text_one_line(dir, 200).text, text_plural((double)pair.lines, "line").text);
  if (repeated && !ok) console_note(console, "the repeated run is in %s", again.text);
  else file_remove_tree(scratch);
  free(scratch);
  return ok && file_flush(stdout, "stdout", error);
}
