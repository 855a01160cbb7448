/* Small tasks whose answers are known: a source determines its target, so the loss can become 0. */
#ifndef INKLING_DATA_PAIRS_TASKS_H
#define INKLING_DATA_PAIRS_TASKS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Task {
  TASK_COPY,    /* 4172 -> 4172 */
  TASK_REVERSE, /* 4172 -> 2714 */
  TASK_SORT,    /* 4172 -> 1247 */
  TASK_SUM      /* 41+72 -> 113 */
} Task;

enum {
  TASK_MAX_ALPHABET = 36, /* 0 to 9, then a to z */
  TASK_MAX_LENGTH = 1000, /* of a string */
  TASK_MAX_DIGITS = 18,   /* of a summand: sums fit 64 bits */
  TASK_TEST_SHARE = 10    /* one source in so many of them is of the test part */
};

#define TASK_TEST_LENGTH 5 /* characters that a source of the test part has at least */

/* Whether a source belongs to the test part; otherwise it belongs to the training part. A rule of the text alone: its
 * XXH64 is a multiple of TASK_TEST_SHARE, and it is not shorter than TASK_TEST_LENGTH. So no source is in both parts,
 * whatever their sizes and seeds, and nothing has to be remembered. */
bool task_in_test(const char *source);

/* Draws pairs of one part: the same numbers, the same pairs. */
typedef struct TaskDraw {
  Task task;
  int alphabet;               /* 2..TASK_MAX_ALPHABET characters of strings; sums are decimal */
  int min_length, max_length; /* uniform, of a string or of each summand */
  bool test;                  /* the part */
  uint64_t seed;
  uint64_t drawn; /* random numbers so far; begins as 0 */
} TaskDraw;

typedef struct TaskPair {
  char source[TASK_MAX_LENGTH + 1], target[TASK_MAX_LENGTH + 1];
} TaskPair;

/* False when none of a million draws belongs to the part. */
bool task_next(TaskDraw *draw, TaskPair *out);

#endif
