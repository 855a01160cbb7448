/* The fraction of questions that the model answers right (--choose), measured with the validation loss on rank 0. */
#include "cli/startup.h"
#include "cli/text_check.h"
#include "train/run.h"

enum { TOKENS = 64 << 10 /* at most, in an evaluation during the run */ };

bool run_open_choices(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  ChoiceSet *set = &r->text.choices;
  Error cause = {0};
  if (!s->choose) return true;
  if (r->model.config.encoder_layers)
    return fail(error, EXIT_USAGE, "--choose is for models without an encoder; leave it out");
  if (!run_has_validation(&r->text))
    return fail(error, EXIT_USAGE,
                "--choose is measured with the validation loss, but there is no validation text; "
                "give one with --val FILE");
  TextCheck check = {.console = s->resume || s->binary ? NULL : &r->console};
  if (text_check_file(&check, s->choose, s->choose, &cause) &&
      choices_read(set, s->choose, r->text.tokenizer, run_start_token(r), r->model.config.ctx, &cause))
    return true;
  if (!s->resume || cause.code != EXIT_INPUT) return fail(error, cause.code, "%s", cause.text);
  console_warning(&r->console, "%s; the run continues without --choose", cause.text);
  choices_free(set);
  return true;
}

bool run_measure_choices(Run *r, bool all, MetricsLine *line, Error *error) {
  ChoiceSet *set = &r->text.choices;
  StartupWork work = {.console = &r->console, .name = "choosing", .may_stop = true};
  if (!set->count) return true;
  const double start = clock_seconds();
  const size_t questions = all ? set->count : choices_within(set, TOKENS);
  const bool ok =
      choices_score(set, r->model.on_device, questions, run_sequence_share(r).batch, startup_progress(&work), error);
  console_work_end(&r->console);
  if (!ok || stop_signal) return ok; /* some texts are not scored */
  r->budget.choosing = (clock_seconds() - start) / (double)questions;
  line->accuracy = (double)choices_count(set, questions).right[CHOICE_SUM] / (double)questions;
  line->chance = set->chance;
  return true;
}
