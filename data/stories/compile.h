/*
 * The tables of stories_grammar.h compiled into a form that can be walked: references resolved, every word
 * with its forms, every alternative a list of items. Part of stories.c.
 */
#ifndef INKLING_DATA_STORIES_COMPILE_H
#define INKLING_DATA_STORIES_COMPILE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "grammar.h"

enum {
  MAX_FORMS = 16,
  MAX_WORDS = 40,
  MAX_VARIABLES = 16,
  MAX_RULES = 96,
  MAX_ALTERNATIVES = 40, /* of one rule */
  MAX_ITEMS = 1024,      /* of all alternatives */
  MAX_NAME = 32,
  MAX_STORY = 2048, /* bytes of one story, separator included */
  MAX_HEAD = 96,    /* bytes of an alternative that tell it from the others */
  MAX_HEAD_VARIABLES = 8,
  MAX_DEPTH = 16 /* of nested rules */
};

/* A piece of text inside the tables; not terminated by a zero. */
typedef struct {
  const char *text;
  size_t length;
} Span;

typedef struct {
  Span tag;
  Span form[MAX_FORMS]; /* form[0] is the word itself */
} Word;

typedef struct {
  const char *name;
  int words;
  Word word[MAX_WORDS];
} Variable;

typedef enum { ITEM_TEXT, ITEM_DRAW, ITEM_MENTION, ITEM_RULE, ITEM_SWITCH } ItemKind;

typedef struct {
  ItemKind kind;
  Span text;              /* ITEM_TEXT */
  int variable;           /* ITEM_DRAW, ITEM_MENTION, ITEM_SWITCH */
  int form;               /* ITEM_MENTION */
  int rule;               /* ITEM_RULE */
  int rule_of[MAX_WORDS]; /* ITEM_SWITCH: by the word the variable holds */
} Item;

typedef struct {
  int weight;
  int items;
  Item *item;
} Alternative;

typedef struct {
  const char *name;
  int alternatives;
  int weight; /* of all alternatives */
  Alternative alternative[MAX_ALTERNATIVES];
} Rule;

typedef struct {
  int forms;
  const char *form_name[MAX_FORMS];
  int variables;
  Variable variable[MAX_VARIABLES];
  int rules; /* rule 0 is a story */
  Rule rule[MAX_RULES];
  int items; /* of all rules, one alternative after the other */
  Item item[MAX_ITEMS];
} Grammar;

static bool span_is(Span span, const char *text) {
  return strlen(text) == span.length && memcmp(span.text, text, span.length) == 0;
}

static Span span_of(const char *text) { return (Span){text, strlen(text)}; }

/* The part of *rest up to the delimiter or its end; *rest moves behind the delimiter. */
static Span span_split(Span *rest, char delimiter) {
  const char *end = memchr(rest->text, delimiter, rest->length);
  Span part = {rest->text, end != NULL ? (size_t)(end - rest->text) : rest->length};
  size_t used = part.length + (end != NULL ? 1 : 0);
  rest->text += used;
  rest->length -= used;
  return part;
}

/* Says what is wrong with the tables; returns false, so that callers can pass the failure up. */
static bool grammar_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("stories: grammar: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  return false;
}

static int find_form(const Grammar *g, Span name) {
  for (int i = 0; i < g->forms; i++)
    if (span_is(name, g->form_name[i])) return i;
  return -1;
}

static int find_variable(const Grammar *g, Span name) {
  for (int i = 0; i < g->variables; i++)
    if (span_is(name, g->variable[i].name)) return i;
  return -1;
}

/* The rule "name", or "name.tag" where a tag is given. */
static int find_rule(const Grammar *g, Span name, Span tag) {
  char full[2 * MAX_NAME];
  int length = snprintf(full, sizeof full, "%.*s%s%.*s", (int)name.length, name.text, tag.length ? "." : "",
                        (int)tag.length, tag.text);
  if (length < 0 || length >= (int)sizeof full) return -1;
  for (int i = 0; i < g->rules; i++)
    if (strcmp(full, g->rule[i].name) == 0) return i;
  return -1;
}

static bool compile_forms(Grammar *g) {
  g->form_name[g->forms++] = ""; /* the word itself */
  for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
    if (find_form(g, span_of(FORMS[i].form)) >= 0) continue;
    if (g->forms == MAX_FORMS) return grammar_error("more than %d forms", MAX_FORMS);
    g->form_name[g->forms++] = FORMS[i].form;
  }
  return true;
}

static bool compile_variable(Grammar *g, const VariableText *source) {
  if (g->variables == MAX_VARIABLES) return grammar_error("more than %d variables", MAX_VARIABLES);
  Variable *v = &g->variable[g->variables++];
  v->name = source->name;
  for (Span rest = span_of(source->words); rest.length > 0;) {
    if (v->words == MAX_WORDS) return grammar_error("more than %d words in '%s'", MAX_WORDS, v->name);
    Word *w = &v->word[v->words++];
    Span entry = span_split(&rest, '|');
    w->tag = span_split(&entry, ':');
    w->form[0] = entry;
    if (entry.length == 0) return grammar_error("a word of '%s' is empty or lacks its ':'", v->name);
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
      if (span_is(w->tag, FORMS[i].tag)) w->form[find_form(g, span_of(FORMS[i].form))] = span_of(FORMS[i].text);
  }
  return true;
}

