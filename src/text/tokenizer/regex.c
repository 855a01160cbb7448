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

/* The members of \s, \S and \w, for use inside a class. */
#define SPACES                                                                                                         \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                                     \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"   \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside a class, Oniguruma's \w also contains the numbers of Latin-1. */
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

enum { PATTERN_BYTES = 1 << 14 /* the most bytes of a pattern */, GROUPS = 200, NAME_BYTES = 40 };

typedef struct Translator {
  const char *at; /* the next character of the pattern */
  bool at_start;
  ByteBuffer out;
  size_t atom;           /* offset in `out` of what a quantifier would repeat */
  size_t groups[GROUPS]; /* [depth] offsets in `out` of the open groups */
  int depth;
  Error *error;
} Translator;

static bool put(Translator *t, const char *text, size_t size) { return byte_buffer_add(&t->out, text, size, t->error); }

static bool put_text(Translator *t, const char *text) { return put(t, text, strlen(text)); }

static bool refuse(Translator *t, const char *what) {
  return fail(t->error, EXIT_CHECKPOINT, "%s is not supported in a pattern", what);
}

/* ---- translation: escapes ---- */

static bool compiles(const char *pattern) {
  int code;
  PCRE2_SIZE offset;
  pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &offset, NULL);
  pcre2_code_free(made);
  return made != NULL;
}

static const char *short_category(const char *name) {
  static const char *const names[] = {
      "Letter",          "L",  "Uppercase_Letter", "Lu", "Lowercase_Letter", "Ll", "Mark",        "M",
      "Nonspacing_Mark", "Mn", "Number",           "N",  "Decimal_Number",   "Nd", "Punctuation", "P",
      "Symbol",          "S",  "Separator",        "Z",  "Space_Separator",  "Zs", "Other",       "C"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i += 2)
    if (strcmp(name, names[i]) == 0) return names[i + 1];
  return NULL;
}

/* Translates \p{Name}; t->at is at the p. A script does not include characters that it shares with other scripts. */
static bool property(Translator *t) {
  char name[NAME_BYTES] = "", text[NAME_BYTES + 16];
  const char kind = *t->at, *from = t->at + 1;
  const char *end = *from == '{' ? strchr(from, '}') : NULL;
  if (!end || end - from > NAME_BYTES - 1) return refuse(t, "\\p without {NAME}");
  const bool negated = from[1] == '^';
  snprintf(name, sizeof name, "%.*s", (int)(end - from - 1 - negated), from + 1 + negated);
  if (name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")]) return refuse(t, "this \\p{NAME}");
  const char *category = short_category(name), *prefix = "";
  snprintf(text, sizeof text, "\\p{sc:%s}", name);
  if (!category && strlen(name) > 2 && compiles(text)) prefix = "sc:";
  snprintf(text, sizeof text, "\\%c{%s%s}", (kind == 'P') != negated ? 'P' : 'p', prefix, category ? category : name);
  t->at = end + 1;
  return put_text(t, text);
}

/* Translates \x41, \x{20AC} or \u20AC; t->at is at the letter. */
static bool code_point(Translator *t) {
  const bool braces = t->at[0] == 'x' && t->at[1] == '{';
  const char *from = t->at + 1 + braces;
  size_t digits = 0;
  const size_t most = braces ? 6 : *t->at == 'u' ? 4 : 2;
  char text[24];
  while (digits < most && isxdigit((unsigned char)from[digits])) digits++;
  const bool whole = digits > 0 && (braces ? from[digits] == '}' : *t->at == 'x' || digits == 4);
  snprintf(text, sizeof text, "%.*s", (int)digits, from);
  const unsigned long point = strtoul(text, NULL, 16);
  if (!whole || (!braces && *t->at == 'x' && point > 0x7F)) return refuse(t, "this \\x or \\u");
  snprintf(text, sizeof text, "\\x{%lx}", point);
  t->at = from + digits + braces;
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
  if (letter == 'x' || letter == 'u') return code_point(t);
  if (isdigit((unsigned char)letter) ||
      (isalpha((unsigned char)letter) && !set && !strchr("nrtfaev", letter) && (in_class || !strchr("AzZ", letter))))
    return refuse(t, text);
  t->at++;
  if (letter == 'v') return put_text(t, "\\x{b}");
  if (!set && (unsigned char)letter >= 0x80) return put(t, &letter, 1);
  if (!put_text(t, set ? set : text)) return false;
  if (!set || !in_class || *t->at != '-' || t->at[1] == ']') return true;
  t->at++; /* a set cannot begin a range */
  return put_text(t, "\\-");
}

/* ---- translation: classes, groups, quantifiers ---- */

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
  static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
  if (t->at_start && strncmp(t->at, "(?i)", 4) == 0) {
    t->at += 4;
    return put_text(t, "(?i)");
  }
  const char *kind = t->at[1] == '?' || t->at[1] == '*' ? NULL : "(";
  for (size_t i = 0; !kind && i < sizeof kinds / sizeof *kinds; i++)
    if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0) kind = kinds[i];
  if (!kind) return refuse(t, "a group other than (?: (?= (?! (?<= (?<! (?> (?i:");
  if (t->depth == GROUPS) return refuse(t, "a nesting of groups this deep");
  t->groups[t->depth++] = t->out.size;
  t->at += strlen(kind);
  return put_text(t, kind);
}

