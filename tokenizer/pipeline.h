/* From a text to the pieces that a BPE turns into tokens: what tokenizer.json says of added tokens, normalizer and
 * pre_tokenizer, as a list of steps. Each step takes a text and gives the next one texts.
 *
 * Every byte string has pieces: a byte that is not UTF-8 counts as a character that has no class and that no step
 * changes. */
#ifndef INKLING_TOKENIZER_PIPELINE_H
#define INKLING_TOKENIZER_PIPELINE_H

#include "util/error.h"
#include "util/stop.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_buffer.h"
#include "tokenizer/joined_pairs.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/regex.h"

enum { PIPELINE_STEPS = 24 };

#define SPACE_SYMBOL "\xE2\x96\x81" /* U+2581: a space in the tokens of a vocabulary of characters */

typedef enum StepKind {
  STEP_ADDED,   /* cuts at the tokens of `added`, which are tokens and go no further */
  STEP_NFC,     /* normalizes */
  STEP_REPLACE, /* `to` in the place of each `from` */
  STEP_PREPEND, /* `to` before the text */
  STEP_GPT2,    /* cuts as GPT-2 does (pretokenize.h) */
  STEP_REGEX,   /* cuts at the matches of `regex` */
  STEP_UNJOINED /* cuts where no token of the vocabulary could be: the whole text is one word, in pieces that can be
                   encoded by themselves */
} StepKind;

typedef enum PrependWhen {
  PREPEND_ALWAYS,
  PREPEND_MISSING, /* where it does not begin with it */
  PREPEND_FIRST    /* where it does not, at the beginning of a document */
} PrependWhen;

/* What becomes of the matches of a pattern, which divide a text. */
typedef enum SplitBehavior {
  SPLIT_ISOLATED, /* they are pieces as what lies between them */
  SPLIT_REMOVED,
  SPLIT_MERGED_WITH_PREVIOUS,
  SPLIT_MERGED_WITH_NEXT,
  SPLIT_CONTIGUOUS /* adjacent matches are one piece */
} SplitBehavior;

/* What is known of a pattern, for cutting. */
typedef enum StepPattern {
  PATTERN_IS_OTHER,
  PATTERN_IS_SPACE,  /* a space, as the vocabulary writes it, and what follows */
  PATTERN_IS_DIGITS, /* numbers, one by one or together, isolated */
  PATTERN_IS_LINES   /* as Llama 3 and Qwen 2 have it: no match goes on behind the end of a line and the space there */
} StepPattern;

typedef struct Step {
  StepKind kind;
  AddedTokens *added;
  char *from, *to; /* UTF-8 with a zero behind it; `from` is not empty */
  PrependWhen when;
  Regex *regex;
  SplitBehavior behavior;
  bool inverted; /* what lies between matches is meant */
  StepPattern pattern;
} Step;

/* Starts as {0}; read-only once it is made. */
typedef struct Pipeline {
  const Bpe *bpe; /* which must outlive it */
  Step steps[PIPELINE_STEPS];
  int count;
  JoinedPairs *joined;       /* of the tokens: STEP_UNJOINED needs them */
  JoinedPairs *added_joined; /* of the added tokens; NULL: there are none */
} Pipeline;

/* That of our own training: STEP_GPT2 alone. Has nothing to free. */
Pipeline pipeline_gpt2(const Bpe *bpe);
void pipeline_free(Pipeline *pipeline);

/* Takes what the step holds, also when it fails: EXIT_CHECKPOINT, too many. */
bool pipeline_add(Pipeline *pipeline, Step step, Error *error);

/* Nothing is to be done but STEP_GPT2. `special`: special tokens are found in texts. */
bool pipeline_is_gpt2(const Pipeline *pipeline, bool special);

/* Where a text may be cut so that the tokens of the parts are the tokens of the whole, when the second part is said to
 * continue the first: pretokenize_cut() for other pipelines. `size` where there is no such place, or none that can be
 * told: patterns of a file may look at all of a text. */
size_t pipeline_cut(const Pipeline *pipeline, const uint8_t *text, size_t size, size_t from);

/* ---- many texts as equal work for threads ---- */

enum {
  PIPELINE_PART_BYTES = 1 << 18, /* a part is longer only if there is no place to cut */
  PIPELINE_ROUND_PARTS = 4096
};

typedef struct PipelineText {
  const uint8_t *text;
  size_t size;
} PipelineText;

/* A part of a document that can be split by itself. */
typedef struct PipelinePart {
  const uint8_t *text;
  size_t size;
  bool is_last; /* of its document */
} PipelinePart;

/* Where the next part begins; starts as {0}. */
typedef struct PipelineCursor {
  size_t document, offset;
} PipelineCursor;

/* Fills parts[0..] with the next round of work, eight full parts a thread or fewer, and moves the cursor past it.
 * Returns their number, 0 after the last document. An empty document is one empty part. */
size_t pipeline_parts(const Pipeline *pipeline, const PipelineText *documents, size_t count, int threads,
                      PipelineCursor *cursor, PipelinePart parts[PIPELINE_ROUND_PARTS]);

/* ---- running ---- */

/* What comes out, in the order of the text. `left` >= `size`: how many bytes may be read. False stops, with `error`
 * filled. */
typedef struct PipelineSink {
  void *context;
  bool (*piece)(void *context, const uint8_t *piece, size_t size, size_t left, Error *error);
  bool (*token)(void *context, int32_t id, Error *error);
} PipelineSink;

/* A thread's memory, and what it does. */
typedef struct PipelineRunner PipelineRunner;

/* `special`: special tokens are found in texts. The pipeline must outlive it. EXIT_MEMORY. */
bool pipeline_runner_create(PipelineRunner **out, const Pipeline *pipeline, bool special, PipelineSink sink,
                            StopSignal stop, Error *error);
void pipeline_runner_free(PipelineRunner *runner);

/* The pieces of a document, or of a part of it. `continues`: it is not the first part. Takes memory of some times the
 * size of the text. EXIT_MEMORY; EXIT_CHECKPOINT for a pattern that takes too long; EXIT_SIGNALS + the signal; the
 * error of the sink. */
bool pipeline_run(PipelineRunner *runner, const uint8_t *text, size_t size, bool continues, Error *error);

/* The text after all steps before the first that cuts, added to `out`: how an added token is looked for. */
bool pipeline_normalize(PipelineRunner *runner, const uint8_t *text, size_t size, ByteBuffer *out, Error *error);

#endif
