/* What ./train --runs, --report and --plot read of two runs that somebody has put together: the halves of the bytes are
 * the metrics.jsonl, samples.txt, result.json and config.txt of one each. */
#include "tests/fuzz/fuzz.h"

#include "files/checkpoint/directory.h"
#include "report/page.h"
#include "report/run_charts.h"
#include "train/settings.h"

#include <errno.h>
#include <sys/stat.h>

enum { PATH_BYTES = 128 };

static void make_run(char dir[PATH_BYTES], const char *name, const uint8_t *bytes, size_t size) {
  static const char *const names[] = {CHECKPOINT_METRICS, CHECKPOINT_SAMPLES, CHECKPOINT_RESULT, CHECKPOINT_SETTINGS};
  snprintf(dir, PATH_BYTES, "%s/%s", fuzz_directory(), name);
  FUZZ_REQUIRE(mkdir(dir, 0777) == 0 || errno == EEXIST);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char file[64];
    snprintf(file, sizeof file, "%s/%s", name, names[i]);
    fuzz_file(file, bytes, size);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  char first[PATH_BYTES], second[PATH_BYTES], page[PATH_BYTES];
  make_run(first, "a.run", bytes, size / 2);
  make_run(second, "b.run", bytes + size / 2, size - size / 2);
  const char *const dirs[] = {first, second}, *const dir = fuzz_directory();
  snprintf(page, sizeof page, "%s/report.html", dir);
  FILE *nowhere = fopen("/dev/null", "w");
  FUZZ_REQUIRE(nowhere);
  Error error = {0};
  TrainSettings settings;
  Options options;
  train_options(&options, &settings);
  RunsTable table = runs_page_table(dirs, 1, &options, false);
  fuzz_require_done(page_write_runs(&table, page, NULL, &error), &error);
  table.count = 2;
  fuzz_require_done(page_write_runs(&table, page, NULL, &error), &error);
  Console unread = {.stream = nowhere, .quiet = true};
  table.dirs = &dir, table.count = 1, table.width = 80, table.console = &unread;
  for (table.format = TABLE_TEXT; table.format < TABLE_FORMATS; table.format++)
    fuzz_require_done(runs_print(&table, nowhere, &error), &error);
  FoundRuns runs = {0};
  fuzz_require_done(find_runs_read(&runs, &dir, 1, &error), &error);
  fuzz_require_done(run_charts_print(nowhere, runs.items, runs.count, 0, true, &error), &error);
  fuzz_require_done(run_charts_print(nowhere, runs.items, 1, 0, true, &error), &error);
  find_runs_free(&runs);
  options_free(&options);
  fclose(nowhere);
  return 0;
}
