#include "text/tokenizer/regex.h"

#include "base/array.h"
#include "base/text.h"
#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  JIT_STACK_FIRST = 32 << 10,
  JIT_STACK = 8 << 20,
  HEAP_KIB = 256 << 10, /* for matching without JIT */
  STEPS = 1 << 20,      /* limit of a match, plus STEPS_PER_BYTE for each byte of the text */
  STEPS_PER_BYTE = 8
};

struct Regex {
  pcre2_code *code;
  bool jit, literal;
  char *pattern; /* as in the file, for messages */
};

struct RegexMatcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

/* ---- translation of a pattern from Oniguruma, which the tokenizers library uses, to PCRE2 ---- */

/* The members of \s, \S and \w, for use inside a class: PCRE2 has \p{White_Space} only from version 10.40 on. */
#define SPACES                                                                                                         \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                                     \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"   \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside a class, Oniguruma's \w also contains the numbers of Latin-1. */
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

enum { PATTERN_BYTES = 1 << 14 /* the most bytes of a pattern */, NAME_BYTES = 40 };

typedef struct Translator {
  const char *at; /* the next character of the pattern */
  ByteBuffer out;
  Error *error;
} Translator;

static bool put(Translator *t, const char *text, size_t size) { return byte_buffer_add(&t->out, text, size, t->error); }

static bool put_text(Translator *t, const char *text) { return put(t, text, strlen(text)); }

static bool refuse(Translator *t, const char *what) {
  return fail(t->error, EXIT_CHECKPOINT, "%s is not supported in a pattern", what);
}

/* Before version 10.40 of PCRE2, \p{Han} is what \p{sc:Han} is now. */
#define SCRIPT (PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "")

/* Translates \p{L}, \p{Lu} or \p{Han}; t->at is at the p. A script does not include characters that it shares with
 * other scripts. */
static bool property(Translator *t) {
  char text[NAME_BYTES + 16];
  const char *name = t->at + 2;
  const size_t size = t->at[1] == '{' ? strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") : 0;
  if (size == 0 || size > NAME_BYTES || name[size] != '}')
    return refuse(t, "\\p without the {NAME} of a category or script");
  snprintf(text, sizeof text, "\\%c{%s%.*s}", *t->at, size > 2 ? SCRIPT : "", (int)size, name);
  t->at = name + size + 1;
  return put_text(t, text);
}

/* Returns the translation of an escape for a set of characters; NULL: it is another escape. */
static const char *class_escape(char letter, bool in_class) {
  switch (letter) {
  case 's': return in_class ? SPACES : "[" SPACES "]";
  case 'S': return in_class ? NOT_SPACES : "[^" SPACES "]";
  case 'd': return "\\p{Nd}";
  case 'D': return "\\P{Nd}";
  case 'w': return in_class ? WORD : "[" WORD_ALONE "]";
  case 'W': return in_class ? NULL : "[^" WORD_ALONE "]";
  default: return NULL;
  }
}

/* Translates an escape; t->at is at the backslash. */
static bool escape(Translator *t, bool in_class) {
  const char letter = *++t->at, *set = class_escape(letter, in_class);
  char text[] = {'\\', letter, '\0'};
  if (!letter) return refuse(t, "a \\ at the end");
  if (letter == 'p' || letter == 'P') return property(t);
  if (isalnum((unsigned char)letter) && !set && !strchr("nrtf", letter)) return refuse(t, text);
  t->at++;
  if ((unsigned char)letter >= 0x80) return put(t, &letter, 1);
  if (!put_text(t, set ? set : text)) return false;
  if (!set || !in_class || *t->at != '-' || t->at[1] == ']') return true;
  t->at++; /* a set cannot begin a range */
  return put_text(t, "\\-");
}

/* Translates a class; t->at is at the bracket. */
static bool class(Translator *t) {
  t->at++;
  if (!put_text(t, "[") || (*t->at == '^' && (t->at++, !put_text(t, "^")))) return false;
  if (*t->at == ']') return refuse(t, "a class that begins with ]");
  while (*t->at != ']') {
    if (!*t->at) return refuse(t, "a class without a ]");
    if (*t->at == '[') return refuse(t, t->at[1] == ':' ? "a class such as [:alpha:]" : "a nested class");
    if (*t->at == '&' && t->at[1] == '&') return refuse(t, "&& in a class");
    if (*t->at == '\\' ? !escape(t, true) : !put(t, t->at++, 1)) return false;
  }
  t->at++;
  return put_text(t, "]");
}

/* Translates the beginning of a group; t->at is at the parenthesis. */
static bool open_group(Translator *t) {
  static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
  const char *kind = t->at[1] == '?' || t->at[1] == '*' ? NULL : "(";
  for (size_t i = 0; !kind && i < sizeof kinds / sizeof *kinds; i++)
    if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0) kind = kinds[i];
  if (!kind) return refuse(t, "a group other than (?: (?= (?! (?<= (?<! (?> (?i:");
  t->at += strlen(kind);
  return put_text(t, kind);
}

