/* Multiple choice (--choose): which texts of a file the model finds likelier, and how often they are the right ones. */
#include "cli/startup.h"
#include "generate/program.h"
#include "inference/choices.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { BATCH = 8 /* contexts in a pass */ };

static const char *const keys[CHOICE_MEASURES] = {"sum", "per_token", "per_character", "per_byte"};
static const char *const names[CHOICE_MEASURES] = {"sum", "per token", "per character", "per byte"};

static double share(size_t count, size_t all) { return (double)count / (double)all; }

static double standard_error(size_t count, size_t all) {
  return sqrt(share(count, all) * (1 - share(count, all)) / (double)all);
}

/* ---- JSON ---- */

static bool print_question(Program *p, const ChoiceSet *set, const ChoiceQuestion *q, Error *error) {
  const Choice *texts = set->texts + q->first;
  printf("{\"line\": %" PRId64 ", \"answer\": %d, \"loglikelihoods\": [", q->line, q->right);
  for (int i = 0; i < q->count; i++) printf("%s%.6f", i ? ", " : "", texts[i].loglikelihood);
  printf("], \"tokens\": [");
  for (int i = 0; i < q->count; i++) printf("%s%d", i ? ", " : "", texts[i].scored);
  printf("], \"chosen\": {");
  for (int m = 0; m < CHOICE_MEASURES; m++) {
    bool tie;
    const int chosen = choices_chosen(set, q, (ChoiceMeasure)m, &tie);
    printf(tie ? "%s\"%s\": null" : "%s\"%s\": %d", m ? ", " : "", keys[m], chosen);
  }
  puts("}}");
  return program_check(p, error);
}

static void print_numbers(const char *name, const double numbers[CHOICE_MEASURES]) {
  printf(", \"%s\": {", name);
  for (int m = 0; m < CHOICE_MEASURES; m++) printf("%s\"%s\": %.6g", m ? ", " : "", keys[m], numbers[m]);
  putchar('}');
}

/* Prints which model of a series the totals are of. */
static void print_model(const SeriesModel *model) {
  const ShortText words = text_number(model->words, false);
  printf("\"model\": \"%s\", \"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"words\": %s, ", path_base(model->dir),
         model->step, model->tokens, isfinite(model->words) ? words.text : "null");
}

static bool print_json(Program *p, const ChoiceSet *set, const ChoiceCount *count, Error *error) {
  double accuracy[CHOICE_MEASURES], deviation[CHOICE_MEASURES], ties[CHOICE_MEASURES];
  for (size_t i = 0; !p->series && i < set->count && !p->write_error; i++)
    if (!print_question(p, set, &set->questions[i], error)) return false;
  for (int m = 0; m < CHOICE_MEASURES; m++) {
    accuracy[m] = share(count->right[m], count->questions);
    deviation[m] = standard_error(count->right[m], count->questions);
    ties[m] = (double)count->ties[m];
  }
  putchar('{');
  if (p->series) print_model(&p->series->models[p->at]);
  printf("\"questions\": %zu, \"chance\": %.6g, \"cut\": %" PRId64, count->questions, set->chance, set->cut);
  print_numbers("accuracy", accuracy);
  print_numbers("standard_error", deviation);
  print_numbers("ties", ties);
  puts("}");
  return program_check(p, error);
}

/* ---- tables ---- */

static void print_questions(const ChoiceSet *set, const ChoiceCount *count) {
  printf("%s; guessing: %.2f %%\n", text_plural((double)count->questions, "question").text, 100 * set->chance);
}

static bool print_table(Program *p, const ChoiceSet *set, const ChoiceCount *count, Error *error) {
  printf("%-14s  %8s  %14s  %6s\n", "log-likelihood", "right", "standard error", "ties");
  for (int m = 0; m < CHOICE_MEASURES; m++)
    printf("%-14s  %6.2f %%  %12.2f %%  %6zu\n", names[m], 100 * share(count->right[m], count->questions),
           100 * standard_error(count->right[m], count->questions), count->ties[m]);
  print_questions(set, count);
  return program_check(p, error);
}

/* Prints a line for a model of a series, by the sum of log-likelihoods. */
static bool print_line(Program *p, const ChoiceSet *set, const ChoiceCount *count, Error *error) {
  const SeriesModel *model = &p->series->models[p->at];
  const double right = share(count->right[CHOICE_SUM], count->questions);
  char words[32] = "-";
  if (isfinite(model->words)) snprintf(words, sizeof words, "%.0f", model->words);
  if (!p->at) printf("%10s  %14s  %14s  %8s  %14s\n", "steps", "tokens", "words", "right", "standard error");
  printf("%10" PRId64 "  %14" PRId64 "  %14s  %6.2f %%  %12.2f %%\n", model->step, model->tokens, words, 100 * right,
         100 * standard_error(count->right[CHOICE_SUM], count->questions));
  if (p->at + 1 == p->series->count) print_questions(set, count);
  return program_check(p, error);
}

/* ---- the mode ---- */

static bool check_finite(const LoadedModel *m, const ChoiceSet *set, Error *error) {
  for (size_t i = 0; i < set->text_count; i++)
    if (!isfinite(set->texts[i].loglikelihood))
      return fail(error, EXIT_NONFINITE,
                  "a log-likelihood is not finite: the weights in %s are damaged or the model diverged", m->dir);
  return true;
}

bool program_choose(Program *p, Error *error) {
  const LoadedModel *m = &p->model;
  if (m->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--choose is for models without an encoder; --score FILE --exact scores pairs");
  ChoiceSet set = {0};
  StartupWork scoring = {.console = &p->console, .name = "scoring"};
  const char *path = p->settings.choose;
  const int32_t start = m->special.start >= 0 ? m->special.start : 0;
  bool ok = text_check_file(&p->check, path, path, error) &&
            choices_read(&set, path, m->tokenizer, start, m->config.ctx, error);
  scoring.total = (double)set.text_count;
  ok = ok && choices_score(&set, m->model, set.count, BATCH, startup_progress(&scoring), error) &&
       check_finite(m, &set, error);
  console_work_end(&p->console);
  if (ok && set.cut && !p->at)
    console_note(&p->console,
                 "%" PRId64 " of %s do not fit into the context of %d tokens with what is before them; their last "
                 "tokens were scored",
                 set.cut, text_plural((double)set.text_count, "text").text, m->config.ctx);
  if (ok) {
    const ChoiceCount count = choices_count(&set, set.count);
    ok = (p->settings.json ? print_json : p->series ? print_line : print_table)(p, &set, &count, error);
  }
  choices_free(&set);
  return ok;
}
