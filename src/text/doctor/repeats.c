/* Finds repeated text: repeated lines, and a file concatenated with itself. */
#include "text/doctor/findings.h"

#include "text/tokenizer/tokenizer.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

enum {
  SMALLEST = 2048, /* smallest sample to examine, in bytes */
  LONG_LINE = 40,  /* bytes; many texts repeat shorter lines */
  SLOTS = 1 << 11, /* hash table of the long lines of DOCTOR_HEAD bytes, which is never full */
  COPIES = 10,     /* most copies of the whole text in a file */
  PROBE = 256      /* bytes compared at both ends of each copy */
};

enum { REPEATS_LINES, REPEATS_ALL };

/* ---- lines ---- */

_Static_assert(SLOTS > DOCTOR_HEAD / LONG_LINE, "the table must have an empty slot");

/* Returns the total size of the lines that occur earlier in these at most DOCTOR_HEAD bytes. */
static size_t repeated_lines(const uint8_t *at, size_t size) {
  uint64_t seen[SLOTS] = {0};
  size_t out = 0;
  const uint8_t *end = at + size;
  for (const uint8_t *newline; at < end && (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
    const size_t length = (size_t)(newline - at);
    if (length < LONG_LINE) continue;
    const uint64_t sum = checksum_xxh64(at, length, 0) | 1;
    size_t slot = sum >> 1 & (SLOTS - 1);
    while (seen[slot] && seen[slot] != sum) slot = (slot + 1) & (SLOTS - 1);
    if (seen[slot]) out += length + 1;
    seen[slot] = sum;
  }
  return out;
}

static bool find_lines(const DoctorView *view, Findings *out) {
  size_t repeated = 0;
  for (int i = 0; i < view->count; i++) {
    const DoctorSample *s = &view->samples[i]; /* a short text is one sample of several times DOCTOR_HEAD */
    for (size_t at = 0; at < s->size; at += DOCTOR_HEAD)
      repeated += repeated_lines(s->bytes + at, s->size - at < DOCTOR_HEAD ? s->size - at : DOCTOR_HEAD);
  }
  if (repeated * 2 < view->seen || view->seen < SMALLEST) return false;
  /* the command keeps empty lines and those that end a document */
  doctor_add(out, FINDING_REPEATS, REPEATS_LINES, "awk '!NF || $0 == \"" END_OF_TEXT "\" || !seen[$0]++' @",
             "%s are repeated lines", doctor_percent(view, (double)repeated, (double)view->seen).text);
  return true;
}

/* ---- the whole file ---- */

static bool find_copies(const DoctorView *view, Findings *out) {
  for (size_t copies = COPIES; copies >= 2; copies--) {
    const size_t one = view->size / copies;
    if (view->size % copies || one < SMALLEST) continue;
    bool same = true;
    for (size_t i = 1; same && i < copies; i++)
      same = memcmp(view->bytes, view->bytes + i * one, PROBE) == 0 &&
             memcmp(view->bytes + one - PROBE, view->bytes + (i + 1) * one - PROBE, PROBE) == 0;
    if (!same) continue;
    Finding *finding =
        doctor_add(out, FINDING_REPEATS, REPEATS_ALL, NULL,
                   "it seems to be the same %s %zu times (each part begins and ends with the same %d bytes)",
                   text_bytes((double)one).text, copies, PROBE);
    snprintf(finding->command, sizeof finding->command, "head -c %zu @", one);
    return true;
  }
  return false;
}

void doctor_find_repeats(const DoctorView *view, Findings *out) {
  /* other findings change the size of a copy: they are mended first */
  if (!(out->count == 0 && find_copies(view, out))) find_lines(view, out);
}
