/* The reader of choices, in both formats: what it makes of a file. */
#include "tests/fuzz/fuzz.h"

#include "text/dataset/choice_file.h"

static void use(const ChoiceItem *item) {
  volatile uint8_t sum = 0;
  FUZZ_REQUIRE(item->count >= 2 && item->right < item->count);
  for (size_t i = 0; i < item->count; i++) {
    FUZZ_REQUIRE(item->texts[i].size > 0);
    for (size_t at = 0; at < item->texts[i].size; at++) sum = (uint8_t)(sum + item->texts[i].bytes[at]);
  }
  for (size_t at = 0; at < item->context.size; at++) sum = (uint8_t)(sum + item->context.bytes[at]);
  for (size_t at = 0; at < item->delimiter.size; at++) sum = (uint8_t)(sum + item->delimiter.bytes[at]);
}

static void read_as(const char *name, const uint8_t *bytes, size_t size) {
  ChoiceFile file;
  const ChoiceItem *item;
  Error error = {0};
  fuzz_require_done(choice_file_open(&file, fuzz_file(name, bytes, size), &error), &error);
  bool ok;
  while ((ok = choice_file_next(&file, &item, &error)) && item) use(item);
  if (!ok) fuzz_require_refusal(&error, EXIT_INPUT);
  choice_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  read_as("choices.tsv", bytes, size);
  read_as("choices.jsonl", bytes, size);
  return 0;
}
