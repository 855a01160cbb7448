#include "util/json.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_bool failed;

static void *allocate(size_t size) {
  void *memory = malloc(size);
  if (!memory) failed = true;
  return memory;
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(allocate, free); }

bool json_memory_ok(Error *error, const char *what) { return !failed || error_memory(error, what); }
