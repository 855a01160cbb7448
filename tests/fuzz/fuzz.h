/* Fuzzing of the readers: fuzz_NAME.c gives the bytes to one of them as a file and stops the program (FUZZ_REQUIRE)
 * where what was read breaks a promise. `make fuzz` runs each with libFuzzer; `make test` replays the corpus. */
#ifndef INKLING_TESTS_FUZZ_H
#define INKLING_TESTS_FUZZ_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define FUZZ_REQUIRE(condition)                                                                                        \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      abort();                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* A directory of this process's own, in memory where there is such a place; removed at the end. */
const char *fuzz_directory(void);
/* DIR/NAME of that directory with these bytes; valid until the next call. */
const char *fuzz_file(const char *name, const uint8_t *bytes, size_t size);

void fuzz_require_done(bool ok, const Error *error);
/* A refusal has a text, and one of these codes or EXIT_MEMORY. */
void fuzz_require_refusal(const Error *error, ExitCode code);

#endif
