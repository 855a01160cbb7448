/* jansson without memory. Its parser goes on after a failed allocation and then reads what is not there (2.14:
 * lex_save() in load.c); and what is built by many calls lacks a part where one of them failed. */
#ifndef INKLING_UTIL_JSON_H
#define INKLING_UTIL_JSON_H

#include "util/error.h"

#include <jansson.h>

/* json_loadb(). NULL with EXIT_MEMORY for `what`; NULL and *cause, which may be NULL, where the text is no JSON: the
 * error is then left to the caller. */
json_t *json_parse(const void *text, size_t size, size_t flags, json_error_t *cause, const char *what, Error *error);

/* False, EXIT_MEMORY for `what`, when jansson has asked for memory in vain since the program began: to be asked before
 * what was built is used. */
bool json_memory_ok(Error *error, const char *what);

/* json_dumps(), which leaves parts out where it has no memory for them (2.14). NULL: EXIT_MEMORY for `what`, also when
 * json_memory_ok() was false before. */
char *json_text(const json_t *value, size_t flags, const char *what, Error *error);

/* A value as text in fresh memory: a string itself, nothing of null and NULL, of a number so many digits at most, else
 * JSON. NULL: out of memory, of which json_memory_ok() knows. */
char *json_value_text(const json_t *value, int digits);

/* malloc() of text that becomes JSON: json_memory_ok() knows of its failures, too. */
void *json_allocate(size_t size);

#endif
