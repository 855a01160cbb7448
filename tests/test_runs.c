/* report/runs: like is compared with like, and the table fits. */
#include "report/runs.h"
#include "base/file.h"
#include "train/settings.h"
#include "tests/cli_helpers.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 200 };

/* A directory of runs, what was printed of them, and the notes. */
typedef struct Runs {
  char dir[PATH_BYTES];
  char *table, *notes;
  Error error;
} Runs;

static int make_runs(void **state) {
  Runs *f = calloc(1, sizeof *f);
  assert_non_null(f);
  strcpy(f->dir, "/tmp/inkling-runs-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  *state = f;
  return 0;
}

static int remove_runs(void **state) {
  Runs *f = *state;
  file_remove_tree(f->dir);
  assert_int_not_equal(access(f->dir, F_OK), 0);
  free(f->table);
  free(f->notes);
  free(f);
  return 0;
}

#define WITH_RUNS(test) cmocka_unit_test_setup_teardown(test, make_runs, remove_runs)

/* A run with these settings and lines of metrics; result NULL: it was killed. */
static void add_run(const Runs *f, const char *name, const char *settings, const char *metrics, const char *result) {
  char path[FILE_BYTES];
  snprintf(path, sizeof path, "%s/%s", f->dir, name);
  assert_int_equal(mkdir(path, 0777), 0);
  snprintf(path, sizeof path, "%s/%s/config.txt", f->dir, name);
  put_text(path, settings);
  snprintf(path, sizeof path, "%s/%s/metrics.jsonl", f->dir, name);
  put_text(path, metrics);
  snprintf(path, sizeof path, "%s/%s/result.json", f->dir, name);
  if (result) put_text(path, result);
}

/* The kept model was measured; text NULL: an old file, which does not say on what. */
static void add_measured(const Runs *f, const char *name, const char *over, const char *text, double loss,
                         double bits) {
  char line[300], with_text[60] = "";
  if (text) snprintf(with_text, sizeof with_text, ",\"val_text\":\"%s\"", text);
  snprintf(line, sizeof line,
           "{\"step\":5,\"tokens\":50,\"val_loss\":%g,\"bits_per_byte\":%g,\"seconds\":1,\"over\":\"%s\"%s,"
           "\"best\":true}\n",
           loss, bits, over, with_text);
  add_run(f, name, "tokenizer = byte\n", line, NULL);
}

static bool print(Runs *f, RunsTable table) {
  const char *const dirs[] = {f->dir};
  size_t size;
  free(f->table);
  free(f->notes);
  FILE *out = open_memstream(&f->table, &size), *err = open_memstream(&f->notes, &size);
  Console console = {.stream = err, .program = "train"};
  TrainSettings settings;
  Options options;
  train_options(&options, &settings);
  assert_true(out && err);
  table.dirs = dirs;
  table.count = 1;
  table.width = table.width ? table.width : 100;
  table.console = &console;
  table.options = &options;
  f->error = (Error){0};
  const bool ok = runs_print(&table, out, &f->error);
  options_free(&options);
  fclose(out);
  fclose(err);
  return ok;
}

/* The names of the runs, from the first to the last row, after the directory: one letter each. */
static void assert_rows(Runs *f, const char *sort, const char *letters) {
  char got[20] = "";
  size_t count = 0;
  assert_true(print(f, (RunsTable){.format = TABLE_CSV, .sort = sort}));
  for (const char *line = strchr(f->table, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
    got[count++] = line[1 + strlen(f->dir) + 1];
  assert_string_equal(got, letters);
}

static void assert_order(Runs *f, const char *sort, const char *letters) {
  assert_rows(f, sort, letters);
  assert_string_equal(f->notes, "");
}

static void assert_has(const char *text, const char *part) {
  if (!strstr(text, part)) print_error("no \"%s\" in: %s\n", part, text);
  assert_non_null(strstr(text, part));
}
static void assert_has_not(const char *text, const char *part) {
  if (strstr(text, part)) print_error("\"%s\" in: %s\n", part, text);
  assert_null(strstr(text, part));
}

/* ---- order ---- */

static void add_several_texts(const Runs *f) {
  add_measured(f, "a", "all", "00000000000000aa", 1.0, 2.0);
  add_measured(f, "b", "all", "00000000000000bb", 0.5, 1.0);
  add_measured(f, "c", "all", "00000000000000aa", 1.5, 3.0);
  add_measured(f, "d", "beginning", "00000000000000aa", 0.25, 0.5);
  add_measured(f, "e", "all", NULL, 0.05, 0.1);
}

static void runs_on_the_same_text_are_ranked(void **state) {
  Runs *f = *state;
  add_several_texts(f);
  assert_order(f, NULL, "acbed");
  assert_order(f, "-bits_per_byte", "cabed");
  assert_order(f, "val_loss", "acbed");
  assert_order(f, "bits_per_byte_beginning", "dacbe");
  assert_order(f, "-run", "edcba");
}

static void the_largest_group_leads(void **state) {
  Runs *f = *state;
  add_measured(f, "a", "all", "00000000000000aa", 1.0, 5.0);
  add_measured(f, "b", "all", "00000000000000bb", 1.0, 2.0);
  assert_order(f, NULL, "ab"); /* the first of equal ones */
  add_measured(f, "c", "beginning", "00000000000000aa", 1.0, 3.0);
  add_measured(f, "d", "beginning", "00000000000000aa", 1.0, 4.0);
  assert_order(f, NULL, "abcd");
  add_measured(f, "e", "all", "00000000000000bb", 1.0, 1.0);
  assert_order(f, NULL, "ebacd");
}

static void numbers_over_the_beginning_have_their_own_column(void **state) {
  Runs *f = *state;
  add_several_texts(f);
  assert_true(print(f, (RunsTable){.format = TABLE_CSV,
                                   .columns = "bits_per_byte,bits_per_byte_beginning,val_loss,val_loss_beginning"}));
  assert_string_equal(f->table, "bits_per_byte,bits_per_byte_beginning,val_loss,val_loss_beginning\r\n"
                                "2.0,,1.0,\r\n3.0,,1.5,\r\n1.0,,0.5,\r\n0.1,,0.05,\r\n,0.5,,0.25\r\n");
}

static void what_is_not_ranked_is_marked_and_told(void **state) {
  Runs *f = *state;
  add_several_texts(f);
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN}));
  assert_has(f->table, "| run | bits_per_byte | val_text | bits_per_byte_beginning | state |");
  assert_has(f->table, "/a | 2 | A |  |");
  assert_has(f->table, "/b | 1 | B |  |");
  assert_has(f->table, "/d |  | A | 0.5 |");
  assert_has(f->table, "/e | 0.1 | ? |  |");
  assert_has(f->notes, "note: runs validated on another text, which are not ranked with the others: 1\n");
  assert_has(f->notes, "note: runs that do not say which text they were validated on: 1\n");
  assert_has(
      f->notes,
      "note: runs measured only on the beginning of their validation text, which are not ranked with the others: 1\n");
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN, .sort = "run"}));
  assert_has_not(f->notes, "ranked");
}

