/* BPE: a vocabulary of merges (Sennrich, Haddow, Birch 2016), over bytes as in GPT-2 or over characters, the alphabet
 * that represents bytes as characters, and the encoding of a piece of text. A vocabulary of whole pieces (word_level.h)
 * is one without merges, in which a piece either is a token or is unknown. */
#ifndef INKLING_TEXT_TOKENIZER_BPE_H
#define INKLING_TEXT_TOKENIZER_BPE_H

#include "base/error.h"
#include "base/progress.h"
#include "text/tokenizer/word_level.h"

#include <stddef.h>
#include <stdint.h>

enum { BPE_BYTES = 256, BPE_MERGES_LIMIT = 1 << 24 };

/* Adjacent tokens `left` and `right` become token `id`. */
typedef struct BpeMerge {
  int32_t left, right, id;
} BpeMerge;

/* The bytes of each id: id i has bytes[begins[i] .. begins[i + 1]). An id without bytes is a special token or unused;
 * encoding never returns it. */
typedef struct BpeTokens {
  int32_t size; /* number of ids */
  uint8_t *bytes;
  uint32_t *begins; /* [size + 1] */
} BpeTokens;

/* The tokens of a word before merging. */
typedef struct BpeOptions {
  const int32_t *byte_tokens; /* NULL: the word's bytes. Otherwise its characters; a character that is no token becomes
                                 these tokens of its bytes [BPE_BYTES] */
  bool ignore_merges;         /* a word that equals a token becomes that token, even if merges do not produce it */
  WordLevel level;
  int32_t unknown; /* with a level: the token of a piece that is no token; -1: none */
} BpeOptions;

/* Read-only after creation; several threads may use it. */
typedef struct Bpe {
  BpeTokens tokens;
  int32_t byte_ids[BPE_BYTES]; /* id of each single byte; with a level, -1: no token is this byte */
  bool characters;             /* words are characters, not bytes */
  bool ignore_merges;
  WordLevel level; /* WORD_LEVEL_NONE: a BPE */
  int32_t unknown;
  int32_t *words; /* hash table of the ids of all tokens but byte_tokens, -1: none; NULL: not needed */
  uint32_t word_mask;
  BpeMerge *merges; /* [merge_count], by rank: the index of a merge is its rank */
  int32_t merge_count;
  int32_t *slots; /* hash table of pairs: rank or -1 */
  uint32_t slot_mask;
  CharClasses *classes; /* for splitting */
} Bpe;

/* Creates a BPE with any assignment of ids. It copies `tokens` and `merges`; the caller owns *out. EXIT_CHECKPOINT with
 * the reason: each of the 256 bytes needs one id, the bytes of a merge's id must be the bytes of its left and right
 * tokens, and a pair has only one rank. With a level, any tokens will do. EXIT_MEMORY. */
bool bpe_create(Bpe **out, const BpeTokens *tokens, const BpeMerge *merges, size_t merge_count, BpeOptions options,
                Error *error);
/* Creates a BPE with the ids of our own training: byte b is b, merge i is 256 + i, the end token (no bytes) is 256 +
 * merge_count. It does not read BpeMerge.id. */
bool bpe_from_merges(Bpe **out, const BpeMerge *merges, size_t merge_count, Error *error);
void bpe_free(Bpe *bpe);

/* Returns the bytes of an id, valid as long as the BPE; *size is 0 for an id that does not exist. */
const uint8_t *bpe_decode(const Bpe *bpe, int32_t id, size_t *size);
const uint8_t *bpe_token(const BpeTokens *tokens, int32_t id, size_t *size); /* the same in a table */

/* Returns the rank of the merge of two ids, or -1. */
int32_t bpe_rank(const Bpe *bpe, int32_t left, int32_t right);
/* Returns the token that equals the word, or -1 (BpeOptions.ignore_merges). */
int32_t bpe_word(const Bpe *bpe, const uint8_t *word, size_t size);

/* ---- the alphabet of byte-level BPE: the characters that represent bytes in its tokens (bytes_to_unicode in GPT-2's
 * encoder.py) ---- */

/* Returns a token written in the alphabet, "" for one without bytes; the caller frees it. NULL when memory is out,
 * which json_memory_ok() also reports. */
char *alphabet_token(const Bpe *bpe, int32_t id);

/* Decodes a text that is written in the alphabet and returns the number of bytes, at most one per byte of the text; -1
 * when it contains other characters. */
int64_t alphabet_read(const char *text, uint8_t *out);

/* ---- encoding of a piece: applies the merge of lowest rank, the leftmost of equals, until none applies ---- */

/* Reusable memory; starts as {0}. A long piece takes 20 bytes of it per byte. */
typedef struct PieceScratch {
  int32_t *cells;
  uint64_t *heap;
  size_t cells_capacity, heap_size, heap_capacity;
  StopSignal stop; /* encoding of a long piece then returns 0 */
} PieceScratch;

void piece_scratch_free(PieceScratch *scratch);

/* Pieces up to this length are merged without a heap. */
enum { SHORT_PIECE = 64 };

/* Writes the ids of a piece of `size` > 0 bytes to `ids`, which has room for `size` ids; returns their number, or 0
 * when out of memory or stopped, or with a level when the piece is no token and there is no unknown token. Takes
 * O(size log size) time. A piece may have 2^40 bytes. */
size_t bpe_encode_piece(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids, PieceScratch *scratch);

#endif
