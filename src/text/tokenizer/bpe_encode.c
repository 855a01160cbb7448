#include "text/tokenizer/tokenizer.h"

#include "base/array.h"
#include "base/hash.h"
#include "base/system.h"
#include "base/threads.h"

#include <stdlib.h>

enum {
  CACHE_SLOTS = 1 << 15,
  KEY_WORDS = 4,
  KEY_BYTES = 8 * KEY_WORDS - 1, /* the last byte is the length */
  CACHED_IDS = 7
};

/* A piece can only be in one slot, and replaces the piece that was there. A slot is one cache line of the processor. */
typedef struct CacheSlot {
  uint64_t key[KEY_WORDS]; /* the piece, zeros, its length; all zeros: empty */
  int32_t ids[CACHED_IDS];
  int32_t count;
} CacheSlot;

enum { CACHE_BYTES = CACHE_SLOTS * sizeof(CacheSlot) };

typedef struct Worker {
  CacheSlot *cache; /* [CACHE_SLOTS] */
  int32_t *ids;     /* of its chunks of this round */
  size_t count, capacity;
  PieceScratch scratch;
  PipelineRunner *runner;
  const Bpe *bpe;
  bool leaves_out;
  EncodedPieces counts; /* of this round */
  Error error;
} Worker;

/* The ids of a chunk in the memory of the worker that encoded it. */
typedef struct ChunkIds {
  int thread;
  size_t begin, count;
} ChunkIds;

struct BpeEncoder {
  const Pipeline *pipeline;
  int threads;
  Pool *pool;
  Worker *workers; /* [threads] */
  PipelineChunk chunks[PIPELINE_ROUND_CHUNKS];
  ChunkIds chunk_ids[PIPELINE_ROUND_CHUNKS];
  int32_t end;           /* the id that follows each document; negative: none */
  bool is_gpt2;          /* pipeline_is_gpt2() */
  bool open;             /* the last document may continue in the next call */
  EncodedPieces *counts; /* NULL: a missing piece is an error */
};

/* ---- one chunk ---- */

/* `left` >= `size`: the number of bytes that may be read. */
static void make_key(uint64_t key[KEY_WORDS], const uint8_t *piece, size_t size, size_t left) {
  uint8_t padded[8 * KEY_WORDS] = {0};
  if (left >= 8 && size <= 8) {
    key[0] = hash_load_u64(piece) & (UINT64_MAX >> (64 - 8 * size));
    key[1] = key[2] = 0;
    key[3] = (uint64_t)size << 56;
    return;
  }
  memcpy(padded, piece, size);
  padded[KEY_BYTES] = (uint8_t)size;
  memcpy(key, padded, sizeof padded);
}

static CacheSlot *find_slot(CacheSlot *cache, const uint64_t key[KEY_WORDS]) {
  uint64_t hash = hash_mix(hash_mix(key[0], key[1]), key[2] ^ key[3]);
  return &cache[hash & (CACHE_SLOTS - 1)];
}

/* Writes the ids of a piece to `ids`, which has room for one per byte and for CACHED_IDS. Returns their number; 0: out
 * of memory or stopped. */
static inline size_t encode_piece(const Bpe *bpe, Worker *worker, const uint8_t *piece, size_t size, size_t left,
                                  int32_t *ids) {
  if (size > KEY_BYTES) return bpe_encode_piece(bpe, piece, size, ids, &worker->scratch);
  uint64_t key[KEY_WORDS];
  make_key(key, piece, size, left);
  CacheSlot *slot = find_slot(worker->cache, key);
  if (memcmp(slot->key, key, sizeof key) == 0) {
    memcpy(ids, slot->ids, sizeof slot->ids); /* copying all of them is cheaper than a loop of `count` */
    return (size_t)slot->count;
  }
  size_t count = bpe_encode_piece(bpe, piece, size, ids, &worker->scratch);
  if (count > CACHED_IDS) return count;
  memcpy(slot->key, key, sizeof key);
  memcpy(slot->ids, ids, count * sizeof *ids);
  slot->count = (int32_t)count;
  return count;
}

