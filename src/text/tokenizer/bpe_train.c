#include "text/tokenizer/bpe_train.h"

#include "text/tokenizer/bpe_merges.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/threads.h"

#include <stdlib.h>

/* ---- pieces ---- */

enum { FIRST_SLOTS = 1 << 12, PIECES_LIMIT = INT32_MAX };

void piece_counts_free(PieceCounts *counts) {
  free(counts->bytes);
  free(counts->pieces);
  free(counts->slots);
  *counts = (PieceCounts){0};
}

/* A slot stores the 32 bits of the hash, so the table grows without reading the pieces. */
static bool grow_slots(PieceCounts *counts) {
  size_t slot_count = counts->slot_count > 0 ? 2 * counts->slot_count : FIRST_SLOTS, mask = slot_count - 1;
  uint64_t *slots = calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < counts->slot_count; i++) {
    if (counts->slots[i] == 0) continue;
    size_t at = (uint32_t)counts->slots[i] & mask;
    while (slots[at] != 0) at = (at + 1) & mask;
    slots[at] = counts->slots[i];
  }
  free(counts->slots);
  counts->slots = slots;
  counts->slot_count = slot_count;
  return true;
}

static bool reserve(PieceCounts *counts, size_t size) {
  const size_t count = counts->size, used = count > 0 ? counts->pieces[count].begin : 0;
  return count < PIECES_LIMIT &&
         array_reserve(&counts->pieces, &counts->pieces_capacity, count + 2, sizeof *counts->pieces) &&
         array_reserve(&counts->bytes, &counts->bytes_capacity, used + size, 1);
}

bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times) {
  if (2 * (size_t)counts->size >= counts->slot_count && !grow_slots(counts)) return false;
  uint32_t hash = (uint32_t)hash_bytes(piece, size);
  size_t mask = counts->slot_count - 1, at = hash & mask;
  for (; counts->slots[at] != 0; at = (at + 1) & mask) {
    if ((uint32_t)counts->slots[at] != hash) continue;
    PieceCount *found = &counts->pieces[(counts->slots[at] >> 32) - 1];
    if (found[1].begin - found->begin != size || memcmp(counts->bytes + found->begin, piece, size) != 0) continue;
    found->count += times;
    return true;
  }
  if (!reserve(counts, size)) return false;
  PieceCount *added = &counts->pieces[counts->size];
  if (counts->size == 0) added->begin = 0;
  memcpy(counts->bytes + added->begin, piece, size);
  added->count = times;
  added[1].begin = added->begin + size;
  counts->size++;
  counts->slots[at] = (uint64_t)counts->size << 32 | hash;
  return true;
}

static bool add_counts(PieceCounts *counts, const PieceCounts *from) {
  for (uint32_t i = 0; i < from->size; i++) {
    const PieceCount *piece = &from->pieces[i];
    if (!piece_counts_add(counts, from->bytes + piece->begin, piece[1].begin - piece->begin, piece->count))
      return false;
  }
  return true;
}

/* ---- texts ---- */

struct BpeTrainer {
  int threads;
  Pool *pool;
  Bpe *base; /* only the bytes, and the level */
  Pipeline pipeline;
  PieceCounts *counts; /* [threads]; bpe_trainer_finish() joins them */
  PipelineChunk chunks[PIPELINE_ROUND_CHUNKS];
  uint64_t bytes;
};

static bool no_memory(const BpeTrainer *trainer, Error *error) {
  return fail(error, EXIT_MEMORY, "out of memory while training a tokenizer (%llu bytes of text so far)",
              (unsigned long long)(trainer ? trainer->bytes : 0));
}

void bpe_trainer_free(BpeTrainer *trainer) {
  if (!trainer) return;
  pool_close(trainer->pool);
  for (int i = 0; trainer->counts && i < trainer->threads; i++) piece_counts_free(&trainer->counts[i]);
  free(trainer->counts);
  bpe_free(trainer->base);
  free(trainer);
}

