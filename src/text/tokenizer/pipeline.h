/* The pipeline that splits a text into the pieces that a BPE encodes: added tokens, normalizer and pre_tokenizer of
 * tokenizer.json, as a list of steps. Each step receives a text and passes texts to the next step.
 * Every byte string has pieces: a byte that is not UTF-8 counts as a character without a class, and no step changes
 * it. */
#ifndef INKLING_TEXT_TOKENIZER_PIPELINE_H
#define INKLING_TEXT_TOKENIZER_PIPELINE_H

#include "base/array.h"
#include "base/error.h"
#include "base/progress.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/regex.h"

enum { PIPELINE_STEPS = 24 };

#define SPACE_SYMBOL "\xE2\x96\x81" /* U+2581: a space in the tokens of a vocabulary of characters */

typedef enum StepKind {
  STEP_ADDED,      /* cuts at the tokens of `added`; later steps do not process these tokens */
  STEP_NFC,        /* normalizes */
  STEP_REPLACE,    /* replaces each `from` by `to` */
  STEP_PREPEND,    /* puts `to` before the text */
  STEP_GPT2,       /* cuts as GPT-2 does (pretokenize.h) */
  STEP_REGEX,      /* cuts at the matches of `regex` */
  STEP_WORD_LEVEL, /* cuts into the pieces of the vocabulary (word_level.h) */
  STEP_UNJOINED    /* the whole text is one word; cuts it where no token of the vocabulary can cross, so that pieces can
                   be encoded independently */
} StepKind;

typedef enum PrependWhen {
  PREPEND_ALWAYS,
  PREPEND_MISSING, /* where the text does not begin with it */
  PREPEND_FIRST    /* the same, only at the beginning of a document */
} PrependWhen;

/* The treatment of the matches of a pattern, which divide a text. */
typedef enum SplitBehavior {
  SPLIT_ISOLATED, /* matches are pieces, like the texts between them */
  SPLIT_REMOVED,
  SPLIT_MERGED_WITH_PREVIOUS,
  SPLIT_MERGED_WITH_NEXT,
  SPLIT_CONTIGUOUS /* adjacent matches are one piece */
} SplitBehavior;

/* The known kinds of patterns, for pipeline_cut(). */
typedef enum StepPattern {
  PATTERN_IS_OTHER,
  PATTERN_IS_SPACE,  /* a space, as the vocabulary writes it, and the text after it */
  PATTERN_IS_DIGITS, /* isolates numbers, one by one or in runs */
  PATTERN_IS_LINES   /* the patterns of Llama 3 and Qwen 2: no match continues after the end of a line and the space
                        there */
} StepPattern;

/* The split patterns of common models, exactly as in their files. */
#define PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PATTERN_DIGIT "\\p{N}"
#define PATTERN_DIGITS "\\p{N}+"
#define PATTERN_OF_LINES(digits)                                                                                       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" \
  "|\\s+(?!\\S)|\\s+"
#define PATTERN_LLAMA3 PATTERN_OF_LINES("\\p{N}{1,3}")
#define PATTERN_QWEN2 PATTERN_OF_LINES("\\p{N}")

typedef struct Step {
  StepKind kind;
  AddedTokens *added;
  char *from, *to; /* UTF-8, zero-terminated; `from` is not empty */
  PrependWhen when;
  Regex *regex;
  SplitBehavior behavior;
  bool inverted; /* the roles of matches and of the texts between them are swapped */
  StepPattern pattern;
} Step;

/* The pairs of characters that are adjacent in some text of a set. One bit for each of 2^20 hashes of pairs (128 KB):
 * two pairs may share a hash; then some possible cuts are missed. */
typedef struct JoinedPairs JoinedPairs;

/* Adds the pairs of a text, and with `end` the pair of its last character and the end of a text. Creates the set if it
 * is NULL; the owner frees it with free(). EXIT_MEMORY. */
bool joined_pairs_add(JoinedPairs **pairs, const uint8_t *text, size_t size, bool end, Error *error);

