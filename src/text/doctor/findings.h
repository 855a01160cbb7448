/* Findings about a text (text/doctor/doctor.h), and helpers that the checks share. */
#ifndef INKLING_TEXT_DOCTOR_FINDINGS_H
#define INKLING_TEXT_DOCTOR_FINDINGS_H

#include "text/dataset/file_list.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum FindingKind {
  FINDING_FOREIGN,    /* another file type: an archive, a document, a picture, a program */
  FINDING_WIDE,       /* UTF-16 or UTF-32 */
  FINDING_BINARY,     /* many control characters, of unknown type */
  FINDING_ENCODING,   /* not UTF-8 */
  FINDING_NULS,       /* a few NUL bytes */
  FINDING_MARKS,      /* byte-order marks inside */
  FINDING_LINE_ENDS,  /* CR LF, or CR alone */
  FINDING_MARKUP,     /* HTML, XML, PostScript */
  FINDING_JSON,       /* one JSON document: an array, or an object over many lines */
  FINDING_JSON_LINES, /* JSON lines under another name */
  FINDING_FIELDS,     /* JSON lines of prompts and responses, or of chats */
  FINDING_CSV,        /* by its name */
  FINDING_CHESS,      /* games in PGN */
  FINDING_GUTENBERG,  /* with Project Gutenberg's header and license */
  FINDING_REPEATS,    /* repeated text */
  FINDING_KINDS
} FindingKind;

typedef enum FindingLevel { FINDING_NOTE, FINDING_WARNING, FINDING_REFUSED } FindingLevel;

typedef struct Finding {
  FindingKind kind;
  int variant; /* the same command fixes all findings of one kind and variant */
  FindingLevel level;
  char what[256];     /* "0.7 % of its bytes are not UTF-8" */
  const char *advice; /* the purpose of the command: "convert it" */
  /* a command that prints the text to train on; "@" is the file or standard input, "#" only a file: "zcat @"; "":
   * none */
  char command[512];
  char options[320];             /* options of ./train for that text: " --jsonl-field story" */
  bool replaces;                 /* the command's output may replace the file, which is a text of the same format */
  bool makes_fields;             /* only the fields in `options` exist, because the command makes them */
  char prompt[68], response[68]; /* the fields of pairs; the field of chats and ""; or "" */
  TextFormat format;             /* of the command's output */
} Finding;

/* The findings about a file, in the order in which their commands must be applied. */
typedef struct Findings {
  int count;
  Finding items[FINDING_KINDS];
} Findings;

/* ---- for the checks ---- */

enum { DOCTOR_SAMPLES = 5, DOCTOR_HEAD = 64 << 10, DOCTOR_MIDDLE = 16 << 10 };

typedef struct DoctorSample {
  const uint8_t *bytes;
  size_t size;
} DoctorSample;

/* A file and the samples that the checks examine: all of a small file, else the beginning, three places and the end. */
typedef struct DoctorView {
  const uint8_t *bytes;
  size_t size;
  TextFormat format;
  const char *name;
  DoctorSample samples[DOCTOR_SAMPLES]; /* without a byte-order mark at the beginning */
  int count;
  size_t seen; /* bytes of the samples */
} DoctorView;

/* Adds a finding, with `command` (NULL: none) and a formatted `what`, and returns it; the caller may change the other
 * fields, which follow from its kind. */
__attribute__((format(printf, 5, 6))) Finding *doctor_add(Findings *findings, FindingKind kind, int variant,
                                                          const char *command, const char *format, ...);

/* "0.7 % of its bytes", "0.7 % of the 176 KiB looked at". */
OneLine doctor_percent(const DoctorView *view, double count, double all);

static inline bool doctor_is_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; } /* in ASCII */
/* Returns the position of `words` in the first `size` bytes, ignoring case; `size` where they do not occur. */
size_t doctor_search(const uint8_t *bytes, size_t size, const char *words);
bool doctor_begins(const uint8_t *bytes, size_t size, const char *words); /* the same, only at the first byte */
size_t doctor_skip_blanks(const uint8_t *bytes, size_t size);             /* the number of blanks at the beginning */

/* foreign.c: archives, documents, pictures, programs. */
bool doctor_find_foreign(const DoctorView *view, Findings *out);
/* encoding.c: returns true where further checks are unnecessary. */
bool doctor_find_encoding(const DoctorView *view, Findings *out);
/* markup.c: HTML, XML, PostScript. */
bool doctor_find_markup(const DoctorView *view, Findings *out);
/* records.c: JSON and CSV. */
bool doctor_find_json(const DoctorView *view, Findings *out);
bool doctor_find_csv(const DoctorView *view, Findings *out);
/* repeats.c */
void doctor_find_repeats(const DoctorView *view, Findings *out);

#endif
