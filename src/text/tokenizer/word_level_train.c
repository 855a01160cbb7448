/* Chooses the tokens of a vocabulary of whole pieces. */
#include "text/tokenizer/bpe_merges.h"
#include "text/tokenizer/internal.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct Candidate {
  const uint8_t *bytes;
  size_t size;
  uint64_t count;
} Candidate;

/* The pieces that may become tokens. */
typedef struct Candidates {
  Candidate *items;
  size_t count;
  bool left_out; /* the text has others */
  bool unknown;  /* <unk> is one of them; it is not in the list */
} Candidates;

static int by_count(const void *left, const void *right) {
  const Candidate *a = left, *b = right;
  if (a->count != b->count) return a->count > b->count ? -1 : 1;
  const int order = memcmp(a->bytes, b->bytes, a->size < b->size ? a->size : b->size);
  return order ? order : (a->size > b->size) - (a->size < b->size);
}

static bool is_token(const Candidate *piece, const char *token) {
  return piece->size == strlen(token) && memcmp(piece->bytes, token, piece->size) == 0;
}

static bool find_candidates(Candidates *out, const PieceCounts *counts, Error *error) {
  *out = (Candidates){.items = malloc((counts->size + 1) * sizeof *out->items)};
  if (!out->items) return error_memory(error, "a vocabulary");
  for (uint32_t i = 0; i < counts->size; i++) {
    const PieceCount *of = &counts->pieces[i];
    const Candidate piece = {counts->bytes + of->begin, of[1].begin - of->begin, of->count};
    if (is_token(&piece, WORD_LEVEL_UNKNOWN)) out->unknown = true;
    else if (word_level_is_text(piece.bytes, piece.size) && !is_token(&piece, END_OF_TEXT))
      out->items[out->count++] = piece;
    else out->left_out = true;
  }
  if (out->count) qsort(out->items, out->count, sizeof *out->items, by_count);
  return true;
}

/* The callers need not check allocations: json_text() reports any that has failed (base/json.h). */
static void add_token(json_t *vocab, const uint8_t *piece, size_t size) {
  char *key = json_allocate(size + 1);
  if (key) {
    memcpy(key, piece, size);
    key[size] = '\0';
    json_object_set_new(vocab, key, json_integer((json_int_t)json_object_size(vocab)));
  }
  free(key);
}

static json_t *most_frequent(const Candidates *from, int32_t vocab_size, bool unknown) {
  json_t *vocab = json_object();
  const size_t most = vocab_size ? (size_t)vocab_size - 1 : from->count + 1; /* without the end token */
  const bool has_unknown = unknown || from->unknown || (vocab_size && (from->left_out || from->count > most));
  for (size_t i = 0; i < from->count && i + has_unknown < most; i++)
    add_token(vocab, from->items[i].bytes, from->items[i].size);
  if (has_unknown) add_token(vocab, (const uint8_t *)WORD_LEVEL_UNKNOWN, strlen(WORD_LEVEL_UNKNOWN));
  return vocab;
}

/* Returns the number that a piece is, without a sign or leading zeros; -1: another piece, or too large a number. */
static int32_t number_of(const Candidate *piece) {
  int32_t number = 0;
  if (piece->size > 7 || (piece->size > 1 && piece->bytes[0] == '0')) return -1;
  for (size_t i = 0; i < piece->size; i++) {
    if (piece->bytes[i] < '0' || piece->bytes[i] > '9') return -1;
    number = 10 * number + piece->bytes[i] - '0';
  }
  return number < WORD_LEVEL_TOKENS - 1 ? number : -1;
}

static json_t *all_ids(const Candidates *from, int32_t vocab_size) {
  json_t *vocab = json_object();
  int32_t count = vocab_size;
  for (size_t i = 0; !vocab_size && i < from->count; i++)
    if (number_of(&from->items[i]) >= count) count = number_of(&from->items[i]) + 1;
  for (int32_t id = 0; id < count; id++) {
    char text[16];
    add_token(vocab, (const uint8_t *)text, (size_t)snprintf(text, sizeof text, "%d", (int)id));
  }
  return vocab;
}

bool word_level_make(Tokenizer **out, WordLevel level, const PieceCounts *counts, int32_t vocab_size, bool unknown,
                     Error *error) {
  Candidates candidates = {0};
  const char *piece = word_level_kinds[level].piece;
  bool ok = find_candidates(&candidates, counts, error);
  if (ok && level != WORD_LEVEL_IDS && !vocab_size && candidates.count > WORD_LEVEL_TOKENS - 2)
    ok = fail(error, EXIT_INPUT,
              "the text has %zu different %ss, and a vocabulary has at most %d tokens; --vocab-size N keeps the N most "
              "frequent ones",
              candidates.count, piece, WORD_LEVEL_TOKENS);
  ok = ok && word_level_tokenizer(out, level,
                                  level == WORD_LEVEL_IDS ? all_ids(&candidates, vocab_size)
                                                          : most_frequent(&candidates, vocab_size, unknown),
                                  error);
  free(candidates.items);
  return ok;
}
