#include "tokenizer/added_tokens.h"

#include "tokenizer/joined_pairs.h"
#include "tokenizer/regex.h"
#include "util/array.h"

#include <stdlib.h>

/* A byte in the tree of all texts; the children of a node are a list. */
typedef struct Node {
  uint32_t child, next; /* 0: none */
  int32_t token;        /* that ends here, or -1 */
  uint8_t byte;
} Node;

struct AddedTokens {
  AddedToken *tokens;
  size_t count, tokens_capacity;
  Node *nodes; /* the first is the root */
  size_t node_count, nodes_capacity;
  uint32_t first[256]; /* the children of the root */
  uint64_t *words;     /* of a point: whether it is of a word; NULL where nobody asks */
  bool special, plain, strips;
};

bool added_tokens_create(AddedTokens **out, Error *error) {
  AddedTokens *set = *out = calloc(1, sizeof *set);
  if (set && array_reserve(&set->nodes, &set->nodes_capacity, 1, sizeof *set->nodes)) {
    set->nodes[0] = (Node){.token = -1};
    set->node_count = 1;
    return true;
  }
  added_tokens_free(set);
  *out = NULL;
  return error_memory(error, "the added tokens");
}

void added_tokens_free(AddedTokens *set) {
  if (!set) return;
  free(set->tokens);
  free(set->nodes);
  free(set->words);
  free(set);
}

bool added_tokens_have_any(const AddedTokens *set, bool special) { return special ? set->special : set->plain; }
bool added_tokens_look_around(const AddedTokens *set) { return set->words != NULL; }
bool added_tokens_strip(const AddedTokens *set) { return set->strips; }

/* ---- characters of words ---- */

enum { BLOCK = 1 << 12 };

/* Those of a block of points. */
static bool find_words(uint64_t *words, const Regex *regex, RegexMatcher *matcher, uint32_t first, Error *error) {
  static const uint32_t none = UTF8_SURROGATES;
  uint8_t text[4 * BLOCK];
  RegexText searched = {0};
  size_t size = 0, begin, end;
  bool found = true;
  for (uint32_t point = first; point < first + BLOCK; point++)
    if (point < none || point >= UTF8_SURROGATES_END) size += utf8_write(point, text + size);
  bool ok = regex_begin(&searched, text, size, error);
  while (ok && (ok = regex_next(regex, matcher, &searched, &begin, &end, &found, error)) && found)
    for (uint32_t point; begin < end; words[point / 64] |= UINT64_C(1) << point % 64)
      begin += utf8_read(text + begin, end - begin, &point);
  regex_text_free(&searched);
  return ok;
}

/* \w of Rust's regex. */
static bool need_words(AddedTokens *set, Error *error) {
  Regex *regex = NULL;
  RegexMatcher *matcher = NULL;
  if (set->words) return true;
  set->words = calloc(UTF8_POINTS / 64, sizeof *set->words);
  bool ok = set->words || error_memory(error, "the added tokens");
  ok = ok && regex_create(&regex, "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]+", false, error) &&
       regex_matcher_create(&matcher, error);
  for (uint32_t first = 0; ok && first < UTF8_POINTS; first += BLOCK)
    ok = find_words(set->words, regex, matcher, first, error);
  regex_matcher_free(matcher);
  regex_free(regex);
  return ok;
}

static bool is_word(const AddedTokens *set, int32_t point) {
  return point != JOINED_NONE && set->words[point / 64] >> point % 64 & 1;
}

/* ---- the tree ---- */

static uint32_t find_child(const AddedTokens *set, uint32_t node, uint8_t byte) {
  uint32_t child = node ? set->nodes[node].child : set->first[byte];
  while (child && set->nodes[child].byte != byte) child = set->nodes[child].next;
  return child;
}

