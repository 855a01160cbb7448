/* Macros for rows of a table of options (cli/options.h). Designated members of Option may follow the help text:
 * `.letter = 'p'`. `shown` is Option.shown_default; NULL shows the variable's own value. */
#ifndef INKLING_CLI_OPTION_ROWS_H
#define INKLING_CLI_OPTION_ROWS_H

#include "cli/options.h"

/* A compound literal lets the compiler compare the variable's type with the kind. */
#define OPTION_ROW(k, type, n, v, shown, ...)                                                                          \
  { .kind = k, .name = n, .value = (type *){v}, .size = sizeof(type), .shown_default = shown, .help = __VA_ARGS__ }
#define OPTION_NUMBER(k, type, n, v, low, high, shown, ...)                                                            \
  OPTION_ROW(k, type, n, v, shown, __VA_ARGS__, .min = low, .max = high)

#define GROUP(...)                                                                                                     \
  { .group = __VA_ARGS__ }
#define FLAG(n, v, ...) OPTION_ROW(OPTION_SWITCH, bool, n, v, NULL, __VA_ARGS__)
#define TRISTATE(n, v, shown, ...) OPTION_ROW(OPTION_SWITCH, int, n, v, shown, __VA_ARGS__)
#define INT(n, v, low, high, shown, ...) OPTION_NUMBER(OPTION_WHOLE, int, n, v, low, high, shown, __VA_ARGS__)
#define INT64(n, v, low, high, shown, ...) OPTION_NUMBER(OPTION_WHOLE, int64_t, n, v, low, high, shown, __VA_ARGS__)
#define UINT64(n, v, shown, ...) OPTION_ROW(OPTION_WHOLE, uint64_t, n, v, shown, __VA_ARGS__, .natural = true)
#define SEED(n, v, shown, ...) UINT64(n, v, shown, __VA_ARGS__, .seed = true)
#define FLOAT(n, v, low, high, shown, ...) OPTION_NUMBER(OPTION_REAL, float, n, v, low, high, shown, __VA_ARGS__)
#define DOUBLE(n, v, low, high, shown, ...) OPTION_NUMBER(OPTION_REAL, double, n, v, low, high, shown, __VA_ARGS__)
#define TEXT(n, v, shows, shown, ...) OPTION_ROW(OPTION_TEXT, const char *, n, v, shown, __VA_ARGS__, .argument = shows)
#define OPTIONAL(n, v, shows, ...) TEXT(n, v, shows, NULL, __VA_ARGS__, .optional = true)
#define LIST(n, v, shows, ...) OPTION_ROW(OPTION_LIST, TextList, n, v, NULL, __VA_ARGS__, .argument = shows)
/* v: an array of limit + 1 letters */
#define LETTERS(n, v, limit, allowed, shown, ...)                                                                      \
  OPTION_NUMBER(OPTION_TEXT, char, n, v, 1, limit, shown, __VA_ARGS__, .letters = allowed)
#define CHOICE(n, v, names, shown, ...) OPTION_ROW(OPTION_CHOICE, int, n, v, shown, __VA_ARGS__, .choices = names)
#define INTERVAL(n, v, ...) OPTION_ROW(OPTION_INTERVAL, Interval, n, v, NULL, __VA_ARGS__)

/* Converts a macro of a number to text: "learning rate " SHOWN(AUTO_LR). */
#define SHOWN_LITERAL(number) #number
#define SHOWN(number) SHOWN_LITERAL(number)

/* ---- rows shared by both programs ---- */

/* Options for reading texts. `s`: settings with jsonl_field, prompt_field, response_field, tsv, fasta; the remaining
 * arguments are members for all rows. */
#define FORMAT_ROWS(s, ...)                                                                                            \
  TEXT("jsonl-field", &(s)->jsonl_field, "NAME", "text",                                                               \
       "JSON field of .jsonl files that contains the document; also makes standard input JSON Lines", __VA_ARGS__),    \
      TEXT("prompt-field", &(s)->prompt_field, "NAME", NULL, "JSON field of the prompt; the loss excludes the prompt", \
           __VA_ARGS__),                                                                                               \
      TEXT("response-field", &(s)->response_field, "NAME", NULL,                                                       \
           "JSON field of the response; the loss counts only the response", __VA_ARGS__),                              \
      FLAG("tsv", &(s)->tsv, "read standard input as TSV, like .tsv files: prompt, tab, response", __VA_ARGS__),       \
      FLAG("fasta", &(s)->fasta, "read standard input as FASTA, like .fa files: sequences without their headers",      \
           __VA_ARGS__, .excludes = "tsv")

/* Options for the device. `machine`: DeviceSettings of cli/device.h; then the choices of dtypes, the meaning of auto
 * and the help. */
#define DEVICE_ROWS(machine, dtypes, dtype_auto, dtype_text)                                                           \
  CHOICE("device", &(machine)->device, device_choices, NULL, "device to compute on"),                                  \
      CHOICE("dtype", &(machine)->dtype, dtypes, dtype_auto, dtype_text, .setting = SETTING_OF_MODEL),                 \
      TEXT("isa", &(machine)->isa, "LEVEL", "the best that the processor supports",                                    \
           "highest instruction set to use on a CPU: v2 (SSE4.2), v3 (AVX2), v4 (AVX-512) or, on ARM, neon, dotprod; " \
           "for training in bf16 also avx512bf16, amx or, on ARM, bf16",                                               \
           .setting = SETTING_ASIDE),                                                                                  \
      INT("threads", &(machine)->threads, 0, 4096, "all", "number of CPU threads")

#endif
