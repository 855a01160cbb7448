/* Everything that ./generate can be told, and the table of its options. */
#ifndef INKLING_GENERATING_SETTINGS_H
#define INKLING_GENERATING_SETTINGS_H

#include "formats/safetensors.h"
#include "cli/device.h"
#include "cli/options.h"
#include "kernels.h"

#include <stdbool.h>
#include <stdint.h>

extern const TensorType export_types[];

typedef enum OnFull { ON_FULL_SLIDE, ON_FULL_STOP } OnFull;

typedef struct GenerateSettings {
  TextList runs;     /* positional RUN */
  const char *model; /* -m RUN */
  const char *prompt, *prompt_file, *answer, *score, *encode, *decode, *novelty;
  const char *jsonl_field, *prompt_field, *response_field;
  bool tsv;
  TextList attention, stops, biases, bans;
  const char *prompts, *heat_html, *gguf, *modelfile, *export;
  int export_type; /* index into export_types: of its weights */
  int gguf_type;   /* GgufType */
  bool heat;
  int64_t tokens;
  int samples, logprobs, keep, alternatives; /* logprobs -1: none; keep 0: half of the context */
  bool json, per_line, escapes, special, params, lens;
  Sampling sampling;
  bool greedy, ignore_end, echo, lines, exact, interactive, compare;
  int on_full; /* OnFull */
  int truncate_prompt, stride;
  DeviceSettings machine;
  uint64_t seed;
  int64_t bench;
} GenerateSettings;

/* Defaults into `settings`, the table of its options into `options`. */
void generate_options(Options *options, GenerateSettings *settings);

#endif
