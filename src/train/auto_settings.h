/* Defaults of ./train that depend on the size of the text and on the device. Values that were given are checked and
 * kept. */
#ifndef INKLING_TRAIN_AUTO_SETTINGS_H
#define INKLING_TRAIN_AUTO_SETTINGS_H

#include "text/dataset/characters.h"
#include "text/dataset/packing.h"
#include "train/settings.h"

/* What was chosen and why, for the plan: "a token is a byte (less than 400 kB of text); ..." */
typedef struct AutoReasons {
  char text[640];
} AutoReasons;

/* Numbers that --help also shows; macros, because they become text. */
#define AUTO_BYTE_KB 400 /* kilobytes of text; for less, a token is a byte... */
#define AUTO_WIDE 2.5    /* ...except in a script of more bytes per character */
#define AUTO_FEW 32      /* a token is a byte in a text of fewer different characters */
#define AUTO_LR_SIZE 20  /* millions of parameters; AUTO_LR_LARGE from this size on */
#define AUTO_LR 1e-3     /* peak learning rate */
#define AUTO_LR_LARGE 6e-4
#define AUTO_LR_SMALL 3e-3    /* for architectures with LayerNorm... */
#define AUTO_LR_SMALL_SIZE 2  /* ...with fewer millions of parameters than this */
#define AUTO_MUON_LR 0.01     /* peak learning rate of Muon... */
#define AUTO_BESIDE_MUON 3e-3 /* ...and of AdamW used together with it */
#define AUTO_TUNING_SHARE 0.3 /* factor on all learning rates for a model trained before (docs/finetuning.md)... */
#define AUTO_TUNING_LARGE 0.1 /* ...with at least AUTO_TUNING_SIZE million parameters */
#define AUTO_TUNING_SIZE 10
#define AUTO_TUNING_WORDS                                                                                              \
  SHOWN(AUTO_TUNING_SHARE)                                                                                             \
  " of that with --init, " SHOWN(AUTO_TUNING_LARGE) " from " SHOWN(AUTO_TUNING_SIZE) " M parameters on"
#define AUTO_LR_WORDS                                                                                                  \
  SHOWN(AUTO_LR)                                                                                                       \
  " below " SHOWN(AUTO_LR_SIZE) " M parameters, else " SHOWN(AUTO_LR_LARGE) "; " SHOWN(                                \
      AUTO_LR_SMALL) " with Muon, and below " SHOWN(AUTO_LR_SMALL_SIZE) " M with --arch gpt2, opt or "                 \
                                                                        "original; " AUTO_TUNING_WORDS
#define AUTO_WD 0.1           /* weight decay; with Muon and a new model, at least... */
#define AUTO_WD_MOST 4        /* ...and at most */
#define AUTO_WARMUP_PERCENT 5 /* percent of the steps */
#define AUTO_WARMUP_LIMIT 700 /* steps */
#define AUTO_MUON_EPOCHS 10   /* at most, unless --steps or --epochs is given... */
#define AUTO_ADAMW_EPOCHS 15
#define AUTO_TUNING_EPOCHS 3 /* ...in fine-tuning */
#define AUTO_EPOCHS_WORDS                                                                                              \
  SHOWN(AUTO_MUON_EPOCHS)                                                                                              \
  " epochs (" SHOWN(AUTO_ADAMW_EPOCHS) " with AdamW, " SHOWN(AUTO_TUNING_EPOCHS) " in fine-tuning)"
#define AUTO_TAUGHT 2 /* after --teacher-steps, so many times these epochs at most */
#define AUTO_TEACHER_WEIGHT 0.5f
#define AUTO_FIRST_TEACHER_WEIGHT 0.8f
#define AUTO_FEWEST_STEPS 100 /* of a new model */
#define AUTO_VAL_MTOKENS 1    /* millions of tokens to validate on, at most */
#define AUTO_VAL_MB 4         /* megabytes of the text to hold out for validation, at most */
#define AUTO_EVALUATIONS 20   /* per run */
#define AUTO_SAMPLES 4        /* per run */
#define AUTO_LOG_LINES 100    /* per run */
#define AUTO_GPT2_VOCAB 50304 /* for preset 124m: 50257 tokens, padded */

/* name; layers, heads, dim, ctx; sequences in a micro-batch, on a GPU and on a CPU (half as many for AdamW);
 * vocabulary, 0: chosen from the size of the text; parameters with the intended vocabulary. */
#define MODEL_PRESETS(X)                                                                                               \
  X(NANO, "nano", 4, 4, 128, 256, 6, 6, 0, 1e6)                                                                        \
  X(SMALL, "small", 6, 6, 192, 256, 32, 6, 0, 3e6)                                                                     \
  X(MEDIUM, "medium", 6, 8, 256, 256, 64, 8, 0, 5e6)                                                                   \
  X(BABY, "baby", 6, 6, 384, 256, 64, 8, 0, 11e6)                                                                      \
  X(15M, "15m", 6, 6, 288, 256, 128, 8, 0, 15e6)                                                                       \
  X(42M, "42m", 8, 8, 512, 1024, 32, 4, 0, 42e6)                                                                       \
  X(110M, "110m", 12, 12, 768, 1024, 32, 4, 0, 110e6)                                                                  \
  X(124M, "124m", 12, 12, 768, 1024, 32, 4, AUTO_GPT2_VOCAB, 124e6)

