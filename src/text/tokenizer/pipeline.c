#define _GNU_SOURCE /* memmem() */
#include "text/tokenizer/pipeline.h"

#include "text/tokenizer/nfc.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

Pipeline pipeline_trained(const Bpe *bpe) {
  const StepKind kind = bpe->level ? STEP_WORD_LEVEL : STEP_GPT2;
  return (Pipeline){.bpe = bpe, .steps = {{.kind = kind}}, .count = 1, .kinds = 1u << kind};
}

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

/* Whether a step replaces single characters by other characters. */
static bool replaces_characters(const Step *step) {
  size_t length;
  const size_t size = strlen(step->from);
  utf8_next((const uint8_t *)step->from, size, &length);
  return length == size && *step->to;
}

bool pipeline_add(Pipeline *p, Step step, Error *error) {
  if (p->count == PIPELINE_STEPS) {
    free_step(&step);
    return fail(error, EXIT_CHECKPOINT, "normalizer and pre_tokenizer have more than %d steps", PIPELINE_STEPS);
  }
  p->kinds |= 1u << step.kind;
  if (step.kind == STEP_REGEX) p->patterns |= 1u << step.pattern;
  if (step.kind == STEP_ADDED && step.added->strips) p->strips = true;
  if ((step.kind == STEP_ADDED && step.added->looks_around) ||
      (step.kind == STEP_REPLACE && !replaces_characters(&step)))
    p->looks_around = true;
  p->steps[p->count++] = step;
  return true;
}

static bool has_work(const Step *step, bool special) {
  return step->kind != STEP_ADDED || step->added->plain || (special && step->added->special);
}

/* Cutting a piece again with GPT-2's pattern leaves it whole, so STEP_GPT2 may occur more than once. */
bool pipeline_is_gpt2(const Pipeline *p, bool special) {
  for (int i = 0; i < p->count; i++)
    if (p->steps[i].kind == STEP_ADDED && has_work(&p->steps[i], special)) return false;
  return (p->kinds & ~(1u << STEP_ADDED)) == 1u << STEP_GPT2;
}

/* ---- pairs of characters: code points, UTF8_INVALID, which joins nothing, or JOINED_END for the end of a text ---- */

enum { JOINED_END = -2, PAIR_BITS = 1 << 20 };

struct JoinedPairs {
  uint64_t bits[PAIR_BITS / 64];
};

static uint32_t bit_of(int32_t left, int32_t right) {
  return (uint32_t)hash_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right, 0) % PAIR_BITS;
}

static bool are_joined(const JoinedPairs *pairs, int32_t left, int32_t right) {
  if (left == UTF8_INVALID || right == UTF8_INVALID) return false;
  const uint32_t bit = bit_of(left, right);
  return pairs->bits[bit / 64] >> bit % 64 & 1;
}

