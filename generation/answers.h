/* What a model writes after many prompts. Above an encoder they are one batch; each answer is the one that its prompt
 * would get alone. */
#ifndef INKLING_GENERATION_ANSWERS_H
#define INKLING_GENERATION_ANSWERS_H

#include "generation/program.h"

enum { ANSWER_ROWS = 32 };

/* Begins as {0}; opened by answers_open, closed by answers_close. The caller fills count and prompts. */
typedef struct Answers {
  Program *p;
  Sampling sampling;
  int rows;                    /* prompts in a batch, at most */
  int count;                   /* that wait for an answer */
  BpeIds prompts[ANSWER_ROWS]; /* as program_encode_source, without an encoder program_encode_text, gives them */
  bool skipped[ANSWER_ROWS];   /* no prompt: the answer is empty */
  BpeIds answers[ANSWER_ROWS]; /* without end tokens */
  bool ended[ANSWER_ROWS];     /* with an end token; else the limit or the context came first */
  int64_t tokens;              /* drawn in all batches */
} Answers;

/* Opens p->decoder, too. */
bool answers_open(Answers *a, Program *p, Error *error);
void answers_close(Answers *a);

/* Answers of up to `limit` tokens (< 0: no limit but the context) to the `count` prompts; that of prompt i draws from
 * random stream first_stream + i. */
bool answers_write(Answers *a, uint32_t first_stream, int64_t limit, Error *error);

#endif
