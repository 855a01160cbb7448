#include "train/auto_settings.h"

#include "train/architecture.h"
#include "train/loss_law.h"

#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Preset {
  int layers, heads, dim, ctx, batch, cpu_batch;
  int vocab;         /* 0: chosen by the size of the text */
  double parameters; /* with the vocabulary that the preset is meant for */
} Preset;

#define PRESET_NAME(id, name, ...) name,
#define PRESET_ROW(id, name, ...) {__VA_ARGS__},
const char *const preset_names[] = {MODEL_PRESETS(PRESET_NAME) NULL};
static const Preset presets[] = {MODEL_PRESETS(PRESET_ROW)};

/* Without a given length, a run is planned to take DEFAULT_MINUTES, on a GPU GPU_MINUTES. A GPU is assumed to reach
 * GPU_SHARE of its peak. The speed of a busy CPU cannot be measured reliably, so the usual speed of its threads is
 * assumed instead, for at most THREADS_LIMIT of them, because small models do not keep more busy. If the measured speed
 * means more than MOST_MINUTES, the run is cut to that. */
static const double DEFAULT_MINUTES = 2, GPU_MINUTES = 0.5;
static const double GPU_SHARE = 0.4, GPU_STEP_SECONDS = 1e-3 /* at least: launches of kernels */;
static const double THREAD_FLOPS = 1e11 /* with vectors of 512 bits... */, BF16_SPEED = 1.5 /* ...times this in bf16 */;
static const double MOST_MINUTES = 30;
/* Fractions of the GEMM peak that CPUs reach in training, pauses included (measured: 0.63 to 0.86; 0.5 in bf16). */
static const double CPU_SHARE = 0.7, CPU_BF16_SHARE = 0.5;
enum { THREADS_LIMIT = 8 };

/* Small texts (docs/learning.md): on 20 kB and 200 kB, the validation loss is lowest after 10 epochs of Muon or about
 * 15 of AdamW. With Muon, weight decay is better than dropout at keeping a model from memorizing the text. With AdamW,
 * a dropout of 0.1 from DROPOUT_EPOCHS on is better than none, and better than 0.2 up to MANY_EPOCHS. */
enum { DROPOUT_EPOCHS = 7, MANY_EPOCHS = 40 };

/* Few epochs at a lower rate without dropout preserve what the model learned before (table: docs/finetuning.md). */
enum { FINE_TUNING_WARMUP = 50 };

