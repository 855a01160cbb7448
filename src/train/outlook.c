#include "train/outlook.h"

#include "train/loss_law.h"
#include "base/text.h"

#include <math.h>

/* Plans a run of so many minutes. Returns false if the settings do not fit each other. */
static bool plan(const TrainSettings *asked, const AutoInputs *given, double minutes, Outlook *out) {
  TrainSettings s = *asked;
  AutoReasons ignored = {""};
  Error none = {0};
  ModelConfig model;
  *out = (Outlook){.minutes = s.minutes = minutes};
  if (!auto_model(&s, given, &model, &ignored, &none)) return false;
  out->preset = s.preset;
  out->parameters = (double)model_parameters(&model);
  out->without_embeddings = (double)model_parameters_without_embeddings(&model);
  const double fewest = AUTO_FEWEST_STEPS * (double)settings_tokens_per_step(&s) / (double)given->train_tokens;
  out->epochs = fmax(auto_budget_epochs(&s, given, &model), fewest);
  out->loss = loss_law(out->without_embeddings, (double)given->text_bytes, out->epochs, settings_has_teacher(&s));
  out->taught = settings_has_teacher(&s);
  return true;
}

Outlooks outlooks_plan(const TrainSettings *s, const AutoInputs *given) {
  static const double usual[] = {1, 3, 10, 30, 100};
  const double own = auto_budget_minutes(s, given);
  const double *minutes = s->budget_count ? s->budgets : usual;
  const int count = s->budget_count ? s->budget_count : (int)(sizeof usual / sizeof *usual);
  Outlooks all = {.count = 0};
  if (s->steps || !isnan(s->epochs) || !plan(s, given, own, &all.items[0])) return all;
  all.count = 1;
  for (int i = 0; i < count; i++)
    if ((s->budget_count || minutes[i] > own) && plan(s, given, minutes[i], &all.items[all.count])) all.count++;
  return all;
}

double outlooks_planned_bits(const Outlooks *all, double text_bytes, double epochs, double bits) {
  const Outlook *own = &all->items[0];
  return all->count ? bits * own->loss / loss_law(own->without_embeddings, text_bytes, epochs, own->taught)
                    : (double)NAN;
}

void outlooks_drop_teacher(Outlooks *all, double text_bytes, double epochs) {
  Outlook *own = &all->items[0];
  own->taught = false;
  own->epochs = fmin(own->epochs, epochs);
  own->loss = loss_law(own->without_embeddings, text_bytes, own->epochs, false);
}

void outlooks_say(const Outlooks *all, double bits, bool whole, char *text, size_t size) {
  const double WORTH = 0.01;
  double said = all->items[0].loss;
  *text = '\0';
  if (all->count < 2 || !isfinite(bits)) return;
  for (int i = 1; i < all->count; i++) {
    const Outlook *o = &all->items[i];
    if (o->loss > (1 - WORTH) * said) continue;
    said = o->loss;
    text_append(text, size,
                *text ? ", %.2f with %g"
                      : "another run of this text should reach about %.2f bits per byte "
                        "with --minutes %g",
                bits * o->loss / all->items[0].loss, o->minutes);
  }
  if (!*text && whole) text_append(text, size, "more time would hardly help; more text would");
}

json_t *outlooks_json(const Outlooks *all, double bits) {
  json_t *list = json_array();
  for (int i = 0; i < all->count; i++) {
    const Outlook *o = &all->items[i];
    const double ratio = o->loss / all->items[0].loss;
    json_array_append_new(list, json_pack("{s:f,s:s,s:f,s:f,s:b,s:f,s:o}", "minutes", o->minutes, "preset",
                                          preset_names[o->preset], "params", o->parameters, "epochs", o->epochs,
                                          "teacher", o->taught, "loss_ratio", ratio, "bits_per_byte",
                                          isfinite(bits) ? json_real(bits * ratio) : json_null()));
  }
  return list;
}
