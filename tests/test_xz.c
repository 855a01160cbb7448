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

/* Frees the bytes. */
static double measured(uint8_t *bytes, size_t before, size_t size) {
  Error error = {0};
  XzMeasurement *measurement = xz_begin(bytes, before, size, &error);
  assert_non_null(measurement);
  return xz_end(measurement);
}

static void what_was_seen_before_helps(void **state) {
  (void)state;
  uint8_t *bytes = noise();
  const double fresh = measured(bytes, SIZE, 2 * SIZE);
  bytes = noise();
  memcpy(bytes + SIZE, bytes, SIZE);
  const double again = measured(bytes, SIZE, 2 * SIZE);
  if (isnan(fresh)) {
    print_message("liblzma is not here\n");
    return;
  }
  assert_true(fresh > 7.99 && fresh < 8.1);
  assert_true(again > 0 && again < 0.3); /* a match is of at most 273 bytes */
}

static void some_texts_are_not_measured(void **state) {
  (void)state;
  assert_true(isnan(measured(noise(), 10, 10)));
  assert_true(isnan(measured(noise(), 10, XZ_BYTES + 1)));
  Error error = {0};
  XzMeasurement *unwanted = xz_begin(noise(), SIZE, 2 * SIZE, &error);
  assert_non_null(unwanted);
  xz_stop(unwanted);
  xz_stop(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_seen_before_helps),
      cmocka_unit_test(some_texts_are_not_measured),
  };
  return cmocka_run_group_tests_name("xz", tests, NULL, NULL);
}
