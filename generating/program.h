/* The state of one call of ./generate, which the files of this folder share; generate.c has the order of the work.
 * Functions that return bool fill an Error when they return false. Functions that do a complete task can also fail with
 * the errors of reading and encoding input (EXIT_INPUT), of the device (EXIT_MEMORY, EXIT_NONFINITE), of stdout
 * (EXIT_OUTPUT) and of signals. */
#ifndef INKLING_GENERATING_PROGRAM_H
#define INKLING_GENERATING_PROGRAM_H

#include "util/error.h"
#include "cli/console.h"
#include "formats/model_files.h"
#include "dataset/token_file.h"
#include "generating/settings.h"
#include "generating/outputs.h"
#include "inference/generation.h"
#include "model/decoder.h"

enum { GENERATE_ROWS = 32 }; /* the largest number of texts at a time */

typedef struct Overlap Overlap;

/* Characters, separated by blanks. */
typedef struct UnseenText {
  char text[64];
} UnseenText;

/* The bytes that appear in the training prompts of a model with an encoder. */
typedef struct SeenBytes {
  bool looked, known; /* looked: for the tokens of the run; known: they were found */
  bool bytes[256];
  int64_t lines, first; /* lines: prompts with other bytes; first: the first such prompt */
  UnseenText in_first;
} SeenBytes;

typedef struct Program {
  GenerateSettings settings;
  Options options;
  Console console;
  char *dir;
  const Backend *backend;
  Context *context;
  ModelFiles *files;
  ModelConfig config;
  Model *model;
  Decoder *decoder;
  Tokenizer *tokenizer;
  Tokenizer *source_tokenizer; /* for sources; NULL: the same as `tokenizer` */
  SpecialTokens special;
  uint8_t *given; /* the prompt: the bytes of -p or -f */
  size_t given_size;
  BpeIds prompt; /* the first tokens that the decoder reads */
  BpeIds source; /* the tokens that the encoder reads; empty: there is no encoder */
  BpeIds text;   /* the prompt and the generated tokens */
  SeenBytes seen;
  StopTexts stops;  /* from --stop */
  TokenRules rules; /* from --bias and --ban */
  Overlap *overlap; /* for --novelty; NULL: not requested */
  int write_error;  /* errno of a failed write to stdout */
  double launched;  /* clock_seconds() at the start of the program */
  const char *version;
} Program;

/* ---- program.c ---- */

/* program_open() opens the model's configuration and tokenizer, program_load() the rest. EXIT_CHECKPOINT, and the
 * errors of opening a device and of making rules. */
bool program_open(Program *p, const char *dir, Error *error);
bool program_load(Program *p, Error *error);
/* Frees everything that both have opened and made; harmless on a zeroed struct. */
void program_close(Program *p);

/* ---- prompt.c ---- */

/* Reads a whole file (-: standard input) of less than `limit` bytes. The caller frees *out, also after a failure.
 * EXIT_INPUT, EXIT_MEMORY. */
bool program_read(const char *path, size_t limit, uint8_t **out, size_t *size, Error *error);

/* Reads -p or the file of -f into p->given, which stays NULL when neither is given. EXIT_USAGE if both are given,
 * EXIT_INPUT, EXIT_MEMORY. */
bool program_read_prompt(Program *p, Error *error);

/* Replaces the escapes of -e in place; `text` ends with a 0 byte, before and after. EXIT_USAGE. */
bool program_replace_escapes(uint8_t *text, size_t *size, Error *error);
/* Returns whether the text contains
 * , \t or \\ as two characters. */
bool program_has_escapes(const uint8_t *text, size_t size);
/* Copies a text of the command line into allocated memory, with a 0 byte at the end, and replaces its escapes with -e.
 * The caller frees *out, also after a failure. EXIT_USAGE, EXIT_MEMORY. */
bool program_given_text(const Program *p, const char *given, uint8_t **out, size_t *size, Error *error);
/* Prints a note when texts of the command line contain escapes that are not replaced without -e. */
void program_note_escapes(Program *p);

/* Appends the tokens that the model reads for a prompt. With an encoder: the source, which is its tokens and the end
 * token, and as prompt the start token and the tokens of --answer. Otherwise: the tokens of generation_prompt(), and no
 * source. EXIT_INPUT when the tokens exceed the context and may not be truncated; EXIT_USAGE for --answer without an
 * encoder; EXIT_MEMORY. */
bool program_encode(const Program *p, const uint8_t *text, size_t size, BpeIds *source, BpeIds *prompt, Error *error);

/* Encodes p->given into p->source and p->prompt, as program_encode() does, and notes bytes that the model never saw in
 * training. */
bool program_encode_prompt(Program *p, Error *error);

/* The text of a token for messages: in quotes, with
 * , \t, \', \\ and \xHH; or <|endoftext|>, or <token 7> for a token without text. */
typedef struct ShownToken {
  char text[96];
} ShownToken;
ShownToken program_token(const Tokenizer *tokenizer, int32_t id);

/* Returns the tokenizer of sources. */
static inline Tokenizer *program_source_tokenizer(const Program *p) {
  return p->source_tokenizer ? p->source_tokenizer : p->tokenizer;
}

/* ---- unseen.c ---- */

/* Returns the characters of a source that appear in no training prompt; none without an encoder, or when the training
 * prompts are unknown. */