/* Starts as {0}; read-only after it is built. */
typedef struct Pipeline {
  const Bpe *bpe; /* must outlive the pipeline */
  Step steps[PIPELINE_STEPS];
  int count;
  unsigned kinds, patterns;  /* bit masks of StepKind and, for STEP_REGEX, of StepPattern */
  bool strips;               /* an added token takes white space before or after it */
  bool looks_around;         /* some step reads the text after a possible cut */
  JoinedPairs *joined;       /* the pairs in tokens, for STEP_UNJOINED: no token crosses a cut between any other pair */
  JoinedPairs *added_joined; /* the pairs in added tokens; NULL: there are none */
} Pipeline;

/* Returns the pipeline of our own training: only STEP_GPT2, or STEP_WORD_LEVEL. It needs no pipeline_free(). */
Pipeline pipeline_trained(const Bpe *bpe);
void pipeline_free(Pipeline *pipeline);

/* Adds a step and takes ownership of its contents, also on failure. EXIT_CHECKPOINT when there are too many. */
bool pipeline_add(Pipeline *pipeline, Step step, Error *error);

/* Returns whether STEP_GPT2 is the only step that has an effect. `special`: special tokens in texts are recognized. */
bool pipeline_is_gpt2(const Pipeline *pipeline, bool special);

/* Returns the first position at or after `from` where the text may be cut so that the tokens of the two parts are the
 * tokens of the whole, when the second part is passed with `continues`; like pretokenize_cuts(), for any pipeline.
 * Returns `size` where no such position is known: the patterns of a file may look at the whole text. */
size_t pipeline_cut(const Pipeline *pipeline, const uint8_t *text, size_t size, size_t from);

/* ---- dividing texts into equal work for threads ---- */

enum {
  PIPELINE_CHUNK_BYTES = 1 << 18, /* a chunk is longer only if it cannot be cut */
  PIPELINE_ROUND_CHUNKS = 4096
};

typedef struct PipelineText {
  const uint8_t *text;
  size_t size;
} PipelineText;

/* A range of a document that can be encoded independently of the rest. */
typedef struct PipelineChunk {
  const uint8_t *text;
  size_t size;
  bool is_last; /* of its document */
} PipelineChunk;

/* The beginning of the next chunk; starts as {0}. */
typedef struct PipelineCursor {
  size_t document, offset;
} PipelineCursor;

/* Fills chunks[0..] with the next round of work, at most eight full chunks per thread, and moves the cursor past it.
 * Returns their number, 0 after the last document. An empty document is one empty chunk. */
size_t pipeline_chunks(const Pipeline *pipeline, const PipelineText *documents, size_t count, int threads,
                       PipelineCursor *cursor, PipelineChunk chunks[PIPELINE_ROUND_CHUNKS]);

/* ---- running ---- */

/* Receives pieces and tokens in the order of the text. `left` >= `size`: the number of bytes that may be read at
 * `piece`. False, with `error` filled, stops the run. */
typedef struct PipelineSink {
  void *context;
  bool (*piece)(void *context, const uint8_t *piece, size_t size, size_t left, Error *error);
  bool (*token)(void *context, int32_t id, Error *error);
} PipelineSink;

/* The memory and settings of a thread that runs a pipeline. */
typedef struct PipelineRunner PipelineRunner;

/* Creates a runner. `special`: it recognizes special tokens in texts. The pipeline must outlive it. EXIT_MEMORY. */
bool pipeline_runner_create(PipelineRunner **out, const Pipeline *pipeline, bool special, PipelineSink sink,
                            StopSignal stop, Error *error);
void pipeline_runner_free(PipelineRunner *runner);

/* Passes the pieces of a document, or of a chunk of it, to the sink. `continues`: it is not the first chunk. Memory use
 * is a few times the size of the text. EXIT_MEMORY; EXIT_CHECKPOINT for a pattern that takes too long; EXIT_SIGNALS +
 * the signal; the error of the sink. */
bool pipeline_run(PipelineRunner *runner, const uint8_t *text, size_t size, bool continues, Error *error);

/* Adds the text after all steps before the first one that cuts to `out`: the form in which added tokens are
 * searched. */
bool pipeline_normalize(PipelineRunner *runner, const uint8_t *text, size_t size, ByteBuffer *out, Error *error);

#endif