bool bpe_trainer_create(BpeTrainer **out, WordLevel level, int threads, Error *error) {
  *out = NULL;
  BpeTrainer *trainer = calloc(1, sizeof *trainer);
  if (!trainer) return no_memory(NULL, error);
  trainer->threads = threads;
  trainer->counts = calloc((size_t)threads, sizeof *trainer->counts);
  bool ok = trainer->counts || no_memory(NULL, error);
  ok = ok && bpe_from_merges(&trainer->base, NULL, 0, error) && pool_open(&trainer->pool, threads, error);
  if (!ok) {
    bpe_trainer_free(trainer);
    return false;
  }
  trainer->base->level = level;
  trainer->pipeline = pipeline_trained(trainer->base);
  *out = trainer;
  return true;
}

const Pipeline *bpe_trainer_pipeline(const BpeTrainer *trainer) { return &trainer->pipeline; }

static bool count_chunk(PieceCounts *counts, const Bpe *base, const PipelineChunk *chunk) {
  const CharClasses *classes = base->classes;
  const uint8_t *text = chunk->text;
  if (base->level) {
    for (size_t begin, end = 0; word_level_next(base->level, classes, text, chunk->size, &begin, &end);)
      if (!piece_counts_add(counts, text + begin, end - begin, 1)) return false;
    return true;
  }
  for (size_t left = chunk->size, size; left > 0; text += size, left -= size) {
    size = pretokenize_first(classes, text, left);
    if (!piece_counts_add(counts, text, size, 1)) return false;
  }
  return true;
}

/* PoolWork. */
static void count_some(const void *of, int begin, int end, int thread) {
  const BpeTrainer *trainer = of;
  PieceCounts *counts = &trainer->counts[thread];
  for (int i = begin; i < end && !counts->failed; i++)
    counts->failed = !count_chunk(counts, trainer->base, &trainer->chunks[i]);
}

static bool count_chunks(const BpeTrainer *trainer, size_t count) {
  pool_run(trainer->pool, (int)count, 1, 1, count_some, trainer);
  bool ok = true;
  for (int i = 0; i < trainer->threads; i++) ok = ok && !trainer->counts[i].failed;
  return ok;
}

/* Bounds the memory of vocabularies of whole pieces, whatever the text. */
static bool check_counts(const BpeTrainer *trainer, const PieceCounts *counts, Error *error) {
  const char *piece = word_level_kinds[trainer->base->level].piece;
  const size_t bytes = counts->size ? counts->pieces[counts->size].begin : 0;
  if (!piece || (counts->size <= WORD_LEVEL_COUNTED && bytes <= WORD_LEVEL_BYTES)) return true;
  return fail(
      error, EXIT_INPUT,
      "the text has %u different %ss of %zu bytes in its first %llu bytes, and a vocabulary of %ss is limited to "
      "%d and %d bytes; give --tokenizer bpe",
      counts->size, piece, bytes, (unsigned long long)trainer->bytes, piece, WORD_LEVEL_COUNTED, WORD_LEVEL_BYTES);
}

bool bpe_trainer_add(BpeTrainer *trainer, const PipelineText *documents, size_t count, Error *error) {
  const int threads = trainer->threads;
  PipelineCursor cursor = {0};
  size_t chunks;
  while ((chunks = pipeline_chunks(&trainer->pipeline, documents, count, threads, &cursor, trainer->chunks)) > 0) {
    if (!count_chunks(trainer, chunks)) return no_memory(trainer, error);
    for (size_t i = 0; i < chunks; i++) trainer->bytes += trainer->chunks[i].size;
    for (int i = 0; i < threads; i++)
      if (!check_counts(trainer, &trainer->counts[i], error)) return false;
  }
  return true;
}

/* Adds the counts of all threads to the first. */
static bool join_counts(BpeTrainer *trainer) {
  for (int i = 1; i < trainer->threads; i++) {
    if (!add_counts(&trainer->counts[0], &trainer->counts[i])) return false;
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

bool bpe_trainer_word_level(BpeTrainer *trainer, int32_t vocab_size, bool unknown, Tokenizer **out, Error *error) {
  *out = NULL;
  if (!join_counts(trainer)) return no_memory(trainer, error);
  return check_counts(trainer, &trainer->counts[0], error) &&
         word_level_make(out, trainer->base->level, &trainer->counts[0], vocab_size, unknown, error);
}
