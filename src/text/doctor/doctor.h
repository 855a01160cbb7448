/* The text doctor examines the bytes of a file before training, reports problems, and suggests commands that fix
 * them. */
#ifndef INKLING_TEXT_DOCTOR_DOCTOR_H
#define INKLING_TEXT_DOCTOR_DOCTOR_H

#include "text/doctor/findings.h"

/* Examines a whole file of up to 192 KiB; of a larger file 64 KiB at either end, three samples of 16 KiB between, and
 * only a few other bytes, for any size. It uses only the ending of `name`. JSON lines and TSV get fewer checks, because
 * their readers check the lines. An empty file has no findings. */
void doctor_examine(Findings *out, const uint8_t *bytes, size_t size, TextFormat format, const char *name);
/* Does the first of these checks: what the file is. It finds the kinds up to FINDING_NULS. */
void doctor_identify(Findings *out, const uint8_t *bytes, size_t size, const char *name);

/* The origin of the text, which determines the form of a command. */
typedef enum DoctorRoute {
  DOCTOR_ALONE, /* the only file: `zcat a.gz | ./train -` */
  DOCTOR_PIPED, /* standard input: `... | zcat | ./train -` */
  DOCTOR_AMONG  /* one of several files: `zcat a.gz >a.gz.txt`, or in place: `tr -d '\r' <a >tmp && mv tmp a` */
} DoctorRoute;

/* The command for a file's findings. Begins as {0}, or with the command line of the program. Except for DOCTOR_AMONG,
 * the command of each finding includes the commands of the earlier findings, so that the last command fixes all of
 * them. */
typedef struct DoctorCommand {
  /* the files and the other options that the user gave, each after a space; " ...": they are too long */
  char inputs[512], typed[512];
  const char *word; /* stands for the name in the command: `"$f"`; NULL: the name */
  char filters[2048], options[320];
  char text[4096]; /* the command line for the user */
} DoctorCommand;
/* Returns whether the text is right as it is, so that only the options of the program change. */
bool doctor_keeps_text(const Finding *finding);
void doctor_command(DoctorCommand *command, const Finding *finding, const char *name, DoctorRoute route);

/* Returns what must be installed before the command of a finding can run, as the beginning of its advice: "after `sudo
 * apt install pandoc`, "; "": nothing. */
OneLine doctor_missing(const Finding *finding);

#endif