/* {+var}, {var} or {var.form}, without the braces. */
static bool compile_mention(const Grammar *g, const Rule *r, Span inside, Item *item) {
  bool draw = inside.length > 0 && inside.text[0] == '+';
  if (draw) inside = (Span){inside.text + 1, inside.length - 1};
  Span name = span_split(&inside, '.');
  item->kind = draw ? ITEM_DRAW : ITEM_MENTION;
  item->variable = find_variable(g, name);
  item->form = find_form(g, inside);
  if (item->variable < 0 || item->form < 0 || (draw && item->form > 0))
    return grammar_error("rule '%s' mentions an unknown variable or form", r->name);
  const Variable *v = &g->variable[item->variable];
  for (int w = 0; w < v->words; w++)
    if (v->word[w].form[item->form].length == 0)
      return grammar_error("rule '%s' needs a form of '%s' that one of its words lacks", r->name, v->name);
  return true;
}

/* <rule> or <rule@var>, without the angle brackets. */
static bool compile_reference(const Grammar *g, const Rule *r, Span inside, Item *item) {
  bool by_tag = memchr(inside.text, '@', inside.length) != NULL;
  Span name = span_split(&inside, '@');
  if (!by_tag) {
    item->kind = ITEM_RULE;
    item->rule = find_rule(g, name, (Span){"", 0});
    return item->rule >= 0 || grammar_error("rule '%s' refers to an unknown rule", r->name);
  }
  item->kind = ITEM_SWITCH;
  item->variable = find_variable(g, inside);
  if (item->variable < 0) return grammar_error("rule '%s' switches on an unknown variable", r->name);
  const Variable *v = &g->variable[item->variable];
  for (int w = 0; w < v->words; w++) {
    item->rule_of[w] = find_rule(g, name, v->word[w].tag);
    if (item->rule_of[w] < 0) return grammar_error("rule '%s' lacks a case for '%s'", r->name, v->name);
  }
  return true;
}

static bool compile_alternative(Grammar *g, const Rule *r, Span source, Alternative *a) {
  *a = (Alternative){.weight = 1, .item = &g->item[g->items]};
  if (source.length > 1 && source.text[0] >= '1' && source.text[0] <= '9' && source.text[1] == '*') {
    a->weight = source.text[0] - '0';
    source = (Span){source.text + 2, source.length - 2};
  }
  while (source.length > 0) {
    if (g->items == MAX_ITEMS) return grammar_error("more than %d items", MAX_ITEMS);
    Item *item = &g->item[g->items++];
    a->items++;
    char first = source.text[0];
    if (first == '<' || first == '{') {
      source = (Span){source.text + 1, source.length - 1};
      Span inside = span_split(&source, first == '<' ? '>' : '}');
      if (!(first == '<' ? compile_reference(g, r, inside, item) : compile_mention(g, r, inside, item))) return false;
      continue;
    }
    size_t length = 0;
    while (length < source.length && source.text[length] != '<' && source.text[length] != '{') length++;
    *item = (Item){.kind = ITEM_TEXT, .text = {source.text, length}};
    source = (Span){source.text + length, source.length - length};
  }
  return true;
}

static bool compile_rule(Grammar *g, const RuleText *source, Rule *r) {
  for (Span rest = span_of(source->alternatives); rest.length > 0;) {
    if (r->alternatives == MAX_ALTERNATIVES) return grammar_error("too many alternatives in '%s'", r->name);
    Alternative *a = &r->alternative[r->alternatives++];
    if (!compile_alternative(g, r, span_split(&rest, '|'), a)) return false;
    r->weight += a->weight;
  }
  return true;
}

static bool grammar_compile(Grammar *g) {
  size_t rules = sizeof RULES / sizeof *RULES;
  if (rules > MAX_RULES) return grammar_error("more than %d rules", MAX_RULES);
  if (!compile_forms(g)) return false;
  for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++)
    if (!compile_variable(g, &VARIABLES[i])) return false;
  for (size_t i = 0; i < rules; i++) g->rule[g->rules++].name = RULES[i].name;
  for (size_t i = 0; i < rules; i++)
    if (!compile_rule(g, &RULES[i], &g->rule[i])) return false;
  return true;
}

/* ---- heads: how an alternative must begin ---- */

typedef struct {
  size_t length;
  char text[MAX_HEAD];
} Head;

static void head_append(Head *head, Span span) {
  size_t room = MAX_HEAD - head->length;
  size_t length = span.length < room ? span.length : room;
  memcpy(head->text + head->length, span.text, length);
  head->length += length;
}

/* The text an alternative begins with whatever is chosen inside it, the variables being value[]. */
static void alternative_head(const Grammar *g, const Alternative *a, const int *value, Head *head) {
  head->length = 0;
  for (int i = 0; i < a->items; i++) {
    const Item *item = &a->item[i];
    if (item->kind == ITEM_TEXT) head_append(head, item->text);
    else if (item->kind == ITEM_MENTION)
      head_append(head, g->variable[item->variable].word[value[item->variable]].form[item->form]);
    else return;
  }
}

#endif
