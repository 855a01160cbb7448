/* Multiple choice: which of several texts a model finds likeliest (--choose). Log-likelihoods, and the texts that they
 * choose, are those of lm-eval (EleutherAI's lm-evaluation-harness 0.4.13, model type `hf`):
 * - The token ids are those of context, delimiter and text together. The scored ones are all after as many as the
 *   context alone has, without the white space at its end. The token that prompts begin with comes first, if the
 *   tokenizer has one; without a context, the first token that a text starts from.
 * - The model reads the last ctx tokens before the last one; texts that are longer lose their beginning.
 * - The accuracy by sum is acc, per character acc_norm, per byte acc_bytes. There is one difference: a text is right
 *   only if its score is higher than those of all others, while in lm-eval the first of equal ones is chosen. */
#ifndef INKLING_INFERENCE_CHOICES_H
#define INKLING_INFERENCE_CHOICES_H

#include "text/dataset/choice_file.h"
#include "model.h"
#include "text/tokenizer/tokenizer.h"
#include "base/progress.h"

/* The log-likelihood is divided by 1, or by the number of the text's scored tokens, characters (code points; a byte
 * that is not UTF-8 counts as one) or bytes. */
typedef enum ChoiceMeasure {
  CHOICE_SUM,
  CHOICE_TOKENS,
  CHOICE_CHARACTERS,
  CHOICE_BYTES,
  CHOICE_MEASURES
} ChoiceMeasure;

/* A text: the ids that the model reads, the last of which are scored. */
typedef struct Choice {
  size_t first;                     /* its ids in ChoiceSet.ids: `count` from here on, 2 to ctx + 1 */
  int count, scored;                /* 1 <= scored < count */
  int64_t lengths[CHOICE_MEASURES]; /* what each measure divides by */
  double loglikelihood;             /* nats; from choices_score() */
} Choice;

typedef struct ChoiceQuestion {
  int64_t line; /* of the file */
  size_t first; /* its texts in ChoiceSet.texts: `count` from here on */
  int count, right;
} ChoiceQuestion;

/* The items of a file, as tokens. Starts zeroed. */
typedef struct ChoiceSet {
  BpeIds ids;
  Choice *texts;
  ChoiceQuestion *questions;
  size_t text_count, text_capacity, count, capacity;
  int64_t cut;   /* texts that do not fit into the context with what is before them */
  double chance; /* the expected fraction of right answers when guessing */
} ChoiceSet;

/* Reads and encodes all items. `start`: the token that a text without a context starts from, where prompts begin with
 * none. EXIT_INPUT for a file without items, and for a text without a token of its own; errors of choice_file_next()
 * and of tokenizer_encode(). The caller frees the set also after a failure. */
bool choices_read(ChoiceSet *out, const char *path, Tokenizer *tokenizer, int32_t start, int ctx, Error *error);
void choices_free(ChoiceSet *set);

/* Returns how many of the first questions have at most `tokens` tokens together; at least 1. */
size_t choices_within(const ChoiceSet *set, size_t tokens);

/* Computes the log-likelihoods of the first `questions` questions, in passes of at most `batch` * ctx tokens.
 * `progress` counts texts; it may also stop the work without an error: then some log-likelihoods are missing.
 * EXIT_MEMORY, errors of the device. */
bool choices_score(ChoiceSet *set, Model *model, size_t questions, int batch, Progress progress, Error *error);

/* Returns the text of a question with the highest score, from 0; the first of equal ones, and then sets *tie. */
int choices_chosen(const ChoiceSet *set, const ChoiceQuestion *question, ChoiceMeasure measure, bool *tie);

/* Counts the questions that are answered right, and those in which two or more texts share the highest score, which are
 * wrong. */
typedef struct ChoiceCount {
  size_t questions, right[CHOICE_MEASURES], ties[CHOICE_MEASURES];
} ChoiceCount;
ChoiceCount choices_count(const ChoiceSet *set, size_t questions);

#endif