/* Translates {n}, {n,} or {n,m}; any other brace is a plain character. Oniguruma reads X{1,3}+ as (?:X{1,3})+, which is
 * X+; PCRE2 would not give back any of it. */
static bool brace(Translator *t) {
  const char *from = t->at;
  size_t size = 1 + strspn(from + 1, "0123456789");
  const bool number = size > 1, range = from[size] == ',';
  if (range && !number) return refuse(t, "{,n}");
  if (range) size += 1 + strspn(from + size + 1, "0123456789");
  if (!number || from[size] != '}') {
    t->at++;
    return put_text(t, "\\{");
  }
  size++;
  t->at += size;
  if (*t->at == '?' && !range) return refuse(t, "{n}?");
  if (*t->at != '+') return put(t, from, size);
  if (strncmp(from, "{1,", 3) != 0 || t->at[1] == '?') return refuse(t, "{n,m}+ other than {1,m}+");
  t->at++;
  return put_text(t, "+");
}

static bool translate_next(Translator *t) {
  switch (*t->at) {
  case '(': return open_group(t);
  case '{': return brace(t);
  case '[': return class(t);
  case '\\': return escape(t, false);
  default: return put(t, t->at++, 1);
  }
}

/* Translates `pattern` to a pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE that matches the same texts as in
 * Oniguruma; the caller frees it. It rewrites syntax that the two interpret differently (\s is White_Space, \w has
 * marks and no numbers but digits, \p{Han} is the script without its extensions, {1,3}+ repeats), and refuses, by name,
 * syntax that occurs in no known file. EXIT_CHECKPOINT with only the reason, EXIT_MEMORY. */
static bool translate(const char *pattern, char **out, Error *error) {
  Translator t = {.at = pattern, .error = error};
  bool ok = strlen(pattern) <= PATTERN_BYTES || refuse(&t, "a text this long");
  ok = ok && put_text(&t, "(*LF)"); /* only \n ends a line */
  while (ok && *t.at) ok = translate_next(&t);
  *out = (char *)t.out.bytes;
  if (ok) {
    (*out)[t.out.size] = '\0';
    return true;
  }
  free(*out);
  return false;
}

/* ---- creation ---- */

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
  regex->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | options, &code, &offset, NULL);
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
  if (!translate(pattern, &translated, error)) return false;
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

/* U+FDD0, a code point that is never assigned, replaces a byte that is not UTF-8. */
static const uint8_t stand_in[] = {0xEF, 0xB7, 0x90};

void regex_text_free(RegexText *text) {
  free(text->copy);
  *text = (RegexText){0};
}

static bool is_utf8(const uint8_t *text, size_t size) {
  size_t length = 1;
  for (size_t at = 0; at < size; at += length)
    if (text[at] < 0x80) length = 1;
    else if (utf8_next(text + at, size - at, &length) == UTF8_INVALID) return false;
  return true;
}

static bool copy_text(RegexText *t, Error *error) {
  const uint8_t *from = t->original;
  if (!array_reserve(&t->copy, &t->capacity, sizeof stand_in * t->original_size, 1))
    return error_memory(error, "the pieces of a text");
  t->size = 0;
  for (size_t at = 0, length; at < t->original_size; at += length) {
    const bool valid = utf8_next(from + at, t->original_size - at, &length) != UTF8_INVALID;
    const size_t written = valid ? length : sizeof stand_in;
    memcpy(t->copy + t->size, valid ? from + at : stand_in, written);
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
  return is_utf8(text, size) || copy_text(t, error);
}

/* Converts an offset in the copy to the original text. Offsets must not decrease from call to call. */
static size_t original_offset(RegexText *t, size_t at) {
  if (t->text == t->original) return at;
  while (t->mapped < at) {
    size_t length;
    const int32_t point = utf8_next(t->original + t->original_mapped, t->original_size - t->original_mapped, &length);
    t->original_mapped += length;
    t->mapped += point != UTF8_INVALID ? length : sizeof stand_in;
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
  const size_t steps = STEPS + STEPS_PER_BYTE * t->size;
  pcre2_set_match_limit(m->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
  *found = false;
  while (t->at <= t->size) {
    const int code = search(regex, m, t);
    if (code == PCRE2_ERROR_NOMATCH) break;
    if (code < 0 || offsets[0] > offsets[1] || offsets[0] < t->last_end) return match_failed(regex, code, error);
    if (offsets[0] == offsets[1] && t->matched && offsets[1] == t->last_end) {
      size_t length = 1;
      if (t->at < t->size) utf8_next(t->text + t->at, t->size - t->at, &length);
      t->at += length;
      continue;
    }
    const size_t from = offsets[0];
    t->at = t->last_end = offsets[1];
    t->matched = true;
    *begin = original_offset(t, from);
    *end = original_offset(t, t->last_end);
    *found = true;
    return true;
  }
  return true;
}
