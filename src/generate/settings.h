/* The settings of ./generate and the table of its options. */
#ifndef INKLING_GENERATE_SETTINGS_H
#define INKLING_GENERATE_SETTINGS_H

#include "cli/device.h"
#include "cli/options.h"
#include "kernels.h"

#include <stdbool.h>
#include <stdint.h>

/* The task of a call, selected by an option. */
typedef enum GenerateMode {
  MODE_TEXT = OPTION_DEFAULT_MODE,
  MODE_INTERACTIVE = 1 << 1, /* -i */
  MODE_JSON = 1 << 2,
  MODE_LINES = 1 << 3,
  MODE_PROMPTS = 1 << 4,
  MODE_COMPARE = 1 << 5,
  MODE_LENS = 1 << 6,
  MODE_SCORE = 1 << 7,
  MODE_ENCODE = 1 << 8,
  MODE_DECODE = 1 << 9,
  MODE_PARAMS = 1 << 10,
  MODE_EXPORT = 1 << 11,
  MODE_GGUF = 1 << 12,
  MODE_BENCH = 1 << 13,
  MODE_HTML = 1 << 14,
  MODE_CHOOSE = 1 << 15,
  MODE_DUMP = 1 << 16
} GenerateMode;

typedef enum OnFull { ON_FULL_SLIDE, ON_FULL_STOP } OnFull;
typedef enum ExportType { EXPORT_F32, EXPORT_BF16 } ExportType;

#define DEFAULT_TITLE "A language model" /* --title */

typedef struct GenerateSettings {
  TextList runs;     /* positional RUN */
  const char *model; /* -m RUN */
  const char *prompt, *prompt_file, *system, *answer, *score, *choose, *encode, *decode, *novelty;
  const char *jsonl_field, *prompt_field, *response_field;
  bool tsv, fasta, binary;
  TextList attention, stops, biases, bans;
  const char *prompts, *heat_html, *dump, *gguf, *modelfile, *export, *html, *title, *picture;
  bool open;       /* the page in the browser */
  int export_type; /* ExportType: of the weights */
  int gguf_type;   /* GgufType */
  bool heat, raw;
  int64_t tokens;
  int samples, logprobs, keep, alternatives; /* logprobs -1: none; keep 0: half of the context */
  double above;                              /* NaN: not given */
  int record_format;                         /* RecordFormat */
  bool json, per_line, per_token, per_word, entropy, escapes, special, params, lens;
  Sampling sampling;
  bool greedy, ignore_end, echo, lines, exact, interactive, compare;
  int on_full; /* OnFull */
  int truncate_prompt, stride;
  DeviceSettings machine;
  uint64_t seed;
  int64_t bench;
} GenerateSettings;

/* Sets defaults in `settings` and puts the table of its options into `options`. */
void generate_options(Options *options, GenerateSettings *settings);

#endif