static void a_single_text_is_not_mentioned(void **state) {
  Runs *f = *state;
  add_measured(f, "a", "all", "00000000000000aa", 1.0, 2.0);
  add_measured(f, "b", "all", "00000000000000aa", 0.5, 1.0);
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT}));
  assert_has_not(f->table, "val_text");
  assert_has_not(f->table, "beginning");
  assert_has(f->table, "val_loss");
  assert_has_not(f->notes, "run");
}

/* ---- tokens ---- */

static void losses_of_other_tokens_are_left_out(void **state) {
  Runs *f = *state;
  add_measured(f, "a", "all", "00000000000000aa", 1.0, 2.0);
  add_measured(f, "b", "all", "00000000000000aa", 3.0, 1.5); /* fewer tokens */
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT}));
  assert_has_not(f->table, "val_loss");
  assert_has(f->notes, "means over different tokens");
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT, .columns = "run,val_loss"}));
  assert_has(f->table, "val_loss");
}

/* ---- columns ---- */

static void people_read_no_paths_and_nothing_aside(void **state) {
  static const char result[] = "{\"end\":\"minutes\",\"step\":7,\"tokens\":300,\"seconds\":4,\"params\":9}";
  static const char line[] = "{\"step\":6,\"tokens\":200,\"loss\":1,\"lr\":1,\"grad_norm\":1,\"tokens_per_s\":99999,"
                             "\"seconds\":1}\n";
  Runs *f = *state;
  add_run(f, "a", "data = /home/me/one.txt\nearlier-steps = \"5:6\"\nthreads = 1\nlr = 0.1\n", line, result);
  add_run(f, "b", "data = /home/me/two.txt\ndata = /home/me/three.txt\nthreads = 2\nlr = 0.2\n", line, NULL);
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN}));
  assert_has(f->table, "| run | data | lr | state | step | seconds | params | tokens_per_s |\n");
  assert_has(f->table, "/a | one.txt | 0.1 | done | 7 | 4 | 9 | 75 |\n");
  assert_has(f->table, "/b | two.txt, three.txt | 0.2 | killed | 6 | 1 |  | 200 |\n");
  assert_string_equal(f->notes, "note: 2 more columns: --columns all, or -O csv\n");
  assert_true(print(f, (RunsTable){.format = TABLE_CSV}));
  assert_has(f->table, "/home/me/one.txt");
  assert_has(f->table, ",minutes,");
  assert_has(f->table, "run,data,threads,lr,bits_per_byte,bits_per_byte_sd,seeds,val_text,bits_per_byte_beginning,"
                       "bits_per_byte_beginning_sd,exact,exact_sd,accuracy,accuracy_sd,state,val_loss,val_loss_sd,step,"
                       "kept_step,seconds,params,tokens_per_s,tokens,epochs,val_loss_beginning,val_loss_beginning_sd,"
                       "exact_beginning,exact_beginning_sd,accuracy_beginning,accuracy_beginning_sd\r\n");
}

