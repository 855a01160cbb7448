#include "tokenizer/pipeline.h"

#include <stdlib.h>
#include <string.h>

Pipeline pipeline_gpt2(const Bpe *bpe) { return (Pipeline){.bpe = bpe, .steps = {{.kind = STEP_GPT2}}, .count = 1}; }

static void free_step(Step *step) {
  added_tokens_free(step->added);
  regex_free(step->regex);
  free(step->from);
  free(step->to);
}

void pipeline_free(Pipeline *p) {
  for (int i = 0; i < p->count; i++) free_step(&p->steps[i]);
  free(p->joined);
  free(p->added_joined);
  *p = (Pipeline){0};
}

bool pipeline_add(Pipeline *p, Step step, Error *error) {
  if (p->count < PIPELINE_STEPS) {
    p->steps[p->count++] = step;
    return true;
  }
  free_step(&step);
  return fail(error, EXIT_CHECKPOINT, "normalizer and pre_tokenizer have more than %d steps", PIPELINE_STEPS);
}

/* ---- cutting ---- */

/* A step that turns every character by itself into something. */
static bool replaces_characters(const Step *step) {
  size_t length;
  const size_t size = strlen(step->from);
  joined_character((const uint8_t *)step->from, size, &length);
  return length == size && *step->to;
}

/* Whether all steps are of these kinds, a bit each, with the needed one and no other patterns, and none looks at what
 * lies behind a cut. */
static bool has_only(const Pipeline *p, unsigned kinds, StepKind needed, StepPattern pattern) {
  bool there = false;
  for (int i = 0; i < p->count; i++) {
    const Step *step = &p->steps[i];
    there = there || step->kind == needed;
    if (!(kinds & 1u << step->kind) || (step->kind == STEP_REGEX && step->pattern != pattern) ||
        (step->kind == STEP_REPLACE && !replaces_characters(step)) ||
        (step->kind == STEP_ADDED && added_tokens_look_around(step->added)))
      return false;
  }
  return there;
}

static bool has_kind(const Pipeline *p, StepKind kind) {
  for (int i = 0; i < p->count; i++)
    if (p->steps[i].kind == kind) return true;
  return false;
}

static bool strips(const Pipeline *p) {
  for (int i = 0; i < p->count; i++)
    if (p->steps[i].kind == STEP_ADDED && added_tokens_strip(p->steps[i].added)) return true;
  return false;
}

static bool is_space(const Pipeline *p, int32_t point) {
  return point != JOINED_NONE && p->bpe->classes->of[point] == CHAR_SPACE;
}

/* The last character of what `left` becomes, or the first of what `right` does. */
static int32_t after_steps(const Pipeline *p, int32_t character, bool is_left) {
  size_t length;
  for (int i = 0; i < p->count; i++) {
    const Step *step = &p->steps[i];
    if (step->kind != STEP_REPLACE) continue;
    const uint8_t *to = (const uint8_t *)step->to;
    const size_t size = strlen(step->to);
    if (joined_character((const uint8_t *)step->from, strlen(step->from), &length) != character) continue;
    character = is_left ? joined_character_before(to, size) : joined_character(to, size, &length);
  }
  return character;
}

/* That no added token lies across the place between two characters, ends there, where another text begins, or takes
 * white space from the other side of it. */
static bool is_free_of_added(const Pipeline *p, int32_t left, int32_t right) {
  return !p->added_joined ||
         !(joined_pairs_have(p->added_joined, left, right) ||
           joined_pairs_have(p->added_joined, left, JOINED_END) || /* of one that is not normalized */
           joined_pairs_have(p->added_joined, after_steps(p, left, true), JOINED_END) ||
           (strips(p) && (is_space(p, left) || is_space(p, right))));
}

static bool is_cut(const Pipeline *p, const uint8_t *text, size_t size, size_t at) {
  size_t length;
  if (utf8_continues(text[at])) return false;
  const int32_t left = joined_character_before(text, at), right = joined_character(text + at, size - at, &length);
  return is_free_of_added(p, left, right) &&
         !joined_pairs_have(p->joined, after_steps(p, left, true), after_steps(p, right, false));
}

/* Between two characters that no token has side by side, after what becomes of each. */
static size_t cut_unjoined(const Pipeline *p, const uint8_t *text, size_t size, size_t from) {
  for (size_t at = from > 0 ? from : 1; at < size; at++)
    if (is_cut(p, text, size, at)) return at;
  return size;
}

/* Normalization changes nothing between two characters of ASCII. */
static size_t cut_gpt2(const Pipeline *p, const uint8_t *text, size_t size, size_t from) {
  const bool normalizes = has_kind(p, STEP_NFC);
  for (;; from++) {
    from = pretokenize_cut(p->bpe->classes, text, size, from);
    if (from >= size || ((!normalizes || text[from - 1] < 0x80) &&
                         is_free_of_added(p, joined_character_before(text, from), text[from])))
      return from;
  }
}

/* Behind the end of a line, where no white space follows. No match of these patterns goes on from there, and what is
 * matched before it is the same where the text ends there. Four bytes tell what a character is. */
static size_t cut_lines(const Pipeline *p, const uint8_t *text, size_t size, size_t from) {
  size_t length;
  for (size_t at = from > 0 ? from : 1; at < size; at++) {
    if (text[at - 1] != '\n' || (text[at] >= 0x80 && size - at < 4)) continue;
    if (char_class(p->bpe->classes, text + at, size - at, &length) != CHAR_SPACE &&
        is_free_of_added(p, '\n', joined_character(text + at, size - at, &length)))
      return at;
  }
  return size;
}

enum {
  GPT2_KINDS = 1u << STEP_ADDED | 1u << STEP_NFC | 1u << STEP_PREPEND | 1u << STEP_GPT2,
  DIGITS_KINDS = 1u << STEP_ADDED | 1u << STEP_NFC | 1u << STEP_REGEX | 1u << STEP_GPT2,
  LINES_KINDS = 1u << STEP_ADDED | 1u << STEP_NFC | 1u << STEP_REGEX,
  UNJOINED_KINDS = 1u << STEP_ADDED | 1u << STEP_REPLACE | 1u << STEP_PREPEND | 1u << STEP_REGEX | 1u << STEP_UNJOINED
};

size_t pipeline_cut(const Pipeline *p, const uint8_t *text, size_t size, size_t from) {
  if (has_only(p, GPT2_KINDS, STEP_GPT2, PATTERN_IS_OTHER) || has_only(p, DIGITS_KINDS, STEP_GPT2, PATTERN_IS_DIGITS))
    return cut_gpt2(p, text, size, from);
  if (has_only(p, LINES_KINDS, STEP_REGEX, PATTERN_IS_LINES)) return cut_lines(p, text, size, from);
  return has_only(p, UNJOINED_KINDS, STEP_UNJOINED, PATTERN_IS_SPACE) ? cut_unjoined(p, text, size, from) : size;
}

static size_t find_cut(const void *pipeline, const uint8_t *text, size_t size, size_t from) {
  return pipeline_cut(pipeline, text, size, from);
}

TextCut pipeline_text_cut(const Pipeline *p) { return (TextCut){find_cut, p}; }
