/* Everything that ./train can be told, the table of its options, and the choices made when it is not told. */
#ifndef INKLING_TRAINING_SETTINGS_H
#define INKLING_TRAINING_SETTINGS_H

#include "cli/device.h"
#include "cli/options.h"
#include "kernels.h"
#include "model.h"

typedef struct TrainSettings {
  /* data */
  TextList data;
  const char *val;
  double val_frac;
  /* model; 0 or -1: from the preset */
  int preset, layers, heads, kv_heads, dim, ffn, ctx, tie;
  float dropout;
  /* optimizer */
  float lr, min_lr_frac, beta1, beta2, eps, wd, clip, label_smoothing;
  int64_t warmup;
  int schedule; /* ScheduleKind */
  /* length */
  int64_t steps;
  double epochs, minutes;
  int batch, grad_accum;
  int64_t batch_tokens;
  /* evaluation */
  int64_t eval_every, sample_every;
  int sample_tokens; /* of a sample; 0: no samples */
  int patience;
  const char *prompt;
  /* output */
  const char *out;
  bool overwrite, quiet;
  Interval save_every;
  const char *resume; /* "" for --resume alone; NULL when not given */
  int64_t log_every;
  /* machine */
  DeviceSettings machine;
  uint64_t seed;
  /* other */
  bool dry_run;
  int64_t bench;
} TrainSettings;

enum { TRAIN_OPTIONS = 49 };

/* Defaults into `settings`, the table into `options` (its rows into `rows`). */
void train_options(Options *options, Option rows[TRAIN_OPTIONS], TrainSettings *settings);

/* Values that need each other or no data: the model's shape from preset and flags, AdamW, micro-batches. EXIT_USAGE.
 * The number of steps, the warm-up and the intervals follow in settings_resolve_length(). */
bool settings_resolve_model(TrainSettings *settings, int vocab, bool accelerator, ModelConfig *model, Error *error);
TrainConfig settings_train_config(const TrainSettings *settings);

/* Steps from --steps, --epochs or --minutes (steps_per_minute is what was measured), then what depends on them. */
bool settings_resolve_length(TrainSettings *settings, int64_t train_tokens, int ctx, double steps_per_minute,
                             Error *error);

static inline int64_t settings_tokens_per_step(const TrainSettings *s) {
  return (int64_t)s->batch * s->grad_accum * s->ctx;
}

#endif