static void columns_are_chosen(void **state) {
  Runs *f = *state;
  add_several_texts(f);
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT, .columns = "kept_step,tokenizer"}));
  assert_string_equal(f->table,
                      "kept_step  tokenizer\n"
                      "        5  byte\n        5  byte\n        5  byte\n        5  byte\n        5  byte\n");
  assert_has_not(f->notes, "more columns");
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN, .columns = "all"}));
  assert_has(f->table, "| run | bits_per_byte | val_text | bits_per_byte_beginning | state | val_loss | kept_step | "
                       "val_loss_beginning |\n");
}

static void names_of_columns_are_told(void **state) {
  static const char *const names[] = {"nosuch", "run,,step", "run,"};
  Runs *f = *state;
  add_several_texts(f);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_false(print(f, (RunsTable){.format = TABLE_CSV, .columns = names[i]}));
    assert_int_equal(f->error.code, EXIT_USAGE);
    assert_has(f->error.text, "the columns are run, bits_per_byte, bits_per_byte_sd, seeds, val_text, ");
  }
  assert_false(print(f, (RunsTable){.format = TABLE_CSV, .sort = "tokenizer"}));
  assert_has(f->error.text, "--sort: there is no column tokenizer; the columns are run, bits_per_byte, ");
}

/* All answers are counted at the end, few of them during the run, whatever the loss is over. */
static void few_answers_are_not_all(void **state) {
#define LINE(flag)                                                                                                     \
  "{\"step\":5,\"tokens\":50,\"val_loss\":1,\"bits_per_byte\":2,\"exact\":0.25,\"accuracy\":0.5,\"seconds\":1,"        \
  "\"over\":"                                                                                                          \
  "\"all\"," flag ":true}\n"
  Runs *f = *state;
  add_run(f, "a", "", LINE("\"best\""), NULL);
  add_run(f, "b", "", LINE("\"best\"") LINE("\"kept\""), NULL);
  assert_true(
      print(f, (RunsTable){.format = TABLE_CSV, .columns = "exact,exact_beginning,accuracy,accuracy_beginning"}));
  assert_string_equal(f->table, "exact,exact_beginning,accuracy,accuracy_beginning\r\n,0.25,,0.5\r\n0.25,,0.5,\r\n");
}

/* A directory below the named one is a run only with settings, and with metrics or weights. */
static void parts_of_runs_are_left_out(void **state) {
  static const char *const parts[][2] = {{"metrics", "metrics.jsonl"}, {"settings", "config.txt"}};
  Runs *f = *state;
  add_several_texts(f);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char path[FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", f->dir, parts[i][0]);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/%s/%s", f->dir, parts[i][0], parts[i][1]);
    put_text(path, "");
  }
  assert_order(f, NULL, "acbed");
  char path[FILE_BYTES];
  snprintf(path, sizeof path, "%s/settings/model.safetensors", f->dir);
  put_text(path, "weights");
  assert_rows(f, NULL, "acbeds");
  assert_has(f->notes, "warning: ");
  assert_has(f->notes, "/settings/metrics.jsonl: No such file or directory\n");
}

