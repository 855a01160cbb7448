/* The initial model of a run, from --init or from the resumed run. Its architecture is kept. */
#include "cli/vocabulary.h"
#include "formats/model_files.h"
#include "training/run.h"
#include "util/path.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- the model in settings: the options whose variables are in TrainSettings.model ---- */

static const void *field(const TrainSettings *s, const Option *row, const ModelConfig *model) {
  return (const char *)model + ((const char *)row->value - (const char *)&s->model);
}

static const Option *next_field(const Options *options, const TrainSettings *s, const Option *row) {
  return options_next_in(options, row, &s->model, sizeof s->model);
}

static const char *base_dir(const Run *r) { return r->settings.resume ? r->files.dir : r->settings.init; }

/* Refuses a value that differs from the saved model. */
static bool check_field(const Run *r, const Option *row, const ModelConfig *asked, const ModelConfig *saved,
                        Error *error) {
  char given[40], kept[40];
  const bool resumes = r->settings.resume, is_ctx = row->value == &r->settings.model.ctx;
  option_format_variable(row, field(&r->settings, row, asked), given, sizeof given);
  option_format_variable(row, field(&r->settings, row, saved), kept, sizeof kept);
  if (strcmp(given, kept) == 0 || (is_ctx && !resumes && asked->ctx < saved->ctx)) return true;
  if (resumes)
    return fail(error, EXIT_USAGE,
                "--%s is %s, but %s was trained with %s; the model cannot change when a run is resumed", row->name,
                given, base_dir(r), kept);
  return fail(error, EXIT_USAGE, "--%s is %s, but the model in %s has %s%s; leave it out", row->name, given,
              base_dir(r), kept, is_ctx ? ", and its context can only become smaller" : "");
}

static bool check_same(const Run *r, ModelConfig asked, Error *error) {
  ModelConfig saved = r->base.config;
  if (saved.positions != POSITIONS_ROPE) saved.rope_base = NAN;
  if (asked.positions != POSITIONS_ROPE) asked.rope_base = NAN;
  /* Components come before sizes: a size may follow from them, and the error should name the cause. */
  for (int sizes = 0; sizes < 2; sizes++)
    for (const Option *row = next_field(&r->options, &r->settings, NULL); row;
         row = next_field(&r->options, &r->settings, row))
      if ((row->kind == OPTION_INT) == sizes && !check_field(r, row, &asked, &saved, error)) return false;
  return true;
}

bool run_check_same_model(const Run *r, Error *error) { return check_same(r, r->model.config, error); }

/* Sets every field but the context that the command line does not give: a file of settings may be for another run. */
static void take_model(Run *r) {
  ModelConfig saved = r->base.config;
  if (saved.positions != POSITIONS_ROPE) saved.rope_base = NAN;
  for (const Option *row = next_field(&r->options, &r->settings, NULL); row;
       row = next_field(&r->options, &r->settings, row))
    if ((row->origin != ORIGIN_COMMAND_LINE || !option_known(row)) && row->value != &r->settings.model.ctx)
      option_take(row, field(&r->settings, row, &saved));
}

/* ---- --init ---- */

static bool check_flags(const Run *r, Error *error) {
  const char *typed = options_typed(
      &r->options, "preset arch tokenizer vocab-size source-tokenizer source-vocab-size init-like init-std");
  return !typed || fail(error, EXIT_USAGE, "--init takes model, weights and tokenizer from %s; leave out --%s",
                        r->settings.init, typed);
}

/* Resets what a file of settings may say about another model. */
static void forget_others(TrainSettings *s) {
  s->preset = -1;
  s->tokenizer = s->source_tokenizer = NULL;
  s->vocab_size = s->source_vocab_size = 0;
}

static bool open_base(Run *r, Error *error) {
  if (!model_files_open(&r->base.files, base_dir(r), error)) return false;
  r->base.config = *model_files_config(r->base.files);
  r->base.special = model_files_special_tokens(r->base.files);
  return true;
}

static bool read_init(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (access(s->init, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT,
                "--init %s: %s; it takes the directory of a model, which must be downloaded first", s->init,
                strerror(errno));
  if (!check_flags(r, error) || !open_base(r, error) || !model_files_check_weights_size(r->base.files, error))
    return false;
  forget_others(s);
  take_model(r);
  ModelConfig asked = s->model;
  if (!asked.ctx) asked.ctx = r->base.config.ctx;
  return check_same(r, asked, error);
}

bool run_read_base(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->resume) return open_base(r, error);
  return !s->init || read_init(r, error);
}

bool run_share_base(RunBase *base, Options *options, Collective *peers, Error *error) {
  struct {
    ModelConfig config;
    SpecialTokens special;
  } shared = {base->config, base->special};
  if (!run_share_settings(options, peers, error)) return false;
  collective_broadcast(peers, &shared, sizeof shared);
  base->config = shared.config;
  base->special = shared.special;
  return true;
}

bool run_open_base_tokenizers(Run *r, Error *error) {
  const char *dir = base_dir(r);
  if (!model_files_read_tokenizer(r->base.files, &r->text.tokenizer, error) ||
      !model_files_read_source_tokenizer(r->base.files, r->text.tokenizer, &r->text.source_tokenizer, error))
    return false;
  if (!r->settings.resume && tokenizer_has_chat_template(r->text.tokenizer))
    console_note(&r->console, "%s has a chat template, which the run will not have: texts are learned as they are",
                 dir);
  if (!r->settings.resume) vocabulary_note_unused(&r->console, dir, r->text.tokenizer, r->text.source_tokenizer);
  return true;
}

bool run_read_base_weights(const RunBase *base, RunModel *model, Error *error) {
  return model_files_read_weights(base->files, &model->config, model_table(model->on_device), model->host[0], error);
}
