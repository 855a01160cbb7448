/* The readers of JSON lines, with and without a prompt, and of TSV: what each makes of a line; FASTA and logs. */
#include "tests/fuzz/fuzz.h"

#include "text/dataset/conversation.h"
#include "text/dataset/record.h"

#include <string.h>

static void use(const Record *record, bool ok, const Error *error) {
  volatile uint8_t sum = 0;
  if (!ok) fuzz_require_refusal(error, EXIT_INPUT);
  else {
    FUZZ_REQUIRE(record->prompt <= record->size);
    for (size_t i = 0; i < record->size; i++) sum = (uint8_t)(sum + record->text[i]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Record record = {0};
  const uint8_t *end = bytes + size;
  int64_t number = 1;
  for (const uint8_t *line = bytes, *newline; line < end; line = newline + 1, number++) {
    newline = memchr(line, '\n', (size_t)(end - line));
    if (!newline) newline = end;
    const size_t length = (size_t)(newline - line);
    Error errors[3] = {{0}};
    use(&record,
        record_parse_jsonl(&record, &(RecordFields){.text = "text", .conversations = true}, line, length, "x", number,
                           &errors[0]),
        &errors[0]);
    use(&record,
        record_parse_jsonl(&record, &(RecordFields){.prompt = "q", .text = "text"}, line, length, "x", number,
                           &errors[1]),
        &errors[1]);
    use(&record, record_parse_tsv(&record, line, length, "x", number, &errors[2]), &errors[2]);
  }
  int64_t lines;
  for (size_t at = 0, read; at < size; at += read) {
    Error error = {0};
    use(&record, record_parse_fasta(&record, bytes + at, size - at, &read, &lines, &error), &error);
    FUZZ_REQUIRE(read > 0 && read <= size - at && lines > 0 &&
                 !memchr(record.size ? record.text : bytes, '\n', record.size));
  }
  for (size_t at = 0, read = 1; at < size && read; at += read) {
    Error error = {0};
    read = 0; /* it stays so after an error */
    use(&record, conversation_parse(&record, "a", bytes + at, size - at, &read, &lines, "x", 1, &error), &error);
    FUZZ_REQUIRE(read <= size - at);
  }
  record_free(&record);
  return 0;
}
