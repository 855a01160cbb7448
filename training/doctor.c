/* Reports the findings of the text doctor (doctor/doctor.h) about the files of a run before training. */
#include "training/run.h"

#include "cli/startup.h"
#include "doctor/doctor.h"
#include "util/array.h"
#include "util/file.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_SHOWN = 250 }; /* longest path in a message, in bytes */

/* All findings of one kind and variant: the first one, the file it is in, and their number. */
typedef struct Group {
  Finding finding;
  int first, files;
} Group;

typedef struct Examination {
  Run *run;
  const Corpus *corpus;
  bool trained;
  Group *groups; /* in the order in which they were found */
  size_t count, capacity;
} Examination;

static bool add_finding(Examination *e, const Finding *finding, int file, Error *error) {
  for (size_t i = 0; i < e->count; i++) {
    Group *known = &e->groups[i];
    if (known->finding.kind != finding->kind || known->finding.variant != finding->variant) continue;
    known->files++;
    return true;
  }
  if (!array_reserve(&e->groups, &e->capacity, e->count + 1, sizeof *e->groups))
    return error_memory(error, "what was found in the text");
  e->groups[e->count++] = (Group){*finding, file, 1};
  return true;
}

static bool examine_file(Examination *e, int index, Error *error) {
  const TextFile *file = corpus_file(e->corpus, index);
  MappedFile map;
  Error cause = {0};
  Findings findings;
  if (!file_map(&map, file->path, EXIT_INPUT, &cause))
    return fail(error, cause.code, "%s", text_one_line(cause.text, ONE_LINE_BYTES).text);
  doctor_examine(&findings, map.bytes, map.size, file->format, file->path);
  file_unmap(&map);
  bool ok = startup_go_on("examining the text", error);
  for (int i = 0; ok && i < findings.count; i++) ok = add_finding(e, &findings.items[i], index, error);
  return ok;
}

/* ---- saying it ---- */

static const char *name_of(const Examination *e, int file) {
  return corpus_is_stdin(e->corpus, file) ? "standard input" : corpus_file(e->corpus, file)->path;
}

/* Returns the option that reads a pipe in the format of the file. */
static void set_options(const Examination *e, int file, DoctorCommand *command) {
  const TrainSettings *s = &e->run->settings;
  const TextFormat format = corpus_file(e->corpus, file)->format;
  char *out = command->options;
  const size_t size = sizeof command->options;
  if (format == FORMAT_TSV) snprintf(out, size, " --tsv");
  if (format != FORMAT_JSONL) return;
  if (!s->prompt_field)
    snprintf(out, size, " --jsonl-field %.300s", s->jsonl_field ? text_shell_word(s->jsonl_field, 64).text : "text");
  else
    snprintf(out, size, " --prompt-field %.120s --response-field %.120s", text_shell_word(s->prompt_field, 64).text,
             text_shell_word(s->response_field, 64).text);
}

static DoctorRoute route_of(const Examination *e, int file) {
  if (corpus_is_stdin(e->corpus, file)) return DOCTOR_PIPED;
  return e->trained && corpus_files(e->corpus) == 1 ? DOCTOR_ALONE : DOCTOR_AMONG;
}

/* "a.txt: ...; convert it: iconv ..." */
static void group_text(const Examination *e, const Group *g, DoctorCommand *command, char *out, size_t size) {
  const OneLine name = text_one_line(name_of(e, g->first), NAME_SHOWN);
  char many[64] = "";
  if (g->files > 1) snprintf(many, sizeof many, "%d files, the first of them ", g->files);
  const DoctorRoute route = route_of(e, g->first);
  if (route != DOCTOR_AMONG && !command->options[0]) set_options(e, g->first, command);
  doctor_command(command, &g->finding, name_of(e, g->first), route);
  const bool insists = g->finding.command[0] && (g->finding.kind == FINDING_FOREIGN || g->finding.kind == FINDING_WIDE);
  snprintf(out, size, "%s%s: %s%s; %s%s: %s", many, name.text, g->finding.what,
           insists ? " (--binary trains on its bytes anyway)" : "", g->files > 1 ? "for each, " : "", g->finding.advice,
           command->text);
}

static bool report(const Examination *e, Error *error) {
  DoctorCommand command = {0};
  char text[6000];
  const Group *end = e->groups + e->count;
  for (const Group *g = e->groups; g < end; g++) {
    if (g->finding.level != FINDING_REFUSED) continue;
    group_text(e, g, &command, text, sizeof text);
    return fail(error, EXIT_INPUT, "%s", text);
  }
  for (const Group *g = e->groups; g < end; g++) {
    group_text(e, g, &command, text, sizeof text);
    if (g->finding.level == FINDING_WARNING) console_warning(&e->run->console, "%s", text);
    else console_note(&e->run->console, "%s", text);
  }
  return true;
}

bool run_examine_text(Run *r, const Corpus *corpus, bool trained, Error *error) {
  Examination e = {.run = r, .corpus = corpus, .trained = trained};
  bool ok = true;
  const int files = corpus_files(corpus);
  for (int i = 0; ok && i < files; i++) {
    ok = examine_file(&e, i, error);
    console_work(&r->console, &(ConsoleWork){"looking at files", i + 1, files, false});
  }
  console_work_end(&r->console);
  ok = ok && report(&e, error);
  free(e.groups);
  return ok;
}
