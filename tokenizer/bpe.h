/* BPE: a vocabulary of merges (Sennrich, Haddow, Birch 2016), over bytes as in GPT-2 or over characters. */
#ifndef INKLING_TOKENIZER_BPE_H
#define INKLING_TOKENIZER_BPE_H

#include "util/error.h"
#include "tokenizer/char_class.h"

#include <stddef.h>
#include <stdint.h>

enum { BPE_BYTES = 256, BPE_MERGES_LIMIT = 1 << 24 };

/* Tokens `left` and `right`, side by side, become token `id`. */
typedef struct BpeMerge {
  int32_t left, right, id;
} BpeMerge;

/* What each id stands for: id i is bytes[begins[i] .. begins[i + 1]). An id without bytes is a special token or unused:
 * encoding never gives it. */
typedef struct BpeTokens {
  int32_t size; /* number of ids */
  uint8_t *bytes;
  uint32_t *begins; /* [size + 1] */
} BpeTokens;

/* What a word is before anything is merged. */
typedef struct BpeOptions {
  const int32_t *byte_tokens; /* NULL: its bytes. Else its characters and, where a character is no token, its bytes as
                                 these tokens [BPE_BYTES] */
  bool ignore_merges;         /* a word that is a token is that token, whether merges lead there or not */
} BpeOptions;

/* Read-only once it is made; many threads may use it. */
typedef struct Bpe {
  BpeTokens tokens;
  int32_t byte_ids[BPE_BYTES]; /* id of each single byte */
  int32_t *characters;         /* hash table of ids, -1: none; NULL: words are bytes */
  int32_t *words;              /* the same of all tokens; NULL: merges are not ignored */
  uint32_t character_mask, word_mask;
  BpeMerge *merges; /* [merge_count], first the one that is applied first: its index is its rank */
  int32_t merge_count;
  int32_t *slots; /* hash table of pairs: rank or -1 */
  uint32_t slot_mask;
  CharClasses *classes; /* for splitting */
} Bpe;

/* Any assignment of ids. Copies `tokens` and `merges`; *out belongs to the caller. EXIT_CHECKPOINT with the reason:
 * each of the 256 bytes needs one id, the bytes of a merge's id must be those of its left and right, and a pair has one
 * rank. EXIT_MEMORY. */
bool bpe_create(Bpe **out, const BpeTokens *tokens, const BpeMerge *merges, size_t merge_count, BpeOptions options,
                Error *error);
/* The ids of our own training: byte b is b, merge i is 256 + i, the end token (no bytes) is 256 + merge_count. Fields
 * `id` are not read. */
bool bpe_from_merges(Bpe **out, const BpeMerge *merges, size_t merge_count, Error *error);
void bpe_free(Bpe *bpe);

/* The bytes of an id, valid as long as the vocabulary; none for an id that does not exist. */
const uint8_t *bpe_decode(const Bpe *bpe, int32_t id, size_t *size);

/* Rank of the merge of two ids, or -1. */
int32_t bpe_rank(const Bpe *bpe, int32_t left, int32_t right);

/* The token that a word begins with before anything is merged, and its bytes; size > 0. */
int32_t bpe_symbol(const Bpe *bpe, const uint8_t *text, size_t size, size_t *length);
/* The token that a word is by itself, or -1: BpeOptions.ignore_merges. */
int32_t bpe_word(const Bpe *bpe, const uint8_t *word, size_t size);

#endif
