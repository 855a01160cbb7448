/* The self-check: computes the bits of a text a second time from the text alone, and checks the rule of grammar.h for
 * every choice. */
#include "tools/stories/writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The most bytes between the last mention of a fact and its next use: half of a context of 256 bytes, so that the fact
 * is visible whenever the context is at least half full. */
enum { MAX_REFERENCE_DISTANCE = 128 };

/* ---- the recognizer: finds all derivations of a given text, independently of the writer ---- */

/* The rest of an alternative, and what follows it. */
typedef struct Rest {
  const Item *item;
  const Item *end;
  const struct Rest *next;
} Rest;

typedef struct Parse {
  const Grammar *grammar;
  const char *text;
  size_t length;
  bool prefix; /* count every derivation whose text begins with text[0 .. length) */
  int value[MAX_VARIABLES];
  long derivations;
  double probability; /* sum over the derivations */
} Parse;

static void derive(Parse *p, Rest rest, size_t at, double probability);

/* Moves *at over a known text. Returns false when this derivation ends: the text differs, or the prefix ends here. */
static bool parse_span(Parse *p, Span span, size_t *at, double probability) {
  size_t left = p->length - *at;
  size_t length = span.length < left ? span.length : left;
  if (memcmp(p->text + *at, span.text, length) != 0) return false;
  if (length < span.length) {
    if (p->prefix) {
      p->derivations++;
      p->probability += probability;
    }
    return false;
  }
  *at += length;
  return true;
}

static void derive_rule(Parse *p, const Rule *r, const Rest *next, size_t at, double probability) {
  for (int i = 0; i < r->alternatives; i++) {
    const Alternative *a = &r->alternative[i];
    derive(p, (Rest){a->item, a->item + a->items, next}, at, probability * a->weight / r->weight);
  }
}

static void derive_draw(Parse *p, const Item *item, Rest rest, size_t at, double probability) {
  const int words = p->grammar->variable[item->variable].words;
  for (int i = 0; i < words; i++) {
    size_t after = at;
    if (!parse_span(p, item->text_of[i], &after, probability / words)) continue;
    p->value[item->variable] = i;
    derive(p, rest, after, probability / words);
  }
}

static void derive(Parse *p, Rest rest, size_t at, double probability) {
  for (;;) {
    while (rest.item == rest.end && rest.next) rest = *rest.next;
    bool finished = rest.item == rest.end;
    if ((finished || p->prefix) && at == p->length) {
      p->derivations++;
      p->probability += probability;
      return;
    }
    if (finished) return;
    const Item *item = rest.item++;
    const int value = p->value[item->variable];
    switch (item->kind) {
    case ITEM_TEXT:
      if (!parse_span(p, item->text, &at, probability)) return;
      break;
    case ITEM_MENTION:
      if (!parse_span(p, item->text_of[value], &at, probability)) return;
      break;
    case ITEM_DRAW: derive_draw(p, item, rest, at, probability); return;
    case ITEM_RULE: derive_rule(p, &p->grammar->rule[item->rule], &rest, at, probability); return;
    case ITEM_SWITCH: derive_rule(p, &p->grammar->rule[item->rule_of[value]], &rest, at, probability); return;
    }
  }
}

/* Finds all derivations of a story, or of its beginning, without the separator. */
static Parse parse_story(const Grammar *g, const char *text, size_t length, bool prefix) {
  Parse p = {.grammar = g, .text = text, .length = length, .prefix = prefix};
  derive_rule(&p, &g->rule[0], NULL, 0, 1.0);
  return p;
}

bool check_begins(const Grammar *g, const char *text, size_t length) {
  return parse_story(g, text, length, true).derivations > 0;
}

/* ---- the checks ---- */

static bool heads_differ(const Head *a, const Head *b) {
  size_t common = a->length < b->length ? a->length : b->length;
  return memcmp(a->text, b->text, common) != 0;
}

/* Adds the variables that determine how an alternative begins. Returns the new count; -1: too many. */
static int head_variables(const Alternative *a, int *variables, int count) {
  for (int i = 0; i < a->items; i++) {
    if (a->item[i].kind == ITEM_TEXT) continue;
    if (a->item[i].kind != ITEM_MENTION) break;
    int k = 0;
    while (k < count && variables[k] != a->item[i].variable) k++;
    if (k < count) continue;
    if (count == MAX_HEAD_VARIABLES) return -1;
    variables[count++] = a->item[i].variable;
  }
  return count;
}

/* Moves value[] to the next assignment of the given variables. Returns false after the last. */
static bool next_assignment(const Grammar *g, const int *variables, int count, int *value) {
  for (int k = 0; k < count; k++) {
    if (++value[variables[k]] < g->variable[variables[k]].words) return true;
    value[variables[k]] = 0;
  }
  return false;
}