static bool grow(AddedTokens *set, uint32_t node, uint8_t byte, uint32_t *child, Error *error) {
  if (set->node_count > ADDED_TOKENS_BYTES)
    return fail(error, EXIT_CHECKPOINT, "the added tokens have more than %d bytes", ADDED_TOKENS_BYTES);
  if (!array_reserve(&set->nodes, &set->nodes_capacity, set->node_count + 1, sizeof *set->nodes))
    return error_memory(error, "the added tokens");
  *child = (uint32_t)set->node_count++;
  uint32_t *list = node ? &set->nodes[node].child : &set->first[byte];
  set->nodes[*child] = (Node){.next = *list, .token = -1, .byte = byte};
  *list = *child;
  return true;
}

bool added_tokens_add(AddedTokens *set, const uint8_t *text, size_t size, AddedToken token, Error *error) {
  uint32_t node = 0;
  if (size == 0 || size > ADDED_TOKEN_BYTES)
    return fail(error, EXIT_CHECKPOINT, "the added token %d has %zu bytes; expected 1 to %d", (int)token.id, size,
                ADDED_TOKEN_BYTES);
  if (token.single_word && !need_words(set, error)) return false;
  for (size_t i = 0; i < size; i++) {
    uint32_t child = find_child(set, node, text[i]);
    if (!child && !grow(set, node, text[i], &child, error)) return false;
    node = child;
  }
  if (set->nodes[node].token >= 0)
    return fail(error, EXIT_CHECKPOINT, "two added tokens are \"%.*s\"", (int)size, (const char *)text);
  if (!array_reserve(&set->tokens, &set->tokens_capacity, set->count + 1, sizeof token))
    return error_memory(error, "the added tokens");
  set->nodes[node].token = (int32_t)set->count;
  set->tokens[set->count++] = token;
  *(token.special ? &set->special : &set->plain) = true;
  set->strips = set->strips || token.lstrip || token.rstrip;
  return true;
}

/* ---- searching ---- */

/* The longest that begins at text[0], and its bytes. */
static const AddedToken *longest(const AddedTokens *set, const uint8_t *text, size_t size, size_t *bytes) {
  const AddedToken *out = NULL;
  uint32_t node = 0;
  for (size_t i = 0; i < size && (node = find_child(set, node, text[i])); i++)
    if (set->nodes[node].token >= 0) {
      out = &set->tokens[set->nodes[node].token];
      *bytes = i + 1;
    }
  return out;
}

static bool is_alone(const AddedTokens *set, const uint8_t *text, size_t size, size_t begin, size_t end) {
  size_t length;
  return (begin == 0 || !is_word(set, joined_character_before(text, begin))) &&
         (end == size || !is_word(set, joined_character(text + end, size - end, &length)));
}

static bool is_space(const CharClasses *classes, int32_t point) {
  return point != JOINED_NONE && classes->of[point] == CHAR_SPACE;
}

static size_t spaces_before(const CharClasses *classes, const uint8_t *text, size_t at) {
  int32_t point;
  while (at > 0 && is_space(classes, point = joined_character_before(text, at)))
    at -= point < 0x80 ? 1 : point < 0x800 ? 2 : 3;
  return at;
}

static size_t spaces_behind(const CharClasses *classes, const uint8_t *text, size_t size, size_t at) {
  size_t length;
  while (at < size && is_space(classes, joined_character(text + at, size - at, &length))) at += length;
  return at;
}

bool added_tokens_next(const AddedTokens *set, const CharClasses *classes, bool special, const uint8_t *text,
                       size_t size, AddedCursor *cursor, AddedMatch *match) {
  while (cursor->at < size) {
    const size_t begin = cursor->at;
    size_t bytes = 1;
    const AddedToken *token = set->first[text[begin]] ? longest(set, text + begin, size - begin, &bytes) : NULL;
    cursor->at = begin + bytes;
    if (!token || (token->special && !special)) continue;
    if (token->single_word && !is_alone(set, text, size, begin, cursor->at)) continue;
    *match = (AddedMatch){begin, cursor->at, token->id};
    if (token->lstrip) match->begin = spaces_before(classes, text, begin);
    if (match->begin < cursor->used) match->begin = cursor->used;
    if (token->rstrip) match->end = spaces_behind(classes, text, size, match->end);
    cursor->used = match->end;
    return true;
  }
  return false;
}
