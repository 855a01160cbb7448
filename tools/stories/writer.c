#include "tools/stories/writer.h"

#include <math.h>
#include <string.h>

/* ---- random numbers: SplitMix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Draws a number from 0 to n-1, exactly uniform: values from the last, incomplete multiple of n are rejected. */
static int random_below(uint64_t *state, int n) {
  uint64_t range = (uint64_t)n;
  uint64_t limit = UINT64_MAX - UINT64_MAX % range;
  uint64_t r = random_next(state);
  while (r >= limit) r = random_next(state);
  return (int)(r % range);
}

/* ---- choices ---- */

static void write_span(Writer *w, Span span) {
  if (span.length > MAX_STORY - w->length) {
    w->error = "a story is longer than MAX_STORY";
    return;
  }
  memcpy(w->text + w->length, span.text, span.length);
  w->length += span.length;
}

/* Draws heads[chosen], which is written next, and adds the information of this choice to the bytes that reveal it. */
static int choose(Writer *w, const Head *heads, const int *weights, int count) {
  bool possible[MAX_ALTERNATIVES > MAX_WORDS ? MAX_ALTERNATIVES : MAX_WORDS];
  int total = 0, chosen = 0;
  for (int i = 0; i < count; i++) {
    possible[i] = true;
    total += weights[i];
  }
  if (total <= 0) return 0; /* nothing to choose from; no grammar has that */
  for (int draw = random_below(&w->random, total); chosen + 1 < count && draw >= weights[chosen]; chosen++)
    draw -= weights[chosen];
  for (size_t t = 0; total > weights[chosen]; t++) {
    if (t >= heads[chosen].length || w->length + t >= MAX_STORY) {
      w->error = "a choice does not show in the text";
      break;
    }
    int left = 0;
    for (int i = 0; i < count; i++) {
      possible[i] = possible[i] && t < heads[i].length && heads[i].text[t] == heads[chosen].text[t];
      if (possible[i]) left += weights[i];
    }
    if (left < total) w->bits[w->length + t] += log2((double)total / (double)left);
    total = left;
  }
  return chosen;
}

static int choose_alternative(Writer *w, const Rule *r) {
  if (r->alternatives == 1) return 0;
  Head heads[MAX_ALTERNATIVES];
  int weights[MAX_ALTERNATIVES] = {0};
  for (int i = 0; i < r->alternatives; i++) {
    head_of(&r->alternative[i], w->value, &heads[i]);
    weights[i] = r->alternative[i].weight;
  }
  return choose(w, heads, weights, r->alternatives);
}

static void choose_word(Writer *w, const Item *item) {
  const int words = w->grammar->variable[item->variable].words;
  Head heads[MAX_WORDS];
  int weights[MAX_WORDS];
  for (int i = 0; i < words; i++) {
    heads[i].length = 0;
    head_append(&heads[i], item->text_of[i]);
    weights[i] = 1;
  }
  const int chosen = w->value[item->variable] = choose(w, heads, weights, words);
  w->word_used[item->variable][chosen] = true;
}

void writer_note_use(Writer *w, const Item *item) {
  LastMention *last = &w->last[item->variable];
  const size_t distance = w->length - (item->is_word ? last->word : last->any);
  if (item->kind != ITEM_DRAW && distance > w->max_distance) {
    w->max_distance = distance;
    w->max_distance_name = w->grammar->variable[item->variable].name;
  }
  if (item->kind == ITEM_SWITCH) return;
  last->any = w->length;
  if (item->is_word) last->word = w->length;
}

static void write_rule(Writer *w, int rule, int depth) {
  const Rule *r = &w->grammar->rule[rule];
  if (depth == MAX_DEPTH) {
    w->error = "the rules nest too deep";
    return;
  }
  int chosen = choose_alternative(w, r);
  const Alternative *a = &r->alternative[chosen];
  w->rule_used[rule][chosen] = true;
  for (int i = 0; i < a->items && !w->error; i++) {
    const Item *item = &a->item[i];
    switch (item->kind) {
    case ITEM_TEXT: write_span(w, item->text); break;
    case ITEM_RULE: write_rule(w, item->rule, depth + 1); break;
    case ITEM_SWITCH:
      writer_note_use(w, item);
      write_rule(w, item->rule_of[w->value[item->variable]], depth + 1);
      break;
    case ITEM_DRAW:
    case ITEM_MENTION:
      if (item->kind == ITEM_DRAW) choose_word(w, item);
      writer_note_use(w, item);
      write_span(w, item->text_of[w->value[item->variable]]);
      break;
    }
  }
}

bool writer_story(Writer *w) {
  w->length = 0;
  memset(w->bits, 0, sizeof w->bits);
  write_rule(w, 0, 0);
  write_span(w, span_of(STORY_SEPARATOR));
  return !w->error;
}

double writer_bits(const Writer *w, size_t begin, size_t end) {
  double sum = 0;
  for (size_t t = begin; t < end; t++) sum += w->bits[t];
  return sum;
}
