#include "tools/talks/tables.h"

/* A character determines what it is, where it lives, what it eats and what it can do. */
static const FormText forms[] = {
    {"bella", "kind", "a cat"},  {"bella", "home", "on the barn roof"},
    {"bella", "food", "fish"},   {"bella", "skill", "climb trees"},
    {"daisy", "kind", "a duck"}, {"daisy", "home", "by the pond"},
    {"daisy", "food", "bread"},  {"daisy", "skill", "swim"},
    {"gus", "kind", "a bear"},   {"gus", "home", "in a cave"},
    {"gus", "food", "honey"},    {"gus", "skill", "lift logs"},
    {"lucy", "kind", "a hen"},   {"lucy", "home", "in the yard"},
    {"lucy", "food", "corn"},    {"lucy", "skill", "count eggs"},
    {"milo", "kind", "a mouse"}, {"milo", "home", "under the floor"},
    {"milo", "food", "cheese"},  {"milo", "skill", "hide anywhere"},
    {"nora", "kind", "an owl"},  {"nora", "home", "in the old oak"},
    {"nora", "food", "berries"}, {"nora", "skill", "fly at night"},
    {"pip", "kind", "a rabbit"}, {"pip", "home", "in a burrow"},
    {"pip", "food", "carrots"},  {"pip", "skill", "dig tunnels"},
    {"rufus", "kind", "a fox"},  {"rufus", "home", "in the woods"},
    {"rufus", "food", "grapes"}, {"rufus", "skill", "run fast"},
    {NULL, NULL, NULL},
};

static const VariableText variables[] = {
    {"hero", "bella:Bella|daisy:Daisy|gus:Gus|lucy:Lucy|milo:Milo|nora:Nora|pip:Pip|rufus:Rufus"},
    {"user", ":Anna|:Ben|:Clara|:David|:Emma|:Frank|:Greta|:Henry|:Ida|:Jonas|:Kate|:Leo|:Maria|:Nils|:Olga|:Paul|"
             ":Rosa|:Simon|:Tina|:Victor"},
    {"topic", "color:color|food:food|toy:toy|animal:animal"},
    {"color", ":black|:blue|:brown|:green|:grey|:orange|:pink|:purple|:red|:silver|:white|:yellow"},
    {"dish", ":bread|:cake|:corn|:fish|:honey|:jam|:noodles|:pizza|:rice|:salad|:soup|:toast"},
    {"toy", ":ball|:boat|:doll|:drum|:kite|:puzzle|:robot|:sword|:train|:yoyo"},
    {"animal", ":camel|:dog|:dolphin|:frog|:horse|:lion|:monkey|:parrot|:seal|:tiger|:whale|:zebra"},
    {NULL, NULL},
};

static const RuleText rules[] = {
    {"talk", "S You are {+hero}.\nU <hello> <iam> {+user}.\nA <welcome>, {user}! I am {hero}.\n<body>|"
             "U <hello> <iam> {+user}.\nA <welcome>, {user}! I am {+hero}.\n<body>"},
    {"hello", "Good morning!|Hello!|Hey!|Hi!"},
    {"iam", "I am|My name is|They call me"},
    {"welcome", "Good to see you|Hello|Nice to meet you|Welcome"},

    /* A fact about the user, one or two questions to the character, a question about what was said. */
    {"body", "U My favorite {+topic} is <tell@topic>\nU <say>, <question>\n<more>"},
    {"tell.color", "{+color}.\nA <good>! I will think of you when I see {color}."},
    {"tell.food", "{+dish}.\nA <good>! I could eat {dish} all day."},
    {"tell.toy", "my {+toy}.\nA <good>! We can play with your {toy}."},
    {"tell.animal", "the {+animal}.\nA <good>! I once met a {animal}."},
    {"good", "Fine|Good choice|Lovely|That is nice"},
    {"say", "Now|Please|Say|Tell me"},
    {"question", "who are you?\nA <i>, and I am {hero.kind}.|where do you live?\nA I live {hero.home}.|"
                 "what do you eat?\nA I <like> {hero.food}.|what can you do?\nA I can {hero.skill}.|"
                 "how are you?\nA I am <well>, thank you."},
    {"i", "I am {hero}|My name is {hero}"},
    {"like", "eat|like|love"},
    {"well", "fine|glad|happy|well"},
    {"more", "U One more thing: <question>\nU Do you remember <recall>\n<end>|U Do you remember <recall>\n<end>"},
    {"recall", "my name?\nA <sure>, you are {user}.|my favorite {topic}?\nA <sure>, it is <fact@topic>.|"
               "who you are?\nA <sure>, I am {hero}."},
    {"sure", "I do|Of course|Sure|Yes"},
    {"fact.color", "{color}"},
    {"fact.food", "{dish}"},
    {"fact.toy", "your {toy}"},
    {"fact.animal", "the {animal}"},
    {"end", "U <bye>!\nA <bye>, {user}!\n|E\n"},
    {"bye", "Bye|Goodbye|See you|Until later"},
    {NULL, NULL},
};

const GrammarTables talk_tables = {forms, variables, rules};
