/* Running the steps of a pipeline. Each step calls the next with every text that it makes; there are at most
 * PIPELINE_STEPS, so the calls are never nested deeper. */
#include "tokenizer/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* A text between two steps. */
typedef struct Span {
  const uint8_t *text;
  size_t size, left; /* left: how many bytes may be read */
  bool continues;    /* its beginning is somewhere before */
  bool is_first;     /* of the document */
} Span;

typedef struct StepScratch {
  ByteBuffer buffer;
  RegexText text;
} StepScratch;

struct PipelineRunner {
  const Pipeline *pipeline;
  const Step *steps[PIPELINE_STEPS]; /* those that have something to do */
  int count;
  StepScratch scratch[PIPELINE_STEPS];
  NfcScratch nfc;
  RegexMatcher *matcher; /* NULL: there is no pattern */
  PipelineSink sink;
  StopSignal stop;
  uint32_t matches; /* since the last look at `stop` */
  bool special;
};

/* ---- memory ---- */

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

static bool has_work(const Step *step, bool special) {
  return step->kind != STEP_ADDED || added_tokens_have_any(step->added, false) ||
         (special && added_tokens_have_any(step->added, true));
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

bool pipeline_runner_is_gpt2(const PipelineRunner *r) { return r->count == 1 && r->steps[0]->kind == STEP_GPT2; }

/* ---- steps that cut ---- */

static bool run_step(PipelineRunner *r, int i, Span span, Error *error);

static Span part_of(Span span, size_t begin, size_t end) {
  return (Span){span.text + begin, end - begin, span.left - begin, begin == 0 && span.continues,
                begin == 0 && span.is_first};
}

static bool run_part(PipelineRunner *r, int i, Span span, size_t begin, size_t end, Error *error) {
  return begin == end || run_step(r, i + 1, part_of(span, begin, end), error);
}

static bool cut_at_added(PipelineRunner *r, int i, Span span, Error *error) {
  AddedCursor cursor = {0};
  AddedMatch match;
  size_t done = 0;
  while (added_tokens_next(r->steps[i]->added, r->pipeline->bpe->classes, r->special, span.text, span.size, &cursor,
                           &match)) {
    if (!run_part(r, i, span, done, match.begin, error) || !r->sink.token(r->sink.context, match.id, error))
      return false;
    done = match.end;
  }
  return run_part(r, i, span, done, span.size, error);
}

static bool cut_as_gpt2(PipelineRunner *r, int i, Span span, Error *error) {
  const CharClasses *classes = r->pipeline->bpe->classes;
  for (size_t at = 0, size; at < span.size; at += size) {
    size = pretokenize_first(classes, span.text + at, span.size - at);
    if (!run_part(r, i, span, at, at + size, error)) return false;
  }
  return true;
}

static bool cut_unjoined(PipelineRunner *r, int i, Span span, Error *error) {
  size_t begin = 0, length;
  int32_t before = joined_character(span.text, span.size, &length);
  for (size_t at = length; at < span.size; at += length) {
    const int32_t character = joined_character(span.text + at, span.size - at, &length);
    if (!joined_pairs_have(r->pipeline->joined, before, character)) {
      if (!run_part(r, i, span, begin, at, error)) return false;
      begin = at;
    }
    before = character;
  }
  return run_part(r, i, span, begin, span.size, error);
}

/* What lies between matches, and the matches, become pieces: the last one is kept while it may grow. */
typedef struct Pieces {
  PipelineRunner *runner;
  int step;
  Span span;
  size_t begin, end;
  bool kept, before; /* before: the last one was a match */
} Pieces;

static bool joins(const Pieces *p, SplitBehavior behavior, bool is_match) {
  switch (behavior) {
  case SPLIT_MERGED_WITH_PREVIOUS: return is_match && !p->before;
  case SPLIT_MERGED_WITH_NEXT: return !is_match && p->before;
  case SPLIT_CONTIGUOUS: return is_match == p->before;
  default: return false;
  }
}

static bool put_kept(Pieces *p, Error *error) {
  return !p->kept || run_part(p->runner, p->step, p->span, p->begin, p->end, error);
}

static bool add_piece(Pieces *p, size_t begin, size_t end, bool is_match, Error *error) {
  const Step *step = p->runner->steps[p->step];
  const bool is = is_match != step->inverted;
  if (p->kept && joins(p, step->behavior, is)) {
    p->end = end;
  } else {
    if (!put_kept(p, error)) return false;
    p->kept = !(step->behavior == SPLIT_REMOVED && is);
    p->begin = begin;
    p->end = end;
  }
  p->before = is;
  return true;
}

static bool go_on(PipelineRunner *r, Error *error) {
  enum { BETWEEN_LOOKS = 1 << 12 };
  return ++r->matches % BETWEEN_LOOKS != 0 || stop_go_on(r->stop, "encoding", error);
}

static bool cut_at_matches(PipelineRunner *r, int i, Span span, Error *error) {
  const Step *step = r->steps[i];
  RegexText *text = &r->scratch[i].text;
  Pieces pieces = {.runner = r, .step = i, .span = span};
  size_t done = 0, begin, end;
  bool ok = regex_begin(text, span.text, span.size, error), found;
  while (ok && (ok = regex_next(step->regex, r->matcher, text, &begin, &end, &found, error)) && found) {
    if (!go_on(r, error) || (done != begin && !add_piece(&pieces, done, begin, false, error)) ||
        !add_piece(&pieces, begin, end, true, error))
      return false;
    done = end;
  }
  return ok && (done == span.size || add_piece(&pieces, done, span.size, false, error)) && put_kept(&pieces, error);
}

/* ---- steps that change ---- */

static bool add_replaced(ByteBuffer *out, const Step *step, const uint8_t *text, size_t size, Error *error) {
  const size_t from_size = strlen(step->from), to_size = strlen(step->to);
  const uint8_t *end = text + size, *found;
  while ((found = memchr(text, step->from[0], (size_t)(end - text)))) {
    const bool is = (size_t)(end - found) >= from_size && memcmp(found, step->from, from_size) == 0;
    const size_t taken = is ? from_size : 1;
    if (!byte_buffer_add(out, text, (size_t)(found - text), error) ||
        !byte_buffer_add(out, is ? (const void *)step->to : found, is ? to_size : 1, error))
      return false;
    text = found + taken;
  }
  return byte_buffer_add(out, text, (size_t)(end - text), error);
}

static bool begins_with(Span span, const char *text) {
  const size_t size = strlen(text);
  return span.size >= size && memcmp(span.text, text, size) == 0;
}

static bool is_prepended(const Step *step, Span span) {
  return !span.continues && (step->when == PREPEND_ALWAYS || !begins_with(span, step->to)) &&
         (step->when != PREPEND_FIRST || span.is_first);
}

/* *changed false: the text stays as it is. */
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

/* ---- all ---- */

static bool run_step(PipelineRunner *r, int i, Span span, Error *error) {
  if (span.size == 0) return true;
  if (i == r->count) return r->sink.piece(r->sink.context, span.text, span.size, span.left, error);
  switch (r->steps[i]->kind) {
  case STEP_ADDED: return cut_at_added(r, i, span, error);
  case STEP_GPT2: return cut_as_gpt2(r, i, span, error);
  case STEP_REGEX: return cut_at_matches(r, i, span, error);
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