UnseenText program_unseen(Program *p, const BpeIds *source);
/* Prints a note about the unseen characters of p->source. */
void program_note_unseen(Program *p);
/* For many sources: program_count_unseen() counts the sources with unseen characters; program_note_unseen_lines()
 * prints a note about them, out of `lines`. */
void program_count_unseen(Program *p, int64_t line, const BpeIds *source);
void program_note_unseen_lines(Program *p, int64_t lines);

/* ---- text.c ---- */

/* Flushes stdout; stores errno in p->write_error when that fails. */
void program_flush(Program *p);

/* Writes to stdout. Returns false when writing fails (see p->write_error) or a signal asks to stop. */
bool program_emit(Program *p, const uint8_t *bytes, size_t size);

/* Fails when writing to stdout has failed or a signal has arrived. EXIT_OUTPUT. */
bool program_report_output(const Program *p, Error *error);

/* Returns the request of the settings for p->prompt and p->source. If no seed is given, it draws one. */
GenerationRequest program_request(Program *p);
uint64_t program_seed(const Program *p); /* --seed, or a random one */

/* Makes p->rules from --bias and --ban. EXIT_USAGE: no token has that text, or a number is missing; EXIT_MEMORY. */
bool program_make_rules(Program *p, Error *error);

/* Makes p->stops from --stop; adds another stop text. EXIT_USAGE for an empty text, EXIT_MEMORY. */
bool program_make_stops(Program *p, Error *error);
bool program_add_stop(StopTexts *stops, const char *text, size_t size, Error *error);
void program_free_stops(StopTexts *stops);

/* Prints a note with the number of tokens, the speed and the reason for stopping. */
void program_note_result(Program *p, const GenerationRequest *request, const GenerationResult *result);

/* interactive.c: interactive generation; the first line is the prompt. */
bool program_interactive(Program *p, Error *error);

bool program_generate(Program *p, Error *error); /* generates one text to stdout */

/* ---- tokens.c ---- */

/* Encodes a text, a file, a directory or "-" to a deleted temporary file. Errors of corpus_open() and
 * tokenization_open(). */
bool program_open_tokens(Program *p, const char *source, TokenFile *out, Error *error);

/* ---- overlap.c: generated passages that appear in another text (--novelty) ---- */

/* Opens or makes the tokens of the other text. EXIT_CHECKPOINT for a run without tokens or with another tokenizer, and
 * the errors of program_open_tokens(). */
bool overlap_open(Program *p, Error *error);
void overlap_free(Overlap *overlap); /* NULL is harmless */
/* Returns the largest number of tokens per text when there are `texts` texts. */
int64_t overlap_most_tokens(int texts);
/* Adds a generated text: its tokens, and the number of bytes that were printed of them. EXIT_MEMORY. */
bool overlap_add(Program *p, const int32_t *ids, size_t count, int64_t bytes, Error *error);
/* Searches for the added texts. A signal ends the search without an error, and a failed stdout prevents it; then
 * nothing is marked or reported. EXIT_MEMORY, EXIT_CHECKPOINT, EXIT_INPUT. */
bool overlap_compare(Program *p, Error *error);
/* Writes a text to stdout and underlines the passages found; false when writing failed. */
bool overlap_print(Program *p, size_t text);
void overlap_note(Program *p); /* prints the share found, and the passages */

/* ---- the others ---- */

/* attention.c: checks the names of the files; writes the files. `text`: the tokens that the decoder has read and
 * generated. */
bool program_check_attention(const Program *p, Error *error);
bool program_write_attention(Program *p, const BpeIds *text, Error *error);

bool program_compare(Program *p, Error *error); /* compare.c: one prompt through several models */

/* samples.c: several texts for one prompt, or one text as JSON. */
bool program_samples(Program *p, Error *error);
bool program_prompts(Program *p, Error *error); /* prompts.c: JSON lines in, JSON lines out */

/* Generates texts with p->decoder until `next` has no more. `context` begins with a Outputs. */
bool outputs_run(Program *p, void *context, int most_rows, GenerationNext *next, Error *error);

bool program_export(Program *p, Error *error); /* export.c: a model directory for publication */
bool program_gguf(Program *p, Error *error);   /* gguf.c: the model as a file for llama.cpp */
bool program_lens(Program *p, Error *error);   /* lens.c: next-token predictions of each layer */
bool program_lines(Program *p, Error *error);  /* lines.c: one output line per input line */
bool program_bench(Program *p, Error *error);  /* bench.c: a line of JSON */
bool program_score(Program *p, Error *error);  /* score.c: the loss of the model on a text, as JSON */

/* score_lines.c: computes the loss of a model without an encoder on one text, from its beginning. `take`: NULL, or
 * called with each token and the logits [vocab] that predict it. EXIT_NONFINITE, EXIT_MEMORY, errors of `take`. */
typedef struct TextScore {
  double nats; /* sum over all its tokens */
  int64_t tokens, bytes;
} TextScore;
typedef bool TokenSink(void *context, int32_t id, const float *logits, Error *error);
bool program_score_text(Program *p, const uint8_t *text, size_t size, TokenSink *take, void *context, TextScore *out,
                        Error *error);
bool program_score_lines(Program *p, Error *error); /* score_lines.c: the loss on each line, as JSON */

#endif
