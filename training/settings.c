#include "training/settings.h"

#include "cli/device.h"

#include <math.h>
#include <string.h>

typedef struct Preset {
  const char *name;
  int layers, heads, dim, ctx, batch;
} Preset;

static const Preset presets[] = {{"nano", 4, 4, 128, 64, 12}, {"baby", 6, 6, 384, 256, 64}};
static const char *const preset_names[] = {"nano", "baby", NULL};
static const char *const schedule_names[] = {"cosine", "linear", "constant", "wsd", NULL}; /* as ScheduleKind */

enum { EXCLUSIVE_LENGTH = 1, EXCLUSIVE_BATCH = 2 };

static TrainSettings train_defaults(void) {
  return (TrainSettings){.val_frac = 0.1,
                         .preset = -1,
                         .tie = -1,
                         .dropout = -1,
                         .lr = NAN,
                         .min_lr_frac = 0.1f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .wd = 0.1f,
                         .clip = 1.0f,
                         .warmup = -1,
                         .epochs = NAN,
                         .minutes = NAN,
                         .eval_every = -1,
                         .sample_every = -1,
                         .sample_tokens = 256,
                         .save_every = {0, 600},
                         .seed = 1337};
}

void train_options(Options *options, Option rows[TRAIN_OPTIONS], TrainSettings *s) {
  *s = train_defaults();
  const Option table[] = {
      {.group = "Data",
       .name = "data",
       .kind = OPTION_LIST,
       .value = &s->data,
       .positional = true,
       .argument = "FILE",
       .help = "text to learn from; a line <|endoftext|> separates documents"},
      {.name = "val",
       .kind = OPTION_TEXT,
       .value = &s->val,
       .argument = "FILE",
       .shown_default = "the tail of the text",
       .help = "text to validate on"},
      {.name = "val-frac",
       .kind = OPTION_DOUBLE,
       .value = &s->val_frac,
       .min = 0,
       .max = 0.9,
       .help = "part of the text kept for validation, at most 1 M tokens; 0: none"},

      {.group = "Model",
       .name = "preset",
       .kind = OPTION_CHOICE,
       .value = &s->preset,
       .choices = preset_names,
       .shown_default = "auto: nano on a CPU, baby on a GPU",
       .help = "nano: 4 layers x 128, 4 heads, ctx 64, batch 12; baby: 6 x 384, 6 heads, ctx 256, batch 64"},
      {.name = "layers",
       .kind = OPTION_INT,
       .value = &s->layers,
       .min = 1,
       .max = 1024,
       .shown_default = "auto: preset",
       .help = "Transformer blocks"},
      {.name = "heads",
       .kind = OPTION_INT,
       .value = &s->heads,
       .min = 1,
       .max = 1024,
       .shown_default = "auto: preset",
       .help = "attention heads; must divide dim"},
      {.name = "kv-heads",
       .kind = OPTION_INT,
       .value = &s->kv_heads,
       .min = 1,
       .max = 1024,
       .shown_default = "auto: heads",
       .help = "key/value heads; must divide heads"},
      {.name = "dim",
       .kind = OPTION_INT,
       .value = &s->dim,
       .min = 2,
       .max = 65536,
       .shown_default = "auto: preset",
       .help = "width of the residual stream"},
      {.name = "ffn",
       .kind = OPTION_INT,
       .value = &s->ffn,
       .min = 1,
       .max = 1 << 20,
       .shown_default = "auto: 8/3 dim",
       .help = "hidden width of the MLP"},
      {.name = "ctx",
       .kind = OPTION_INT,
       .value = &s->ctx,
       .min = 1,
       .max = 1 << 20,
       .shown_default = "auto: preset",
       .help = "context length in tokens"},
      {.name = "dropout",
       .kind = OPTION_FLOAT,
       .value = &s->dropout,
       .min = 0,
       .max = 1,
       .below = true,
       .shown_default = "auto: 0.1 beyond 10 epochs, else 0",
       .help = "drop probability on embedding, attention and residual branches"},
      {.name = "tie",
       .kind = OPTION_TRISTATE,
       .value = &s->tie,
       .shown_default = "auto: below dim 1024",
       .help = "the output head is the embedding"},

      {.group = "Optimizer (AdamW)",
       .name = "lr",
       .kind = OPTION_FLOAT,
       .value = &s->lr,
       .min = 0,
       .max = 10,
       .above = true,
       .shown_default = "auto: 1e-3 below 20 M parameters, else 6e-4",
       .help = "peak learning rate"},
      {.name = "min-lr-frac",
       .kind = OPTION_FLOAT,
       .value = &s->min_lr_frac,
       .min = 0,
       .max = 1,
       .help = "the schedule ends at exactly this fraction of lr"},
      {.name = "warmup",
       .kind = OPTION_INT64,
       .value = &s->warmup,
       .min = 0,
       .max = 1e12,
       .shown_default = "auto: 5 % of the steps, at most 700",
       .help = "steps of linear warm-up"},
      {.name = "schedule",
       .kind = OPTION_CHOICE,
       .value = &s->schedule,
       .choices = schedule_names,
       .help = "how lr falls after the warm-up; wsd: only in the last fifth"},
      {.name = "beta1",
       .kind = OPTION_FLOAT,
       .value = &s->beta1,
       .min = 0,
       .max = 1,
       .below = true,
       .help = "decay of the first moment"},
      {.name = "beta2",
       .kind = OPTION_FLOAT,
       .value = &s->beta2,
       .min = 0,
       .max = 1,
       .below = true,
       .help = "decay of the second moment"},
      {.name = "eps",
       .kind = OPTION_FLOAT,
       .value = &s->eps,
       .min = 0,
       .max = 1,
       .above = true,
       .help = "added to the root of the second moment"},
      {.name = "wd",
       .kind = OPTION_FLOAT,
       .value = &s->wd,
       .min = 0,
       .max = 10,
       .help = "weight decay, on matrices only"},
      {.name = "clip",
       .kind = OPTION_FLOAT,
       .value = &s->clip,
       .min = 0,
       .max = 1e9,
       .help = "largest global gradient norm; 0: off"},
      {.name = "label-smoothing",
       .kind = OPTION_FLOAT,
       .value = &s->label_smoothing,
       .min = 0,
       .max = 1,
       .below = true,
       .help = "share of each target spread over the vocabulary; never in validation"},

      {.group = "Length",
       .name = "steps",
       .kind = OPTION_INT64,
       .value = &s->steps,
       .min = 1,
       .max = 1e8,
       .exclusive = EXCLUSIVE_LENGTH,
       .shown_default = "auto: 2000",
       .help = "optimizer steps"},
      {.name = "epochs",
       .kind = OPTION_DOUBLE,
       .value = &s->epochs,
       .min = 0,
       .max = 1e9,
       .above = true,
       .exclusive = EXCLUSIVE_LENGTH,
       .help = "an epoch is as many tokens as the training text has"},
      {.name = "minutes",
       .kind = OPTION_DOUBLE,
       .value = &s->minutes,
       .min = 0,
       .max = 1e6,
       .above = true,
       .exclusive = EXCLUSIVE_LENGTH,
       .help = "as many steps as fit, measured on this machine before the start"},
      {.name = "batch",
       .kind = OPTION_INT,
       .value = &s->batch,
       .min = 1,
       .max = 1 << 20,
       .shown_default = "auto: preset",
       .help = "sequences in a micro-batch"},
      {.name = "grad-accum",
       .kind = OPTION_INT,
       .value = &s->grad_accum,
       .min = 1,
       .max = 1 << 20,
       .exclusive = EXCLUSIVE_BATCH,
       .shown_default = "auto: 1",
       .help = "micro-batches in a step"},
      {.name = "batch-tokens",
       .kind = OPTION_INT64,
       .value = &s->batch_tokens,
       .min = 1,
       .max = 1e12,
       .exclusive = EXCLUSIVE_BATCH,
       .help = "tokens in a step; sets grad-accum"},

      {.group = "Evaluation",
       .name = "eval-every",
       .kind = OPTION_INT64,
       .value = &s->eval_every,
       .min = 0,
       .max = 1e12,
       .shown_default = "auto: 20 times a run",
       .help = "steps between evaluations; 0: only at the end"},
      {.name = "patience",
       .kind = OPTION_INT,
       .value = &s->patience,
       .min = 0,
       .max = 1e6,
       .help = "stop after this many evaluations without a better one; 0: never"},
      {.name = "sample-every",
       .kind = OPTION_INT64,
       .value = &s->sample_every,
       .min = 0,
       .max = 1e12,
       .shown_default = "auto: 4 times a run",
       .help = "steps between samples; 0: only at the end"},
      {.name = "sample-tokens",
       .kind = OPTION_INT,
       .value = &s->sample_tokens,
       .min = 0,
       .max = 1e6,
       .help = "length of a sample; 0: no samples"},
      {.name = "prompt",
       .kind = OPTION_TEXT,
       .value = &s->prompt,
       .shown_default = "none",
       .help = "how samples begin"},

      {.group = "Output",
       .name = "out",
       .kind = OPTION_TEXT,
       .value = &s->out,
       .argument = "DIR",
       .shown_default = "FILE.run here",
       .help = "the run directory"},
      {.name = "overwrite",
       .kind = OPTION_FLAG,
       .value = &s->overwrite,
       .transient = true,
       .help = "replace the run that DIR holds"},
      {.name = "resume",
       .kind = OPTION_OPTIONAL,
       .value = &s->resume,
       .argument = "DIR",
       .transient = true,
       .help = "go on with a stopped run (DIR, or the newest *.run here); larger --steps extends a finished one"},
      {.name = "save-every",
       .kind = OPTION_INTERVAL,
       .value = &s->save_every,
       .help = "steps or time (10m) between resume states; 0: only at the end"},
      {.name = "log-every",
       .kind = OPTION_INT64,
       .value = &s->log_every,
       .min = 1,
       .max = 1e12,
       .shown_default = "auto: 100 times a run",
       .help = "steps between lines of metrics.jsonl"},
      {.name = "quiet",
       .kind = OPTION_FLAG,
       .value = &s->quiet,
       .transient = true,
       .help = "no plan, no progress, no samples on the screen"},

      {.group = "Machine",
       .name = "device",
       .kind = OPTION_CHOICE,
       .value = &s->machine.device,
       .choices = device_choices,
       .help = "where to compute"},
      {.name = "dtype",
       .kind = OPTION_CHOICE,
       .value = &s->machine.dtype,
       .choices = dtype_choices,
       .shown_default = "auto: bf16 on a GPU, f32 on a CPU",
       .help = "numbers in activations and matrix products; masters are f32"},
      {.name = "threads",
       .kind = OPTION_INT,
       .value = &s->machine.threads,
       .min = 0,
       .max = 4096,
       .shown_default = "all",
       .help = "CPU threads"},
      {.name = "autotune",
       .kind = OPTION_FLAG,
       .value = &s->machine.autotune,
       .help = "GPU: measure which GEMM algorithm is the fastest; kept in the run's autotune.txt"},
      {.name = "seed",
       .kind = OPTION_UINT64,
       .value = &s->seed,
       .help = "of all random numbers: same seed, same bytes"},

      {.group = "Other",
       .name = "dry-run",
       .kind = OPTION_FLAG,
       .value = &s->dry_run,
       .transient = true,
       .help = "print the plan and stop"},
      {.name = "bench",
       .kind = OPTION_INT64,
       .value = &s->bench,
       .min = 1,
       .max = 1e9,
       .transient = true,
       .argument = "N",
       .help = "time N steps, print one JSON line on stdout, save nothing"},
  };
  _Static_assert(sizeof table / sizeof table[0] <= TRAIN_OPTIONS, "TRAIN_OPTIONS is too small");
  memcpy(rows, table, sizeof table);
  *options = (Options){
      .program = "train",
      .usage = "FILE [options]",
      .rows = rows,
      .count = sizeof table / sizeof table[0],
      .about =
          "Trains a small language model from a text file. Writes a run directory that ./generate and Hugging Face "
          "transformers read."};
}

