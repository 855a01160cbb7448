/* Unicode normalization form C (UAX #15) of any bytes: a byte that is not UTF-8 is kept and composes with nothing. */
#ifndef INKLING_TEXT_TOKENIZER_NFC_H
#define INKLING_TEXT_TOKENIZER_NFC_H

#include "base/error.h"
#include "base/array.h"

/* Reusable memory; starts as {0}. */
typedef struct NfcScratch {
  int32_t *points, *sorted;
  size_t points_capacity, sorted_capacity;
} NfcScratch;
void nfc_free(NfcScratch *scratch);

/* Adds the normalized text to `out`. Takes time proportional to its size. EXIT_MEMORY. */
bool nfc_add(ByteBuffer *out, NfcScratch *scratch, const uint8_t *text, size_t size, Error *error);

#endif
