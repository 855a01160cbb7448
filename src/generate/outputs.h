/* Generated texts: several at a time, printed in the order in which they were added. */
#ifndef INKLING_GENERATE_OUTPUTS_H
#define INKLING_GENERATE_OUTPUTS_H

#include "generate/program.h"

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
  GenerationRequest request;
  ByteBuffer text; /* generated so far */
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
} Output;

typedef struct Outputs {
  LoadedModel *model;
  Stdout *out;
  Output *first, *last;
  int64_t count;  /* outputs not yet printed */
  int64_t tokens; /* tokens generated for printed outputs */
  /* Prints a finished output after all outputs before it. `context` begins with these Outputs. */
  bool (*print)(void *context, const Output *output, Error *error);
  void (*release)(Output *output); /* called before it is freed */
} Outputs;

/* Appends a new output. The caller fills its request. NULL: EXIT_MEMORY. */
Output *outputs_add(Outputs *outputs, Error *error);
/* Prints and frees the finished outputs, up to the first unfinished one. */
bool outputs_print(Outputs *outputs, Error *error);
void outputs_free(Outputs *outputs);

/* Generates outputs with model->decoder, which it opens, until `next` has no more or writing to stdout fails.
 * `context`, which `next` receives, begins with an Outputs. */
bool outputs_run(void *context, int most_rows, GenerationNext *next, Error *error);

/* Frees the contents of an output, but not the output itself. */
void output_free(Output *output);

/* Adds a token, where tokens are to be kept. EXIT_MEMORY. */
bool output_add_token(Output *output, const GeneratedToken *token, Error *error);

/* Generates the text of an output's request with model->decoder, which it opens, and fills output->result. A signal
 * ends it without an error. `emit` is called as in Generation, with `context` and the output; NULL: it is
 * added to output->text. */
typedef bool OutputEmit(void *context, void *output, const uint8_t *bytes, size_t size, Error *error);
bool output_generate(LoadedModel *model, Output *output, OutputEmit *emit, void *context, Error *error);

#endif
