/* The tables of grammar.h in a form that can be walked: references resolved, every word with its forms, every
 * alternative a list of items. */
#ifndef INKLING_DATA_STORIES_COMPILE_H
#define INKLING_DATA_STORIES_COMPILE_H

#include "util/error.h"

#include <stddef.h>

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
  int rule_of[MAX_WORDS]; /* ITEM_SWITCH: by the word the variable holds */
} Item;

typedef struct Alternative {
  int weight;
  int items;
  Item *item;
} Alternative;

typedef struct Rule {
  const char *name;
  int alternatives;
  int weight; /* of all alternatives */
  Alternative alternative[MAX_ALTERNATIVES];
} Rule;

typedef struct Grammar {
  int forms;
  const char *form_name[MAX_FORMS];
  int variables;
  Variable variable[MAX_VARIABLES];
  int rules; /* rule 0 is a story */
  Rule rule[MAX_RULES];
  int items; /* of all rules, one alternative after the other */
  Item item[MAX_ITEMS];
} Grammar;

Span span_of(const char *text);

/* Into a Grammar of zeros. EXIT_INTERNAL says what is wrong with the tables. */
bool grammar_compile(Grammar *g, Error *error);

/* How an alternative must begin. */
typedef struct Head {
  size_t length;
  char text[MAX_HEAD];
} Head;

void head_append(Head *head, Span span);
/* The text that an alternative begins with whatever is chosen inside it, the variables being value[]. */
void head_of(const Grammar *g, const Alternative *a, const int *value, Head *head);

#endif
