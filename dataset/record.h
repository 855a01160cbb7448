/* A document from one line of a file, as the readers of JSON lines (jsonl.h) and TSV (tsv.h) return it. */
#ifndef INKLING_DATASET_RECORD_H
#define INKLING_DATASET_RECORD_H

#include "util/error.h"
#include "util/text.h"

#include <stddef.h>
#include <stdint.h>

/* The document of the last parsed line. Begins as {0}; freed by record_free. */
typedef struct Record {
  const uint8_t *text; /* may contain NULs; valid until the next line is parsed */
  size_t size, prompt; /* bytes of the text, and of the prompt at its beginning; size 0: no document */
  struct json_t *root; /* owns `text`, or `joined` does */
  uint8_t *joined;     /* owns `text` where a prompt precedes the response */
  size_t capacity;
} Record;

/* Clears the document and keeps the memory for the next line. */
void record_clear(Record *record);
/* Sets the text to the prompt followed by the response. EXIT_MEMORY. */
bool record_join(Record *record, const void *prompt, size_t prompt_size, const void *response, size_t response_size,
                 Error *error);
void record_free(Record *record);

/* The position of a line for a message: "data.jsonl, line 3". */
typedef struct RecordPlace {
  char text[ONE_LINE_BYTES + 32];
} RecordPlace;

RecordPlace record_place(const char *file, int64_t line);

#endif
