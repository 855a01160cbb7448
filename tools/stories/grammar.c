#include "tools/stories/grammar.h"

#include <stdio.h>
#include <string.h>

/* ---- compiling ---- */

static bool span_is(Span span, const char *text) {
  return strlen(text) == span.length && memcmp(span.text, text, span.length) == 0;
}

Span span_of(const char *text) { return (Span){text, strlen(text)}; }

/* Returns the part of *rest before the delimiter, or all of it; removes both from *rest. */
static Span span_split(Span *rest, char delimiter) {
  const char *end = memchr(rest->text, delimiter, rest->length);
  Span part = {rest->text, end ? (size_t)(end - rest->text) : rest->length};
  size_t used = part.length + (end ? 1 : 0);
  rest->text += used;
  rest->length -= used;
  return part;
}

static int find_variable(const Grammar *g, Span name) {
  for (int i = 0; i < g->variables; i++)
    if (span_is(name, g->variable[i].name)) return i;
  return -1;
}

/* Finds the rule "name", or "name.tag" if there is a tag. */
static int find_rule(const Grammar *g, Span name, Span tag) {
  char full[2 * MAX_NAME];
  int length = snprintf(full, sizeof full, "%.*s%s%.*s", (int)name.length, name.text, tag.length ? "." : "",
                        (int)tag.length, tag.text);
  if (length < 0 || length >= (int)sizeof full) return -1;
  for (int i = 0; i < g->rules; i++)
    if (strcmp(full, g->rule[i].name) == 0) return i;
  return -1;
}

static bool compile_variable(Grammar *g, const VariableText *source, Error *error) {
  if (g->variables == MAX_VARIABLES)
    return fail(error, EXIT_INTERNAL, "grammar: more than %d variables", MAX_VARIABLES);
  Variable *v = &g->variable[g->variables++];
  v->name = source->name;
  for (Span rest = span_of(source->words); rest.length > 0;) {
    if (v->words == MAX_WORDS)
      return fail(error, EXIT_INTERNAL, "grammar: more than %d words in '%s'", MAX_WORDS, v->name);
    Word *w = &v->word[v->words++];
    Span entry = span_split(&rest, '|');
    w->tag = span_split(&entry, ':');
    w->text = entry;
    if (entry.length == 0)
      return fail(error, EXIT_INTERNAL, "grammar: a word of '%s' is empty or lacks its ':'", v->name);
  }
  return true;
}

/* Returns the form of a word that agrees with its tag; empty: there is none. */
static Span form_of(const FormText *forms, const Word *word, Span form) {
  if (form.length == 0) return word->text;
  for (const FormText *f = forms; f->tag; f++)
    if (span_is(word->tag, f->tag) && span_is(form, f->form)) return span_of(f->text);
  return (Span){0};
}

/* {+var}, {var} or {var.form}, without the braces. */
static bool compile_mention(const Grammar *g, const Rule *r, Span inside, Item *item, Error *error) {
  bool draw = inside.length > 0 && inside.text[0] == '+';
  if (draw) inside = (Span){inside.text + 1, inside.length - 1};
  Span name = span_split(&inside, '.');
  item->kind = draw ? ITEM_DRAW : ITEM_MENTION;
  item->variable = find_variable(g, name);
  item->is_word = inside.length == 0;
  if (item->variable < 0 || (draw && !item->is_word))
    return fail(error, EXIT_INTERNAL, "grammar: rule '%s' mentions an unknown variable or form", r->name);
  const Variable *v = &g->variable[item->variable];
  for (int w = 0; w < v->words; w++) {
    item->text_of[w] = form_of(g->forms, &v->word[w], inside);
    if (item->text_of[w].length == 0)
      return fail(error, EXIT_INTERNAL, "grammar: rule '%s' needs a form of '%s' that one of its words lacks", r->name,
                  v->name);
  }
  return true;
}