#define AUTO_PRESET_KIND(id, ...) PRESET_##id,
typedef enum PresetKind { MODEL_PRESETS(AUTO_PRESET_KIND) } PresetKind;
extern const char *const preset_names[]; /* as PresetKind; ends with NULL */

/* Chooses the tokenizer or both tokenizers, and the largest BPE vocabulary, for `bytes` of text. `characters` is used
 * only if the size of the vocabulary was not given, nor a tokenizer other than "bpe". */
void auto_tokenizer(TrainSettings *settings, int64_t bytes, const Characters *characters, bool accelerator,
                    AutoReasons *reasons);

/* Chooses how documents become windows. `pairs`: the text has prompts and responses. */
void auto_packing(TrainSettings *settings, bool pairs, const Tokenizer *tokenizer, AutoReasons *reasons);

/* The facts about text and device that choices depend on. */
typedef struct AutoInputs {
  int vocab;            /* tokens of the tokenizer */
  int source_vocab;     /* tokens of the source tokenizer, which may be the same */
  int64_t text_bytes;   /* of the training text */
  int64_t train_tokens; /* in an epoch; padding included once the windows are known */
  int64_t val_tokens;
  DocumentLengths lengths;    /* of packed documents; none: a stream, or unknown */
  const ModelConfig *base;    /* NULL, or the initial model, whose shape the settings have */
  const ModelConfig *teacher; /* NULL, or the shape of --teacher */
  const ContextInfo *device;
  int processes;     /* that train; a step has at least one sequence for each */
  bool pairs;        /* the text has prompts and responses */
  double peak_flops; /* measured FLOP/s of the device; on a CPU used only to shorten runs that are far too long */
} AutoInputs;

/* Checks the shape independently of the text, when dim and heads were given; the preset supplies the rest. Fills
 * `model`, else sets its layers to 0. `base` as in AutoInputs. EXIT_USAGE. */
bool auto_check_shape(const TrainSettings *settings, const ModelConfig *base, ModelConfig *model, Error *error);

/* Chooses everything but the length: the model's shape from preset and flags, the optimizer and its rates,
 * micro-batches that fit the device's memory. EXIT_USAGE. */
bool auto_model(TrainSettings *settings, const AutoInputs *given, ModelConfig *model, AutoReasons *reasons,
                Error *error);

/* Returns the number of steps after which a run would memorize the text. epoch_tokens: tokens in an epoch */
double auto_most_steps(const TrainSettings *settings, int64_t epoch_tokens);

double auto_budget_minutes(const TrainSettings *settings, const AutoInputs *given); /* --minutes, or the usual time */

/* Returns the epochs that the time usually buys on such a device, at most those of --epochs, or of auto_most_steps().
 * Call it after auto_model(). */
double auto_budget_epochs(const TrainSettings *settings, const AutoInputs *given, const ModelConfig *model);

/* Returns AdamW's default learning rate for the size of the model. */
double auto_learning_rate(const TrainSettings *settings, const ModelConfig *model);
/* Returns Muon's default learning rate. */
double auto_muon_rate(const TrainSettings *settings, const ModelConfig *model);

/* The memory of training, and the operations of a step, with those of a teacher. `teacher`: the shape of --teacher;
 * NULL: that of the model. */
MemoryPlan auto_memory(const TrainSettings *settings, const ModelConfig *model, const ModelConfig *teacher,
                       const TrainConfig *train, const ContextInfo *device);
double auto_step_flops(const TrainSettings *settings, const ModelConfig *model, const ModelConfig *teacher,
                       bool accelerator);
/* Returns the operations of the training of --teacher-steps. */
double auto_teacher_flops(const TrainSettings *settings, const ModelConfig *model, bool accelerator);
/* Returns the number of steps for which so many operations suffice after the training of the teacher. */
double auto_steps_within(double flops, const TrainSettings *settings, const ModelConfig *model,
                         const ModelConfig *teacher, bool accelerator);

/* Returns the expected seconds of a training step of `flops` operations, pauses included. */
double auto_step_seconds(double flops, const ContextInfo *device, double peak_flops);

/* Returns whether every evaluation reads the whole validation text, which takes at most a tenth of the time from one to
 * the next; otherwise it reads the beginning. Call it after auto_length(). */
bool auto_evaluates_whole(const TrainSettings *settings, int64_t val_tokens);

/* Computes the number of steps from --steps or --epochs, then the values that depend on it: weight decay, dropout,
 * warm-up, intervals. Call it after auto_model(). EXIT_USAGE. */
bool auto_length(TrainSettings *settings, const AutoInputs *given, const ModelConfig *model, AutoReasons *reasons,
                 Error *error);

#endif
