#include "tools/stories/grammar.h"

#include <stdio.h>
#include <string.h>

/* ---- the tables ---- */

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
static const FormText grammar_forms[] = {
    {"she", "She", "She"}, {"she", "she", "she"},   {"she", "her", "her"}, {"he", "She", "He"},
    {"he", "she", "he"},   {"he", "her", "his"},    {"one", "it", "it"},   {"many", "it", "them"},
    {"one", "toy", "toy"}, {"many", "toy", "toys"}, {NULL, NULL, NULL},
};

static const VariableText grammar_variables[] = {
    {"hero", "she:Bella|she:Daisy|she:Lucy|she:Nora|he:Gus|he:Milo|he:Pip|he:Rufus"},
    {"flyer", ":Ella|:Hugo|:Iris|:Oscar"},
    {"swimmer", ":Queenie|:Sam|:Uma|:Violet"},
    {"digger", ":Anna|:Fred|:Tess|:Walter"},
    {"kind", ":bear|:cat|:duck|:fox|:goat|:hen|:kitten|:lamb|:mouse|:otter|:puppy|:rabbit|:squirrel|:turtle"},
    {"thing", "one:boat|one:drum|one:kite|one:train|many:animals|many:cars|many:monkeys|many:soldiers"},
    {"weather", "wind:breezy|wind:windy|fog:foggy|fog:misty|wet:drizzly|wet:rainy|hot:hot|hot:sunny"},
    {"spot", "up:birch|up:elm|up:oak|up:willow|water:creek|water:lake|water:pond|water:river|"
             "hole:ditch|hole:gully|hole:hole|hole:tunnel"},
    {NULL, NULL},
};

static const RuleText grammar_rules[] = {
    {"story", "Once a <big> {+kind} named {+hero} <loved> <big> <plums>, <plums> "
              "and {hero.her} <big> toy {+thing}.\n"
              "One {+weather} <time>, {hero} <took> {hero.her} toy {thing} to the <big> <place>. <trouble@weather>\n"
              "\"<alas>, my <big> {thing.toy}!\" {hero.she} <cried>. {hero.She} <jumped@spot> <boldly>.\n"
              "<helper@spot>!\" {hero.she} <said>. "
              "They ate <big> <plums> and <big> <plums> until <dusk>.\n"},

    {"big", "big|blue|bold|bright|clean|cosy|cute|dark|fine|funny|good|grand|green|grey|huge|jolly|"
            "lively|lucky|neat|nice|pink|plain|posh|pretty|quiet|red|round|royal|small|soft|tiny|wild"},
    {"loved", "adored|enjoyed|liked|loved|needed|prized|shared|valued"},
    {"plums", "apples|bread|buns|cakes|corn|dates|eggs|figs|fish|grapes|honey|ice|jam|jelly|kale|lemons|"
              "limes|mints|nuts|oats|pears|peas|pies|plums|rice|rolls|salad|soup|tarts|toast|waffles|yams"},
    {"time", "dawn|evening|Friday|Monday|noon|Sunday|Tuesday|winter"},
    {"took", "brought|carried|dragged|hauled|lugged|moved|pulled|took"},
    {"place", "abbey|barn|castle|dunes|farm|garden|hill|inn|jetty|kiosk|market|orchard|park|"
              "school|valley|yard"},

    /* The weather brings the trouble. */
    {"trouble.wind", "The wind <blew> {thing.it} from {hero.her} paws into the <big> {+spot}."},
    {"trouble.wet", "{hero.She} slipped, and {thing.it} <fell> into the <big> {+spot}."},
    {"trouble.fog", "In the fog {hero.she} <lost> {thing.it} in the <big> {+spot}."},
    {"trouble.hot", "{hero.She} took a nap, and {thing.it} <fell> into the <big> {+spot}."},
    {"blew", "blew|carried|flung|hurled|pulled|swept|tossed|whisked"},
    {"fell", "bounced|flew|hopped|jumped|sailed|shot|tumbled|zoomed"},
    {"lost", "dropped|left|lost|misplaced"},

    {"alas", "Alas|Dear me|Goodness|Help|My|Oh|Please|Woe"},
    {"cried", "cried|gasped|howled|moaned|sobbed|wailed|yelled|bawled"},

    /* The place it fell into decides what is tried, who can help, and how. */
    {"jumped.up", "climbed|hopped|jumped|leaped|reached|stretched"},
    {"jumped.water", "dived|fished|paddled|splashed|swam|waded"},
    {"jumped.hole", "crawled|dug|peeked|rummaged|scratched|tugged"},
    {"boldly", "boldly|calmly|deftly|eagerly|fiercely|gladly|happily|in vain|keenly|lightly|madly|nimbly|"
               "once|proudly|quickly|rashly|slowly|twice|until noon|wildly"},

    {"helper.up", "{+flyer} the <big> <bird> <flew> up <boldly> and <got> {thing.it}.\n\"<thanks>, {flyer}"},
    {"helper.water", "{+swimmer} the <big> <fish> <swam> in <boldly> and <got> {thing.it}.\n\"<thanks>, {swimmer}"},
    {"helper.hole", "{+digger} the <big> <mole> <dug> down <boldly> and <got> {thing.it}.\n\"<thanks>, {digger}"},
    {"bird", "crow|eagle|jay|owl|robin|wren"},
    {"fish", "beaver|frog|goose|newt|swan|toad"},
    {"mole", "ant|badger|gopher|mole|shrew|vole"},
    {"flew", "circled|flew|glided|soared"},
    {"swam", "dived|paddled|swam|waded"},
    {"dug", "burrowed|crawled|dug|tunnelled"},
    {"got", "caught|fetched|found|got|rescued|saved"},

    {"thanks", "Bravo|Hooray|Nice work|Thank you|Well done|You did it"},
    {"said", "beamed|called|giggled|hummed|laughed|said|whispered|yelled"},
    {"dusk", "bedtime|dusk|midnight|nightfall|sunset|the moon rose|winter"},
    {NULL, NULL},
};

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
static Span form_of(const Word *word, Span form) {
  if (form.length == 0) return word->text;
  for (const FormText *f = grammar_forms; f->tag; f++)
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
    item->text_of[w] = form_of(&v->word[w], inside);
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

bool grammar_compile(Grammar *g, Error *error) {
  for (const VariableText *v = grammar_variables; v->name; v++)
    if (!compile_variable(g, v, error)) return false;
  for (const RuleText *r = grammar_rules; r->name; r++) { /* all names first, because rules refer to later rules */
    if (g->rules == MAX_RULES) return fail(error, EXIT_INTERNAL, "grammar: more than %d rules", MAX_RULES);
    g->rule[g->rules++].name = r->name;
  }
  for (int i = 0; i < g->rules; i++)
    if (!compile_rule(g, &grammar_rules[i], &g->rule[i], error)) return false;
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
