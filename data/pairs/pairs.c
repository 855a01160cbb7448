/* pairs: writes sources and targets of a small task with known answers, as TSV: a line is source, tab, target.
 *
 *   pairs --task reverse --lines 20000 -o train.tsv --test test.tsv
 *
 * No source of the test part is in the training part (tasks.h says how): a model that answers it has learnt the task,
 * not the pairs. Sources shorter than TASK_TEST_LENGTH are few, and all of the training part.
 *
 * Exit status: 0 done, otherwise as in util/error.h. */
#include "cli/option_rows.h"
#include "data/output.h"
#include "data/pairs/tasks.h"
#include "util/program_name.h"

#include <signal.h>
#include <string.h>

typedef struct PairSettings {
  int task;
  int64_t lines, test_lines;
  const char *output, *test, *mark;
  int alphabet, min_length, max_length;
  uint64_t seed;
} PairSettings;

static const char *const task_names[] = {"copy", "reverse", "sort", "sum", NULL}; /* as Task */

static void pair_options(Options *options, PairSettings *s) {
  *s = (PairSettings){.task = -1, .lines = 20000, .test_lines = 1000, .alphabet = 10, .min_length = 1, .seed = 1};
  const Option table[] = {
      CHOICE("task", &s->task, task_names, NULL,
             "what the target is: the source, the source backwards, its characters sorted, or the sum of two numbers"),
      INT64("lines", &s->lines, 0, 1e12, NULL, "lines of the training part"),
      TEXT("output", &s->output, "FILE", "standard output", "where the training part goes", .letter = 'o'),
      INT64("test-lines", &s->test_lines, 0, 1e12, NULL, "lines of the test part"),
      TEXT("test", &s->test, "FILE", "none is written",
           "where the test part goes: sources of at least " SHOWN(
               TASK_TEST_LENGTH) " characters that are not in any training part"),
      INT("alphabet", &s->alphabet, 2, TASK_MAX_ALPHABET, NULL,
          "different characters in strings: digits, then letters"),
      INT("min-length", &s->min_length, 1, TASK_MAX_LENGTH, NULL,
          "characters of the shortest string, digits of the smallest number"),
      INT("max-length", &s->max_length, 1, TASK_MAX_LENGTH, "8, or 3 for sums",
          "characters of the longest string, digits of the largest number"),
      TEXT("mark", &s->mark, NULL, NULL,
           "text behind every source, as = for a model without an encoder, which cannot see otherwise where it ends"),
      UINT64("seed", &s->seed, NULL, "same seed, same lines"),
  };
  *options = (Options){.program = "pairs",
                       .usage = "--task NAME [options]",
                       .about = "Writes pairs of a small task with known answers, a line each: source, tab, target."};
  options_init(options, table, sizeof table / sizeof *table);
}

static bool check_settings(const Options *options, PairSettings *s, Error *error) {
  const bool sum = s->task == TASK_SUM;
  if (s->task < 0) return fail(error, EXIT_USAGE, "say which task: --task copy, reverse, sort or sum");
  if (!options_given(options, &s->max_length)) s->max_length = sum ? 3 : 8;
  if (s->min_length > s->max_length)
    return fail(error, EXIT_USAGE, "--min-length %d is above --max-length %d", s->min_length, s->max_length);
  if (sum && s->max_length > TASK_MAX_DIGITS)
    return fail(error, EXIT_USAGE, "--max-length %d: numbers have at most %d digits", s->max_length, TASK_MAX_DIGITS);
  if (sum && options_given(options, &s->alphabet))
    return fail(error, EXIT_USAGE, "--alphabet is for strings; sums have ten digits");
  if (s->mark && strpbrk(s->mark, "\t\r\n"))
    return fail(error, EXIT_USAGE, "--mark cannot hold tabs or line ends: they end a column");
  if (s->output && s->test && strcmp(s->output, s->test) == 0)
    return fail(error, EXIT_USAGE, "--output and --test are the same file");
  return true;
}

static bool write_lines(const PairSettings *s, bool test, Output *out, Error *error) {
  TaskDraw draw = {.task = (Task)s->task,
                   .alphabet = s->alphabet,
                   .min_length = s->min_length,
                   .max_length = s->max_length,
                   .test = test,
                   .seed = s->seed};
  const int64_t lines = test ? s->test_lines : s->lines;
  TaskPair pair;
  for (int64_t i = 0; i < lines; i++) {
    if (!task_next(&draw, &pair))
      return fail(error, EXIT_USAGE,
                  "no source of the %s part was found: lengths of %d to %d are too short; the test part has sources of "
                  "at least %d characters, one in %d of them",
                  test ? "test" : "training", s->min_length, s->max_length, TASK_TEST_LENGTH, TASK_TEST_SHARE);
    if (fprintf(out->stream, "%s%s\t%s\n", pair.source, s->mark ? s->mark : "", pair.target) < 0)
      return output_fail(out, "write", error);
  }
  return true;
}

/* A reader of standard output that has enough is no failure. */
static bool write_part(const PairSettings *s, bool test, Error *error) {
  Output out;
  Error cause = {0};
  if (!output_open(&out, test ? s->test : s->output, error)) return false;
  if (output_close(&out, write_lines(s, test, &out, &cause), &cause) || out.reader_left) return true;
  return fail(error, cause.code, "%s", cause.text);
}

static bool run(Options *options, PairSettings *s, Error *error) {
  if (options->help || options->version) {
    Output out;
    if (!output_open(&out, NULL, error)) return false;
    if (options->help) options_help(options, stdout);
    else puts("pairs (Inkling)");
    return output_close(&out, true, error);
  }
  return check_settings(options, s, error) && (!s->test || write_part(s, true, error)) && write_part(s, false, error);
}

int main(int argc, char **argv) {
  PairSettings settings;
  Options options;
  Error error = {0};
  program_name_set(argc > 0 ? argv[0] : NULL);
  signal(SIGPIPE, SIG_IGN);
  pair_options(&options, &settings);
  if (!options_parse(&options, argc, argv, &error) || !run(&options, &settings, &error))
    fprintf(stderr, "pairs: %s\n", error.text);
  options_free(&options);
  return (int)error.code;
}
