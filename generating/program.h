/* One call of ./generate: what its parts share. generate.c says what is done in which order. Functions that return bool
 * fill an Error when it is false; those that do the whole of what was asked for say what reading their input, encoding
 * it (EXIT_INPUT), the device (EXIT_MEMORY, EXIT_NONFINITE), stdout (EXIT_OUTPUT) and signals have to say. */
#ifndef INKLING_GENERATING_PROGRAM_H
#define INKLING_GENERATING_PROGRAM_H

#include "util/error.h"
#include "cli/console.h"
#include "formats/model_files.h"
#include "dataset/token_file.h"
#include "generating/settings.h"
#include "generating/texts.h"
#include "inference/generation.h"
#include "model/decoder.h"

enum { GENERATE_ROWS = 32 }; /* texts at a time, at most */

typedef struct Novelty Novelty;

/* Characters, with blanks between them. */
typedef struct UnseenText {
  char text[64];
} UnseenText;

/* The bytes of the prompts that a model with an encoder was trained on. */
typedef struct SeenBytes {
  bool looked, known; /* at the tokens of the run; they were there */
  bool bytes[256];
  int64_t lines, first; /* of the prompts: how many have other bytes, and which is the first of them */
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
  Tokenizer *source_tokenizer; /* of sources; NULL: the other is */
  SpecialTokens special;
  uint8_t *given; /* the prompt: the bytes of -p or -f */
  size_t given_size;
  BpeIds prompt; /* what the decoder reads first */
  BpeIds source; /* what its encoder reads; empty: there is none */
  BpeIds text;   /* the prompt, and what was written after it */
  SeenBytes seen;
  StopTexts stops;  /* of --stop */
  TokenRules rules; /* of --bias and --ban */
  Novelty *novelty; /* of --novelty; NULL: not asked for */
  int write_error;  /* errno of a failed write to stdout */
  double launched;  /* clock_seconds() at the start of the program */
  const char *version;
} Program;

/* ---- program.c ---- */

/* The model's configuration and tokenizer; then all of it. EXIT_CHECKPOINT, and what opening a device and making rules
 * may say. */
bool program_open(Program *p, const char *dir, Error *error);
bool program_load(Program *p, Error *error);
/* What both have opened, and what was made of it; harmless on zeros. */
void program_close(Program *p);

/* ---- prompt.c ---- */

/* All of a file (-: standard input), of less than `limit` bytes; the caller frees it, also after a failure. EXIT_INPUT,
 * EXIT_MEMORY. */
bool program_read(const char *path, size_t limit, uint8_t **out, size_t *size, Error *error);

/* The bytes of -p or of the file of -f as p->given, which stays NULL when neither is given. EXIT_USAGE for both,
 * EXIT_INPUT, EXIT_MEMORY. */
bool program_read_prompt(Program *p, Error *error);

/* Escapes of -e, in place; a 0 stands behind `text`, before and after. EXIT_USAGE. */
bool program_replace_escapes(uint8_t *text, size_t *size, Error *error);
/* Whether there is a \n, \t or \\ of two characters. */
bool program_has_escapes(const uint8_t *text, size_t size);
/* A text of the command line in fresh memory, with a 0 behind it; with -e its escapes are replaced. The caller frees it
 * whatever is returned. EXIT_USAGE, EXIT_MEMORY. */
bool program_given_text(const Program *p, const char *given, uint8_t **out, size_t *size, Error *error);
/* Says that without -e escapes in texts of the command line are none. */
void program_note_escapes(Program *p);

/* Appends what the model reads for a prompt: above an encoder the source, its tokens and the end token, and the start
 * and the tokens of --answer; else the tokens, as generation_prompt() has them, and no source. EXIT_INPUT when that is
 * more than the context holds, and it may not be cut; EXIT_USAGE for --answer without an encoder; EXIT_MEMORY. */
bool program_encode(const Program *p, const uint8_t *text, size_t size, BpeIds *source, BpeIds *prompt, Error *error);

/* The same of p->given, as p->source and p->prompt; says what it cannot have learned of it. */
bool program_encode_prompt(Program *p, Error *error);

/* What a token stands for, for people: in quotes, with \n, \t, \', \\ and \xHH; <|endoftext|> and <token 7> without a
 * text. */
typedef struct ShownToken {
  char text[96];
} ShownToken;
ShownToken program_token(const Tokenizer *tokenizer, int32_t id);

/* The tokenizer of sources. */
static inline Tokenizer *program_source_tokenizer(const Program *p) {
  return p->source_tokenizer ? p->source_tokenizer : p->tokenizer;
}

/* ---- unseen.c ---- */

/* What of a source stands in no prompt of training; nothing where there is no encoder, or it is not known. */
UnseenText program_unseen(Program *p, const BpeIds *source);
/* Says it of p->source. */
void program_note_unseen(Program *p);
/* Of many sources: counts them, and says it in the end, of so many lines. */
void program_count_unseen(Program *p, int64_t line, const BpeIds *source);
void program_note_unseen_lines(Program *p, int64_t lines);

