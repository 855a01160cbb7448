/* Generated texts: several at a time, printed in the order in which they were added. */
#ifndef INKLING_GENERATING_OUTPUTS_H
#define INKLING_GENERATING_OUTPUTS_H

#include "generating/request.h"
#include "generating/stdout.h"

enum {
  OUTPUTS_ROWS = 32,                  /* the largest number of texts generated at a time */
  OUTPUTS_WAITING = 16 * OUTPUTS_ROWS /* texts that may wait for an earlier one to be finished */
};

typedef struct OutputToken {
  int64_t begin; /* as GeneratedToken */
  float logprob;
} OutputToken;

typedef struct Output {
  struct Output *next;
  PromptTokens prompt;
  GenerationRequest request;
  uint8_t *bytes; /* generated so far */
  size_t size, capacity;
  GenerationResult result;
  /* per token, when the request has alternatives or `keep_ids` is set */
  BpeIds ids;
  OutputToken *tokens;   /* [ids.count] */
  TokenAlternative *top; /* [ids.count][alternatives] */
  size_t tokens_capacity, top_capacity;
  bool keep_ids;
  struct Completion *completion; /* the completion it belongs to; NULL: none */
  int index;                     /* among the outputs of its prompt */
  bool done;                     /* finished, or nothing to generate */
  bool no_memory;
} Output;

typedef struct Outputs {
  Output *first, *last;
  int64_t count;  /* outputs not yet printed */
  int64_t tokens; /* tokens generated for printed outputs */
  /* Prints a finished output after all outputs before it. */
  bool (*print)(void *context, const Output *output, Error *error);
  void (*release)(Output *output); /* called before it is freed; NULL: nothing */
  void *context;
} Outputs;

/* Appends a new output. The caller fills its prompt and the rest of its request. NULL: EXIT_MEMORY. */
Output *outputs_add(Outputs *outputs, Error *error);
/* Prints and frees the finished outputs, up to the first unfinished one. */
bool outputs_print(Outputs *outputs, Error *error);
void outputs_free(Outputs *outputs);

/* Generates outputs with m->decoder, which it opens, until `next` has no more or writing to stdout fails. `context`,
 * which `next` receives, begins with an Outputs. */
bool outputs_run(void *context, LoadedModel *m, Stdout *out, int most_rows, GenerationNext *next, Error *error);

/* Prints a note about the outputs of `lines` input lines; `start`: clock_seconds() before the first. */
void outputs_note_lines(const Outputs *outputs, Console *console, int64_t lines, double start, uint64_t seed);

/* Returns the request of an output with its prompt filled in. */
GenerationRequest output_request(Output *output);

/* Frees the contents of an output, but not the output itself. */
void output_free(Output *output);

/* Functions for emit, token and done of a Generation. output_add() returns false when memory is out, which output_end()
 * then reports. Outputs that the caller interrupted do not become done. EXIT_MEMORY. */
bool output_add(Output *output, const uint8_t *bytes, size_t size);
bool output_add_token(Output *output, const GeneratedToken *token, Error *error);
bool output_end(Output *output, const GenerationResult *result, Error *error);

/* Generates one text into a zeroed output with m->decoder, which it opens. `doing`: as in startup_go_on(). */
bool output_generate(Output *output, LoadedModel *m, GenerationRequest request, const char *doing, Error *error);

/* For Generation.progress: stops at a signal, which is not an error yet. */
bool output_until_signal(void *context, int64_t tokens, Error *error);

/* The text of a token for messages: in quotes, with \n, \t, \', \\ and \xHH; or <|endoftext|>, or <token 7> for a token
 * without text. */
typedef struct ShownToken {
  char text[96];
} ShownToken;
ShownToken output_show_token(const Tokenizer *tokenizer, int32_t id);

#endif
