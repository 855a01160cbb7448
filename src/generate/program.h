/* The state of one call of ./generate, and what its modes share. main() owns the state, and each mode gets all of it.
 * Functions that return bool fill an Error when they return false. Functions that do a complete task can also fail with
 * the errors of reading and encoding input (EXIT_INPUT), of the device (EXIT_MEMORY, EXIT_NONFINITE), of stdout
 * (EXIT_OUTPUT) and of signals. */
#ifndef INKLING_GENERATE_PROGRAM_H
#define INKLING_GENERATE_PROGRAM_H

#include "cli/text_check.h"
#include "text/dataset/corpus.h"
#include "text/dataset/token_file.h"
#include "text/tokenizer/chat.h"
#include "files/formats/model_files.h"
#include "generate/series.h"
#include "generate/settings.h"
#include "inference/generation.h"
#include "base/array.h"
#include "base/text.h"

/* A model with its tokenizers, opened from a run directory or a directory of Hugging Face transformers. */
typedef struct LoadedModel {
  char *dir;
  ModelFiles *files;
  ModelConfig config;
  Tokenizer *tokenizer;
  Tokenizer *source_tokenizer; /* for the encoder's input; NULL: the same as `tokenizer` */
  SpecialTokens special;
  Chat *chat;       /* the form of prompts as turns; NULL: they are plain text */
  TokenRules rules; /* from --bias and --ban */
  const Backend *backend;
  Context *context;
  Model *model;
  Decoder *decoder;       /* opened by the mode */
  Generation *generation; /* of program_make_text(), with one row of the decoder */
} LoadedModel;

/* The prompt of the command line. */
typedef struct Prompt {
  ByteBuffer text; /* bytes NULL: none was given */
  PromptTokens tokens;
} Prompt;

/* The bytes that appear in the training prompts, and the prompts with other bytes. Starts zeroed. */
typedef struct SeenBytes {
  bool looked, known; /* looked: for the tokens of the run; known: they were found */
  bool bytes[256];
  int64_t lines, first; /* lines: prompts with other bytes; first: the first such prompt */
  OneLine in_first;     /* its characters that have them, separated by blanks */
} SeenBytes;

enum { PROGRAM_ROWS = 32 /* the largest number of texts generated at a time */ };

typedef struct Program {
  GenerateSettings settings;
  Options options;   /* its rows point into `settings` */
  Options training;  /* of ./train, whose settings a run contains */
  PatternList stops; /* from --stop */
  Console console;
  TextCheck check; /* of the texts that are read */
  int write_error; /* errno of the first failed write to stdout, which has only generated text and results; 0: none */
  LoadedModel model;
  const ModelSeries *series; /* with --choose: the series that was given, or NULL; `model` is its model number `at` */
  size_t at;
  SeenBytes seen;
  Prompt prompt;
  struct Novelty *novelty; /* for --novelty; NULL: not requested */
  bool noted_n;            /* the note about "n" of --prompts was printed */
  double launched;         /* clock_seconds() at the start of the program */
  const char *version;
} Program;

/* The modes, each in the file of its name, except: text, samples, lines and prompts in texts.c, gguf in gguf_file.c,
 * html in web_page.c. */
bool program_text(Program *p, Error *error);        /* one text to stdout; several with -N */
bool program_samples(Program *p, Error *error);     /* several texts for one prompt, or texts as JSON */
bool program_interactive(Program *p, Error *error); /* a session; the first line is the prompt */
bool program_lines(Program *p, Error *error);       /* one output line per input line */
bool program_prompts(Program *p, Error *error);     /* JSON lines in, JSON lines out */
bool program_compare(Program *p, Error *error);     /* one prompt through several models, or the models of a series */
bool program_lens(Program *p, Error *error);        /* next-token predictions of each layer */
bool program_dump(Program *p, Error *error);        /* hidden states of a text, as a file */
bool program_score(Program *p, Error *error);       /* the loss of the model on a text or on its lines, as JSON */
bool program_choose(Program *p, Error *error); /* which of several texts are likelier; for each model of a series */
bool program_export(Program *p, Error *error); /* a model directory for publication */
bool program_gguf(Program *p, Error *error);   /* the model as a file for llama.cpp */
bool program_html(Program *p, Error *error);   /* the model as a page for browsers */
bool program_bench(Program *p, Error *error);  /* the speed of generation, as a line of JSON */

/* ---- program.c: the model ---- */

/* program_open_files() reads the configuration and the tokenizer of p->model, program_open_model() the rest.
 * EXIT_CHECKPOINT, and the errors of opening a device and of prompt_make_rules(). */
bool program_open_files(Program *p, const char *dir, Error *error);
bool program_open_model(Program *p, Error *error);
/* Opens the form of the chat template, if prompts are turns; program_open_model() does, too. EXIT_USAGE for --system
 * without a template, EXIT_MEMORY. */
bool program_open_chat(Program *p, Error *error);
/* Frees everything that both have opened; harmless when nothing is open. */
void program_close_model(Program *p);

/* Returns the tokenizer of the encoder's input. */
static inline Tokenizer *loaded_source_tokenizer(const LoadedModel *m) {
  return m->source_tokenizer ? m->source_tokenizer : m->tokenizer;
}

/* Encodes a file, a directory or "-" to a deleted temporary file. *text: the text itself, at its beginning, which the
 * caller closes; NULL: it is not needed. Errors of corpus_open(), text_check() and tokenization_open(). */
bool program_encode_file(Program *p, const char *path, TokenFile *out, Corpus **text, Error *error);

/* ---- program.c: output ---- */

