/* The tables of the stories. */
#include "tools/stories/grammar.h"

static const FormText forms[] = {
    {"she", "She", "She"}, {"she", "she", "she"},   {"she", "her", "her"}, {"he", "She", "He"},
    {"he", "she", "he"},   {"he", "her", "his"},    {"one", "it", "it"},   {"many", "it", "them"},
    {"one", "toy", "toy"}, {"many", "toy", "toys"}, {NULL, NULL, NULL},
};

static const VariableText variables[] = {
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

static const RuleText rules[] = {
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

const GrammarTables story_tables = {forms, variables, rules};
