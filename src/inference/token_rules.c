#include "inference/token_rules.h"

#include "base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts to look for ---- */

bool pattern_list_add(PatternList *list, const void *text, size_t size, Error *error) {
  Pattern *grown = realloc(list->patterns, (size_t)(list->count + 1) * sizeof *grown);
  if (!grown) return error_memory(error, "a text to look for");
  list->patterns = grown;
  Pattern *p = &grown[list->count];
  *p = (Pattern){malloc(size), size, calloc(size, sizeof *p->borders)};
  if (!p->bytes || !p->borders) {
    free(p->bytes);
    free(p->borders);
    return error_memory(error, "a text to look for");
  }
  memcpy(p->bytes, text, size);
  for (size_t i = 1, matched = 0; i < size; i++) {
    while (matched > 0 && p->bytes[matched] != p->bytes[i]) matched = p->borders[matched - 1];
    matched += p->bytes[matched] == p->bytes[i];
    p->borders[i] = matched;
  }
  return ++list->count;
}

void pattern_list_free(PatternList *list) {
  for (int i = 0; i < list->count; i++) {
    free(list->patterns[i].bytes);
    free(list->patterns[i].borders);
  }
  free(list->patterns);
  *list = (PatternList){0};
}

size_t pattern_advance(const Pattern *p, size_t matched, uint8_t byte) {
  if (matched == p->size) matched = p->borders[matched - 1];
  while (matched > 0 && p->bytes[matched] != byte) matched = p->borders[matched - 1];
  return matched + (p->bytes[matched] == byte);
}

/* ---- rules ---- */

/* The tokens that complete a banned text. */
typedef struct Completing {
  bool known;
  int32_t *ids;
  int count;
} Completing;

bool token_rules_make(TokenRules *out, const Tokenizer *tokenizer, Error *error) {
  *out = (TokenRules){.tokenizer = tokenizer, .tokens = tokenizer_tokens(tokenizer)};
  out->dense = calloc((size_t)tokenizer_vocab(tokenizer), sizeof *out->dense);
  return out->dense || error_memory(error, "rules for tokens");
}

void token_rules_free(TokenRules *r) {
  for (int i = 0; i < r->bans.count; i++) {
    for (size_t m = 0; m < r->bans.patterns[i].size; m++) free(r->completing[i][m].ids);
    free(r->completing[i]);
  }
  free(r->completing);
  pattern_list_free(&r->bans);
  free(r->biases);
  free(r->dense);
  *r = (TokenRules){0};
}

bool token_rules_bias(TokenRules *r, int32_t id, float value, Error *error) {
  for (int i = 0; i < r->bias_count; i++)
    if (r->biases[i].id == id) {
      r->biases[i].value = value;
      return true;
    }
  TokenBias *grown = realloc(r->biases, (size_t)(r->bias_count + 1) * sizeof *grown);
  if (!grown) return error_memory(error, "rules for tokens");
  r->biases = grown;
  r->biases[r->bias_count++] = (TokenBias){id, value};
  return true;
}

bool token_rules_ban(TokenRules *r, const void *text, size_t size, Error *error) {
  const int count = r->bans.count;
  Completing **grown = realloc(r->completing, ((size_t)count + 1) * sizeof *grown);
  if (!grown) return error_memory(error, "rules for tokens");
  r->completing = grown;
  grown[count] = calloc(size, sizeof **grown);
  if (!grown[count]) return error_memory(error, "rules for tokens");
  if (pattern_list_add(&r->bans, text, size, error)) return true;
  free(grown[count]);
  return false;
}

/* Returns the number of bytes of a ban that the text ends with after a token; the size of the ban: it is complete. */
static size_t after_token(const TokenRules *r, const Pattern *ban, size_t matched, int32_t id) {
  size_t size;
  const uint8_t *bytes = tokenizer_decode(r->tokenizer, id, &size);
  for (size_t i = 0; i < size; i++) {
    matched = pattern_advance(ban, matched, bytes[i]);
    if (matched == ban->size) break;
  }
  return matched;
}

void token_rules_advance(const TokenRules *r, size_t *matched, int32_t id) {
  for (int i = 0; i < r->bans.count; i++) matched[i] = after_token(r, &r->bans.patterns[i], matched[i], id);
}

/* Searches the vocabulary at the first request, because most texts contain few beginnings of banned texts. */
static const Completing *completing_of(const TokenRules *r, int ban, size_t matched, Error *error) {
  const Pattern *text = &r->bans.patterns[ban];
  const int vocab = tokenizer_vocab(r->tokenizer);
  Completing *c = &r->completing[ban][matched];
  size_t capacity = 0;
  if (c->known) return c;
  c->count = 0;
  for (int32_t id = 0; id < vocab; id++) {
    if (after_token(r, text, matched, id) != text->size) continue;
    if (!array_reserve(&c->ids, &capacity, (size_t)c->count + 1, sizeof *c->ids)) {
      error_memory(error, "rules for tokens");
      return NULL;
    }
    c->ids[c->count++] = id;
  }
  c->known = true;
  return c;
}

bool token_rules_list(TokenRules *r, const size_t *matched, int32_t *tokens, float *values, int *count, Error *error) {
  const int vocab = tokenizer_vocab(r->tokenizer);
  int masked = 0;
  for (int i = 0; i < r->bias_count; i++) r->dense[r->biases[i].id] = r->biases[i].value;
  for (int b = 0; b < r->bans.count; b++) {
    const Completing *c = completing_of(r, b, matched[b], error);
    if (!c) return false;
    for (int i = 0; i < c->count; i++) r->dense[c->ids[i]] = -INFINITY;
  }
  *count = 0;
  for (int32_t id = 0; id < vocab; id++) {
    if (r->dense[id] == 0.0f) continue;
    masked += r->dense[id] == -INFINITY;
    tokens[*count] = id;
    values[(*count)++] = r->dense[id];
    r->dense[id] = 0;
  }
  return masked < r->tokens || fail(error, EXIT_USAGE, "--bias and --ban leave no token that could be written");
}
