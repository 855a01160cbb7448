#include "inference/sampling.h"

#include "model.h"
#include "model/decoder.h"

#define SETTING(name, member, ...)                                                                                     \
  { name, #member, offsetof(Sampling, member), __VA_ARGS__ }

const SamplingSetting sampling_settings[] = {
    SETTING("repeat-penalty", repeat_penalty, .min = 0.01, .max = 100, .off = 1, .initial = 1,
            .help = "repetition penalty: divides positive logits of recent tokens, multiplies negative ones; 1: off"),
    SETTING("repeat-last-n", repeat_last_n, .whole = true, .max = DECODER_LOOKBACK, .initial = 64,
            .help = "number of recent tokens, including the prompt's, that the penalties apply to"),
    SETTING("presence-penalty", presence_penalty, .min = -100, .max = 100,
            .help = "presence penalty: subtracted once from the logit of each recent token"),
    SETTING("frequency-penalty", frequency_penalty, .min = -100, .max = 100,
            .help = "frequency penalty: subtracted from the logit of each recent token for each of its occurrences"),
    SETTING("top-k", top_k, .whole = true, .min = -1, .max = MODEL_MAX_VOCAB, .initial = 40, .common = true,
            .help = "keep the N most likely tokens; 0: all"),
    SETTING("top-p", top_p, .max = 1, .above = true, .off = 1, .initial = 0.95,
            .help = "keep the most likely tokens whose probabilities add up to X; 1: all"),
    SETTING("min-p", min_p, .max = 1, .initial = 0.05,
            .help = "keep tokens at least X times as likely as the most likely one; 0: all"),
    SETTING("temp", temperature, .max = 100, .initial = 0.8, .common = true,
            .help = "temperature; 0: always the most likely token"),
    {.name = NULL},
};

void sampling_set(Sampling *sampling, const SamplingSetting *setting, double value) {
  void *member = (char *)sampling + setting->offset;
  if (setting->whole) *(int *)member = (int)value;
  else *(float *)member = (float)value;
}

Sampling sampling_initial(void) {
  Sampling out = {.seed = 0};
  for (const SamplingSetting *s = sampling_settings; s->name; s++) sampling_set(&out, s, s->initial);
  return out;
}

Sampling sampling_greedy(void) {
  Sampling out = {.seed = 0};
  for (const SamplingSetting *s = sampling_settings; s->name; s++) sampling_set(&out, s, s->off);
  return out;
}