/* Reserves memory for the ids of `size` bytes; every token has at least one byte. */
static bool reserve(Worker *worker, size_t size, Error *error) {
  const size_t wanted = worker->count + size + CACHED_IDS + 1;
  return array_reserve(&worker->ids, &worker->capacity, wanted, sizeof *worker->ids) ||
         error_memory(error, "the tokens of a text");
}

static bool not_encoded(const Worker *worker, Error *error) {
  return stop_go_on(worker->scratch.stop, "encoding", error) && error_memory(error, "the tokens of a text");
}

static bool take_token(void *of, int32_t id, Error *error) {
  Worker *worker = of;
  if (!reserve(worker, 1, error)) return false;
  worker->ids[worker->count++] = id;
  return true;
}

static bool take_piece(void *of, const uint8_t *piece, size_t size, size_t left, Error *error) {
  Worker *worker = of;
  if (!reserve(worker, size, error)) return false;
  const size_t count = encode_piece(worker->bpe, worker, piece, size, left, worker->ids + worker->count);
  worker->count += count;
  worker->counts.pieces++;
  if (count > 0) return true;
  if (!worker->bpe->level) return not_encoded(worker, error);
  worker->counts.missing++;
  return worker->leaves_out || tokenizer_refuse_piece(worker->bpe, piece, size, error);
}

/* Does the same as a pipeline with only STEP_GPT2, without a call for each piece. */
static bool encode_gpt2(Worker *worker, const PipelineChunk *chunk) {
  const Bpe *bpe = worker->bpe;
  if (!reserve(worker, chunk->size, &worker->error)) return false;
  const uint8_t *text = chunk->text;
  for (size_t left = chunk->size; left > 0;) {
    size_t size = pretokenize_first(bpe->classes, text, left);
    size_t count = encode_piece(bpe, worker, text, size, left, worker->ids + worker->count);
    if (count == 0) return not_encoded(worker, &worker->error);
    worker->count += count;
    text += size;
    left -= size;
  }
  return true;
}

/* ---- the encoder ---- */

void bpe_encoder_free(BpeEncoder *encoder) {
  if (!encoder) return;
  pool_close(encoder->pool);
  for (int i = 0; encoder->workers && i < encoder->threads; i++) {
    memory_release(encoder->workers[i].cache, CACHE_BYTES);
    free(encoder->workers[i].ids);
    piece_scratch_free(&encoder->workers[i].scratch);
    pipeline_runner_free(encoder->workers[i].runner);
  }
  free(encoder->workers);
  free(encoder);
}

void bpe_encoder_leave_out(BpeEncoder *encoder, EncodedPieces *counts) {
  encoder->counts = counts;
  for (int i = 0; i < encoder->threads; i++) encoder->workers[i].leaves_out = true;
}

bool bpe_encoder_create(BpeEncoder **out, const Pipeline *pipeline, bool special, int threads, StopSignal stop,
                        Error *error) {
  BpeEncoder *encoder = *out = calloc(1, sizeof *encoder);
  if (!encoder) return error_memory(error, "the tokens of a text");
  encoder->pipeline = pipeline;
  encoder->threads = threads;
  encoder->is_gpt2 = pipeline_is_gpt2(pipeline, special);
  encoder->workers = calloc((size_t)threads, sizeof *encoder->workers);
  bool ok = encoder->workers || error_memory(error, "the tokens of a text");
  for (int i = 0; ok && i < threads; i++) {
    Worker *worker = &encoder->workers[i];
    *worker = (Worker){.cache = memory_allocate(sizeof(CacheSlot), CACHE_BYTES), .scratch.stop = stop};
    worker->bpe = pipeline->bpe;
    ok = (worker->cache || error_memory(error, "the tokens of a text")) &&
         pipeline_runner_create(&worker->runner, pipeline, special, (PipelineSink){worker, take_piece, take_token},
                                stop, error);
  }
  if (ok && pool_open(&encoder->pool, threads, error)) return true;
  bpe_encoder_free(encoder);
  *out = NULL;
  return false;
}

