#include "dataset/record.h"

#include "util/array.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void record_clear(Record *record) {
  json_decref(record->root);
  record->root = NULL;
  record->text = NULL;
  record->size = record->prompt = 0;
}

bool record_join(Record *record, const void *prompt, size_t prompt_size, const void *response, size_t response_size,
                 Error *error) {
  const size_t size = prompt_size + response_size;
  if (!array_reserve(&record->joined, &record->capacity, size, 1))
    return fail(error, EXIT_MEMORY, "out of memory for a document of %zu bytes", size);
  if (prompt_size > 0) memcpy(record->joined, prompt, prompt_size);
  if (response_size > 0) memcpy(record->joined + prompt_size, response, response_size);
  record->text = record->joined;
  record->size = size;
  record->prompt = prompt_size;
  return true;
}

void record_free(Record *record) {
  record_clear(record);
  free(record->joined);
  *record = (Record){0};
}

RecordPlace record_place(const char *file, int64_t line) {
  RecordPlace place;
  snprintf(place.text, sizeof place.text, "%s, line %lld", text_one_line(file, 250).text, (long long)line);
  return place;
}
