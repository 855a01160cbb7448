/* A document that is one line of a file: what the readers of JSON lines (jsonl.h) and of TSV (tsv.h) make of it. */
#ifndef INKLING_DATASET_RECORD_H
#define INKLING_DATASET_RECORD_H

#include "util/error.h"
#include "util/text.h"

#include <stddef.h>
#include <stdint.h>

/* The document of the line parsed last. Begins as {0}, ends with record_free. */
typedef struct Record {
  const uint8_t *text; /* NULs possible; valid until the next line is parsed */
  size_t size, prompt; /* bytes, and how many of them are the prompt; size 0: no document */
  struct json_t *root; /* owns `text`, or */
  uint8_t *joined;     /* this does, where a prompt stands before the response */
  size_t capacity;
} Record;

/* What was parsed before is gone; the memory for the next line stays. */
void record_clear(Record *record);
/* Prompt and response side by side. EXIT_MEMORY. */
bool record_join(Record *record, const void *prompt, size_t prompt_size, const void *response, size_t response_size,
                 Error *error);
void record_free(Record *record);

/* Where a message says to look: "data.jsonl, line 3". */
typedef struct RecordPlace {
  char text[ONE_LINE_BYTES + 32];
} RecordPlace;

RecordPlace record_place(const char *file, int64_t line);

#endif
