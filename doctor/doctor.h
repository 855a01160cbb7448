/* The text doctor: what a file is, by its bytes, before a model is trained on it, and the command that mends it. */
#ifndef INKLING_DOCTOR_DOCTOR_H
#define INKLING_DOCTOR_DOCTOR_H

#include "doctor/findings.h"

/* Looks at all of a file up to 192 KiB, of a larger one at 64 KiB at either end and at three places of 16 KiB between;
 * of no other byte but a few, whatever the size. `name`: only its ending counts. Files of JSON lines and TSV, whose
 * lines their readers check, are asked fewer questions. An empty file has no findings. */
void text_doctor_examine(TextFindings *out, const uint8_t *bytes, size_t size, TextFormat format, const char *name);

/* Where the text comes from, and so how a command is typed. */
typedef enum TextRoute {
  TEXT_ALONE, /* the only file: `zcat a.gz | ./train -` */
  TEXT_PIPED, /* standard input: `... | zcat | ./train -` */
  TEXT_AMONG  /* one of many: `zcat a.gz >a.gz.txt`, or in its place `tr -d '\r' <a >tmp && mv tmp a` */
} TextRoute;

/* Begins as {0} for a file. But for TEXT_AMONG each finding's command holds those of the findings before it, so that
 * the last one mends all. */
typedef struct TextCommand {
  char filters[2048], options[320];
  char text[4096]; /* to be typed */
} TextCommand;
void text_doctor_command(TextCommand *command, const TextFinding *finding, const char *name, TextRoute route);

#endif
