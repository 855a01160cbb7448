/* xz as a level to compare with. */
#include "report/xz.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 60000 }; /* bytes */

/* Bytes that nothing can predict, from XORShift. */
static uint8_t *noise(void) {
  uint8_t *bytes = malloc(2 * SIZE);
  assert_non_null(bytes);
  uint32_t x = 1;
  for (int i = 0; i < 2 * SIZE; i++) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    bytes[i] = (uint8_t)(x >> 11);
  }
  return bytes;
}

static void what_was_seen_before_helps(void **state) {
  (void)state;
  uint8_t *bytes = noise();
  const double fresh = xz_bits_per_byte(bytes, SIZE, 2 * SIZE);
  memcpy(bytes + SIZE, bytes, SIZE);
  const double again = xz_bits_per_byte(bytes, SIZE, 2 * SIZE);
  free(bytes);
  if (isnan(fresh)) {
    print_message("liblzma is not here\n");
    return;
  }
  assert_true(fresh > 7.99 && fresh < 8.1);
  assert_true(again > 0 && again < 0.3); /* a match is of at most 273 bytes */
}

static void some_texts_are_not_measured(void **state) {
  (void)state;
  uint8_t *bytes = noise();
  assert_true(isnan(xz_bits_per_byte(bytes, 10, 10)));
  assert_true(isnan(xz_bits_per_byte(bytes, 10, XZ_BYTES + 1)));
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_seen_before_helps),
      cmocka_unit_test(some_texts_are_not_measured),
  };
  return cmocka_run_group_tests_name("xz", tests, NULL, NULL);
}
