/* What ./train chooses when it is not told: from the size of the text and from the device. Values that were given are
 * checked and left as they are. */
#ifndef INKLING_TRAINING_CHOICES_H
#define INKLING_TRAINING_CHOICES_H

#include "dataset/packing.h"
#include "training/settings.h"

/* Choices and their reasons, for the plan: "byte tokens (the text is below 2 MB); ..." */
typedef struct Choices {
  char text[640];
} Choices;

typedef enum PresetKind { PRESET_NANO, PRESET_BABY, PRESET_15M, PRESET_42M, PRESET_110M, PRESET_124M } PresetKind;
extern const char *const choices_preset_names[]; /* as PresetKind; ends with NULL */

/* The tokenizer, and how many tokens a BPE may have, for `bytes` of text. */
void choices_tokenizer(TrainSettings *settings, int64_t bytes, bool accelerator, Choices *choices);

/* What the model is trained on and with. */
typedef struct ChoiceInputs {
  int vocab; /* of the tokenizer */
  int64_t text_bytes;
  int64_t train_tokens;    /* of an epoch, padding included */
  DocumentLengths lengths; /* of packed documents; none: a stream, or not known */
  const ContextInfo *device;
  double peak_flops; /* of the device, per second; looked at on a GPU only */
} ChoiceInputs;

/* Whether the shape can be one, whatever the text, where dim and heads were given (*checked): what was not given is
 * that of a preset. EXIT_USAGE. */
bool choices_check_shape(const TrainSettings *settings, ModelConfig *model, bool *checked, Error *error);

/* Everything but the length: the model's shape from preset and flags, AdamW, micro-batches that fit the device's
 * memory. EXIT_USAGE. */
bool choices_model(TrainSettings *settings, const ChoiceInputs *given, ModelConfig *model, Choices *choices,
                   Error *error);

/* The number of steps from --steps, --epochs or --minutes (steps_per_minute is what was measured), then what depends on
 * it: dropout, warm-up, intervals. After choices_model. EXIT_USAGE. */
bool choices_length(TrainSettings *settings, const ChoiceInputs *given, const ModelConfig *model,
                    double steps_per_minute, Choices *choices, Error *error);

TrainConfig settings_train_config(const TrainSettings *settings);

#endif
