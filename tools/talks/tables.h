/* The grammar of the conversations, as in tools/stories/grammar.h. A line of a conversation is a message; it begins
 * with "S ", "U " or "A " for the role: system, user, assistant. A line "E" ends a conversation without a farewell. */
#ifndef INKLING_TOOLS_TALKS_TABLES_H
#define INKLING_TOOLS_TALKS_TABLES_H

#include "tools/stories/grammar.h"

extern const GrammarTables talk_tables;

#endif
