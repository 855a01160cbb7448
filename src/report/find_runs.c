#include "report/find_runs.h"

#include "files/checkpoint/directory.h"
#include "files/formats/model_files.h"
#include "base/array.h"
#include "base/path.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 16 }; /* depth of the search below the named directories */

static bool has(const char *dir, const char *name) { return access(path_in(dir, name).text, F_OK) == 0; }

/* A named directory (depth 0) may also be what is left of a run. Below, a test's input or a copy of a single file must
 * not look like a run. */
static bool is_run(const char *dir, int depth) {
  const bool settings = checkpoint_is_run(dir), metrics = has(dir, CHECKPOINT_METRICS);
  return depth == 0 ? settings || metrics : settings && (metrics || has(dir, MODEL_FILE_WEIGHTS));
}

static bool add_run(FoundRuns *runs, const char *dir, Error *error) {
  const size_t wanted = (size_t)runs->count + 1;
  if (runs->count == INT_MAX || !array_reserve(&runs->items, &runs->capacity, wanted, sizeof *runs->items))
    return error_memory(error, "a list of runs");
  FoundRun *run = &runs->items[runs->count++];
  *run = (FoundRun){.dir = strdup(dir)};
  return run->dir || error_memory(error, "a path");
}

/* Unreadable directories are left out with a warning, except for the named ones (depth 0). */
static bool search(FoundRuns *runs, const char *dir, int depth, Error *error) {
  if (is_run(dir, depth)) return add_run(runs, dir, error);
  struct dirent **names = NULL;
  const int count = depth == DEEPEST ? 0 : access(dir, X_OK) ? -1 : scandir(dir, &names, NULL, alphasort);
  if (count < 0 && errno == ENOMEM) return error_memory(error, "a list of runs");
  if (count < 0 && !depth) return fail(error, EXIT_INPUT, "%s: %s", text_one_line(dir, 250).text, strerror(errno));
  if (count < 0 && runs->console)
    console_warning(runs->console, "%s is left out: %s", text_one_line(dir, 250).text, strerror(errno));
  bool ok = true;
  for (int i = 0; i < count; i++) {
    struct stat info;
    const char *name = names[i]->d_name;
    const PathText path = path_in(dir, name);
    const char *below = strcmp(dir, ".") == 0 ? name : path.text;
    if (ok && name[0] != '.' && lstat(below, &info) == 0 && S_ISDIR(info.st_mode))
      ok = search(runs, below, depth + 1, error);
    free(names[i]);
  }
  free(names);
  return ok;
}

bool find_runs(FoundRuns *out, const char *const *dirs, int count, Error *error) {
  for (int i = 0; i < count; i++)
    if (!search(out, dirs[i], 0, error)) return false;
  return out->count > 0 || fail(error, EXIT_INPUT, "no run in %s%s; a run is a directory that training has made",
                                text_one_line(dirs[0], 250).text, count > 1 ? ", nor in the others" : "");
}

bool find_runs_read(FoundRuns *out, const char *const *dirs, int count, Error *error) {
  if (!find_runs(out, dirs, count, error)) return false;
  for (int i = 0; i < out->count; i++) {
    const PathText metrics = path_in(out->items[i].dir, CHECKPOINT_METRICS);
    const bool absent = access(metrics.text, F_OK) != 0 && errno == ENOENT; /* a run killed before its first line */
    if (!absent && !history_read(&out->items[i].history, metrics.text, error)) return false;
  }
  return true;
}

void find_runs_free(FoundRuns *runs) {
  for (int i = 0; i < runs->count; i++) {
    free(runs->items[i].dir);
    history_free(&runs->items[i].history);
  }
  free(runs->items);
  *runs = (FoundRuns){0};
}