/* Fills what was not given. */
static void take_preset(TrainSettings *s, bool accelerator) {
  if (s->preset < 0) s->preset = accelerator;
  const Preset *p = &presets[s->preset];
  if (!s->layers) s->layers = p->layers;
  if (!s->heads) s->heads = p->heads;
  if (!s->kv_heads) s->kv_heads = s->heads;
  if (!s->dim) s->dim = p->dim;
  if (!s->ctx) s->ctx = p->ctx;
  if (!s->batch) s->batch = p->batch;
  if (!s->ffn) s->ffn = default_ffn(s->dim);
  if (s->tie < 0) s->tie = s->dim < 1024;
}

bool settings_resolve_model(TrainSettings *s, int vocab, bool accelerator, ModelConfig *model, Error *error) {
  take_preset(s, accelerator);
  if (s->dim % s->heads)
    return fail(error, EXIT_USAGE,
                "--heads %d does not divide --dim %d (a head would have %.2f numbers); try --heads %d", s->heads,
                s->dim, (double)s->dim / s->heads, s->dim % 32 ? 1 : s->dim / 32);
  *model = (ModelConfig){.vocab = vocab,
                         .ctx = s->ctx,
                         .layers = s->layers,
                         .heads = s->heads,
                         .kv_heads = s->kv_heads,
                         .dim = s->dim,
                         .head_dim = s->dim / s->heads,
                         .ffn = s->ffn,
                         .tie = s->tie,
                         .rope_base = 10000.0f,
                         .norm_eps = 1e-5f};
  if (!model_config_check(model, EXIT_USAGE, error)) return false;
  int64_t micro = (int64_t)s->batch * s->ctx;
  if (s->batch_tokens) {
    if (s->batch_tokens % micro)
      return fail(error, EXIT_USAGE,
                  "--batch-tokens %lld is not a multiple of a micro-batch: %d sequences of %d tokens are %lld",
                  (long long)s->batch_tokens, s->batch, s->ctx, (long long)micro);
    if (s->batch_tokens / micro > 1 << 20)
      return fail(error, EXIT_USAGE, "--batch-tokens %lld needs %lld micro-batches, more than 1048576; raise --batch",
                  (long long)s->batch_tokens, (long long)(s->batch_tokens / micro));
    s->grad_accum = (int)(s->batch_tokens / micro);
  }
  if (!s->grad_accum) s->grad_accum = 1;
  if (micro * s->grad_accum > INT32_MAX)
    return fail(error, EXIT_USAGE, "a step of %lld tokens is too large; lower --batch or --grad-accum",
                (long long)(micro * s->grad_accum));
  ParameterTable table;
  if (!parameter_table_make(&table, model, error)) return false;
  if (isnan(s->lr)) s->lr = table.parameters < 20000000 ? 1e-3f : 6e-4f;
  parameter_table_free(&table);
  return true;
}

