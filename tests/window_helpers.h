/* What the tests of windows share: a token file whose tokens are known. */
#ifndef INKLING_TESTS_WINDOW_HELPERS_H
#define INKLING_TESTS_WINDOW_HELPERS_H

#include "kernels.h"
#include "kernels/philox.h"
#include "text/dataset/token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { END = 0, VOCAB = 1 << 20, ROOM = 1 << 14 };

/* A token file in which every token that ends no document is another one. */
typedef struct Fixture {
  char path[64];
  int32_t ids[ROOM];
  bool in_loss[ROOM];
  int64_t tokens;
  TokenFile file;
  uint32_t drawn;
} Fixture;

static inline int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->path, sizeof f->path, "/tmp/inkling-windows-XXXXXX");
  int fd = mkstemp(f->path);
  assert_true(fd >= 0);
  close(fd);
  *state = f;
  return 0;
}

static inline int tear_down(void **state) {
  Fixture *f = *state;
  token_file_close(&f->file);
  unlink(f->path);
  free(f);
  return 0;
}

static inline int draw(Fixture *f, int range) {
  return (int)(philox(7, 0, SITE_SAMPLE, f->drawn++, 0).word[0] % (uint32_t)range);
}

/* `tokens` tokens, the last of them the end token; the first `prompt` are left out of the loss. */
static inline void add_document(Fixture *f, int prompt, int tokens) {
  assert_true(f->tokens + tokens <= ROOM);
  for (int i = 0; i < tokens; i++, f->tokens++) {
    f->ids[f->tokens] = i < tokens - 1 ? 1 + (int32_t)f->tokens : END;
    f->in_loss[f->tokens] = i >= prompt;
  }
}

static inline void write_file(Fixture *f) {
  Error error = {0};
  TokenWriter writer;
  const TokenFileInfo info = {.vocab = VOCAB, .loss_mask = true};
  token_file_close(&f->file);
  assert_true(token_writer_begin(&writer, f->path, &info, &error));
  for (int64_t i = 0; i < f->tokens; i++) assert_true(token_writer_add(&writer, &f->ids[i], 1, f->in_loss[i], &error));
  assert_true(token_writer_commit(&writer, 1, 1, &error));
  if (!token_file_open(&f->file, f->path, &error)) fail_msg("%s", error.text);
}

static inline int32_t target_of(const Fixture *f, int64_t token) {
  return f->in_loss[token] ? f->ids[token] : IGNORE_INDEX;
}

#endif
