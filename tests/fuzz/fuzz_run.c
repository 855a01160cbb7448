/* What ./train --runs, --report and --plot read of a run that somebody has put together: the bytes are its
 * metrics.jsonl, samples.txt, result.json and config.txt at once. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/directory.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static const char *const names[] = {CHECKPOINT_METRICS, CHECKPOINT_SAMPLES, CHECKPOINT_RESULT, CHECKPOINT_SETTINGS};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) fuzz_file(names[i], bytes, size);
  const char *dir = fuzz_directory();
  char page[128], metrics[128];
  snprintf(page, sizeof page, "%s/report.html", dir);
  snprintf(metrics, sizeof metrics, "%s/" CHECKPOINT_METRICS, dir);
  FILE *nowhere = fopen("/dev/null", "w");
  FUZZ_REQUIRE(nowhere);
  Error error = {0};
  fuzz_require_done(page_write_runs(&dir, 1, page, &error), &error);
  for (TableFormat format = TABLE_MARKDOWN; format <= TABLE_JSON; format++)
    fuzz_require_done(runs_print(&(RunsTable){.dirs = &dir, .count = 1, .format = format}, nowhere, &error), &error);
  History history = {0};
  fuzz_require_done(history_read(&history, metrics, &error), &error);
  plot_print(nowhere, &history, "run", 0, true);
  history_free(&history);
  fclose(nowhere);
  return 0;
}
