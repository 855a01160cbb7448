/* The grammar of the sample corpus: small stories about an animal that loses a treasure and a friend who
 * gets it back. stories.c draws from these tables; every sentence in them was written for this project.
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
#ifndef INKLING_DATA_STORIES_GRAMMAR_H
#define INKLING_DATA_STORIES_GRAMMAR_H

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

/* Each table ends with an entry of NULL. The first rule is a story. */
extern const FormText grammar_forms[];
extern const VariableText grammar_variables[];
extern const RuleText grammar_rules[];

#endif
