/* One value of one row, internal to cli/options.c: between the caller's variable, an OptionValue and text, for every
 * OptionKind. Knows the row's range, choices and `auto`, and how a text is quoted in a configuration file; nothing of
 * flags, files or precedence. */
#ifndef INKLING_CLI_OPTION_VALUE_H
#define INKLING_CLI_OPTION_VALUE_H

#include "cli/options.h"

/* OPTION_FLAG, OPTION_TRISTATE: need no argument and have a --no- form. */
bool option_is_switch(const Option *row);

/* The whole numbers. */
bool option_is_whole(const Option *row);

/* The kinds whose value is the given text itself. */
bool option_is_text(const Option *row);

/* The caller's variable. A list is not read or written: its OptionValue is zero. */
OptionValue option_load(const Option *row);
void option_store(const Option *row, OptionValue value);

/* Whether the value is known: see OptionKind for what stands for "not yet". Of a list it looks at the variable. */
bool option_is_set(const Option *row, OptionValue value);

/* Text to value, by the row's kind, range and choices; `auto`, where the row has it, gives the initial value. A text is
 * not copied. False when it is no such value: option_demand_text() says what would be. */
bool option_parse(const Option *row, const char *text, OptionValue *out);

/* A known value as text that option_parse() reads back. Every kind but the texts, whose length has no bound. */
void option_value_text(const Option *row, OptionValue value, char *out, size_t size);

/* "1..64", ">= 1", "> 0, <= 10"; empty when every number will do. */
void option_range_text(const Option *row, char *out, size_t size);

/* The choices of an OPTION_CHOICE with `between` between them. */
void option_choices_text(const Option *row, const char *between, char *out, size_t size);

/* What a value of this row must be, for the message about one that is not. */
void option_demand_text(const Option *row, char *out, size_t size);

/* Writes a text as it stands in a configuration file: bare when it is plain, else "..." with escapes. */
void option_write_text(FILE *stream, const char *text);

/* Reads "..." in place. Returns what follows the closing quote, or NULL and the reason. */
char *option_unquote(char *text, const char **reason);

#endif
