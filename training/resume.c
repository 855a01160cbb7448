/* Settings and model of a resumed run. */
#include "formats/model_files.h"
#include "training/run.h"
#include "util/path.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool check_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && checkpoint_is_run(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a run; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume && s->out && strcmp(s->resume, s->out) != 0)
    return fail(error, EXIT_USAGE, "--resume=%s writes to that directory, not to --out %s; leave out --out", s->resume,
                s->out);
  const char *typed = options_typed(&r->options, "tokenizer vocab-size source-tokenizer source-vocab-size pack "
                                                 "jsonl-field prompt-field response-field tsv");
  if (typed)
    return fail(error, EXIT_USAGE, "a resumed run keeps its tokenizers and how it reads its text; leave out --%s",
                typed);
  typed = options_typed(&r->options, "init init-like init-std");
  if (typed) return fail(error, EXIT_USAGE, "a resumed run has its weights; leave out --%s", typed);
  return true;
}

static bool find_directory(const TrainSettings *s, RunFiles *files, Error *error) {
  if (*s->resume) return (files->dir = strdup(s->resume)) || error_memory(error, "a path");
  if (!s->out && !s->data.count)
    return model_files_newest_run(&files->dir, error) || error_append(error, "; name the run: --resume=DIR");
  return run_name_directory(s, files, error);
}

/* Keeps the optimizer of the saved state: the settings may come from another file or from an older version. */
static bool keep_optimizer(const Options *options, TrainSettings *s, const char *dir, Error *error) {
  const int kept = checkpoint_find_optimizer(dir);
  const int asked = options_given(options, &s->optimizer) ? s->optimizer : -1;
  if (kept < 0) return true; /* there is no state; reading it will report that */
  if (asked >= 0 && asked != kept)
    return fail(error, EXIT_USAGE, "%s was trained with %s, and a resumed run keeps its optimizer; leave out %s", dir,
                settings_optimizers[kept], settings_optimizers[asked]);
  s->optimizer = kept;
  return true;
}

bool run_resume_settings(Run *r, Error *error) {
  if (!check_flags(r, error) || !find_directory(&r->settings, &r->files, error)) return false;
  const PathText path = path_in(r->files.dir, CHECKPOINT_SETTINGS);
  if (access(path.text, R_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no " CHECKPOINT_SETTINGS " in it)", r->files.dir);
  return options_load(&r->options, path.text, EXIT_CHECKPOINT, error) &&
         keep_optimizer(&r->options, &r->settings, r->files.dir, error);
}
