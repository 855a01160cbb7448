/* The grammar of the sample corpus: small stories about an animal that loses a treasure and a friend who
 * gets it back. stories.c draws from the tables in tables.c, and tools/talks/ has tables of conversations; every
 * sentence in them was written for this project.
 *
 * A rule is a list of alternatives separated by '|', equally likely unless one begins with a weight such
 * as "3*". Inside an alternative:
 *
 *   <rule>        one alternative of that rule, chosen now
 *   <rule@var>    the rule "rule.TAG", where TAG is the tag of the word of var (cause and effect)
 *   {+var}        chooses a word for var until the end of the story, and writes it
 *   {var}         writes the word again: no choice, no information
 *   {var.form}    writes the form that agrees with the word's tag (she/he, it/them)
 *
 * One rule, which `stories --self-check` enforces: at every choice, the texts that the alternatives always
 * begin with differ before the shorter of them ends. Two derivations then differ in the text from
 * the first choice in which they differ, so every story has exactly one, and its probability is the product
 * of the probabilities of its choices. Words therefore start with different letters wherever English allows.
 *
 * What makes the stories easy to learn: facts are repeated while they are still in the context, a fact is one of
 * few words and is named again soon, later sentences use the pronoun that agrees with it, and the long word lists
 * (<big>, <plums>, <boldly>) serve many sentences. */
#ifndef INKLING_TOOLS_STORIES_GRAMMAR_H
#define INKLING_TOOLS_STORIES_GRAMMAR_H

#include "base/error.h"

#include <stddef.h>

/* ---- the tables; each ends with an entry of NULL ---- */

/* The text of a form for words with a tag. */
typedef struct FormText {
  const char *tag;
  const char *form;
  const char *text;
} FormText;

/* words: "tag:word|tag:word|..."; the tag may be empty. */
typedef struct VariableText {
  const char *name;
  const char *words;
} VariableText;

typedef struct RuleText {
  const char *name;
  const char *alternatives;
} RuleText;

typedef struct GrammarTables {
  const FormText *forms;
  const VariableText *variables;
  const RuleText *rules; /* the first one makes a story */
} GrammarTables;

extern const GrammarTables story_tables;

/* ---- the compiled tables: references are resolved, every alternative is a list of items ---- */

enum {
  MAX_WORDS = 40,
  MAX_VARIABLES = 16,
  MAX_RULES = 96,
  MAX_ALTERNATIVES = 40, /* in one rule */
  MAX_ITEMS = 1024,      /* in all alternatives */
  MAX_NAME = 32,
  MAX_STORY = 2048, /* bytes of one story, including its separator */
  MAX_HEAD = 96,    /* bytes at the beginning of an alternative that distinguish it from the others */
  MAX_HEAD_VARIABLES = 8,
  MAX_DEPTH = 16 /* levels of nested rules */
};

/* A part of a text in the tables, without a terminating zero. */
typedef struct Span {
  const char *text;
  size_t length;
} Span;

typedef struct Word {
  Span tag, text;
} Word;

typedef struct Variable {
  const char *name;
  int words;
  Word word[MAX_WORDS];
} Variable;

typedef enum { ITEM_TEXT, ITEM_DRAW, ITEM_MENTION, ITEM_RULE, ITEM_SWITCH } ItemKind;

typedef struct Item {
  ItemKind kind;
  Span text;               /* ITEM_TEXT */
  int variable;            /* ITEM_DRAW, ITEM_MENTION, ITEM_SWITCH */
  Span text_of[MAX_WORDS]; /* ITEM_DRAW, ITEM_MENTION: the text for each word of the variable */
  bool is_word;            /* the text is the word itself */
  int rule;                /* ITEM_RULE */
  int rule_of[MAX_WORDS];  /* ITEM_SWITCH: the rule for each word of the variable */
} Item;

typedef struct Alternative {
  int weight;
  int items;
  Item *item;
} Alternative;

typedef struct Rule {
  const char *name;
  int alternatives;
  int weight; /* sum over the alternatives */
  Alternative alternative[MAX_ALTERNATIVES];
} Rule;

typedef struct Grammar {
  const FormText *forms;
  int variables;
  Variable variable[MAX_VARIABLES];
  int rules; /* rule 0 makes a story */
  Rule rule[MAX_RULES];
  int items; /* of all alternatives of all rules, in order */
  Item item[MAX_ITEMS];
} Grammar;

Span span_of(const char *text);

/* Compiles the tables; *g begins as zeros. EXIT_INTERNAL with the cause for invalid tables. */
bool grammar_compile(Grammar *g, const GrammarTables *tables, Error *error);

/* The beginning of an alternative. */
typedef struct Head {
  size_t length;
  char text[MAX_HEAD];
} Head;

void head_append(Head *head, Span span);
/* Finds the text that an alternative always begins with, for any choices in it, when the variables are value[]. */
void head_of(const Alternative *a, const int *value, Head *head);

#endif