static void add_pair(JoinedPairs *pairs, int32_t left, int32_t right) {
  const uint32_t bit = bit_of(left, right);
  if (left != UTF8_INVALID && right != UTF8_INVALID) pairs->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

bool joined_pairs_add(JoinedPairs **pairs, const uint8_t *text, size_t size, bool end, Error *error) {
  int32_t before = UTF8_INVALID;
  if (!*pairs && !(*pairs = calloc(1, sizeof **pairs))) return error_memory(error, "a tokenizer");
  for (size_t at = 0, length; at < size; at += length) {
    const int32_t character = utf8_next(text + at, size - at, &length);
    add_pair(*pairs, before, character);
    before = character;
  }
  if (end) add_pair(*pairs, before, JOINED_END);
  return true;
}

/* ---- cutting ---- */

/* Returns the last character of the text that STEP_REPLACE steps make of a character, or the first one. */
static int32_t after_steps(const Pipeline *p, int32_t character, bool last) {
  size_t length;
  for (int i = 0; i < p->count; i++) {
    const Step *step = &p->steps[i];
    if (step->kind != STEP_REPLACE) continue;
    const uint8_t *to = (const uint8_t *)step->to;
    const size_t size = strlen(step->to);
    if (utf8_next((const uint8_t *)step->from, strlen(step->from), &length) != character) continue;
    character = last ? utf8_previous(to, size) : utf8_next(to, size, &length);
  }
  return character;
}

/* Whether a cut between two characters affects no added token: none can cross it, end at it (the text after it would
 * then be a new text), or take white space from its other side. */
static bool is_free_of_added(const Pipeline *p, int32_t left, int32_t right) {
  return !p->added_joined || !(are_joined(p->added_joined, left, right) ||
                               are_joined(p->added_joined, left, JOINED_END) || /* a token that is not normalized */
                               are_joined(p->added_joined, after_steps(p, left, true), JOINED_END) ||
                               (p->strips && (char_class_of(p->bpe->classes, left) == CHAR_SPACE ||
                                              char_class_of(p->bpe->classes, right) == CHAR_SPACE)));
}

/* Whether a text may be cut before text[at], at > 0, if no added token prevents it. */
typedef bool CutTest(const Pipeline *p, const uint8_t *text, size_t size, size_t at);

/* Cuts between two characters that, after all replacements, are adjacent in no token. */
static bool cuts_unjoined(const Pipeline *p, const uint8_t *text, size_t size, size_t at) {
  size_t length;
  return !utf8_continues(text[at]) && !are_joined(p->joined, after_steps(p, utf8_previous(text, at), true),
                                                  after_steps(p, utf8_next(text + at, size - at, &length), false));
}

/* Normalization does not change the boundary between two ASCII characters. Patterns use the Unicode version of PCRE2,
 * which may be newer than utf8proc's, so no cut is made before a digit that a pattern could join to such a number. */
static bool cuts_gpt2(const Pipeline *p, const uint8_t *text, size_t size, size_t at) {
  (void)size;
  const bool normalizes = p->kinds & 1u << STEP_NFC, digits = p->kinds & 1u << STEP_REGEX;
  return pretokenize_cuts(p->bpe->classes, text, at) && (!normalizes || text[at - 1] < 0x80) &&
         (!digits || text[at] < '0' || text[at] > '9');
}

/* Cuts after the end of a line if no white space follows. No match of these patterns continues there, and the matches
 * before it are the same when the text ends there. The class of a character needs up to four bytes. */
static bool cuts_lines(const Pipeline *p, const uint8_t *text, size_t size, size_t at) {
  size_t length;
  return text[at - 1] == '\n' && (text[at] < 0x80 || size - at >= 4) &&
         char_class(p->bpe->classes, text + at, size - at, &length) != CHAR_SPACE;
}

static bool cuts_word_level(const Pipeline *p, const uint8_t *text, size_t size, size_t at) {
  (void)size;
  return word_level_cuts(p->bpe->level, text, at);
}

/* Whether the pipeline has the step `needed` and, beside it and STEP_ADDED, only steps of `kinds`, and all patterns are
 * `pattern`. */
static bool has_only(const Pipeline *p, StepKind needed, unsigned kinds, StepPattern pattern) {
  return p->kinds & 1u << needed && !(p->kinds & ~(kinds | 1u << needed | 1u << STEP_ADDED)) &&
         !(p->patterns & ~(1u << pattern));
}

static CutTest *cut_test(const Pipeline *p) {
  const unsigned nfc = 1u << STEP_NFC, prepend = 1u << STEP_PREPEND, replace = 1u << STEP_REPLACE,
                 regex = 1u << STEP_REGEX;
  if (p->looks_around) return NULL;
  if (has_only(p, STEP_GPT2, nfc | prepend, PATTERN_IS_OTHER) || has_only(p, STEP_GPT2, nfc | regex, PATTERN_IS_DIGITS))
    return cuts_gpt2;
  if (has_only(p, STEP_REGEX, nfc, PATTERN_IS_LINES)) return cuts_lines;
  if (has_only(p, STEP_WORD_LEVEL, 0, PATTERN_IS_OTHER)) return cuts_word_level;
  return has_only(p, STEP_UNJOINED, replace | prepend | regex, PATTERN_IS_SPACE) ? cuts_unjoined : NULL;
}

size_t pipeline_cut(const Pipeline *p, const uint8_t *text, size_t size, size_t from) {
  CutTest *cuts = cut_test(p);
  size_t length;
  for (size_t at = from > 0 ? from : 1; cuts && at < size; at++)
    if (cuts(p, text, size, at) &&
        is_free_of_added(p, utf8_previous(text, at), utf8_next(text + at, size - at, &length)))
      return at;
  return size;
}

/* ---- dividing texts into equal work for threads ---- */

size_t pipeline_chunks(const Pipeline *p, const PipelineText *documents, size_t count, int threads,
                       PipelineCursor *cursor, PipelineChunk chunks[PIPELINE_ROUND_CHUNKS]) {
  const size_t round = (size_t)threads * 8 * PIPELINE_CHUNK_BYTES;
  size_t made = 0, total = 0;
  while (cursor->document < count && made < PIPELINE_ROUND_CHUNKS && total < round) {
    const PipelineText *document = &documents[cursor->document];
    const size_t begin = cursor->offset, left = document->size - begin;
    const size_t size =
        left <= PIPELINE_CHUNK_BYTES ? left : pipeline_cut(p, document->text + begin, left, PIPELINE_CHUNK_BYTES);
    chunks[made++] = (PipelineChunk){size > 0 ? document->text + begin : NULL, size, size == left};
    total += size;
    cursor->offset += size;
    if (size == left) *cursor = (PipelineCursor){.document = cursor->document + 1};
  }
  return made;
}

/* ---- running: a step passes each of its output texts to the next step; at most PIPELINE_STEPS nested calls ---- */

/* A text between two steps. */
typedef struct Span {
  const uint8_t *text;
  size_t size, left; /* left >= size: the number of bytes that may be read */
  bool continues;    /* it is the beginning of a chunk that is not the document's first */
  bool is_first;     /* it begins where the document does */
} Span;

typedef struct StepScratch {
  ByteBuffer buffer;
  RegexText text;
} StepScratch;

struct PipelineRunner {
  const Pipeline *pipeline;
  const Step *steps[PIPELINE_STEPS]; /* the steps that have an effect */
  int count;
  StepScratch scratch[PIPELINE_STEPS];
  NfcScratch nfc;
  RegexMatcher *matcher; /* NULL: no step has a pattern */
  PipelineSink sink;
  StopSignal stop;
  uint32_t matches; /* counted so that `stop` is read at intervals */
  bool special;
};

void pipeline_runner_free(PipelineRunner *r) {
  if (!r) return;
  for (int i = 0; i < PIPELINE_STEPS; i++) {
    free(r->scratch[i].buffer.bytes);
    regex_text_free(&r->scratch[i].text);
  }
  nfc_free(&r->nfc);
  regex_matcher_free(r->matcher);
  free(r);
}

bool pipeline_runner_create(PipelineRunner **out, const Pipeline *pipeline, bool special, PipelineSink sink,
                            StopSignal stop, Error *error) {
  PipelineRunner *r = *out = calloc(1, sizeof *r);
  bool ok = r || error_memory(error, "the pieces of a text");
  for (int i = 0; ok && i < pipeline->count; i++) {
    const Step *step = &pipeline->steps[i];
    if (has_work(step, special)) r->steps[r->count++] = step;
    if (step->kind == STEP_REGEX && !r->matcher) ok = regex_matcher_create(&r->matcher, error);
  }
  if (ok) {
    r->pipeline = pipeline;
    r->sink = sink;
    r->stop = stop;
    r->special = special;
    return true;
  }
  pipeline_runner_free(r);
  *out = NULL;
  return false;
}

static bool run_step(PipelineRunner *r, int i, Span span, Error *error);

static Span subspan(Span span, size_t begin, size_t end) {
  return (Span){span.text + begin, end - begin, span.left - begin, begin == 0 && span.continues,
                begin == 0 && span.is_first};
}

static bool run_range(PipelineRunner *r, int i, Span span, size_t begin, size_t end, Error *error) {
  return begin == end || run_step(r, i + 1, subspan(span, begin, end), error);
}

/* ---- running: steps that cut ---- */

static bool cut_at_added(PipelineRunner *r, int i, Span span, Error *error) {
  AddedMatch match = {0};
  size_t done = 0;
  while (added_tokens_next(r->steps[i]->added, r->pipeline->bpe->classes, r->special, span.text, span.size, &match)) {
    if (!run_range(r, i, span, done, match.begin, error) || !r->sink.token(r->sink.context, match.id, error))
      return false;
    done = match.end;
  }
  return run_range(r, i, span, done, span.size, error);
}

static bool cut_as_gpt2(PipelineRunner *r, int i, Span span, Error *error) {
  const CharClasses *classes = r->pipeline->bpe->classes;
  for (size_t at = 0, size; at < span.size; at += size) {
    size = pretokenize_first(classes, span.text + at, span.size - at);
    if (!run_range(r, i, span, at, at + size, error)) return false;
  }
  return true;
}

static bool cut_into_pieces(PipelineRunner *r, int i, Span span, Error *error) {
  const Bpe *bpe = r->pipeline->bpe;
  for (size_t begin, end = 0; word_level_next(bpe->level, bpe->classes, span.text, span.size, &begin, &end);)
    if (!run_range(r, i, span, begin, end, error)) return false;
  return true;
}

static bool cut_unjoined(PipelineRunner *r, int i, Span span, Error *error) {
  size_t begin = 0, length;
  int32_t before = utf8_next(span.text, span.size, &length);
  for (size_t at = length; at < span.size; at += length) {
    const int32_t character = utf8_next(span.text + at, span.size - at, &length);
    if (!are_joined(r->pipeline->joined, before, character)) {
      if (!run_range(r, i, span, begin, at, error)) return false;
      begin = at;
    }
    before = character;
  }
  return run_range(r, i, span, begin, span.size, error);
}

/* Makes pieces of matches and of the texts between them. The last piece is held back while it may still grow. */
typedef struct Pieces {
  PipelineRunner *runner;
  int step;
  Span span;
  size_t begin, end;
  bool held, before; /* held: begin .. end is a piece; before: the last range was a match */
} Pieces;

static bool joins(const Pieces *p, SplitBehavior behavior, bool is_match) {
  switch (behavior) {
  case SPLIT_MERGED_WITH_PREVIOUS: return is_match && !p->before;
  case SPLIT_MERGED_WITH_NEXT: return !is_match && p->before;
  case SPLIT_CONTIGUOUS: return is_match == p->before;
  default: return false;
  }
}

static bool emit_held(Pieces *p, Error *error) {
  return !p->held || run_range(p->runner, p->step, p->span, p->begin, p->end, error);
}

static bool add_piece(Pieces *p, size_t begin, size_t end, bool is_match, Error *error) {
  const Step *step = p->runner->steps[p->step];
  const bool match = is_match != step->inverted;
  if (!p->held || !joins(p, step->behavior, match)) {
    if (!emit_held(p, error)) return false;
    p->held = !(step->behavior == SPLIT_REMOVED && match);
    p->begin = begin;
  }
  p->end = end;
  p->before = match;
  return true;
}

static bool cut_at_matches(PipelineRunner *r, int i, Span span, Error *error) {
  enum { STOP_INTERVAL = 1 << 12 }; /* matches between two checks of the stop signal */
  const Step *step = r->steps[i];
  RegexText *text = &r->scratch[i].text;
  Pieces pieces = {.runner = r, .step = i, .span = span};
  size_t done = 0, begin, end;
  bool ok = regex_begin(text, span.text, span.size, error), found;
  while (ok && (ok = regex_next(step->regex, r->matcher, text, &begin, &end, &found, error)) && found) {
    if ((++r->matches % STOP_INTERVAL == 0 && !stop_go_on(r->stop, "encoding", error)) ||
        (done != begin && !add_piece(&pieces, done, begin, false, error)) ||
        !add_piece(&pieces, begin, end, true, error))
      return false;
    done = end;
  }
  return ok && (done == span.size || add_piece(&pieces, done, span.size, false, error)) && emit_held(&pieces, error);
}

/* ---- running: steps that change ---- */

static bool add_replaced(ByteBuffer *out, const Step *step, const uint8_t *text, size_t size, Error *error) {
  const size_t from_size = strlen(step->from), to_size = strlen(step->to);
  const uint8_t *end = text + size, *found;
  while ((found = memmem(text, (size_t)(end - text), step->from, from_size))) {
    if (!byte_buffer_add(out, text, (size_t)(found - text), error) || !byte_buffer_add(out, step->to, to_size, error))
      return false;
    text = found + from_size;
  }
  return byte_buffer_add(out, text, (size_t)(end - text), error);
}

static bool is_prepended(const Step *step, Span span) {
  const size_t size = strlen(step->to);
  const bool there = span.size >= size && memcmp(span.text, step->to, size) == 0;
  return !span.continues && (step->when == PREPEND_ALWAYS || !there) && (step->when != PREPEND_FIRST || span.is_first);
}

/* Applies a step that changes texts. *changed false: the text stays as it is, and `out` is empty. */
static bool change(PipelineRunner *r, const Step *step, ByteBuffer *out, Span span, bool *changed, Error *error) {
  *changed = step->kind != STEP_PREPEND || is_prepended(step, span);
  out->size = 0;
  if (step->kind == STEP_NFC) return nfc_add(out, &r->nfc, span.text, span.size, error);
  if (step->kind == STEP_REPLACE) return add_replaced(out, step, span.text, span.size, error);
  return !*changed ||
         (byte_buffer_add(out, step->to, strlen(step->to), error) && byte_buffer_add(out, span.text, span.size, error));
}

static bool run_changed(PipelineRunner *r, int i, Span span, Error *error) {
  ByteBuffer *buffer = &r->scratch[i].buffer;
  bool changed;
  if (!change(r, r->steps[i], buffer, span, &changed, error)) return false;
  if (!changed) return run_step(r, i + 1, span, error);
  return run_step(r, i + 1, (Span){buffer->bytes, buffer->size, buffer->size, span.continues, span.is_first}, error);
}

/* ---- running: all steps ---- */

static bool run_step(PipelineRunner *r, int i, Span span, Error *error) {
  if (span.size == 0) return true;
  if (i == r->count) return r->sink.piece(r->sink.context, span.text, span.size, span.left, error);
  switch (r->steps[i]->kind) {
  case STEP_ADDED: return cut_at_added(r, i, span, error);
  case STEP_GPT2: return cut_as_gpt2(r, i, span, error);
  case STEP_REGEX: return cut_at_matches(r, i, span, error);
  case STEP_WORD_LEVEL: return cut_into_pieces(r, i, span, error);
  case STEP_UNJOINED: return cut_unjoined(r, i, span, error);
  default: return run_changed(r, i, span, error);
  }
}

bool pipeline_run(PipelineRunner *r, const uint8_t *text, size_t size, bool continues, Error *error) {
  return run_step(r, 0, (Span){text, size, size, continues, !continues}, error);
}

bool pipeline_normalize(PipelineRunner *r, const uint8_t *text, size_t size, ByteBuffer *out, Error *error) {
  Span span = {text, size, size, false, true};
  for (int i = 0; i < r->count; i++) {
    bool changed;
    const StepKind kind = r->steps[i]->kind;
    ByteBuffer *buffer = &r->scratch[i].buffer;
    if (kind != STEP_NFC && kind != STEP_REPLACE && kind != STEP_PREPEND) continue;
    if (!change(r, r->steps[i], buffer, span, &changed, error)) return false;
    if (changed) span = (Span){buffer->bytes, buffer->size, buffer->size, false, true};
  }
  return byte_buffer_add(out, span.text, span.size, error);
}
