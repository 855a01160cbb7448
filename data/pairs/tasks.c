#include "data/pairs/tasks.h"

#include "kernels/philox.h"
#include "util/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 1000000 /* for one pair */ };

bool task_in_test(const char *source) {
  const size_t length = strlen(source);
  return length >= TASK_TEST_LENGTH && checksum_xxh64(source, length, 0) % TASK_TEST_SHARE == 0;
}

/* Uniform on 0 .. n-1, but for one part in 2^32 / n. */
static int below(TaskDraw *d, int n) {
  const PhiloxWords words = philox(d->seed, (uint32_t)d->drawn, d->test, (uint32_t)(d->drawn >> 32), 0);
  d->drawn++;
  return (int)((uint64_t)words.word[0] * (uint32_t)n >> 32);
}

/* A number of so many digits, the first of which is a 0 in a number of one digit alone. */
static uint64_t number(TaskDraw *d, int length) {
  uint64_t value = 0;
  for (int i = 0; i < length; i++) {
    const int least = i == 0 && length > 1;
    value = 10 * value + (uint64_t)(least + below(d, 10 - least));
  }
  return value;
}

static void draw_sum(TaskDraw *d, const int lengths[2], TaskPair *out) {
  const uint64_t a = number(d, lengths[0]), b = number(d, lengths[1]);
  snprintf(out->source, sizeof out->source, "%" PRIu64 "+%" PRIu64, a, b);
  snprintf(out->target, sizeof out->target, "%" PRIu64, a + b);
}

static int compare_chars(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }

static void draw_string(TaskDraw *d, int length, TaskPair *out) {
  static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  for (int i = 0; i < length; i++) out->source[i] = alphabet[below(d, d->alphabet)];
  out->source[length] = '\0';
  for (int i = 0; i <= length; i++)
    out->target[i] = out->source[d->task == TASK_REVERSE && i < length ? length - 1 - i : i];
  if (d->task == TASK_SORT) qsort(out->target, (size_t)length, 1, compare_chars);
}

/* In the training part a length that was drawn stays, so that all are as frequent; short ones have no test part. */
bool task_next(TaskDraw *d, TaskPair *out) {
  int lengths[2] = {0};
  for (int i = 0; i < DRAWS; i++) {
    for (int k = 0; k < 2 && (i == 0 || d->test); k++)
      lengths[k] = d->min_length + below(d, d->max_length - d->min_length + 1);
    if (d->task == TASK_SUM) draw_sum(d, lengths, out);
    else draw_string(d, lengths[0], out);
    if (task_in_test(out->source) == d->test) return true;
  }
  return false;
}
