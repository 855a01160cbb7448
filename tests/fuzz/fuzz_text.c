/* What is asked of a text before a model is trained on it: the text doctor, and a split into words without loss. */
#include "tests/fuzz/fuzz.h"

#include "text/doctor/doctor.h"
#include "text/tokenizer/tokenizer.h"

#include <string.h>

/* A BPE without merges splits into words as others do, and its ids are the bytes. */
static void split(const uint8_t *bytes, size_t size) {
  static Tokenizer *tokenizer;
  BpeIds ids = {0};
  Error error = {0};
  FUZZ_REQUIRE(tokenizer || tokenizer_from_merges(&tokenizer, NULL, 0, &error));
  FUZZ_REQUIRE(tokenizer_encode(tokenizer, bytes, size, &ids, &error) && ids.count == size);
  for (size_t i = 0; i < size; i++) {
    size_t length;
    const uint8_t *byte = tokenizer_decode(tokenizer, ids.ids[i], &length);
    FUZZ_REQUIRE(length == 1 && *byte == bytes[i]);
  }
  free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  for (TextFormat format = FORMAT_TEXT; format < TEXT_FORMATS; format++) {
    Findings findings;
    DoctorCommand command = {0};
    doctor_examine(&findings, bytes, size, format, "a.txt");
    FUZZ_REQUIRE(findings.count >= 0 && findings.count <= FINDING_KINDS && (size || !findings.count));
    for (int i = 0; i < findings.count; i++) {
      FUZZ_REQUIRE(strlen(findings.items[i].what) > 0);
      doctor_command(&command, &findings.items[i], "a.txt", DOCTOR_ALONE);
    }
  }
  split(bytes, size);
  return 0;
}
