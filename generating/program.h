/* The state of one call of ./generate. main() owns it, and each mode gets all of it; other functions take the parts
 * that they use. Functions that return bool fill an Error when they return false. Functions that do a complete task can
 * also fail with the errors of reading and encoding input (EXIT_INPUT), of the device (EXIT_MEMORY, EXIT_NONFINITE), of
 * stdout (EXIT_OUTPUT) and of signals. */
#ifndef INKLING_GENERATING_PROGRAM_H
#define INKLING_GENERATING_PROGRAM_H

#include "generating/outputs.h"
#include "generating/overlap.h"
#include "generating/unseen.h"

typedef struct Program {
  CommandLine command;
  Console console;
  Stdout out;
  LoadedModel model;
  SeenBytes seen;
  Prompt prompt;
  Overlap *overlap; /* for --novelty; NULL: not requested */
  double launched;  /* clock_seconds() at the start of the program */
  const char *version;
} Program;

/* The modes, one in each file, which has its name. */
bool program_text(Program *p, Error *error);        /* one text to stdout; several with -N */
bool program_samples(Program *p, Error *error);     /* several texts for one prompt, or texts as JSON */
bool program_interactive(Program *p, Error *error); /* a session; the first line is the prompt */
bool program_lines(Program *p, Error *error);       /* one output line per input line */
bool program_prompts(Program *p, Error *error);     /* JSON lines in, JSON lines out */
bool program_compare(Program *p, Error *error);     /* one prompt through several models */
bool program_lens(Program *p, Error *error);        /* next-token predictions of each layer */
bool program_score(Program *p, Error *error);       /* the loss of the model on a text or on its lines, as JSON */
bool program_export(Program *p, Error *error);      /* a model directory for publication */
bool program_gguf(Program *p, Error *error);        /* the model as a file for llama.cpp */
bool program_bench(Program *p, Error *error);       /* the speed of generation, as a line of JSON */

/* text.c: prints a note with the number of tokens, the speed and the reason for stopping. */
void program_note_result(Console *console, const GenerationRequest *request, const GenerationResult *result);

/* attention.c, for --attention: checks the names of the files; writes them. `source` and `ids`: the tokens
 * that the encoder and the decoder have read. */
bool attention_check(const GenerateSettings *settings, Error *error);
bool attention_write(const GenerateSettings *settings, const LoadedModel *m, Console *console, const BpeIds *source,
                     const BpeIds *ids, Error *error);

/* score.c: computes the loss of a model without an encoder on one text, from its beginning. `take`: NULL, or
 * called with each token and the logits [vocab] that predict it. EXIT_NONFINITE, EXIT_MEMORY, errors of `take`. */
typedef struct TextScore {
  double nats; /* sum over all its tokens */
  int64_t tokens, bytes;
} TextScore;
typedef bool TokenSink(void *context, int32_t id, const float *logits, Error *error);
bool score_text(LoadedModel *m, Console *console, const uint8_t *text, size_t size, TokenSink *take, void *context,
                TextScore *out, Error *error);

#endif