/* ---- text.c ---- */

/* What was printed to stdout is on its way; else errno is kept in p->write_error. */
void program_flush(Program *p);

/* Writes to stdout; false when that failed, which p->write_error says, or when a signal asks to stop. */
bool program_emit(Program *p, const uint8_t *bytes, size_t size);

/* What became of stdout, and whether a signal came. EXIT_OUTPUT. */
bool program_report_output(const Program *p, Error *error);

/* As the settings have it, of p->prompt and p->source. A seed that is not given is drawn now. */
GenerationRequest program_request(Program *p);
uint64_t program_seed(const Program *p); /* --seed, or a new one */

/* --bias and --ban as p->rules. EXIT_USAGE: no token has that text, or no number follows it; EXIT_MEMORY. */
bool program_make_rules(Program *p, Error *error);

/* --stop as p->stops, or other texts. EXIT_USAGE for one of nothing, EXIT_MEMORY. */
bool program_make_stops(Program *p, Error *error);
bool program_add_stop(StopTexts *stops, const char *text, size_t size, Error *error);
void program_free_stops(StopTexts *stops);

/* Says how many tokens there were, how fast, and why no more. */
void program_note_result(Program *p, const GenerationRequest *request, const GenerationResult *result);

/* interactive.c: lines of a person, of which the prompt is the first, and what the model makes of them. */
bool program_interactive(Program *p, Error *error);

bool program_generate(Program *p, Error *error); /* a text, to stdout */

/* ---- tokens.c ---- */

/* The tokens of a text, a file, a directory or "-", in a file whose name is gone. What corpus_open() and
 * tokenization_open() say. */
bool program_open_tokens(Program *p, const char *source, TokenFile *out, Error *error);

/* ---- novelty.c: what of the texts stands in another one (--novelty) ---- */

/* Opens or makes the tokens of the other text. EXIT_CHECKPOINT for a run without tokens or of another tokenizer, and
 * what program_open_tokens() says. */
bool program_novelty_open(Program *p, Error *error);
void program_novelty_free(Novelty *novelty); /* NULL is harmless */
/* So many tokens a text, at most, where there are so many texts. */
int64_t program_novelty_most(int texts);
/* A text that was written: its tokens, and the bytes that were left of them. EXIT_MEMORY. */
bool program_novelty_add(Program *p, const int32_t *ids, size_t count, int64_t bytes, Error *error);
/* Looks them up. A signal ends that without an error, and nothing is looked up when stdout
 * has failed; then nothing is marked or said. EXIT_MEMORY, EXIT_CHECKPOINT, EXIT_INPUT. */
bool program_novelty_compare(Program *p, Error *error);
/* Writes a text to stdout with what was found underlined; false when that failed. */
bool program_novelty_print(Program *p, size_t text);
void program_novelty_note(Program *p); /* says how much was found, and what */

/* ---- the others ---- */

/* attention.c: the names of the files, and the files. `text`: what the decoder has read and written. */
bool program_check_attention(const Program *p, Error *error);
bool program_write_attention(Program *p, const BpeIds *text, Error *error);

bool program_compare(Program *p, Error *error); /* compare.c: one prompt through several models */

/* samples.c: many texts after one prompt, or one, as JSON. */
bool program_samples(Program *p, Error *error);
bool program_prompts(Program *p, Error *error); /* prompts.c: JSON lines in, JSON lines out */

/* Runs p->decoder over texts until `next` has no more. `context` begins with a Texts. */
bool program_run_texts(Program *p, void *context, int most_rows, GenerationNext *next, Error *error);

bool program_export(Program *p, Error *error); /* export.c: a directory for others */
bool program_gguf(Program *p, Error *error);   /* gguf.c: the model as a file for llama.cpp */
bool program_lens(Program *p, Error *error);   /* lens.c: what each layer would say next */
bool program_lines(Program *p, Error *error);  /* lines.c: for each line of the input a line */
bool program_bench(Program *p, Error *error);  /* bench.c: a line of JSON */
bool program_score(Program *p, Error *error);  /* score.c: how well the model predicts a text, as JSON */

/* score_lines.c: how well the model, which has no encoder, predicts a text by itself, from its beginning on. `take`
 * NULL, or gets each token with the logits [vocab] that it was predicted by. EXIT_NONFINITE, EXIT_MEMORY, what `take`
 * says. */
typedef struct TextScore {
  double nats; /* of all its tokens */
  int64_t tokens, bytes;
} TextScore;
typedef bool TokenSink(void *context, int32_t id, const float *logits, Error *error);
bool program_score_text(Program *p, const uint8_t *text, size_t size, TokenSink *take, void *context, TextScore *out,
                        Error *error);
bool program_score_lines(Program *p, Error *error); /* score_lines.c: how well it predicts each line, as JSON */

#endif
