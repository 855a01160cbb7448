#include "training/outlook.h"

#include "training/loss_law.h"

#include <math.h>

bool outlook_plan(const TrainSettings *asked, const AutoInputs *given, double minutes, Outlook *out) {
  TrainSettings s = *asked;
  AutoReasons ignored = {""};
  Error none = {0};
  ModelConfig model;
  *out = (Outlook){.minutes = s.minutes = minutes};
  if (!auto_model(&s, given, &model, &ignored, &none)) return false;
  out->preset = s.preset;
  out->parameters = (double)model_parameters(&model);
  out->without_embeddings = (double)model_parameters_without_embeddings(&model);
  out->epochs = auto_budget_steps(&s, given, &model) * (double)settings_tokens_per_step(&s) / (double)given->train_tokens;
  out->loss = loss_law(out->without_embeddings, (double)given->text_bytes, out->epochs);
  return true;
}

json_t *outlook_json(const Outlook *items, int count, double bits) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    const Outlook *o = &items[i];
    const double ratio = o->loss / items[0].loss;
    json_array_append_new(list, json_pack("{s:f,s:s,s:f,s:f,s:f,s:o}", "minutes", o->minutes, "preset",
                                          preset_names[o->preset], "params", o->parameters, "epochs", o->epochs,
                                          "loss_ratio", ratio, "bits_per_byte",
                                          isfinite(bits) ? json_real(bits * ratio) : json_null()));
  }
  return list;
}