/* ---- all documents ---- */

bool bpe_ids_sink(void *ids, const int32_t *more, size_t count, Error *error) {
  BpeIds *all = ids;
  if (!array_reserve(&all->ids, &all->capacity, all->count + count, sizeof *more))
    return error_memory(error, "the tokens of a text");
  if (count > 0) memcpy(all->ids + all->count, more, count * sizeof *more);
  all->count += count;
  return true;
}

static bool continues(const BpeEncoder *encoder, size_t chunk) {
  return chunk > 0 ? !encoder->chunks[chunk - 1].is_last : encoder->open;
}

/* Returns false with the error in worker->error. */
static bool encode_chunk(const BpeEncoder *encoder, Worker *worker, size_t i) {
  const PipelineChunk *chunk = &encoder->chunks[i];
  const bool ok = encoder->is_gpt2
                      ? encode_gpt2(worker, chunk)
                      : pipeline_run(worker->runner, chunk->text, chunk->size, continues(encoder, i), &worker->error);
  return ok && (!chunk->is_last || encoder->end < 0 || take_token(worker, encoder->end, &worker->error));
}

/* PoolWork. After an error a worker skips its chunks. */
static void encode_some(const void *of, int begin, int end, int thread) {
  BpeEncoder *encoder = *(BpeEncoder *const *)of;
  Worker *worker = &encoder->workers[thread];
  for (int i = begin; i < end && !worker->error.code; i++) {
    const size_t first = worker->count;
    if (!encode_chunk(encoder, worker, (size_t)i)) return;
    encoder->chunk_ids[i] = (ChunkIds){thread, first, worker->count - first};
  }
}

/* Returns the first worker's error. */
static bool encode_chunks(BpeEncoder *encoder, size_t count, Error *error) {
  for (int i = 0; i < encoder->threads; i++) {
    encoder->workers[i].count = 0;
    encoder->workers[i].error = (Error){0};
    encoder->workers[i].counts = (EncodedPieces){0};
  }
  pool_run(encoder->pool, (int)count, 1, 1, encode_some, &encoder);
  for (int i = 0; i < encoder->threads; i++) {
    const Error *why = &encoder->workers[i].error;
    const EncodedPieces *counts = &encoder->workers[i].counts;
    if (why->code) return fail(error, why->code, "%s", why->text);
    if (!encoder->counts) continue;
    encoder->counts->pieces += counts->pieces;
    encoder->counts->missing += counts->missing;
  }
  return true;
}

bool bpe_encode(BpeEncoder *encoder, const PipelineText *documents, size_t count, int32_t end, BpeSink sink,
                void *context, Error *error) {
  PipelineCursor cursor = {0};
  size_t chunks;
  encoder->end = end;
  while ((chunks = pipeline_chunks(encoder->pipeline, documents, count, encoder->threads, &cursor, encoder->chunks)) >
         0) {
    if (!encode_chunks(encoder, chunks, error)) return false;
    const PipelineChunk *last = &encoder->chunks[chunks - 1];
    const bool begun = last->size > 0 || continues(encoder, chunks - 1);
    encoder->open = !last->is_last || (end < 0 && begun);
    for (size_t i = 0; i < chunks; i++) {
      const ChunkIds *chunk = &encoder->chunk_ids[i];
      if (chunk->count == 0) continue;
      if (!sink(context, encoder->workers[chunk->thread].ids + chunk->begin, chunk->count, error)) return false;
    }
  }
  return true;
}

bool bpe_encode_text(BpeEncoder *encoder, const uint8_t *text, size_t size, BpeIds *out, Error *error) {
  encoder->open = false;
  return bpe_encode(encoder, &(PipelineText){text, size}, 1, -1, bpe_ids_sink, out, error);
}
