/* The reader of config.txt, with all options of ./train. What it accepts is written, and read as the same. */
#include "tests/fuzz/fuzz.h"

#include "train/settings.h"

#include <string.h>

/* What a file says, as it is written again; NULL: it was refused. */
static char *write_again(const char *path, size_t *size) {
  char program[] = "train", *arguments[] = {program, NULL}, *text = NULL;
  TrainSettings settings;
  Options options;
  Error error = {0};
  train_options(&options, &settings);
  if (options_parse(&options, 1, arguments, &error) && options_load(&options, path, EXIT_INPUT, &error)) {
    FILE *stream = open_memstream(&text, size);
    FUZZ_REQUIRE(stream && options_write(&options, stream, NULL, NULL) && fclose(stream) == 0);
  } else fuzz_require_refusal(&error, EXIT_INPUT);
  options_free(&options);
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  size_t first_size, second_size;
  char *first = write_again(fuzz_file("config.txt", bytes, size), &first_size);
  if (!first) return 0;
  char *second = write_again(fuzz_file("config.txt", (const uint8_t *)first, first_size), &second_size);
  FUZZ_REQUIRE(second && first_size == second_size && memcmp(first, second, first_size) == 0);
  free(first);
  free(second);
  return 0;
}