/* Before the model is loaded: checks that `path`, given by `option`, can be written, and that this replaces neither a
 * text that is read nor a file in the directory of a model. EXIT_USAGE, EXIT_OUTPUT. */
bool program_check_file(const char *option, const char *path, const GenerateSettings *settings, Error *error);

/* Flushes stdout. */
void program_flush(Program *p);
/* Writes to stdout and flushes. Returns false when writing fails or a signal asks to stop. */
bool program_write(Program *p, const void *bytes, size_t size);
/* Flushes. Fails when writing has failed or a signal has arrived; a pipe that its reader has closed is no error.
 * EXIT_OUTPUT. */
bool program_check(Program *p, Error *error);

/* ---- prompt.c: prompts, and texts to be made from them ---- */

/* Reads -p or the file of -f into p->prompt. EXIT_USAGE if both are given, EXIT_INPUT, EXIT_MEMORY. */
bool prompt_read(Program *p, Error *error);

/* Reads a whole file (-: standard input) of less than `limit` bytes; a byte-order mark at its beginning is dropped.
 * EXIT_INPUT, also of text_check(); EXIT_MEMORY. */
bool prompt_read_file(TextCheck *check, const char *path, size_t limit, ByteBuffer *out, Error *error);

/* Encodes a prompt; replaces the contents of *out, which starts zeroed. With an encoder, the source is the tokens of
 * the text and the end token, and the decoder gets the start token and the tokens of --answer. Otherwise the decoder
 * gets the tokens of generation_prompt(); or, with a chat template, --system and the text as a user's turn, up to where
 * the answer begins; without a text only that beginning. EXIT_INPUT when the tokens exceed the context and may not be
 * truncated; EXIT_USAGE for --answer without an encoder; EXIT_MEMORY. */
bool prompt_encode(const Program *p, const void *text, size_t size, PromptTokens *out, Error *error);
void prompt_tokens_free(PromptTokens *tokens);
/* Makes the ids of a conversation up to where the answer begins, with --system if it has no system prompt. For models
 * with a chat template. Instead of the beginning, --truncate-prompt drops the oldest messages, as chat_encode_newest()
 * does. Errors of prompt_encode() and chat_encode(). */
bool prompt_encode_turns(const Program *p, const ChatTurn *turns, size_t count, BpeIds *out, Error *error);

/* Returns the number of tokens that the text of the prompt has. */
static inline size_t prompt_tokens_count(const PromptTokens *t) {
  return t->source.count ? t->source.count : t->decoder.count;
}

/* Copies a text into an empty buffer, with a 0 byte after it. EXIT_MEMORY. */
bool prompt_copy(const void *text, size_t size, ByteBuffer *out, Error *error);
/* -e: replaces escapes in place; a 0 byte follows the text, before and after. EXIT_USAGE. */
bool prompt_replace_escapes(ByteBuffer *text, Error *error);
/* Returns whether the text contains \n, \t or \\ as two characters. */
bool prompt_has_escapes(const char *text, size_t size);
/* Prints a note when texts of the command line contain escapes that are not replaced without -e. */
void prompt_note_escapes(Program *p);

/* Returns a text to be made from a prompt with the settings of the command line. If no seed is given, it draws one. */
Text prompt_text(Program *p, const PromptTokens *prompt);
uint64_t prompt_seed(const Program *p); /* --seed, or a random one */

/* Makes p->stops from --stop. EXIT_USAGE for an empty text, EXIT_MEMORY. */
bool prompt_make_stops(Program *p, Error *error);
/* Makes p->model.rules from --bias and --ban. EXIT_USAGE: no token has that text, or a number is missing;
 * EXIT_MEMORY. */
bool prompt_make_rules(Program *p, Error *error);

/* ---- unseen.c: bytes of a prompt that an encoder has learned nothing about ---- */

/* Prints a note about the characters of an encoder's input that appear in no training prompt; for prompt number `line`
 * of many, from 1, it only counts it. Nothing happens without an encoder, or when the training prompts are unknown. */
void unseen_note(Program *p, const BpeIds *source, int64_t line);
void unseen_note_lines(Program *p, int64_t lines); /* prints a note about those that were counted, out of `lines` */

/* ---- others ---- */

/* texts.c: makes one text with model->decoder, which it opens. A signal, or a failure of stdout, ends it without an
 * error. With `shown` it is printed as it is made, and forgotten unless it keeps its tokens. */
bool program_make_text(Program *p, Text *text, bool shown, Error *error);
/* Prints a note with the number of tokens, the speed and the reason for stopping. */
void program_note_text(Console *console, const Text *text);

/* attention.c, for --attention: checks the names of the files, and that the model has attention, before a text is
 * generated; writes the files for the tokens of p->prompt. */
bool attention_check(const GenerateSettings *settings, Error *error);
bool attention_check_model(const Program *p, Error *error);
bool attention_write(Program *p, Error *error);

/* dump.c: checks the name of the file of --dump. EXIT_USAGE, EXIT_OUTPUT. */
bool dump_check(const GenerateSettings *settings, Error *error);

/* score.c: computes the loss of a model without an encoder on one text, from its beginning. EXIT_NONFINITE,
 * EXIT_MEMORY. */
typedef struct TextScore {
  Text *text;                   /* NULL, or gets bytes, tokens and their log-probabilities, as if it had been made */
  bool entropy;                 /* whether `measures` are wanted */
  PredictionMeasures *measures; /* of each token of `text`; the caller frees them; NULL: not wanted */
  double nats;                  /* sum over all its tokens */
  int64_t tokens, bytes;
} TextScore;
bool score_text(Program *p, const void *text, size_t size, TextScore *score, Error *error);

#endif