TrainConfig settings_train_config(const TrainSettings *s) {
  return (TrainConfig){.batch = s->batch,
                       .micro_batches = s->grad_accum,
                       .dropout = s->dropout > 0 ? s->dropout : 0,
                       .label_smoothing = s->label_smoothing,
                       .clip = s->clip,
                       .adamw = {s->beta1, s->beta2, s->eps, s->wd},
                       .schedule = {(ScheduleKind)s->schedule, s->lr, s->min_lr_frac, s->warmup, s->steps},
                       .seed = s->seed};
}

static int64_t at_least_one(double x) { return x < 1 ? 1 : (int64_t)x; }

bool settings_resolve_length(TrainSettings *s, int64_t train_tokens, int ctx, double steps_per_minute, Error *error) {
  double tokens_per_step = (double)s->batch * s->grad_accum * ctx;
  if (!isnan(s->epochs)) s->steps = at_least_one(ceil(s->epochs * (double)train_tokens / tokens_per_step));
  else if (!isnan(s->minutes)) s->steps = at_least_one(s->minutes * steps_per_minute);
  else if (!s->steps) s->steps = 2000;
  if (s->steps > 100000000)
    return fail(error, EXIT_USAGE, "that is %lld steps, more than 100000000; lower --epochs or --minutes",
                (long long)s->steps);
  if (s->dropout < 0) s->dropout = (double)s->steps * tokens_per_step > 10.0 * (double)train_tokens ? 0.1f : 0.0f;
  if (s->warmup < 0) s->warmup = s->steps / 20 < 700 ? s->steps / 20 : 700;
  if (s->warmup > s->steps)
    return fail(error, EXIT_USAGE, "--warmup %lld is longer than the run of %lld steps", (long long)s->warmup,
                (long long)s->steps);
  if (s->eval_every < 0) s->eval_every = at_least_one((double)s->steps / 20);
  if (s->sample_every < 0) s->sample_every = at_least_one((double)s->steps / 4);
  if (!s->log_every) s->log_every = at_least_one((double)s->steps / 100);
  return true;
}
