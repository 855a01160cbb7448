#include "tokenizer/regex_dialect.h"

#include "util/array.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inside a class, where a class may not stand in PCRE2. */
#define SPACES                                                                                                         \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                                     \
  "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"   \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* By itself Oniguruma's \w has the numbers of Latin-1, too. */
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

enum { GROUPS = 200, NAME_BYTES = 40 };

typedef struct Translator {
  const char *at; /* in the pattern */
  bool at_start;
  char *out;
  size_t size, capacity;
  size_t atom; /* where in `out` that begins which a quantifier repeats */
  size_t groups[GROUPS];
  int depth;
  Error *error;
} Translator;

static bool put(Translator *t, const char *text, size_t size) {
  if (!array_reserve(&t->out, &t->capacity, t->size + size + 1, 1)) return error_memory(t->error, "a pattern");
  memcpy(t->out + t->size, text, size);
  t->size += size;
  t->out[t->size] = '\0';
  return true;
}

static bool put_text(Translator *t, const char *text) { return put(t, text, strlen(text)); }

static bool refuse(Translator *t, const char *what) {
  return fail(t->error, EXIT_CHECKPOINT, "%s is not supported in a pattern", what);
}

/* ---- escapes ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }
static bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

static bool compiles(const char *pattern) {
  int code;
  PCRE2_SIZE offset;
  pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &offset, NULL);
  pcre2_code_free(made);
  return made != NULL;
}

static const char *short_category(const char *name) {
  static const char *const names[][2] = {{"Letter", "L"},
                                         {"Uppercase_Letter", "Lu"},
                                         {"Lowercase_Letter", "Ll"},
                                         {"Mark", "M"},
                                         {"Nonspacing_Mark", "Mn"},
                                         {"Number", "N"},
                                         {"Decimal_Number", "Nd"},
                                         {"Punctuation", "P"},
                                         {"Symbol", "S"},
                                         {"Separator", "Z"},
                                         {"Space_Separator", "Zs"},
                                         {"Other", "C"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i][0]) == 0) return names[i][1];
  return NULL;
}

/* \p{Name}, at its p. A script is meant without the characters that it shares with others. */
static bool property(Translator *t) {
  char name[NAME_BYTES] = "", text[NAME_BYTES + 16];
  const char kind = *t->at, *from = t->at + 1;
  const char *end = *from == '{' ? strchr(from, '}') : NULL;
  if (!end || end - from > NAME_BYTES - 1) return refuse(t, "\\p without {NAME}");
  const bool negated = from[1] == '^';
  snprintf(name, sizeof name, "%.*s", (int)(end - from - 1 - negated), from + 1 + negated);
  if (name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")]) return refuse(t, "such a \\p{NAME}");
  const char *category = short_category(name), *prefix = "";
  snprintf(text, sizeof text, "\\p{sc:%s}", name);
  if (!category && strlen(name) > 2 && compiles(text)) prefix = "sc:";
  snprintf(text, sizeof text, "\\%c{%s%s}", (kind == 'P') != negated ? 'P' : 'p', prefix, category ? category : name);
  t->at = end + 1;
  return put_text(t, text);
}

/* \x41, \x{20AC} or \u20AC, at its letter. */
static bool code_point(Translator *t) {
  const bool braces = t->at[0] == 'x' && t->at[1] == '{';
  const char *from = t->at + 1 + braces;
  size_t digits = 0;
  const size_t most = braces ? 6 : *t->at == 'u' ? 4 : 2;
  char text[24];
  while (digits < most && is_hex(from[digits])) digits++;
  const bool whole = digits > 0 && (braces ? from[digits] == '}' : *t->at == 'x' || digits == 4);
  snprintf(text, sizeof text, "%.*s", (int)digits, from);
  const unsigned long point = strtoul(text, NULL, 16);
  if (!whole || (!braces && *t->at == 'x' && point > 0x7F)) return refuse(t, "such a \\x or \\u");
  snprintf(text, sizeof text, "\\x{%lx}", point);
  t->at = from + digits + braces;
  return put_text(t, text);
}

/* What stands for the letter of an escape; NULL: nothing does. */
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

/* One escape, at its backslash. */
static bool escape(Translator *t, bool in_class) {
  const char letter = *++t->at, *set = class_escape(letter, in_class);
  char text[] = {'\\', letter, '\0'};
  if (!letter) return refuse(t, "a \\ at the end");
  if (letter == 'p' || letter == 'P') return property(t);
  if (letter == 'x' || letter == 'u') return code_point(t);
  if (is_digit(letter) ||
      (is_letter(letter) && !set && !strchr("nrtfaev", letter) && (in_class || !strchr("AzZ", letter))))
    return refuse(t, text);
  t->at++;
  if (letter == 'v') return put_text(t, "\\x{b}");
  if (!set && (unsigned char)letter >= 0x80) return put(t, &letter, 1);
  if (!put_text(t, set ? set : text)) return false;
  if (!set || !in_class || *t->at != '-' || t->at[1] == ']') return true;
  t->at++; /* no range begins with a set */
  return put_text(t, "\\-");
}

/* ---- classes, groups, quantifiers ---- */

/* A class, at its bracket. */
static bool class(Translator *t) {
  t->at++;
  if (!put_text(t, "[") || (*t->at == '^' && (t->at++, !put_text(t, "^")))) return false;
  if (*t->at == ']') return refuse(t, "a class that begins with ]");
  while (*t->at != ']') {
    if (!*t->at) return refuse(t, "a class without its ]");
    if (*t->at == '[') return refuse(t, t->at[1] == ':' ? "a class such as [:alpha:]" : "a class in a class");
    if (*t->at == '&' && t->at[1] == '&') return refuse(t, "&& in a class");
    if (*t->at == '\\' ? !escape(t, true) : !put(t, t->at++, 1)) return false;
  }
  t->at++;
  return put_text(t, "]");
}

/* A group, at its parenthesis. */
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
  if (t->depth == GROUPS) return refuse(t, "so deep a nesting of groups");
  t->groups[t->depth++] = t->size;
  t->at += strlen(kind);
  return put_text(t, kind);
}

