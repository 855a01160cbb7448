/* The settings of a resumed run, and the initial model, from --init or from the resumed run, whose architecture is
 * kept. */
#include "cli/vocabulary.h"
#include "files/formats/model_files.h"
#include "report/license.h"
#include "train/run.h"
#include "base/path.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- --resume ---- */

static bool check_resume_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && checkpoint_is_run(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a run; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume && s->out && strcmp(s->resume, s->out) != 0)
    return fail(error, EXIT_USAGE, "--resume=%s writes to that directory, not to --out %s; leave out --out", s->resume,
                s->out);
  const char *typed = options_typed(&r->options, "tokenizer vocab-size unk source-tokenizer source-vocab-size pack "
                                                 "jsonl-field prompt-field response-field tsv fasta speaker "
                                                 "train-on special");
  if (typed)
    return fail(error, EXIT_USAGE, "a resumed run keeps its tokenizers and how it reads its text; leave out --%s",
                typed);
  typed = options_typed(&r->options, "init init-like init-std");
  if (typed) return fail(error, EXIT_USAGE, "a resumed run has its weights; leave out --%s", typed);
  if (options_typed(&r->options, "teacher-steps"))
    return fail(error, EXIT_USAGE, "a resumed run keeps its teacher; leave out --teacher-steps");
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
  if (!check_resume_flags(r, error) || !find_directory(&r->settings, &r->files, error)) return false;
  const PathText path = path_in(r->files.dir, CHECKPOINT_SETTINGS);
  if (access(path.text, R_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no " CHECKPOINT_SETTINGS " in it)", r->files.dir);
  options_drop_auto(&r->options);
  return options_load(&r->options, path.text, EXIT_CHECKPOINT, error) &&
         keep_optimizer(&r->options, &r->settings, r->files.dir, error);
}

/* ---- the model in settings: the options whose variables are in TrainSettings.model ---- */

static const void *saved_field(const Run *r, const Option *row) {
  return (const char *)&r->base.config + ((const char *)row->value - (const char *)&r->settings.model);
}

static const Option *next_field(const Run *r, const Option *row) {
  return options_next_in(&r->options, row, &r->settings.model, sizeof r->settings.model);
}

static const char *base_dir(const Run *r) { return r->settings.resume ? r->files.dir : r->settings.init; }

/* Returns whether the field has the value of the saved model, as text. Mixers are compared layer by layer: CACA is
 * CA. */
static bool same_field(const Run *r, const Option *row, const char *given, const char *kept) {
  const ModelConfig *asked = &r->settings.model, *saved = &r->base.config;
  if (row->value == asked->mixers) return model_same_mixers(asked->mixers, saved->mixers, saved->layers);
  return strcmp(given, kept) == 0;
}

/* Refuses a known value that differs from the saved model. */
static bool check_field(const Run *r, const Option *row, Error *error) {
  const ModelConfig *asked = &r->settings.model;
  char given[40], kept[40];
  const bool resumes = r->settings.resume, is_ctx = row->value == &asked->ctx;
  const bool unused =
      (row->value == &asked->rope_base || row->value == &asked->rotary_dims) && asked->positions != POSITIONS_ROPE;
  option_format_variable(row, row->value, given, sizeof given);
  option_format_variable(row, saved_field(r, row), kept, sizeof kept);
  if (!option_known(row) || unused || same_field(r, row, given, kept)) return true;
  if (is_ctx && !resumes && asked->ctx < r->base.config.ctx) return true;
  if (resumes)
    return fail(error, EXIT_USAGE,
                "--%s is %s, but %s was trained with %s; the model cannot change when a run is resumed", row->name,
                given, base_dir(r), kept);
  return fail(error, EXIT_USAGE, "--%s is %s, but the model in %s has %s%s; leave it out", row->name, given,
              base_dir(r), kept, is_ctx ? ", and its context can only become smaller" : "");
}

bool run_check_same_model(const Run *r, Error *error) {
  /* Components come before sizes: a size may follow from them, and the error should name the cause. */
  for (int sizes = 0; sizes < 2; sizes++)
    for (const Option *row = next_field(r, NULL); row; row = next_field(r, row))
      if ((row->kind == OPTION_WHOLE) == sizes && !check_field(r, row, error)) return false;
  return true;
}

/* ---- --init ---- */

static bool open_base(Run *r, Error *error) {
  if (!model_files_open(&r->base.files, base_dir(r), error)) return false;
  r->base.config = *model_files_config(r->base.files);
  if (r->base.config.positions != POSITIONS_ROPE) r->base.config.rope_base = NAN;
  r->base.special = model_files_special_tokens(r->base.files);
  return true;
}

static bool read_init(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  options_drop_auto(&r->options);
  const char *typed = options_typed(
      &r->options, "preset arch tokenizer vocab-size unk source-tokenizer source-vocab-size init-like init-std");
  if (access(s->init, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT,
                "--init %s: %s; it takes the directory of a model, which must be downloaded first", s->init,
                strerror(errno));
  if (typed)
    return fail(error, EXIT_USAGE, "--init takes model, weights and tokenizer from %s; leave out --%s", s->init, typed);
  if (!open_base(r, error) || !model_files_check_weights_size(r->base.files, error)) return false;
  r->base.license = model_license(s->init);
  if (!s->license && *r->base.license.text) s->license = r->base.license.text;
  /* A file of settings may be for another model: only the command line, and the context, count. */
  s->preset = -1;
  s->tokenizer = s->source_tokenizer = NULL;
  s->vocab_size = s->source_vocab_size = 0;
  for (const Option *row = next_field(r, NULL); row; row = next_field(r, row))
    if ((row->origin != ORIGIN_COMMAND_LINE || !option_known(row)) && row->value != &s->model.ctx)
      option_take(row, saved_field(r, row));
  return run_check_same_model(r, error);
}

bool run_read_base(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->init && !options_typed(&r->options, "arch")) s->arch = -1; /* the model's */
  if (s->license && !is_license(s->license))
    return fail(error, EXIT_USAGE, "--license %s: it takes an identifier such as cc-by-4.0 or mit", s->license);
  if (s->resume) return open_base(r, error) && run_check_same_model(r, error);
  return !s->init || read_init(r, error);
}

bool run_open_base_tokenizers(Run *r, bool conversations, Error *error) {
  const char *dir = base_dir(r);
  if (!model_files_read_tokenizer(r->base.files, &r->text.tokenizer, error) ||
      !model_files_read_source_tokenizer(r->base.files, r->text.tokenizer, &r->text.source_tokenizer, error))
    return false;
  if (!r->settings.resume && !conversations && tokenizer_chat_template(r->text.tokenizer)) {
    console_note(&r->console,
                 "%s has a chat template, which is only applied to conversations: the model learns these texts as they "
                 "are, and the run will have no template",
                 dir);
    if (!tokenizer_set_chat_template(r->text.tokenizer, NULL, error)) return false;
  }
  if (!r->settings.resume) vocabulary_note_unused(&r->console, dir, r->text.tokenizer, r->text.source_tokenizer);
  return true;
}
