/* Unicode's normalization form C (UAX #15), of any bytes: a byte that is not UTF-8 stays and composes with nothing. */
#ifndef INKLING_TOKENIZER_NFC_H
#define INKLING_TOKENIZER_NFC_H

#include "util/error.h"
#include "tokenizer/byte_buffer.h"

/* Starts as {0}; used again. */
typedef struct NfcScratch {
  int32_t *points, *sorted;
  size_t points_capacity, sorted_capacity;
} NfcScratch;
void nfc_free(NfcScratch *scratch);

/* Adds the text, normalized, to `out`. Takes time proportional to its size. EXIT_MEMORY. */
bool nfc_add(ByteBuffer *out, NfcScratch *scratch, const uint8_t *text, size_t size, Error *error);

#endif