static void note_choice(AutoReasons *reasons, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note_choice(AutoReasons *reasons, const char *format, ...) {
  va_list arguments;
  if (reasons->text[0]) text_append(reasons->text, sizeof reasons->text, "; ");
  va_start(arguments, format);
  text_append_list(reasons->text, sizeof reasons->text, format, arguments);
  va_end(arguments);
}

/* ---- tokenizer ---- */

static bool is_wide(const Characters *characters) {
  return (double)characters->bytes > AUTO_WIDE * (double)characters->count;
}

/* Each token should occur often, to be learned and to be worth its row of the output layer. A script of many
 * bytes per character has many different ones, which a small vocabulary would not cover. */
static int vocab_for(int64_t bytes, bool wide, bool accelerator) {
  const int limit = accelerator ? 32768 : 4096;
  int vocab = !wide || bytes < 100000 ? 1024 : 2048;
  while (vocab < limit && bytes / 2000 >= 2 * vocab) vocab *= 2;
  return vocab;
}

/* A BPE needs more text: below AUTO_BYTE_KB kilobytes, a model of bytes is better. Scripts of many bytes per character
 * are the exception: their bytes would fill the context. A text of few letters, such as DNA, has no words. */
static const char *tokenizer_for(int64_t bytes, const Characters *characters, AutoReasons *reasons) {
  const bool small = bytes < AUTO_BYTE_KB * 1000 && !is_wide(characters);
  if (!small && characters->distinct >= AUTO_FEW) return "bpe";
  if (small) note_choice(reasons, "a token is a byte (less than %d kB of text)", AUTO_BYTE_KB);
  else
    note_choice(reasons, "a token is a byte (only %d different characters%s)", characters->distinct,
                characters->bytes < CHARACTERS_SAMPLE ? "" : " in the first megabyte");
  return "byte";
}

void auto_tokenizer(TrainSettings *s, int64_t bytes, const Characters *characters, bool accelerator,
                    AutoReasons *reasons) {
  const int preset_vocab = s->preset >= 0 ? presets[s->preset].vocab : 0;
  if (!s->tokenizer) s->tokenizer = s->vocab_size || preset_vocab ? "bpe" : tokenizer_for(bytes, characters, reasons);
  const bool separate = settings_separate_vocabs(s);
  if (separate && !s->source_tokenizer) s->source_tokenizer = "bpe";
  const bool wide = is_wide(characters);
  const int usual = preset_vocab ? preset_vocab : vocab_for(separate ? bytes / 2 : bytes, wide, accelerator);
  if (strcmp(s->tokenizer, "bpe") == 0 && !s->vocab_size) {
    s->vocab_size = usual;
    note_choice(reasons, "a BPE of at most %d tokens (%s of text)", usual, text_bytes((double)bytes).text);
  }
  if (separate && strcmp(s->source_tokenizer, "bpe") == 0 && !s->source_vocab_size) {
    s->source_vocab_size = usual;
    note_choice(reasons, "a BPE of at most %d tokens for prompts", usual);
  }
}

/* If the prompts of the initial model begin with a token, its texts must begin with it too. */
void auto_packing(TrainSettings *s, bool pairs, const Tokenizer *tokenizer, AutoReasons *reasons) {
  const AddedToken *begin = s->init ? tokenizer_added(tokenizer, tokenizer_begin(tokenizer)) : NULL;
  if (s->pack >= 0) return;
  s->pack = pairs || begin ? PACK_DOCS : PACK_STREAM;
  if (begin && !pairs)
    note_choice(reasons, "whole documents (the model's texts begin with %s)", text_one_line(begin->text, 40).text);
}

/* ---- model ---- */

double auto_budget_minutes(const TrainSettings *s, const AutoInputs *given) {
  return !isnan(s->minutes) ? s->minutes : given->device->accelerator ? GPU_MINUTES : DEFAULT_MINUTES;
}

static int counted_threads(const AutoInputs *given) {
  return given->device->threads < THREADS_LIMIT ? given->device->threads : THREADS_LIMIT;
}

/* Returns FLOP/s. */
static double usual_flops(const AutoInputs *given) {
  /* Rounded to a power of two, so that a slightly different measurement makes the same choice. */
  const double gpu = exp2(round(log2(fmax(given->peak_flops, 1)))) * GPU_SHARE;
  const double cpu = counted_threads(given) * THREAD_FLOPS * given->device->vector_bits / 512 *
                     (given->device->dtype == DTYPE_BF16 ? BF16_SPEED : 1);
  return given->device->accelerator ? gpu : cpu;
}

static double budget_flops(const TrainSettings *s, const AutoInputs *given) {
  return 60 * auto_budget_minutes(s, given) * usual_flops(given);
}

static int epochs_limit(const TrainSettings *s) {
  return s->init ? AUTO_TUNING_EPOCHS : s->optimizer == OPTIMIZER_ADAMW ? AUTO_ADAMW_EPOCHS : AUTO_MUON_EPOCHS;
}

double auto_most_steps(const TrainSettings *s, int64_t epoch_tokens) {
  const double epochs = epochs_limit(s) * (s->teacher_steps > 0 ? AUTO_TAUGHT : 1);
  const double steps = epochs * (double)epoch_tokens / (double)settings_tokens_per_step(s);
  return fmax(ceil(steps), s->init ? 1 : AUTO_FEWEST_STEPS);
}

/* Returns the tokens of the longest run that the text allows. */
static double text_tokens(const TrainSettings *s, const AutoInputs *given) {
  return (isnan(s->epochs) ? epochs_limit(s) : s->epochs) * (double)given->train_tokens;
}

/* Returns at least the preset's context, and one that holds several of 19 in 20 packed documents: if only one fits,
 * much of a window is padding. */
static int context_for(const Preset *p, const AutoInputs *given) {
  const int limit = given->device->accelerator ? 2048 : 512;
  const DocumentLengths *lengths = &given->lengths;
  int ctx = p->ctx;
  int64_t fitting = 0;
  for (int k = 0; k < 63; k++) {
    fitting += lengths->counts[k];
    if (lengths->documents == 0 || (double)fitting >= 0.95 * (double)lengths->documents) return ctx;
    while (ctx < limit && ctx < (int64_t)8 << k) ctx *= 2;
  }
  return ctx;
}

static void fill_shape(TrainSettings *s, const Preset *p, bool pairs) {
  ModelConfig *m = &s->model;
  if (!m->layers) m->layers = p->layers;
  if (!m->heads) m->heads = p->heads;
  if (!m->kv_heads) m->kv_heads = m->heads;
  if (!m->dim) m->dim = p->dim;
  if (!m->ctx) m->ctx = p->ctx;
  architecture_fill(s, pairs);
}

/* `base`: NULL or the initial model, which may have a head size that settings cannot express. */
static bool shape(const TrainSettings *s, int vocab, int source_vocab, const ModelConfig *base, ModelConfig *model,
                  Error *error) {
  const ModelConfig *m = &s->model;
  const bool kept = base && m->dim == base->dim && m->heads == base->heads;
  if (m->dim % m->heads && !kept)
    return fail(error, EXIT_USAGE, "--heads %d does not divide --dim %d (the head size would be %.2f); try --heads %d",
                m->heads, m->dim, (double)m->dim / m->heads, m->dim % 32 ? 1 : m->dim / 32);
  *model = *m;
  model->vocab = vocab;
  model->source_vocab = model->encoder_layers ? source_vocab : 0;
  model->head_dim = kept ? base->head_dim : model->dim / model->heads;
  if (isnan(model->rope_base)) model->rope_base = ARCHITECTURE_ROPE_BASE; /* not used */
  return architecture_check(s, base, error) && model_config_check(model, EXIT_USAGE, error);
}

/* Returns the largest preset with no more parameters than the model; its batch size is used. */
static int preset_like(const ModelConfig *model) {
  const double parameters = (double)model_parameters(model);
  int preset = PRESET_124M;
  while (preset > PRESET_NANO && presets[preset].parameters > parameters) preset--;
  return preset;
}

/* Returns the preset whose loss should be least: a larger one only if it is clearly better, because it takes more time
 * and memory to use, and if it has at most MOST_PER_BYTE parameters for each byte of the text (docs/learning.md). If
 * the shape is given, it is the preset like that. */
static int preset_for(const TrainSettings *asked, const AutoInputs *given) {
  const double CLEARLY = 0.997, MOST_PER_BYTE = 10;
  double least = INFINITY, largest = 0;
  int best = PRESET_NANO;
  for (int preset = PRESET_NANO; preset <= PRESET_110M; preset++) {
    TrainSettings s = *asked;
    ModelConfig model;
    AutoReasons unused = {""};
    Error misfit = {0};
    s.preset = preset;
    if (!auto_model(&s, given, &model, &unused, &misfit)) continue;
    if (asked->model.layers && asked->model.heads && asked->model.dim) return preset_like(&model);
    const double size = (double)model_parameters_without_embeddings(&model);
    const double epochs = auto_budget_epochs(&s, given, &model);
    const double loss = loss_law(size, (double)given->text_bytes, epochs, settings_has_teacher(&s));
    const bool fits = preset == PRESET_NANO || size <= MOST_PER_BYTE * (double)given->text_bytes;
    if (!fits || !(loss < CLEARLY * least) || size <= largest) continue;
    largest = size;
    least = loss;
    best = preset;
  }
  return best;
}

static void fill_preset(TrainSettings *s, const AutoInputs *given, AutoReasons *reasons) {
  ModelConfig *m = &s->model;
  const bool shaped = m->layers && m->heads && m->dim && m->ctx;
  if (s->preset < 0) {
    s->preset = given->base ? preset_like(given->base) : preset_for(s, given);
    if (!shaped && !given->base)
      note_choice(reasons, "preset %s (%s, %s of text)", preset_names[s->preset],
                  given->device->accelerator ? "a GPU" : "a CPU", text_bytes((double)given->text_bytes).text);
  }
  const Preset *p = &presets[s->preset];
  const bool given_ctx = m->ctx;
  if (!m->ctx && given->base && settings_start_from_model(s)) {
    const int most = given->device->accelerator ? 2048 : 512;
    m->ctx = given->base->ctx < most ? given->base->ctx : most;
    if (m->ctx < given->base->ctx)
      note_choice(reasons, "context %d of the model's %d (longer with --ctx)", m->ctx, given->base->ctx);
  } else if (!m->ctx) {
    m->ctx = context_for(p, given);
    if (m->ctx != p->ctx) note_choice(reasons, "context %d (the documents' lengths)", m->ctx);
  }
  if (!given_ctx && given->teacher && m->ctx > given->teacher->ctx) {
    m->ctx = given->teacher->ctx;
    note_choice(reasons, "context %d (the teacher's)", m->ctx);
  }
  const bool chosen = s->arch < 0 && !given->base;
  fill_shape(s, p, given->pairs);
  if (chosen && s->arch == ARCHITECTURE_LFM2)
    note_choice(reasons, "lfm2 (short convolutions learn more from little text than attention alone)");
}

bool auto_check_shape(const TrainSettings *given, const ModelConfig *base, ModelConfig *model, Error *error) {
  TrainSettings s = *given;
  *model = (ModelConfig){0};
  if (!s.model.dim || !s.model.heads || (*s.model.mixers && !s.model.layers && s.preset < 0)) return true;
  fill_shape(&s, &presets[s.preset >= 0 ? s.preset : PRESET_NANO], false);
  return shape(&s, base ? base->vocab : 257, base ? base->source_vocab : 257, base, model, error);
}

/* Returns the preset's micro-batch on a GPU: the smallest with which it makes all epochs in time, because small batches
 * learn more from a token (docs/learning.md). */
static int gpu_batch(const TrainSettings *s, const AutoInputs *given, const ModelConfig *model) {
  const Preset *p = &presets[s->preset];
  const OptimizerKind optimizer = s->optimizer < 0 ? OPTIMIZER_MUON : (OptimizerKind)s->optimizer;
  const int smallest = p->cpu_batch > given->processes ? p->cpu_batch : given->processes;
  for (int batch = smallest; !s->steps && batch < p->batch; batch *= 2) {
    const int64_t tokens = (int64_t)batch * p->ctx;
    const double step = model_step_flops(model, tokens, optimizer, true) / usual_flops(given);
    const double seconds = text_tokens(s, given) / (double)tokens * fmax(step, GPU_STEP_SECONDS);
    if (seconds <= 60 * auto_budget_minutes(s, given)) return batch;
  }
  return p->batch;
}

/* Returns the micro-batch in sequences that has about as many tokens as the preset's at the chosen context, or fewer,
 * so that an epoch of a tiny text has FEWEST_STEPS (docs/learning.md). With --batch-tokens it is the largest smaller
 * one that divides it. */
static int usual_batch(const TrainSettings *s, const AutoInputs *given, const ModelConfig *model) {
  const double FEWEST_STEPS = 20, FEWEST = 2;
  const Preset *p = &presets[s->preset];
  const double most = fmax((double)given->train_tokens / s->model.ctx / FEWEST_STEPS, fmax(FEWEST, given->processes));
  const int on_cpu = s->optimizer == OPTIMIZER_ADAMW ? p->cpu_batch / 2 : p->cpu_batch;
  const int64_t tokens = (int64_t)(given->device->accelerator ? gpu_batch(s, given, model) : on_cpu) * p->ctx;
  int batch = tokens > s->model.ctx ? (int)(tokens / s->model.ctx) : 1;
  if (s->optimizer != OPTIMIZER_ADAMW && !s->init && batch > most) batch = (int)most;
  if (s->batch_tokens && s->batch_tokens % s->model.ctx == 0)
    while (s->batch_tokens / s->model.ctx % batch) batch--;
  return batch;
}

/* Muon learns more per token, but its iteration costs the same for any number of tokens. If it would take most of a
 * step, AdamW learns more in the same time. A learning rate given alone is assumed to be for AdamW. */
static void choose_optimizer(TrainSettings *s, const AutoInputs *given, const ModelConfig *model,
                             AutoReasons *reasons) {
  if (s->optimizer >= 0) return;
  const int64_t batch = s->batch ? s->batch : usual_batch(s, given, model);
  const int64_t tokens = s->batch_tokens ? s->batch_tokens : batch * s->model.ctx * (s->grad_accum ? s->grad_accum : 1);
  const bool gpu = given->device->accelerator;
  const double step = model_step_flops(model, tokens, OPTIMIZER_ADAMW, gpu);
  const bool costly = model_step_flops(model, tokens, OPTIMIZER_MUON, gpu) > 2 * step;
  s->optimizer = isnan(s->muon_lr) && (!isnan(s->lr) || costly) ? OPTIMIZER_ADAMW : OPTIMIZER_MUON;
  if (!isnan(s->muon_lr)) note_choice(reasons, "Muon (muon-lr is given)");
  else if (s->optimizer == OPTIMIZER_MUON) note_choice(reasons, "Muon (learns more from a token than AdamW)");
  else if (!isnan(s->lr)) note_choice(reasons, "AdamW (lr is given, and muon-lr is not)");
  else note_choice(reasons, "AdamW (in such short steps Muon would take most of the time)");
}

MemoryPlan auto_memory(const TrainSettings *s, const ModelConfig *model, const ModelConfig *teacher,
                       const TrainConfig *train, const ContextInfo *device) {
  MemoryPlan plan = model_memory(model, train, device);
  if (!settings_has_teacher(s)) return plan;
  const MemoryPlan other =
      model_evaluation_memory(teacher ? teacher : model, (int64_t)train->batch * model->ctx, device);
  plan.weights += other.weights;
  plan.activations += other.activations;
  plan.logits += other.logits;
  plan.total += other.total;
  return plan;
}

/* Returns the operations of a step without a teacher. */
static double alone_flops(const TrainSettings *s, const ModelConfig *model, bool accelerator) {
  return model_step_flops(model, settings_tokens_per_step(s), (OptimizerKind)s->optimizer, accelerator);
}

double auto_step_flops(const TrainSettings *s, const ModelConfig *model, const ModelConfig *teacher, bool accelerator) {
  ModelConfig shortened = teacher ? *teacher : *model;
  shortened.ctx = model->ctx;
  const double taught = settings_has_teacher(s) ? model_forward_flops(&shortened, settings_tokens_per_step(s)) : 0;
  return alone_flops(s, model, accelerator) + taught;
}

double auto_teacher_flops(const TrainSettings *s, const ModelConfig *model, bool accelerator) {
  return s->teacher_steps > 0 ? (double)s->teacher_steps * alone_flops(s, model, accelerator) : 0;
}

double auto_steps_within(double flops, const TrainSettings *s, const ModelConfig *model, const ModelConfig *teacher,
                         bool accelerator) {
  return (flops - auto_teacher_flops(s, model, accelerator)) / auto_step_flops(s, model, teacher, accelerator);
}

/* Halves the micro-batch until a step fits the memory, and raises the number of micro-batches instead. */
static void fit_batch(TrainSettings *s, const AutoInputs *given, const ModelConfig *model, AutoReasons *reasons) {
  const int whole = s->batch = usual_batch(s, given, model);
  TrainConfig train = settings_train_config(s);
  train.dropout.branch = 0.1f;
  const size_t limit = given->device->free_bytes / 10 * 9;
  while (s->batch % 2 == 0 && auto_memory(s, model, given->teacher, &train, given->device).total > limit)
    train.batch = s->batch /= 2;
  if (s->batch < whole && !s->grad_accum && !s->batch_tokens) s->grad_accum = whole / s->batch;
  if (s->batch < whole) note_choice(reasons, "batch %d instead of %d (memory)", s->batch, whole);
}

static bool choose_batch(TrainSettings *s, const AutoInputs *given, const ModelConfig *model, AutoReasons *reasons,
                         Error *error) {
  if (!s->batch) fit_batch(s, given, model, reasons);
  int64_t micro = (int64_t)s->batch * s->model.ctx;
  if (s->batch_tokens) {
    if (s->batch_tokens % micro)
      return fail(error, EXIT_USAGE,
                  "--batch-tokens %lld is not a multiple of the micro-batch: --batch %d times --ctx %d is %lld tokens",
                  (long long)s->batch_tokens, s->batch, s->model.ctx, (long long)micro);
    if (s->batch_tokens / micro > SETTINGS_MAX_BATCH)
      return fail(error, EXIT_USAGE, "--batch-tokens %lld needs %lld micro-batches, more than %d; raise --batch",
                  (long long)s->batch_tokens, (long long)(s->batch_tokens / micro), SETTINGS_MAX_BATCH);
    s->grad_accum = (int)(s->batch_tokens / micro);
  }
  if (!s->grad_accum) s->grad_accum = 1;
  if (micro * s->grad_accum > INT32_MAX)
    return fail(error, EXIT_USAGE, "a step of %lld tokens is too large; lower --batch or --grad-accum",
                (long long)(micro * s->grad_accum));
  return true;
}

/* Returns the part of the learning rates of a new model that fine-tuning uses. */
static double tuning_share(const TrainSettings *s, const ModelConfig *model) {
  const bool large = (double)model_parameters(model) >= AUTO_TUNING_SIZE * 1e6;
  return !s->init ? 1 : large ? AUTO_TUNING_LARGE : AUTO_TUNING_SHARE;
}

double auto_learning_rate(const TrainSettings *s, const ModelConfig *model) {
  const double share = tuning_share(s, model), parameters = (double)model_parameters(model);
  const bool rms = s->init ? !norm_has_mean(model->norm) : architecture_has_rms(s->arch);
  if (s->optimizer == OPTIMIZER_MUON) return share * AUTO_BESIDE_MUON;
  if (!rms && parameters < AUTO_LR_SMALL_SIZE * 1e6) return share * AUTO_LR_SMALL;
  return share * (parameters < AUTO_LR_SIZE * 1e6 ? AUTO_LR : AUTO_LR_LARGE);
}

double auto_muon_rate(const TrainSettings *s, const ModelConfig *model) {
  return tuning_share(s, model) * AUTO_MUON_LR;
}

/* A run learns from a teacher of its own if the time is better spent on one than on more epochs (docs/learning.md). */
static void choose_teacher(TrainSettings *s, const AutoInputs *given, const ModelConfig *model) {
  const double CLEARLY = 0.995, LEAST_MINUTES = 1 /* the teacher is trained by another process, which has to start */;
  const double minutes = auto_budget_minutes(s, given), parameters = (double)model_parameters_without_embeddings(model);
  const double bytes = (double)given->text_bytes;
  const TrainConfig train = settings_train_config(s);
  const bool new = !s->resume && !s->bench && !s->init && !s->teacher && !s->steps && isnan(s->epochs);
  s->teacher_steps = 0;
  if (!new || model->encoder_layers || given->processes > 1 || minutes < LEAST_MINUTES) return;
  const double alone = loss_law(parameters, bytes, auto_budget_epochs(s, given, model), false);
  s->teacher_steps = (int64_t)auto_most_steps(s, given->train_tokens);
  const double epochs = auto_budget_epochs(s, given, model);
  const size_t memory = auto_memory(s, model, NULL, &train, given->device).total, /* and the teacher's training: */
      needed = memory + model_memory(model, &train, given->device).total;
  const bool fits = needed <= given->device->free_bytes / 10 * 9;
  const bool better = epochs >= epochs_limit(s) && loss_law(parameters, bytes, epochs, true) < CLEARLY * alone;
  if (!fits || !better) s->teacher_steps = 0;
}

bool auto_model(TrainSettings *s, const AutoInputs *given, ModelConfig *model, AutoReasons *reasons, Error *error) {
  fill_preset(s, given, reasons);
  if (!shape(s, given->vocab, given->source_vocab, given->base, model, error)) return false;
  choose_optimizer(s, given, model, reasons);
  if (!choose_batch(s, given, model, reasons, error)) return false;
  const bool muon = s->optimizer == OPTIMIZER_MUON, chosen = isnan(s->lr) || (muon && isnan(s->muon_lr));
  if (isnan(s->lr)) s->lr = (float)auto_learning_rate(s, model);
  if (isnan(s->muon_lr) && muon) s->muon_lr = (float)auto_muon_rate(s, model);
  if (s->teacher_steps < 0) choose_teacher(s, given, model);
  if (settings_has_teacher(s) && isnan(s->teacher_weight))
    s->teacher_weight = s->teacher ? AUTO_TEACHER_WEIGHT : AUTO_FIRST_TEACHER_WEIGHT;
  if (s->init && chosen)
    note_choice(reasons, "learning rates: %g of those of a new model (fine-tuning)", tuning_share(s, model));
  return model_counts_ok(error);
}

/* ---- length ---- */

static int64_t at_least_one(double x) { return x < 1 ? 1 : (int64_t)x; }

/* Rounds down to two digits. */
static int64_t rounded(double steps) {
  double unit = pow(10, floor(log10(fmax(steps, 1))) - 1);
  return at_least_one(unit < 1 ? steps : floor(steps / unit) * unit);
}

double auto_step_seconds(double flops, const ContextInfo *device, double peak_flops) {
  const double share = device->accelerator ? GPU_SHARE : device->dtype == DTYPE_BF16 ? CPU_BF16_SHARE : CPU_SHARE;
  return flops / (share * fmax(peak_flops, 1));
}

/* Explains a number of steps that was chosen by time. A busy machine takes longer, as the plan's estimate shows. */
static void note_time(const TrainSettings *s, const AutoInputs *given, const char *steps, AutoReasons *reasons) {
  const PluralText threads = text_plural(counted_threads(given), "such thread");
  note_choice(reasons, "%s (%g minutes at %s, usual for %s)", steps, auto_budget_minutes(s, given),
              text_flops(usual_flops(given)).text, given->device->accelerator ? "such a GPU" : threads.text);
}

/* Returns the steps that the time buys at the usual speed, at most those that are given or good for the text. */
static double budget_steps(const TrainSettings *s, const AutoInputs *given, const ModelConfig *model) {
  const double bought = auto_steps_within(budget_flops(s, given), s, model, given->teacher, given->device->accelerator);
  const double given_steps = text_tokens(s, given) / (double)settings_tokens_per_step(s);
  const double most = isnan(s->epochs) ? auto_most_steps(s, given->train_tokens) : given_steps;
  return fmin(bought, most);
}

double auto_budget_epochs(const TrainSettings *s, const AutoInputs *given, const ModelConfig *model) {
  return budget_steps(s, given, model) * (double)settings_tokens_per_step(s) / (double)given->train_tokens;
}

/* Returns the number of steps that the time or the text allows, whichever is smaller. */
static int64_t steps_for(const TrainSettings *s, const AutoInputs *given, const ModelConfig *model,
                         AutoReasons *reasons) {
  const double per_step = (double)settings_tokens_per_step(s);
  const double step = auto_step_flops(s, model, given->teacher, given->device->accelerator);
  const double wanted = fmax(budget_steps(s, given, model), s->init ? 1 : AUTO_FEWEST_STEPS);
  const double most = 60 * MOST_MINUTES / auto_step_seconds(step, given->device, given->peak_flops);
  const int64_t steps = rounded(fmin(wanted, most));
  const double epochs = (double)steps * per_step / (double)given->train_tokens;
  const PluralText shown = text_plural((double)steps, "step");
  if (most < wanted) note_choice(reasons, "%s (in half an hour; longer with --minutes or --steps)", shown.text);
  else if (wanted < auto_most_steps(s, given->train_tokens)) note_time(s, given, shown.text, reasons);
  else note_choice(reasons, "%s (%s)", shown.text, text_plural(round(10 * epochs) / 10, "epoch").text);
  return steps;
}

/* Returns how many steps take as long as an evaluation of so many tokens: a forward pass costs a third of a step. */
static double evaluation_cost(const TrainSettings *s, int64_t tokens) {
  return (double)tokens / 3 / (double)settings_tokens_per_step(s);
}

/* Returns the fewest steps between evaluations of so many tokens that take a tenth of the time. */
static double whole_interval(const TrainSettings *s, int64_t tokens) { return ceil(10 * evaluation_cost(s, tokens)); }

bool auto_evaluates_whole(const TrainSettings *s, int64_t val_tokens) {
  return s->eval_every == 0 || (double)s->eval_every >= whole_interval(s, val_tokens);
}

/* Returns the number of steps between evaluations: fewer evaluations, but at least FEWEST, if that permits to read all
 * of the validation text. */
static int64_t evaluation_interval(const TrainSettings *s, int64_t val_tokens) {
  const double FEWEST = 8;
  const double usual = (double)s->steps / AUTO_EVALUATIONS, whole = whole_interval(s, val_tokens);
  return at_least_one(whole <= (double)s->steps / FEWEST ? fmax(usual, whole) : usual);
}

/* Weight decay of Muon for a new model. In an epoch, the weights forget about EPOCH_DECAY (the sum of rate times decay
 * over its steps), or less where a text is read only a few times, or many times with a teacher. */
static float muon_decay(const TrainSettings *s, double epochs) {
  const double EPOCH_DECAY = 1, MANY = 5;
  const double steps = (double)s->steps / epochs, wd = EPOCH_DECAY / (double)s->muon_lr / steps;
  const double share = fmin(epochs / MANY, settings_has_teacher(s) ? AUTO_MUON_EPOCHS / epochs : 1);
  return (float)(round(10 * fmin(fmax(wd * fmin(1, share), AUTO_WD), AUTO_WD_MOST)) / 10);
}

static void choose_regularization(TrainSettings *s, double epochs, AutoReasons *reasons) {
  const bool decays = s->optimizer == OPTIMIZER_MUON && !s->init, drops = s->optimizer == OPTIMIZER_ADAMW && !s->init;
  const PluralText shown = text_plural(round(10 * epochs) / 10, "epoch");
  if (isnan(s->wd)) {
    s->wd = decays ? muon_decay(s, epochs) : (float)AUTO_WD;
    if (s->wd > (float)AUTO_WD) note_choice(reasons, "weight decay %g (%s)", (double)s->wd, shown.text);
  }
  if (isnan(s->dropout)) {
    s->dropout = !drops ? 0.0f : epochs > (double)MANY_EPOCHS ? 0.2f : epochs > (double)DROPOUT_EPOCHS ? 0.1f : 0.0f;
    if (s->dropout > 0) note_choice(reasons, "dropout %g (%s)", (double)s->dropout, shown.text);
  }
}

bool auto_length(TrainSettings *s, const AutoInputs *given, const ModelConfig *model, AutoReasons *reasons,
                 Error *error) {
  const double per_step = (double)settings_tokens_per_step(s);
  if (!isnan(s->epochs)) s->steps = at_least_one(ceil(s->epochs * (double)given->train_tokens / per_step));
  else if (!s->steps) s->steps = steps_for(s, given, model, reasons);
  if (s->steps > SETTINGS_MAX_STEPS)
    return fail(error, EXIT_USAGE, "that is %lld steps, more than %d; lower --epochs", (long long)s->steps,
                SETTINGS_MAX_STEPS);
  const double epochs = (double)s->steps * per_step / (double)given->train_tokens;
  choose_regularization(s, epochs, reasons);
  if (isnan(s->embed_dropout)) s->embed_dropout = s->dropout;
  if (isnan(s->attention_dropout)) s->attention_dropout = s->dropout;
  const int64_t share = s->steps * AUTO_WARMUP_PERCENT / 100;
  const int64_t most = s->init ? FINE_TUNING_WARMUP : AUTO_WARMUP_LIMIT;
  if (s->warmup < 0) s->warmup = share < most ? share : most;
  if (s->warmup > schedule_steps(&s->plans, s->steps, 0))
    return fail(error, EXIT_USAGE, "--warmup %lld is longer than the run of %s; give --warmup auto",
                (long long)s->warmup, text_plural((double)s->steps, "step").text);
  if (s->eval_every < 0) s->eval_every = evaluation_interval(s, given->val_tokens);
  if (s->sample_every < 0) s->sample_every = at_least_one((double)s->steps / AUTO_SAMPLES);
  if (!s->log_every) s->log_every = at_least_one((double)s->steps / AUTO_LOG_LINES);
  return model_counts_ok(error);
}
