/* The tables of grammar.h, compiled: references are resolved, every word has its forms, every alternative is a list of
 * items. */
#ifndef INKLING_DATA_STORIES_COMPILE_H
#define INKLING_DATA_STORIES_COMPILE_H

#include "util/error.h"

#include <stddef.h>

enum {
  MAX_FORMS = 16,
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
  Span tag;
  Span form[MAX_FORMS]; /* form[0] is the word itself */
} Word;

typedef struct Variable {
  const char *name;
  int words;
  Word word[MAX_WORDS];
} Variable;

typedef enum { ITEM_TEXT, ITEM_DRAW, ITEM_MENTION, ITEM_RULE, ITEM_SWITCH } ItemKind;

typedef struct Item {
  ItemKind kind;
  Span text;              /* ITEM_TEXT */
  int variable;           /* ITEM_DRAW, ITEM_MENTION, ITEM_SWITCH */
  int form;               /* ITEM_MENTION */
  int rule;               /* ITEM_RULE */
  int rule_of[MAX_WORDS]; /* ITEM_SWITCH: the rule for each word of the variable */
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
  int forms;
  const char *form_name[MAX_FORMS];
  int variables;
  Variable variable[MAX_VARIABLES];
  int rules; /* rule 0 makes a story */
  Rule rule[MAX_RULES];
  int items; /* of all alternatives of all rules, in order */
  Item item[MAX_ITEMS];
} Grammar;

Span span_of(const char *text);

/* Compiles the tables; *g begins as zeros. EXIT_INTERNAL with the cause for invalid tables. */
bool grammar_compile(Grammar *g, Error *error);

/* The beginning of an alternative. */
typedef struct Head {
  size_t length;
  char text[MAX_HEAD];
} Head;

void head_append(Head *head, Span span);
/* Finds the text that an alternative always begins with, for any choices in it, when the variables are value[]. */
void head_of(const Grammar *g, const Alternative *a, const int *value, Head *head);

#endif
