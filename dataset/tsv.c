#include "dataset/tsv.h"

#include <string.h>

bool tsv_parse(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number, Error *error) {
  record_clear(record);
  if (size > 0 && line[size - 1] == '\r') size--;
  if (size == 0) return true;
  const uint8_t *tab = memchr(line, '\t', size);
  if (!tab)
    return fail(error, EXIT_INPUT, "%s, has one column; a line of a .tsv file is a prompt, a tab and a response",
                record_place(file, number).text);
  const uint8_t *response = tab + 1;
  const size_t left = size - (size_t)(response - line);
  const uint8_t *next = memchr(response, '\t', left);
  return record_join(record, line, (size_t)(tab - line), response, next ? (size_t)(next - response) : left, error);
}