static bool close_group(Translator *t) {
  if (t->depth == 0) return refuse(t, "a ) without its (");
  t->atom = t->groups[--t->depth];
  t->at++;
  return put_text(t, ")");
}

/* Bytes of {n}, {n,} or {n,m}; 0: it is a brace. */
static size_t interval(const char *text) {
  size_t at = 1 + strspn(text + 1, "0123456789");
  if (at == 1) return 0;
  if (text[at] == ',') at += 1 + strspn(text + at + 1, "0123456789");
  return text[at] == '}' ? at + 1 : 0;
}

/* X{n,m}+ is (?:X{n,m})+ to Oniguruma, and possessive to PCRE2. */
static bool repeat_interval(Translator *t) {
  if (!put_text(t, "(?:)+")) return false; /* room for what is moved */
  memmove(t->out + t->atom + 3, t->out + t->atom, t->size - 5 - t->atom);
  memcpy(t->out + t->atom, "(?:", 3);
  memcpy(t->out + t->size - 2, ")+", 2);
  t->at++;
  return true;
}

static bool brace(Translator *t) {
  const size_t size = interval(t->at);
  if (size == 0 && t->at[1] == ',') return refuse(t, "{,n}");
  if (size == 0) {
    t->atom = t->size;
    t->at++;
    return put_text(t, "\\{");
  }
  if (t->at[size] == '?' && !memchr(t->at, ',', size)) return refuse(t, "{n}?");
  if (!put(t, t->at, size)) return false;
  t->at += size;
  return *t->at != '+' || repeat_interval(t);
}

static bool step(Translator *t) {
  switch (*t->at) {
  case '(': return open_group(t);
  case ')': return close_group(t);
  case '{': return brace(t);
  case '[': t->atom = t->size; return class(t);
  case '\\': t->atom = t->size; return escape(t, false);
  case '*':
  case '+':
  case '?': return put(t, t->at++, 1);
  default:
    if (((unsigned char)*t->at & 0xC0) != 0x80) t->atom = t->size; /* not in the middle of a character */
    return put(t, t->at++, 1);
  }
}

bool regex_translate(const char *pattern, char **out, Error *error) {
  Translator t = {.at = pattern, .at_start = true, .error = error};
  bool ok = strlen(pattern) <= REGEX_PATTERN_BYTES || refuse(&t, "so long a text");
  ok = ok && put_text(&t, "");
  for (; ok && *t.at; t.at_start = false) ok = step(&t);
  if (ok && t.depth) ok = refuse(&t, "a ( without its )");
  *out = t.out;
  if (ok) return true;
  free(t.out);
  *out = NULL;
  return false;
}
