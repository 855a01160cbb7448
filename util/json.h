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

#endif
