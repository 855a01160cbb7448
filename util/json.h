/* Memory of jansson. Its functions fail in the same way for lack of memory and for a text that is no JSON, and what is
 * built by many calls lacks a part where one of them failed. */
#ifndef INKLING_UTIL_JSON_H
#define INKLING_UTIL_JSON_H

#include "util/error.h"

/* False, EXIT_MEMORY for `what`, when jansson has asked for memory in vain since the program began: to be asked after a
 * text could not be parsed, and before what was built is used. */
bool json_memory_ok(Error *error, const char *what);

#endif
