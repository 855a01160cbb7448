/* What the tests of pairs share: windows of sources and targets, made and refused. */
#ifndef INKLING_TESTS_PAIR_HELPERS_H
#define INKLING_TESTS_PAIR_HELPERS_H

#include "tests/window_helpers.h"
#include "text/dataset/pairs.h"

enum {
  CANARY = 0x5A5A5A5A,
  ARRAYS = 9 /* of a window */
};

/* A window and a place behind each of its arrays that nobody may write to. */
typedef struct Rows {
  int32_t array[ARRAYS][ROOM];
} Rows;

static inline Window window_of(Rows *rows, int ctx) {
  int32_t(*a)[ROOM] = rows->array;
  for (int i = 0; i < ARRAYS; i++)
    for (int at = 0; at <= ctx; at++) a[i][at] = CANARY;
  return (Window){a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]};
}

static inline void expect_equal(const Rows *got, const Rows *want, int ctx) {
  for (int i = 0; i < ARRAYS; i++) {
    assert_memory_equal(got->array[i], want->array[i], (size_t)ctx * sizeof got->array[i][0]);
    assert_int_equal(got->array[i][ctx], CANARY);
  }
}

static inline void add_pair(Fixture *f, int source, int target) { add_document(f, source, source + target + 1); }

static inline void put_pair(Fixture *f, int source, int target) {
  f->tokens = 0;
  add_pair(f, source, target);
}

static inline TokenRange whole(const Fixture *f) { return (TokenRange){&f->file, 0, f->tokens}; }

static inline Pairs make(const TokenRange *range, int ctx) {
  Pairs pairs;
  Error error = {0};
  if (!pairs_make(&pairs, range, ctx, (PairTokens){END, 0, END}, (Progress){0}, &error)) fail_msg("%s", error.text);
  return pairs;
}

static inline void expect_refused(const TokenRange *range, int ctx, ExitCode code, const char *part) {
  Pairs pairs;
  Error error = {0};
  assert_false(pairs_make(&pairs, range, ctx, (PairTokens){END, 0, END}, (Progress){0}, &error));
  if (error.code != code || !strstr(error.text, part)) fail_msg("%d: %s", (int)error.code, error.text);
  assert_null(pairs.table.firsts);
  assert_null(pairs.table.spans);
}

#endif
