/* What the tests of BPE share: random text, and short forms of training. */
#ifndef INKLING_TESTS_BPE_HELPERS_H
#define INKLING_TESTS_BPE_HELPERS_H

#include "kernels/philox.h"
#include "text/tokenizer/bpe_encode.h"
#include "text/tokenizer/bpe_train.h"

#include <stdlib.h>
#include <string.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct Random {
  uint32_t next;
} Random;

static inline uint32_t draw(Random *random, uint32_t below) {
  return philox(13, random->next++, 0, 0, 0).word[0] % below;
}

static inline PipelineText document(const char *text) { return (PipelineText){(const uint8_t *)text, strlen(text)}; }

typedef struct Trained {
  BpeMerge *merges; /* free() */
  size_t count;
} Trained;

static inline Trained train_documents(const PipelineText *documents, size_t count, int32_t vocab_size, int threads) {
  Error error = {0};
  BpeTrainer *trainer;
  Trained out;
  assert_true(bpe_trainer_create(&trainer, WORD_LEVEL_NONE, threads, &error));
  assert_true(bpe_trainer_add(trainer, documents, count, &error));
  assert_true(bpe_trainer_finish(trainer, vocab_size, (Progress){0}, &out.merges, &out.count, &error));
  bpe_trainer_free(trainer);
  return out;
}

static inline Trained train_bytes(const uint8_t *text, size_t size, int32_t vocab_size) {
  return train_documents(&(PipelineText){text, size}, 1, vocab_size, 1);
}

static inline Bpe *vocabulary(const BpeMerge *merges, size_t count) {
  Error error = {0};
  Bpe *bpe;
  if (!bpe_from_merges(&bpe, merges, count, &error)) fail_msg("%s", error.text);
  return bpe;
}

static inline Bpe *trained_on(const uint8_t *text, size_t size, int32_t vocab_size) {
  Trained trained = train_bytes(text, size, vocab_size);
  Bpe *bpe = vocabulary(trained.merges, trained.count);
  free(trained.merges);
  return bpe;
}

/* The caller frees ids. */
static inline BpeIds encode(const Bpe *bpe, const PipelineText *documents, size_t count, int32_t end, int threads) {
  Error error = {0};
  BpeEncoder *encoder;
  const Pipeline pipeline = pipeline_trained(bpe);
  BpeIds out = {0};
  assert_true(bpe_encoder_create(&encoder, &pipeline, false, threads, NULL, &error));
  assert_true(bpe_encode(encoder, documents, count, end, bpe_ids_sink, &out, &error));
  bpe_encoder_free(encoder);
  return out;
}

/* Words with a skewed distribution, some bytes that are not UTF-8, and long words. */
static inline void fill_text(Random *random, uint8_t *text, size_t size) {
  for (size_t i = 0; i < size;) {
    uint32_t word = draw(random, draw(random, 600) + 1), length = 1 + word % 9;
    if (draw(random, 300) == 0) length = 40 + draw(random, 90);
    text[i++] = draw(random, 20) == 0 ? '\n' : ' ';
    for (uint32_t j = 0; j < length && i < size; j++)
      text[i++] = (uint8_t)("etaoinsh"[word * 2654435761u >> (3 * j % 29) & 7]);
    if (draw(random, 50) == 0 && i < size) text[i++] = (uint8_t)draw(random, 256);
  }
}

/* ---- many documents ---- */

enum { LARGE = 3 << 20, SMALL_DOCUMENTS = 9000 };

typedef struct Large {
  uint8_t *text;
  PipelineText documents[SMALL_DOCUMENTS + 2];
  size_t count;
} Large;

/* One large document, an empty one and many small ones, which are the large one in parts. */
static inline Large *large_create(void) {
  Large *out = calloc(1, sizeof *out);
  assert_non_null(out);
  out->text = malloc(LARGE);
  assert_non_null(out->text);
  Random random = {1u << 26};
  fill_text(&random, out->text, LARGE);
  out->documents[out->count++] = (PipelineText){out->text, LARGE};
  out->documents[out->count++] = (PipelineText){NULL, 0};
  for (size_t i = 0; i < SMALL_DOCUMENTS; i++)
    out->documents[out->count++] = (PipelineText){out->text + i * 300, draw(&random, 300)};
  return out;
}

static inline void large_free(Large *large) {
  free(large->text);
  free(large);
}

/* One merge everywhere, from left to right. */
static inline void naive_merge(int32_t *ids, size_t *count, const BpeMerge *merge) {
  size_t kept = 0;
  for (size_t i = 0; i < *count; i++) {
    bool is_pair = i + 1 < *count && ids[i] == merge->left && ids[i + 1] == merge->right;
    ids[kept++] = is_pair ? merge->id : ids[i];
    i += is_pair;
  }
  *count = kept;
}

#endif
