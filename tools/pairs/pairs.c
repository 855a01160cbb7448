/* pairs: writes sources and targets of a small task with known answers, as TSV: a line is source, tab, target.
 *
 *   pairs --task reverse --lines 20000 -o train.tsv --test test.tsv
 *
 * No source of the test set is in the training set (see TaskDraw): a model that answers it has learned the task, not
 * the pairs. All sources shorter than TASK_TEST_LENGTH, of which there are few, are in the training set.
 *
 * Exit status: 0 done, otherwise as in base/error.h. */
#include "cli/option_rows.h"
#include "tools/output.h"
#include "kernels/philox.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- small tasks whose answers are known: a source determines its target, so the loss can become 0 ---- */

typedef enum Task {
  TASK_COPY,    /* 4172 -> 4172 */
  TASK_REVERSE, /* 4172 -> 2714 */
  TASK_SORT,    /* 4172 -> 1247 */
  TASK_SUM      /* 41+72 -> 113 */
} Task;

enum {
  TASK_MAX_ALPHABET = 36, /* 0 to 9, then a to z */
  TASK_MAX_LENGTH = 1000, /* of a string */
  TASK_MAX_DIGITS = 18,   /* of a summand: sums fit 64 bits */
  TASK_TEST_RATIO = 10    /* one of this many sources is in the test set */
};

#define TASK_TEST_LENGTH 5 /* least number of characters of a source of the test set */

/* The settings and state of drawing pairs of one set; equal settings draw equal pairs.
 * A source is in the test set if its XXH64 is a multiple of TASK_TEST_RATIO and it is not shorter than
 * TASK_TEST_LENGTH, else in the training set. This depends only on the source, so no source is in both parts, for any
 * sizes and seeds, without a list of sources. */
typedef struct TaskDraw {
  int task;                   /* Task; -1: not given */
  int alphabet;               /* 2..TASK_MAX_ALPHABET characters of strings; sums are decimal */
  int min_length, max_length; /* of a string or of each summand; lengths are uniform */
  bool test;                  /* draw the test set */
  uint64_t seed;
  uint64_t drawn; /* random numbers so far; begins as 0 */
} TaskDraw;

typedef struct TaskPair {
  char source[TASK_MAX_LENGTH + 1], target[TASK_MAX_LENGTH + 1];
} TaskPair;

enum { DRAWS = 1000000 /* most draws for one pair */ };

static bool is_in_test(const char *source) {
  const size_t length = strlen(source);
  return length >= TASK_TEST_LENGTH && checksum_xxh64(source, length, 0) % TASK_TEST_RATIO == 0;
}

/* Draws a number from 0 to n-1, uniform up to a relative error of n / 2^32. */
static int below(TaskDraw *d, int n) {
  const PhiloxWords words = philox(d->seed, (uint32_t)d->drawn, d->test, (uint32_t)(d->drawn >> 32), 0);
  d->drawn++;
  return (int)((uint64_t)words.word[0] * (uint32_t)n >> 32);
}

/* Draws a number with `length` digits. Only a number of one digit may begin with 0. */
static uint64_t number(TaskDraw *d, int length) {
  uint64_t value = 0;
  for (int i = 0; i < length; i++) {
    const int least = i == 0 && length > 1;
    value = 10 * value + (uint64_t)(least + below(d, 10 - least));
  }
  return value;
}

static void draw_sum(TaskDraw *d, const int lengths[2], TaskPair *out) {
  const uint64_t a = number(d, lengths[0]), b = number(d, lengths[1]);
  snprintf(out->source, sizeof out->source, "%" PRIu64 "+%" PRIu64, a, b);
  snprintf(out->target, sizeof out->target, "%" PRIu64, a + b);
}

static int compare_chars(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }

static void draw_string(TaskDraw *d, int length, TaskPair *out) {
  static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  for (int i = 0; i < length; i++) out->source[i] = alphabet[below(d, d->alphabet)];
  out->source[length] = '\0';
  for (int i = 0; i <= length; i++)
    out->target[i] = out->source[d->task == TASK_REVERSE && i < length ? length - 1 - i : i];
  if (d->task == TASK_SORT) qsort(out->target, (size_t)length, 1, compare_chars);
}

/* Draws the next pair. Returns false when none of a million draws is in the set.
 * In the training set, a rejected pair keeps its lengths, so that all lengths are equally frequent. In the test set
 * new lengths are drawn, because no short source is in it. */
static bool next_pair(TaskDraw *d, TaskPair *out) {
  int lengths[2] = {0};
  for (int i = 0; i < DRAWS; i++) {
    for (int k = 0; k < 2 && (i == 0 || d->test); k++)
      lengths[k] = d->min_length + below(d, d->max_length - d->min_length + 1);
    if (d->task == TASK_SUM) draw_sum(d, lengths, out);
    else draw_string(d, lengths[0], out);
    if (is_in_test(out->source) == d->test) return true;
  }
  return false;
}

