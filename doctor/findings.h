/* Findings about a text (doctor/doctor.h), and helpers that the checks share. */
#ifndef INKLING_DOCTOR_FINDINGS_H
#define INKLING_DOCTOR_FINDINGS_H

#include "dataset/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum TextKind {
  TEXT_FOREIGN,    /* another file type: an archive, a document, a picture, a program */
  TEXT_WIDE,       /* UTF-16 or UTF-32 */
  TEXT_BINARY,     /* many control characters, of unknown type */
  TEXT_ENCODING,   /* not UTF-8 */
  TEXT_NULS,       /* a few NUL bytes */
  TEXT_MARKS,      /* byte-order marks inside */
  TEXT_LINE_ENDS,  /* CR LF, or CR alone */
  TEXT_MARKUP,     /* HTML, XML, PostScript */
  TEXT_JSON,       /* one JSON document: an array, or an object over many lines */
  TEXT_JSON_LINES, /* JSON lines under another name */
  TEXT_CSV,        /* with a column of text */
  TEXT_GUTENBERG,  /* with Project Gutenberg's header and license */
  TEXT_REPEATS,    /* repeated text */
  TEXT_KINDS
} TextKind;

typedef enum TextLevel { TEXT_NOTE, TEXT_WARNING, TEXT_REFUSED } TextLevel;

typedef struct TextFinding {
  TextKind kind;
  int variant; /* the same command fixes all findings of one kind and variant */
  TextLevel level;
  char what[256];     /* "0.7 % of its bytes are not UTF-8 (it looks like Latin-1)" */
  const char *advice; /* the purpose of the command: "convert it" */
  /* a command that prints the text to train on; "@" is the file or standard input, "#" only a file: "zcat @"; "":
   * none */
  char command[256];
  char options[320];   /* options of ./train for that text: " --jsonl-field story" */
  const char *becomes; /* ending of the name of the file that the command makes; NULL: the same kind of text, which may
                          replace the old file */
} TextFinding;

/* The findings about a file, in the order in which their commands must be applied. */
typedef struct TextFindings {
  int count;
  TextFinding items[TEXT_KINDS];
} TextFindings;

/* ---- for the checks ---- */

enum { TEXT_SAMPLES = 5, TEXT_HEAD = 64 << 10, TEXT_MIDDLE = 16 << 10 };

typedef struct TextSample {
  const uint8_t *bytes;
  size_t size;
} TextSample;

/* A file and the samples that the checks examine: all of a small file, else the beginning, three places and the end. */
typedef struct TextView {
  const uint8_t *bytes;
  size_t size;
  TextFormat format;
  const char *name;
  TextSample samples[TEXT_SAMPLES]; /* without a byte-order mark at the beginning */
  int count;
  size_t seen; /* bytes of the samples */
} TextView;

/* Adds a finding with the fields that follow from its kind and returns it; the caller fills in the rest. */
TextFinding *text_findings_add(TextFindings *findings, TextKind kind, int variant);

/* "of its bytes", "of the 176 KiB looked at". */
typedef struct TextExtent {
  char text[64];
} TextExtent;
TextExtent text_extent(const TextView *view);
/* "0.7 %" */
typedef struct TextShare {
  char text[24];
} TextShare;
TextShare text_share(double part, double all);

static inline bool text_is_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; } /* in ASCII */
/* Returns the position of `words` in the first `size` bytes, ignoring case; `size` where they do not occur. */
size_t text_find(const uint8_t *bytes, size_t size, const char *words);
bool text_begins(const uint8_t *bytes, size_t size, const char *words); /* the same, only at the first byte */
size_t text_skip_blanks(const uint8_t *bytes, size_t size);             /* the number of blanks at the beginning */

/* foreign.c: archives, documents, pictures, programs. */
bool text_find_foreign(const TextView *view, TextFindings *out);
/* encoding.c: returns true where further checks are unnecessary. */
bool text_find_encoding(const TextView *view, TextFindings *out);
/* markup.c: HTML, XML, PostScript. */
bool text_find_markup(const TextView *view, TextFindings *out);
/* records.c: JSON and CSV. */
bool text_find_json(const TextView *view, TextFindings *out);
bool text_find_csv(const TextView *view, TextFindings *out);
/* repeats.c */
void text_find_repeats(const TextView *view, TextFindings *out);

#endif
