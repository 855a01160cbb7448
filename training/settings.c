#include "training/settings.h"

#include <string.h>

const char *const settings_optimizers[] = {"adamw", "muon", NULL};

bool settings_tokenizer_is_path(const char *tokenizer) {
  return tokenizer && strcmp(tokenizer, "byte") != 0 && strcmp(tokenizer, "bpe") != 0;
}

/* A dropout that is not chosen yet counts as 0. */
static float rate(float dropout) { return dropout > 0 ? dropout : 0; }

TrainConfig settings_train_config(const TrainSettings *s) {
  return (TrainConfig){
      .batch = s->batch,
      .micro_batches = s->grad_accum,
      .dropout = {rate(s->embed_dropout), rate(s->attention_dropout), rate(s->dropout), rate(s->mlp_dropout)},
      .label_smoothing = s->label_smoothing,
      .clip = s->clip,
      .optimizer = s->optimizer > 0 ? (OptimizerKind)s->optimizer : OPTIMIZER_ADAMW,
      .muon = {s->muon_lr / s->lr, s->momentum, s->wd},
      .adamw = {s->beta1, s->beta2, s->eps, s->wd},
      .schedule = {(ScheduleKind)s->schedule, s->lr, s->min_lr_frac, s->warmup, s->steps, s->plans},
      .seed = s->seed};
}