/* ---- the program ---- */

typedef struct PairSettings {
  TaskDraw draw; /* without .test */
  int64_t lines, test_lines;
  const char *output, *test, *mark;
} PairSettings;

static const char *const task_names[] = {"copy", "reverse", "sort", "sum", NULL}; /* as Task */

static void pair_options(Options *options, PairSettings *s) {
  *s = (PairSettings){{.task = -1, .alphabet = 10, .min_length = 1, .seed = 1}, .lines = 20000, .test_lines = 1000};
  TaskDraw *d = &s->draw;
  const Option table[] = {
      CHOICE("task", &d->task, task_names, NULL,
             "the target: the source, the source backwards, its characters sorted, or the sum of two numbers"),
      INT64("lines", &s->lines, 0, 1e12, NULL, "lines of the training set"),
      TEXT("output", &s->output, "FILE", "standard output", "file for the training set", .letter = 'o'),
      INT64("test-lines", &s->test_lines, 0, 1e12, NULL, "lines of the test set"),
      TEXT("test", &s->test, "FILE", "none is written",
           "file for the test set: sources of at least " SHOWN(
               TASK_TEST_LENGTH) " characters that are not in any training set"),
      INT("alphabet", &d->alphabet, 2, TASK_MAX_ALPHABET, NULL,
          "different characters in strings: digits, then letters"),
      INT("min-length", &d->min_length, 1, TASK_MAX_LENGTH, NULL,
          "characters of the shortest string, digits of the smallest number"),
      INT("max-length", &d->max_length, 1, TASK_MAX_LENGTH, "8, or 3 for sums",
          "characters of the longest string, digits of the largest number"),
      TEXT("mark", &s->mark, NULL, NULL,
           "text after every source, for example = for a model without an encoder, so that it sees where the source "
           "ends"),
      UINT64("seed", &d->seed, NULL, "same seed, same lines"),
  };
  *options = (Options){.program = "pairs",
                       .usage = "--task NAME [options]",
                       .about = "Writes pairs of a small task with known answers, a line each: source, tab, target."};
  options_init(options, table, sizeof table / sizeof *table);
}

static bool check_settings(const Options *options, PairSettings *s, Error *error) {
  TaskDraw *d = &s->draw;
  const bool sum = d->task == TASK_SUM;
  if (d->task < 0) return fail(error, EXIT_USAGE, "say which task: --task copy, reverse, sort or sum");
  if (!options_given(options, &d->max_length)) d->max_length = sum ? 3 : 8;
  if (d->min_length > d->max_length)
    return fail(error, EXIT_USAGE, "--min-length %d is above --max-length %d", d->min_length, d->max_length);
  if (sum && d->max_length > TASK_MAX_DIGITS)
    return fail(error, EXIT_USAGE, "--max-length %d: numbers have at most %d digits", d->max_length, TASK_MAX_DIGITS);
  if (sum && options_given(options, &d->alphabet))
    return fail(error, EXIT_USAGE, "--alphabet is for strings; sums have ten digits");
  if (s->mark && strpbrk(s->mark, "\t\r\n"))
    return fail(error, EXIT_USAGE, "--mark cannot hold tabs or line ends: they end a column");
  if (s->output && s->test && strcmp(s->output, s->test) == 0)
    return fail(error, EXIT_USAGE, "--output and --test are the same file");
  return true;
}

static bool write_lines(const PairSettings *s, bool test, Output *out, Error *error) {
  TaskDraw draw = s->draw;
  draw.test = test;
  const int64_t lines = test ? s->test_lines : s->lines;
  TaskPair pair;
  for (int64_t i = 0; i < lines; i++) {
    if (!next_pair(&draw, &pair))
      return fail(error, EXIT_USAGE,
                  "no source of the %s set was found: lengths of %d to %d are too short; the test set has sources of "
                  "at least %d characters, one in %d of them",
                  test ? "test" : "training", draw.min_length, draw.max_length, TASK_TEST_LENGTH, TASK_TEST_RATIO);
    if (fprintf(out->stream, "%s%s\t%s\n", pair.source, s->mark ? s->mark : "", pair.target) < 0)
      return output_fail(out, "write", error);
  }
  return true;
}

static bool write_set(const PairSettings *s, bool test, Error *error) {
  Output out;
  return output_open(&out, test ? s->test : s->output, error) &&
         output_close(&out, write_lines(s, test, &out, error), error);
}

static bool run(const Options *options, void *settings, Error *error) {
  PairSettings *s = settings;
  return check_settings(options, s, error) && (!s->test || write_set(s, true, error)) && write_set(s, false, error);
}

int main(int argc, char **argv) {
  PairSettings settings;
  Options options;
  pair_options(&options, &settings);
  return output_main(&options, argc, argv, run, &settings);
}