/* ---- width ---- */

static size_t longest_line(const char *text) {
  size_t longest = 0;
  for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
    if (strcspn(line, "\n") > longest) longest = strcspn(line, "\n");
  return longest;
}

static size_t count_columns(const char *table, const char *between) {
  size_t count = 1;
  for (const char *at = table; at < strchr(table, '\n'); at++) count += strchr(between, *at) && !strchr(between, at[1]);
  return count;
}

static void add_unlike(const Runs *f, int i) {
  char name[80], settings[600], metrics[500];
  snprintf(name, sizeof name, "%da_name_that_is_much_longer_than_thirty-two_columns_%d.run", i, i);
  snprintf(settings, sizeof settings,
           "data = /home/me/a_text_with_a_long_name_%d.txt\nlayers = %d\nheads = %d\nkv-heads = %d\ndim = %d\n"
           "ffn = %d\nctx = %d\nlr = 0.00123%d\nmuon-lr = 0.0%d\nwarmup = %d\nsteps = %d\nbatch = %d\nseed = %d\n"
           "attention-dropout = 0.%d\nembed-dropout = 0.%d\nthreads = %d\nprompt = \"p%d\"\nact = a%d\n",
           i, i, i, i, i * 8, i * 21, i * 64, i, i, i, i, i, i, i, i, i, i, i);
  snprintf(metrics, sizeof metrics,
           "{\"step\":%d,\"tokens\":%d,\"loss\":2,\"lr\":1,\"grad_norm\":1,\"tokens_per_s\":7,\"seconds\":%d.5}\n"
           "{\"step\":%d,\"tokens\":5,\"val_loss\":%d.12345678,\"bits_per_byte\":%d.87654321,\"seconds\":1,"
           "\"over\":\"%s\",\"val_text\":\"%d\",\"best\":true}\n",
           i * 1000, i * 1000000, i, i * 1000, i, i, i % 5 ? "all" : "beginning", i % 2 + 1);
  add_run(f, name, settings, metrics, NULL);
}

static void unlike_runs_fit(void **state) {
  static const int widths[] = {5, 20, 40, 80, 81, 100, 200};
  Runs *f = *state;
  for (int i = 1; i <= 12; i++) add_unlike(f, i);
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    assert_true(print(f, (RunsTable){.format = TABLE_TEXT, .width = widths[i]}));
    assert_true(longest_line(f->table) <= (size_t)widths[i]);
    assert_true(widths[i] < 40 || longest_line(f->table) > (size_t)widths[i] - 10);
  }
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT, .columns = "all"}));
  const size_t all = count_columns(f->table, " ");
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT, .width = 80}));
  const size_t shown = count_columns(f->table, " ");
  char note[80];
  assert_true(shown >= 4 && strncmp(f->table, "run ", 4) == 0);
  assert_has(f->table, "...");
  snprintf(note, sizeof note, "note: %zu more columns: --columns all, or -O csv\n", all - shown);
  assert_has(f->notes, note);
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN, .width = 80}));
  assert_int_equal(count_columns(f->table, "|") - 2, shown);
  assert_has(f->table, "/12a_name_that_is_much_longer_than_thirty-two_columns_12.run | ");
}

/* ---- seeds ---- */

static void add_seed(const Runs *f, const char *name, const char *settings, double bits, const char *state, int step) {
  char metrics[300], result[100];
  snprintf(metrics, sizeof metrics,
           "{\"step\":%d,\"tokens\":50,\"val_loss\":%.10g,\"bits_per_byte\":%.10g,\"seconds\":1,\"over\":\"all\","
           "\"val_text\":\"aa\",\"best\":true}\n",
           step, bits / 2, bits);
  snprintf(result, sizeof result, "{\"end\":\"%s\",\"step\":%d}", state, step);
  add_run(f, name, settings, metrics, result);
}

