/* Wrappers of jansson that detect failed allocations. Its parser continues after a failed allocation and then reads
 * invalid memory (2.14: lex_save() in load.c); and a value that several calls build is incomplete when one
 * of them failed. */
#ifndef INKLING_BASE_JSON_H
#define INKLING_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>

/* Calls json_loadb(). Returns NULL with EXIT_MEMORY for `what`, or NULL with *cause filled where the text is not JSON;
 * then the caller fills `error`. `cause` may be NULL. */
json_t *json_parse(const void *text, size_t size, size_t flags, json_error_t *cause, const char *what, Error *error);

/* Returns false with EXIT_MEMORY for `what` when an allocation of jansson has failed since the program started. Call it
 * before you use a value that was built. */
bool json_memory_ok(Error *error, const char *what);

/* Calls json_dumps(), which omits parts when memory is out (2.14). Returns NULL with EXIT_MEMORY for `what`, also when
 * json_memory_ok() was false before. */
char *json_text(const json_t *value, size_t flags, const char *what, Error *error);

/* Returns a value as allocated text: a string itself, "" for null and NULL, a number with at most `digits` digits, else
 * JSON. NULL when memory is out, which json_memory_ok() then reports. */
char *json_value_text(const json_t *value, int digits);

/* Calls malloc() for text that becomes JSON; json_memory_ok() also reports its failures. */
void *json_allocate(size_t size);

#endif
