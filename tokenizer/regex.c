#include "tokenizer/regex.h"

#include "tokenizer/regex_dialect.h"
#include "util/array.h"
#include "util/text.h"
#include "util/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
  JIT_STACK_FIRST = 32 << 10,
  JIT_STACK = 8 << 20,
  HEAP_KIB = 256 << 10, /* of the interpreter */
  STEPS = 1 << 20,      /* of a match, and STEPS_A_BYTE more for each byte of the text */
  STEPS_A_BYTE = 8
};

struct Regex {
  pcre2_code *code;
  bool jit, literal;
  char *pattern; /* as the file has it, for messages */
};

struct RegexMatcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

/* ---- making one ---- */

void regex_free(Regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
  free(regex->pattern);
  free(regex);
}

const char *regex_pattern(const Regex *regex) { return regex->literal ? NULL : regex->pattern; }

static bool compile(Regex *regex, const char *pattern, uint32_t options, Error *error) {
  int code;
  PCRE2_SIZE offset;
  PCRE2_UCHAR why[160];
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) return error_memory(error, "a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  regex->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | options, &code, &offset, context);
  pcre2_compile_context_free(context);
  if (!regex->code && code == PCRE2_ERROR_HEAP_FAILED) return error_memory(error, "a pattern");
  if (!regex->code) {
    pcre2_get_error_message(code, why, sizeof why);
    return fail(error, EXIT_CHECKPOINT, "%s", (const char *)why);
  }
  regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
  return true;
}

static bool compile_pattern(Regex *regex, const char *pattern, Error *error) {
  char *translated;
  if (!regex_translate(pattern, &translated, error)) return false;
  const bool ok = compile(regex, translated, PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, error);
  free(translated);
  return ok;
}

bool regex_create(Regex **out, const char *pattern, bool literal, Error *error) {
  Error why = {0};
  Regex *regex = *out = calloc(1, sizeof *regex);
  if (!regex || !(regex->pattern = strdup(pattern))) {
    regex_free(regex);
    *out = NULL;
    return error_memory(error, "a pattern");
  }
  regex->literal = literal;
  if (literal ? compile(regex, pattern, PCRE2_LITERAL, &why) : compile_pattern(regex, pattern, &why)) return true;
  regex_free(regex);
  *out = NULL;
  return fail(error, why.code, "the pattern \"%s\": %s", text_one_line(pattern, 200).text, why.text);
}

void regex_matcher_free(RegexMatcher *m) {
  if (!m) return;
  pcre2_match_data_free(m->data);
  pcre2_match_context_free(m->context);
  pcre2_jit_stack_free(m->stack);
  free(m);
}

bool regex_matcher_create(RegexMatcher **out, Error *error) {
  RegexMatcher *m = *out = calloc(1, sizeof *m);
  if (m) {
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK, NULL); /* NULL where there is no JIT */
  }
  if (m && m->data && m->context) {
    pcre2_set_heap_limit(m->context, HEAP_KIB);
    if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return true;
  }
  regex_matcher_free(m);
  *out = NULL;
  return error_memory(error, "the pieces of a text");
}

/* ---- a text ---- */

/* U+FDD0: no character is there, and none ever will be. Stands for a byte. */
static const uint8_t stand_in[] = {0xEF, 0xB7, 0x90};

void regex_text_free(RegexText *text) {
  free(text->copy);
  *text = (RegexText){0};
}

/* Bytes of the character at text[0]; 1, and *whole false, for a byte that is none. */
static size_t character(const uint8_t *text, size_t size, bool *whole) {
  uint32_t point;
  const size_t length = utf8_read(text, size, &point);
  *whole = length > 0;
  return length > 0 ? length : 1;
}

static size_t well_formed(const uint8_t *text, size_t size) {
  bool whole = true;
  size_t at = 0;
  while (at < size) {
    if (text[at] < 0x80) {
      at++;
      continue;
    }
    const size_t length = character(text + at, size - at, &whole);
    if (!whole) return at;
    at += length;
  }
  return size;
}

static bool copy_text(RegexText *t, Error *error) {
  const uint8_t *from = t->original;
  if (!array_reserve(&t->copy, &t->capacity, sizeof stand_in * t->original_size, 1))
    return error_memory(error, "the pieces of a text");
  t->size = 0;
  for (size_t at = 0, length; at < t->original_size; at += length) {
    bool whole;
    length = character(from + at, t->original_size - at, &whole);
    const size_t written = whole ? length : sizeof stand_in;
    memcpy(t->copy + t->size, whole ? from + at : stand_in, written);
    t->size += written;
  }
  t->text = t->copy;
  return true;
}

bool regex_begin(RegexText *t, const uint8_t *text, size_t size, Error *error) {
  t->original = t->text = text;
  t->original_size = t->size = size;
  t->at = t->last_end = t->mapped = t->original_mapped = 0;
  t->matched = false;
  return well_formed(text, size) == size || copy_text(t, error);
}

/* Where the place `at` of the copy, which is not before the last one that was asked for, is in the text. */
static size_t original_place(RegexText *t, size_t at) {
  if (t->text == t->original) return at;
  while (t->mapped < at) {
    bool whole;
    const uint8_t *from = t->original + t->original_mapped;
    const size_t length = character(from, t->original_size - t->original_mapped, &whole);
    t->original_mapped += length;
    t->mapped += whole ? length : sizeof stand_in;
  }
  return t->original_mapped;
}

/* ---- matching ---- */

static bool match_failed(const Regex *regex, int code, Error *error) {
  if (code == PCRE2_ERROR_NOMEMORY) return error_memory(error, "the pieces of a text");
  return fail(
      error, EXIT_CHECKPOINT,
      "the pattern \"%s\" of tokenizer.json takes too many steps, or too much memory, on this text (PCRE2 error "
      "%d)",
      text_one_line(regex->pattern, 200).text, code);
}

static int search(const Regex *regex, RegexMatcher *m, const RegexText *t) {
  int code = PCRE2_ERROR_JIT_STACKLIMIT;
  if (regex->jit) code = pcre2_jit_match(regex->code, t->text, t->size, t->at, 0, m->data, m->context);
  if (code == PCRE2_ERROR_JIT_STACKLIMIT)
    code = pcre2_match(regex->code, t->text, t->size, t->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
  return code;
}

bool regex_next(const Regex *regex, RegexMatcher *m, RegexText *t, size_t *begin, size_t *end, bool *found,
                Error *error) {
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(m->data);
  const size_t steps = STEPS + STEPS_A_BYTE * t->size;
  pcre2_set_match_limit(m->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
  *found = false;
  while (t->at <= t->size) {
    const int code = search(regex, m, t);
    if (code == PCRE2_ERROR_NOMATCH) break;
    if (code < 0 || offsets[0] > offsets[1] || offsets[0] < t->last_end) return match_failed(regex, code, error);
    if (offsets[0] == offsets[1] && t->matched && offsets[1] == t->last_end) {
      bool whole;
      t->at += t->at < t->size ? character(t->text + t->at, t->size - t->at, &whole) : 1;
      continue;
    }
    const size_t from = offsets[0];
    t->at = t->last_end = offsets[1];
    t->matched = true;
    *begin = original_place(t, from);
    *end = original_place(t, t->last_end);
    *found = true;
    return true;
  }
  return true;
}
