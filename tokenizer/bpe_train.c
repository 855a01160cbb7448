#include "tokenizer/bpe_train.h"

#include "tokenizer/bpe_merges.h"
#include "tokenizer/piece_counts.h"

#include <omp.h>
#include <stdlib.h>

/* Every thread counts into a table of its own; the tables become one at the end. */
struct BpeTrainer {
  int threads;
  CharClasses *classes;
  PieceCounts *counts;    /* [threads] */
  PretokenizePart *parts; /* [PRETOKENIZE_ROUND_PARTS] */
  uint64_t bytes;
};

static bool no_memory(const BpeTrainer *trainer, Error *error) {
  return fail(error, EXIT_MEMORY, "out of memory while training a BPE tokenizer (%llu bytes of text so far)",
              (unsigned long long)(trainer ? trainer->bytes : 0));
}

void bpe_trainer_free(BpeTrainer *trainer) {
  if (!trainer) return;
  for (int i = 0; trainer->counts && i < trainer->threads; i++) piece_counts_free(&trainer->counts[i]);
  free(trainer->counts);
  free(trainer->parts);
  free(trainer->classes);
  free(trainer);
}

bool bpe_trainer_create(BpeTrainer **out, int threads, Error *error) {
  *out = NULL;
  BpeTrainer *trainer = calloc(1, sizeof *trainer);
  if (!trainer) return no_memory(NULL, error);
  trainer->threads = threads;
  trainer->counts = calloc((size_t)threads, sizeof *trainer->counts);
  trainer->parts = malloc(PRETOKENIZE_ROUND_PARTS * sizeof *trainer->parts);
  bool ok = (trainer->counts && trainer->parts) || no_memory(NULL, error);
  ok = ok && char_classes_create(&trainer->classes, error);
  if (ok) *out = trainer;
  else bpe_trainer_free(trainer);
  return ok;
}

const CharClasses *bpe_trainer_classes(const BpeTrainer *trainer) { return trainer->classes; }

static bool count_part(PieceCounts *counts, const CharClasses *classes, const PretokenizePart *part) {
  const uint8_t *text = part->text;
  for (size_t left = part->size; left > 0;) {
    size_t size = pretokenize_first(classes, text, left);
    if (!piece_counts_add(counts, text, size, 1)) return false;
    text += size;
    left -= size;
  }
  return true;
}

static bool count_parts(BpeTrainer *trainer, size_t count) {
  bool ok = true;
#pragma omp parallel num_threads(trainer->threads) reduction(&& : ok)
  {
    PieceCounts *own = &trainer->counts[omp_get_thread_num()];
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < count; i++) ok = ok && count_part(own, trainer->classes, &trainer->parts[i]);
  }
  return ok;
}

bool bpe_trainer_add(BpeTrainer *trainer, const PretokenizeText *documents, size_t count, Error *error) {
  PretokenizeCursor cursor = {0};
  size_t parts;
  while ((parts = pretokenize_parts(pretokenize_text_cut(trainer->classes), documents, count, trainer->threads, &cursor,
                                    trainer->parts)) > 0) {
    if (!count_parts(trainer, parts)) return no_memory(trainer, error);
    for (size_t i = 0; i < parts; i++) trainer->bytes += trainer->parts[i].size;
  }
  return true;
}

/* All tables into the first. */
static bool join_counts(BpeTrainer *trainer) {
  for (int i = 1; i < trainer->threads; i++) {
    if (!piece_counts_merge(&trainer->counts[0], &trainer->counts[i])) return false;
    piece_counts_free(&trainer->counts[i]);
  }
  return true;
}

bool bpe_trainer_finish(BpeTrainer *trainer, int32_t vocab_size, Progress progress, BpeMerge **merges,
                        size_t *merge_count, Error *error) {
  *merges = NULL;
  *merge_count = 0;
  if (!join_counts(trainer)) return no_memory(trainer, error);
  size_t wanted = vocab_size > BPE_BYTES + 1 ? (size_t)vocab_size - BPE_BYTES - 1 : 0;
  if (wanted > BPE_MERGES_LIMIT) wanted = BPE_MERGES_LIMIT;
  return bpe_merges_find(&trainer->counts[0], wanted, progress, merges, merge_count, error);
}