/* <rule> or <rule@var>, without the angle brackets. */
static bool compile_reference(const Grammar *g, const Rule *r, Span inside, Item *item, Error *error) {
  bool by_tag = memchr(inside.text, '@', inside.length) != NULL;
  Span name = span_split(&inside, '@');
  if (!by_tag) {
    item->kind = ITEM_RULE;
    item->rule = find_rule(g, name, (Span){"", 0});
    return item->rule >= 0 || fail(error, EXIT_INTERNAL, "grammar: rule '%s' refers to an unknown rule", r->name);
  }
  item->kind = ITEM_SWITCH;
  item->variable = find_variable(g, inside);
  if (item->variable < 0)
    return fail(error, EXIT_INTERNAL, "grammar: rule '%s' switches on an unknown variable", r->name);
  const Variable *v = &g->variable[item->variable];
  for (int w = 0; w < v->words; w++) {
    item->rule_of[w] = find_rule(g, name, v->word[w].tag);
    if (item->rule_of[w] < 0)
      return fail(error, EXIT_INTERNAL, "grammar: rule '%s' lacks a case for '%s'", r->name, v->name);
  }
  return true;
}

static bool compile_alternative(Grammar *g, const Rule *r, Span source, Alternative *a, Error *error) {
  *a = (Alternative){.weight = 1, .item = &g->item[g->items]};
  if (source.length > 1 && source.text[0] >= '1' && source.text[0] <= '9' && source.text[1] == '*') {
    a->weight = source.text[0] - '0';
    source = (Span){source.text + 2, source.length - 2};
  }
  while (source.length > 0) {
    if (g->items == MAX_ITEMS) return fail(error, EXIT_INTERNAL, "grammar: more than %d items", MAX_ITEMS);
    Item *item = &g->item[g->items++];
    a->items++;
    char first = source.text[0];
    if (first == '<' || first == '{') {
      source = (Span){source.text + 1, source.length - 1};
      Span inside = span_split(&source, first == '<' ? '>' : '}');
      bool ok =
          first == '<' ? compile_reference(g, r, inside, item, error) : compile_mention(g, r, inside, item, error);
      if (!ok) return false;
      continue;
    }
    size_t length = 0;
    while (length < source.length && source.text[length] != '<' && source.text[length] != '{') length++;
    *item = (Item){.kind = ITEM_TEXT, .text = {source.text, length}};
    source = (Span){source.text + length, source.length - length};
  }
  return true;
}

static bool compile_rule(Grammar *g, const RuleText *source, Rule *r, Error *error) {
  for (Span rest = span_of(source->alternatives); rest.length > 0;) {
    if (r->alternatives == MAX_ALTERNATIVES)
      return fail(error, EXIT_INTERNAL, "grammar: too many alternatives in '%s'", r->name);
    Alternative *a = &r->alternative[r->alternatives++];
    if (!compile_alternative(g, r, span_split(&rest, '|'), a, error)) return false;
    r->weight += a->weight;
  }
  return true;
}

bool grammar_compile(Grammar *g, const GrammarTables *tables, Error *error) {
  g->forms = tables->forms;
  for (const VariableText *v = tables->variables; v->name; v++)
    if (!compile_variable(g, v, error)) return false;
  for (const RuleText *r = tables->rules; r->name; r++) { /* all names first, because rules refer to later rules */
    if (g->rules == MAX_RULES) return fail(error, EXIT_INTERNAL, "grammar: more than %d rules", MAX_RULES);
    g->rule[g->rules++].name = r->name;
  }
  for (int i = 0; i < g->rules; i++)
    if (!compile_rule(g, &tables->rules[i], &g->rule[i], error)) return false;
  return true;
}

/* ---- heads ---- */

void head_append(Head *head, Span span) {
  size_t left = MAX_HEAD - head->length;
  size_t length = span.length < left ? span.length : left;
  memcpy(head->text + head->length, span.text, length);
  head->length += length;
}

void head_of(const Alternative *a, const int *value, Head *head) {
  head->length = 0;
  for (int i = 0; i < a->items; i++) {
    const Item *item = &a->item[i];
    if (item->kind == ITEM_TEXT) head_append(head, item->text);
    else if (item->kind == ITEM_MENTION) head_append(head, item->text_of[value[item->variable]]);
    else return;
  }
}
