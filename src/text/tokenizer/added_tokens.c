#include "text/tokenizer/added_tokens.h"

#include "base/array.h"

#include <stdlib.h>
#include <utf8proc.h>

void added_tokens_free(AddedTokens *set) {
  if (!set) return;
  free(set->nodes);
  free(set);
}

/* ---- characters of words ---- */

/* Returns whether \w of Rust's regex matches a character: Alphabetic (letters, Nl, marks and the symbols in
 * `alphabetic`), M, Nd, Pc, Join_Control. */
static bool is_word(int32_t point) {
  static const int32_t alphabetic[][2] = {{0x24B6, 0x24E9},
                                          {0x1F130, 0x1F149},
                                          {0x1F150, 0x1F169},
                                          {0x1F170, 0x1F189},
                                          {0x200C, 0x200D} /* Join_Control */};
  if (point == UTF8_INVALID) return false;
  const utf8proc_category_t category = utf8proc_category(point);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true; /* L, M, Nd, Nl */
  for (size_t i = 0; i < sizeof alphabetic / sizeof *alphabetic; i++)
    if (point >= alphabetic[i][0] && point <= alphabetic[i][1]) return true;
  return category == UTF8PROC_CATEGORY_PC;
}

/* ---- the tree ---- */

static uint32_t find_child(const AddedTokens *set, uint32_t node, uint8_t byte) {
  uint32_t child = node ? set->nodes[node].child : set->first[byte];
  while (child && set->nodes[child].byte != byte) child = set->nodes[child].next;
  return child;
}

static bool grow(AddedTokens *set, uint32_t node, uint8_t byte, uint32_t *child, Error *error) {
  if (set->node_count == ADDED_TOKENS_BYTES)
    return fail(error, EXIT_CHECKPOINT, "the added tokens have more than %d bytes", ADDED_TOKENS_BYTES);
  if (!array_reserve(&set->nodes, &set->capacity, set->node_count + 2, sizeof *set->nodes))
    return error_memory(error, "the added tokens");
  *child = (uint32_t)++set->node_count;
  uint32_t *list = node ? &set->nodes[node].child : &set->first[byte];
  set->nodes[*child] = (AddedNode){.next = *list, .byte = byte};
  *list = *child;
  return true;
}

bool added_tokens_add(AddedTokens *set, const uint8_t *text, size_t size, const AddedToken *token, Error *error) {
  uint32_t node = 0;
  if (size == 0 || size > ADDED_TOKEN_BYTES)
    return fail(error, EXIT_CHECKPOINT, "the added token %d has %zu bytes; expected 1 to %d", (int)token->id, size,
                ADDED_TOKEN_BYTES);
  for (size_t i = 0; i < size; i++) {
    uint32_t child = find_child(set, node, text[i]);
    if (!child && !grow(set, node, text[i], &child, error)) return false;
    node = child;
  }
  if (set->nodes[node].token)
    return fail(error, EXIT_CHECKPOINT, "two added tokens are \"%.*s\"", (int)size, (const char *)text);
  set->nodes[node].token = token;
  *(token->special ? &set->special : &set->plain) = true;
  set->strips = set->strips || token->lstrip || token->rstrip;
  set->looks_around = set->looks_around || token->single_word;
  return true;
}

/* ---- searching ---- */

/* Returns the longest token that begins at text[0], and its number of bytes. */
static const AddedToken *longest(const AddedTokens *set, const uint8_t *text, size_t size, size_t *bytes) {
  const AddedToken *out = NULL;
  uint32_t node = 0;
  for (size_t i = 0; i < size && (node = find_child(set, node, text[i])); i++)
    if (set->nodes[node].token) {
      out = set->nodes[node].token;
      *bytes = i + 1;
    }
  return out;
}

static bool is_single_word(const uint8_t *text, size_t size, size_t begin, size_t end) {
  size_t length;
  return (begin == 0 || !is_word(utf8_previous(text, begin))) &&
         (end == size || !is_word(utf8_next(text + end, size - end, &length)));
}

static size_t spaces_before(const CharClasses *classes, const uint8_t *text, size_t at) {
  int32_t point;
  while (at > 0 && char_class_of(classes, point = utf8_previous(text, at)) == CHAR_SPACE)
    at -= point < 0x80 ? 1 : point < 0x800 ? 2 : 3;
  return at;
}

static size_t spaces_after(const CharClasses *classes, const uint8_t *text, size_t size, size_t at) {
  size_t length;
  while (at < size && char_class(classes, text + at, size - at, &length) == CHAR_SPACE) at += length;
  return at;
}

bool added_tokens_next(const AddedTokens *set, const CharClasses *classes, bool special, const uint8_t *text,
                       size_t size, AddedMatch *match) {
  while (match->at < size) {
    const size_t begin = match->at;
    size_t bytes = 1;
    const AddedToken *token = set->first[text[begin]] ? longest(set, text + begin, size - begin, &bytes) : NULL;
    match->at = begin + bytes;
    if (!token || (token->special && !special)) continue;
    if (token->single_word && !is_single_word(text, size, begin, match->at)) continue;
    match->id = token->id;
    match->begin = token->lstrip ? spaces_before(classes, text, begin) : begin;
    if (match->begin < match->end) match->begin = match->end;
    match->end = token->rstrip ? spaces_after(classes, text, size, match->at) : match->at;
    return true;
  }
  return false;
}