/* Checks that two alternatives of a rule never begin alike, for any words of its variables. */
static bool check_pair(const Grammar *g, const Rule *r, const Alternative *a, const Alternative *b, Error *error) {
  int variables[MAX_HEAD_VARIABLES];
  int value[MAX_VARIABLES] = {0};
  int count = head_variables(a, variables, 0);
  if (count >= 0) count = head_variables(b, variables, count);
  if (count < 0)
    return fail(error, EXIT_INTERNAL, "self-check: too many variables begin the alternatives of '%s'", r->name);
  do {
    Head head_a, head_b;
    head_of(a, value, &head_a);
    head_of(b, value, &head_b);
    if (!heads_differ(&head_a, &head_b))
      return fail(error, EXIT_INTERNAL, "self-check: rule '%s': \"%.*s\" and \"%.*s\" can begin alike", r->name,
                  (int)head_a.length, head_a.text, (int)head_b.length, head_b.text);
  } while (next_assignment(g, variables, count, value));
  return true;
}

static bool check_prefix_free(const Grammar *g, Error *error) {
  for (int i = 0; i < g->rules; i++)
    for (int a = 0; a < g->rule[i].alternatives; a++)
      for (int b = 0; b < a; b++)
        if (!check_pair(g, &g->rule[i], &g->rule[i].alternative[a], &g->rule[i].alternative[b], error)) return false;
  for (int i = 0; i < g->variables; i++)
    for (int a = 0; a < g->variable[i].words; a++)
      for (int b = 0; b < g->variable[i].words; b++) {
        Span x = g->variable[i].word[a].text, y = g->variable[i].word[b].text;
        if (a != b && x.length <= y.length && memcmp(x.text, y.text, x.length) == 0)
          return fail(error, EXIT_INTERNAL, "self-check: '%s': \"%.*s\" begins another word", g->variable[i].name,
                      (int)x.length, x.text);
      }
  return true;
}

