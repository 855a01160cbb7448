#include "training/outlook.h"

#include "training/loss_law.h"

#include <math.h>

bool outlook_plan(const TrainSettings *asked, const AutoInputs *given, double minutes, Outlook *out) {
  TrainSettings s = *asked;
  AutoInputs in = *given;
  AutoReasons ignored = {""};
  Error none = {0};
  ModelConfig model, teacher;
  int preset;
  *out = (Outlook){.minutes = s.minutes = minutes};
  if (!s.no_teacher && auto_wants_teacher(&s, &in, &preset, &teacher)) {
    out->taught = in.own_teacher = true;
    in.teacher = &teacher;
  }
  if (!auto_model(&s, &in, &model, &ignored, &none)) return false;
  out->preset = s.preset;
  out->epochs = auto_budget_steps(&s, &in, &model) * (double)settings_tokens_per_step(&s) / (double)in.train_tokens;
  out->parameters = (double)model_parameters(&model);
  out->without_embeddings = (double)model_parameters_without_embeddings(&model);
  out->loss = loss_law(out->without_embeddings, (double)in.text_bytes, out->epochs, out->taught);
  return true;
}

json_t *outlook_json(const Outlook *items, int count, double bits) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    const Outlook *o = &items[i];
    const double ratio = o->loss / items[0].loss;
    json_array_append_new(list, json_pack("{s:f,s:s,s:f,s:f,s:b,s:f,s:o}", "minutes", o->minutes, "preset",
                                          preset_names[o->preset], "params", o->parameters, "epochs", o->epochs,
                                          "teacher", o->taught, "loss_ratio", ratio, "bits_per_byte",
                                          isfinite(bits) ? json_real(bits * ratio) : json_null()));
  }
  return list;
}