/* Python: statistics.mean([2.044, 2.0453, 2.0431]), statistics.stdev([2.044, 2.0453, 2.0431]) and so on. */
static void runs_of_several_seeds_are_one_row(void **state) {
  Runs *f = *state;
  add_seed(f, "a1", "out = a1\nlr = 0.1\nseed = 1\n", 2.044, "done", 9);
  add_seed(f, "a2", "out = a2\nlr = 0.1\nseed = 2\n", 2.0453, "done", 9);
  add_seed(f, "a3", "out = a3\nlr = 0.1\nseed = 3\n", 2.0431, "done", 9);
  add_seed(f, "b1", "out = b1\nlr = 0.2\nseed = 1\n", 2.161, "done", 9);
  add_seed(f, "b2", "out = b2\nlr = 0.2\nseed = 7\n", 2.18, "done", 9);
  add_seed(f, "c1", "out = c1\nlr = 0.3\nseed = 1\n", 3.5, "done", 9);
  assert_true(
      print(f, (RunsTable){.format = TABLE_CSV,
                           .columns = "lr,seed,seeds,bits_per_byte,bits_per_byte_sd,val_loss,val_loss_sd,step"}));
  assert_string_equal(f->table, "lr,seed,seeds,bits_per_byte,bits_per_byte_sd,val_loss,val_loss_sd,step\r\n"
                                "0.1,\"[1, 2, 3]\",3,2.044133333,0.001106044002,1.022066667,0.0005530220008,9\r\n"
                                "0.2,\"[1, 7]\",2,2.1705,0.01343502884,1.08525,0.006717514421,9\r\n"
                                "0.3,1,1,3.5,,1.75,,9\r\n");
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN}));
  assert_has(f->table, "| run | lr | seed | bits_per_byte | seeds |");
  assert_has(f->table, "/a1 | 0.1 | [1, 2, 3] | 2.0441 \xC2\xB1 0.0011 | 3 |");
  assert_has(f->table, "/c1 | 0.3 | 1 | 3.5 | 1 |");
  assert_has(f->notes, "note: rows with several seeds: 2; ");
  assert_true(print(f, (RunsTable){.format = TABLE_TEXT}));
  assert_has(f->table, "2.1705 +- 0.013"); /* no UTF-8 in this locale */
  assert_true(print(f, (RunsTable){.format = TABLE_HTML}));
  assert_has(f->table, "<td>2.1705 \xC2\xB1 0.013</td><td>2</td>");
  assert_true(print(f, (RunsTable){.format = TABLE_MARKDOWN, .by_seed = true}));
  assert_has(f->table, "/a2 | 0.1 | 2 | 2.0453 |");
  assert_has_not(f->table, "seeds");
  assert_has_not(f->notes, "seed");
}

/* A copy, another length, a failed run and another text are not averaged. */
static void what_differs_in_more_than_the_seed_is_apart(void **state) {
  Runs *f = *state;
  add_seed(f, "a", "lr = 0.1\nseed = 1\n", 1, "done", 9);
  add_seed(f, "b", "lr = 0.1\nseed = 1\n", 2, "done", 9);
  add_seed(f, "c", "lr = 0.1\nseed = 2\n", 3, "nonfinite", 9);
  add_seed(f, "d", "lr = 0.1\nseed = 3\n", 4, "signal", 7);
  add_seed(f, "e", "lr = 0.1\nseed = 4\n", 5, "signal", 8);
  add_seed(f, "f", "lr = 0.1\nseed = 5\nthreads = 2\n", 6, "done", 9);
  add_measured(f, "g", "all", "00000000000000bb", 7, 7);
  assert_order(f, NULL, "abcdefg");
  add_seed(f, "h", "lr = 0.1\nseed = 6\n", 8, "patience", 7); /* these end where they may */
  add_seed(f, "i", "lr = 0.1\nseed = 7\n", 9, "patience", 8);
  assert_order(f, NULL, "abcdefhg");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_RUNS(runs_on_the_same_text_are_ranked),
      WITH_RUNS(the_largest_group_leads),
      WITH_RUNS(numbers_over_the_beginning_have_their_own_column),
      WITH_RUNS(what_is_not_ranked_is_marked_and_told),
      WITH_RUNS(a_single_text_is_not_mentioned),
      WITH_RUNS(losses_of_other_tokens_are_left_out),
      WITH_RUNS(people_read_no_paths_and_nothing_aside),
      WITH_RUNS(columns_are_chosen),
      WITH_RUNS(names_of_columns_are_told),
      WITH_RUNS(few_answers_are_not_all),
      WITH_RUNS(runs_of_several_seeds_are_one_row),
      WITH_RUNS(what_differs_in_more_than_the_seed_is_apart),
      WITH_RUNS(parts_of_runs_are_left_out),
      WITH_RUNS(unlike_runs_fit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