static bool close_enough(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

/* Checks that the recognizer finds one derivation, with the probability of the writer. */
static bool check_story(const Grammar *g, const Writer *w, Error *error) {
  size_t length = w->length - strlen(STORY_SEPARATOR);
  Parse p = parse_story(g, w->text, length, false);
  if (p.derivations != 1)
    return fail(error, EXIT_INTERNAL, "self-check: %ld derivations instead of one of:\n%.*s", p.derivations,
                (int)length, w->text);
  double bits = writer_bits(w, 0, w->length);
  if (!close_enough(bits, -log2(p.probability)))
    return fail(error, EXIT_INTERNAL, "self-check: %.12g bits, recognizer %.12g, of:\n%.*s", bits, -log2(p.probability),
                (int)length, w->text);
  return true;
}

/* Checks that every beginning of the story has the probability that the writer's bits give. */
static bool check_prefixes(const Grammar *g, const Writer *w, Error *error) {
  double bits = 0;
  for (size_t t = 0; t + strlen(STORY_SEPARATOR) < w->length; t++) {
    bits += w->bits[t];
    Parse p = parse_story(g, w->text, t + 1, true);
    if (p.derivations < 1 || (fabs(bits + log2(p.probability)) > 1e-9 && !close_enough(bits, -log2(p.probability))))
      return fail(error, EXIT_INTERNAL, "self-check: %.12g bits, recognizer %.12g, up to byte %zu of:\n%.*s", bits,
                  -log2(p.probability), t, (int)w->length, w->text);
  }
  return true;
}

/* Checks that facts are consistent: the story is invalid when the last word of a variable is replaced by another. */
static bool check_contradiction(const Grammar *g, const Writer *w, int variable, Error *error) {
  const Variable *v = &g->variable[variable];
  Span old = v->word[w->value[variable]].text;
  Span new = v->word[(w->value[variable] + 1) % v->words].text;
  size_t at = w->last[variable].word;
  size_t tail = w->length - strlen(STORY_SEPARATOR) - at - old.length;
  char text[MAX_STORY + MAX_NAME];
  if (new.length > MAX_NAME) return fail(error, EXIT_INTERNAL, "self-check: a word of '%s' is too long", v->name);
  memcpy(text, w->text, at);
  memcpy(text + at, new.text, new.length);
  memcpy(text + at + new.length, w->text + at + old.length, tail);
  Parse p = parse_story(g, text, at + new.length + tail, false);
  return p.derivations == 0 || fail(error, EXIT_INTERNAL, "self-check: a contradiction is accepted: %.*s",
                                    (int)(at + new.length + tail), text);
}

static bool check_everything_used(const Grammar *g, const Writer *w, Error *error) {
  for (int i = 0; i < g->rules; i++)
    for (int a = 0; a < g->rule[i].alternatives; a++)
      if (!w->rule_used[i][a])
        return fail(error, EXIT_INTERNAL, "self-check: alternative %d of '%s' is never used", a + 1, g->rule[i].name);
  for (int i = 0; i < g->variables; i++)
    for (int a = 0; a < g->variable[i].words; a++)
      if (!w->word_used[i][a])
        return fail(error, EXIT_INTERNAL, "self-check: word %d of '%s' is never used", a + 1, g->variable[i].name);
  return true;
}

/* Returns whether the grammar uses a variable after choosing it; by_word: with the word itself. */
static bool is_used_again(const Grammar *g, int variable, bool by_word) {
  for (int i = 0; i < g->items; i++) {
    const Item *item = &g->item[i];
    bool used = item->kind == ITEM_MENTION ? item->is_word || !by_word : item->kind == ITEM_SWITCH && !by_word;
    if (used && item->variable == variable) return true;
  }
  return false;
}

/* ---- the largest distance to a fact ---- */

static long longest_text(const Grammar *g, int rule, int depth) {
  long longest = 0;
  for (int i = 0; i < g->rule[rule].alternatives; i++) {
    const Alternative *a = &g->rule[rule].alternative[i];
    long length = 0;
    for (int k = 0; k < a->items; k++) {
      long bytes = -1;
      if (a->item[k].kind == ITEM_TEXT) bytes = (long)a->item[k].text.length;
      if (a->item[k].kind == ITEM_RULE && depth < MAX_DEPTH) bytes = longest_text(g, a->item[k].rule, depth + 1);
      if (bytes < 0) return -1;
      length += bytes;
    }
    if (length > longest) longest = length;
  }
  return longest;
}

/* Walks through a rule like the writer, but always takes the longest text between two facts; longest[rule]: bytes of a
 * rule's longest text, -1: it contains facts. EXIT_INTERNAL for a rule that chooses between facts, which this walk
 * cannot bound. */
static bool reach_rule(Writer *r, const long *longest, int rule, Error *error) {
  if (longest[rule] >= 0) {
    r->length += (size_t)longest[rule];
    return true;
  }
  if (r->grammar->rule[rule].alternatives != 1)
    return fail(error, EXIT_INTERNAL, "self-check: the reach of '%s' has no bound: it chooses between facts",
                r->grammar->rule[rule].name);
  const Alternative *a = &r->grammar->rule[rule].alternative[0];
  for (int i = 0; i < a->items; i++) {
    const Item *item = &a->item[i];
    const int value = r->value[item->variable];
    switch (item->kind) {
    case ITEM_TEXT: r->length += item->text.length; break;
    case ITEM_RULE:
      if (!reach_rule(r, longest, item->rule, error)) return false;
      break;
    case ITEM_SWITCH:
      writer_note_use(r, item);
      if (!reach_rule(r, longest, item->rule_of[value], error)) return false;
      break;
    case ITEM_DRAW:
    case ITEM_MENTION:
      writer_note_use(r, item);
      r->length += item->text_of[value].length;
      break;
    }
  }
  return true;
}

static int longest_word(const Variable *v) {
  int longest = 0;
  for (int i = 1; i < v->words; i++)
    if (v->word[i].text.length > v->word[longest].text.length) longest = i;
  return longest;
}

/* Finds the largest distance in any story: over all assignments of facts, with the longest other words. */
static bool check_reach(const Grammar *g, size_t *max_distance, Error *error) {
  Writer r = {.grammar = g};
  long longest[MAX_RULES] = {0};
  int facts[MAX_VARIABLES];
  int count = 0;
  for (int i = 0; i < g->rules; i++) longest[i] = longest_text(g, i, 0);
  for (int i = 0; i < g->variables; i++)
    if (is_used_again(g, i, false)) facts[count++] = i;
    else r.value[i] = longest_word(&g->variable[i]);
  do {
    r.length = 0;
    if (!reach_rule(&r, longest, 0, error)) return false;
  } while (next_assignment(g, facts, count, r.value));
  *max_distance = r.max_distance;
  return r.max_distance <= MAX_REFERENCE_DISTANCE ||
         fail(error, EXIT_INTERNAL, "self-check: '%s' can be needed %zu bytes after its last mention, limit %d",
              r.max_distance_name, r.max_distance, MAX_REFERENCE_DISTANCE);
}

/* ---- all checks ---- */

bool check_grammar(const Grammar *g, Writer *w, bool always, Error *error) {
  enum { STORIES = 3000, PREFIX_STORIES = 100 };
  size_t max_distance = 0;
  if (!check_prefix_free(g, error) || (always && !check_reach(g, &max_distance, error))) return false;
  double bits = 0;
  size_t bytes = 0;
  for (int s = 0; s < STORIES; s++) {
    if (!writer_story(w)) return fail(error, EXIT_INTERNAL, "self-check: %s", w->error);
    if (!check_story(g, w, error)) return false;
    if (s < PREFIX_STORIES && !check_prefixes(g, w, error)) return false;
    for (int v = 0; always && v < g->variables; v++)
      if (is_used_again(g, v, true) && !check_contradiction(g, w, v, error)) return false;
    bits += writer_bits(w, 0, w->length);
    bytes += w->length;
  }
  if (!check_everything_used(g, w, error)) return false;
  if (always && w->max_distance > max_distance)
    return fail(error, EXIT_INTERNAL, "self-check: a fact lies farther back than it can");
  printf("self-check passed: %d stories, one derivation each; %.4f bits/byte; facts reach at most %zu bytes "
         "back\n",
         STORIES, bits / (double)bytes, w->max_distance);
  return true;
}
