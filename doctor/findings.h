/* What is wrong with a text (doctor/doctor.h), and what the parts that look for it share. */
#ifndef INKLING_DOCTOR_FINDINGS_H
#define INKLING_DOCTOR_FINDINGS_H

#include "dataset/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum TextKind {
  TEXT_FOREIGN,    /* bytes of something else: an archive, a document, a picture, a program */
  TEXT_WIDE,       /* UTF-16 or UTF-32 */
  TEXT_BINARY,     /* full of control characters, of whatever it is */
  TEXT_ENCODING,   /* not UTF-8 */
  TEXT_NULS,       /* a few NUL bytes */
  TEXT_MARKS,      /* byte-order marks inside */
  TEXT_LINE_ENDS,  /* CR LF, or CR alone */
  TEXT_MARKUP,     /* HTML, XML, PostScript */
  TEXT_JSON,       /* one JSON document: an array, or an object over many lines */
  TEXT_JSON_LINES, /* under another name */
  TEXT_CSV,        /* with a column of text */
  TEXT_GUTENBERG,  /* with Project Gutenberg's header and license */
  TEXT_REPEATS,    /* the same over and over */
  TEXT_KINDS
} TextKind;

typedef enum TextLevel { TEXT_NOTE, TEXT_WARNING, TEXT_REFUSED } TextLevel;

typedef struct TextFinding {
  TextKind kind;
  int variant; /* of the kind: findings of one kind and variant are mended by the same command */
  TextLevel level;
  char what[256];     /* "0.7 % of its bytes are not UTF-8 (it looks like Latin-1)" */
  const char *advice; /* what the command is for: "convert it" */
  /* prints what to train on; "@" stands for the file or standard input, "#" for a file alone: "zcat @"; "": none */
  char command[256];
  char options[320];   /* of ./train for that: " --jsonl-field story" */
  const char *becomes; /* ending of the file that it makes; NULL: the same text, which may take the old one's place */
} TextFinding;

/* In the order in which their commands have to be applied. */
typedef struct TextFindings {
  int count;
  TextFinding items[TEXT_KINDS];
} TextFindings;

/* ---- for the parts ---- */

enum { TEXT_SAMPLES = 5, TEXT_HEAD = 64 << 10, TEXT_MIDDLE = 16 << 10 };

typedef struct TextSample {
  const uint8_t *bytes;
  size_t size;
} TextSample;

/* A file, and the places of it that are looked at: all of a small one, else the beginning, three places and the end. */
typedef struct TextView {
  const uint8_t *bytes;
  size_t size;
  TextFormat format;
  const char *name;
  TextSample samples[TEXT_SAMPLES]; /* without a byte-order mark at the beginning */
  int count;
  size_t seen; /* bytes of the samples */
} TextView;

/* The new finding, with what its kind says; the caller fills in the rest. */
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

static inline bool text_is_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; } /* of ASCII */
/* Where `words` begin in the first `size` bytes, in small letters or capitals; `size` where they are not. */
size_t text_find(const uint8_t *bytes, size_t size, const char *words);
bool text_begins(const uint8_t *bytes, size_t size, const char *words); /* the same, at the first byte */
size_t text_skip_blanks(const uint8_t *bytes, size_t size);             /* bytes of them at the beginning */

/* text_foreign.c: archives, documents, pictures, programs. */
bool text_find_foreign(const TextView *view, TextFindings *out);
/* text_encoding.c: true where the rest needs no look. */
bool text_find_encoding(const TextView *view, TextFindings *out);
/* text_markup.c: HTML, XML, PostScript. */
bool text_find_markup(const TextView *view, TextFindings *out);
/* text_records.c: JSON and CSV. */
bool text_find_json(const TextView *view, TextFindings *out);
bool text_find_csv(const TextView *view, TextFindings *out);
/* text_repeats.c */
void text_find_repeats(const TextView *view, TextFindings *out);

#endif