static bool close_group(Translator *t) {
  if (t->depth == 0) return refuse(t, "a ) without a (");
  t->atom = t->groups[--t->depth];
  t->at++;
  return put_text(t, ")");
}

/* Returns the number of bytes of {n}, {n,} or {n,m}; 0 for any other brace. */
static size_t interval(const char *text) {
  size_t at = 1 + strspn(text + 1, "0123456789");
  if (at == 1) return 0;
  if (text[at] == ',') at += 1 + strspn(text + at + 1, "0123456789");
  return text[at] == '}' ? at + 1 : 0;
}

/* Oniguruma reads X{n,m}+ as (?:X{n,m})+; PCRE2 reads it as possessive. */
static bool repeat_interval(Translator *t) {
  if (!put_text(t, "(?:)+")) return false; /* reserves the bytes that the move below needs */
  uint8_t *const atom = t->out.bytes + t->atom;
  memmove(atom + 3, atom, t->out.size - 5 - t->atom);
  memcpy(atom, "(?:", 3);
  memcpy(t->out.bytes + t->out.size - 2, ")+", 2);
  t->at++;
  return true;
}

static bool brace(Translator *t) {
  const size_t size = interval(t->at);
  if (size == 0 && t->at[1] == ',') return refuse(t, "{,n}");
  if (size == 0) {
    t->atom = t->out.size;
    t->at++;
    return put_text(t, "\\{");
  }
  if (t->at[size] == '?' && !memchr(t->at, ',', size)) return refuse(t, "{n}?");
  if (!put(t, t->at, size)) return false;
  t->at += size;
  return *t->at != '+' || repeat_interval(t);
}

static bool translate_next(Translator *t) {
  switch (*t->at) {
  case '(': return open_group(t);
  case ')': return close_group(t);
  case '{': return brace(t);
  case '[': t->atom = t->out.size; return class(t);
  case '\\': t->atom = t->out.size; return escape(t, false);
  case '*':
  case '+':
  case '?': return put(t, t->at++, 1);
  default:
    if (((unsigned char)*t->at & 0xC0) != 0x80) t->atom = t->out.size; /* not in the middle of a character */
    return put(t, t->at++, 1);
  }
}

/* Translates `pattern` to a pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE that matches the same texts as in
 * Oniguruma; the caller frees it. It rewrites syntax that the two interpret differently (\s is White_Space, \w has
 * marks and no numbers but digits, \p{Han} is the script without its extensions, {1,3}+ repeats), and refuses, by name,
 * syntax that occurs in no known file. EXIT_CHECKPOINT with only the reason, EXIT_MEMORY. */
static bool translate(const char *pattern, char **out, Error *error) {
  Translator t = {.at = pattern, .at_start = true, .error = error};
  bool ok = strlen(pattern) <= PATTERN_BYTES || refuse(&t, "a text this long");
  ok = ok && put_text(&t, "(*LF)"); /* only \n ends a line */
  t.atom = t.out.size;
  for (; ok && *t.at; t.at_start = false) ok = translate_next(&t);
  if (ok && t.depth) ok = refuse(&t, "a ( without a )");
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
