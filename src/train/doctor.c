/* Reports the findings of the text doctor (text/doctor/doctor.h) about the files of a run before training. */
#include "train/run.h"

#include "cli/startup.h"
#include "text/doctor/doctor.h"
#include "text/tokenizer/added_tokens.h"
#include "base/array.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SHOWN = 250 }; /* longest path in a message, in bytes */

/* All findings that the same command fixes: the first one, and the files that they are in. */
typedef struct Group {
  Finding finding;
  int *files;
  size_t count, capacity;
} Group;

typedef struct Examination {
  Run *run;
  const Corpus *corpus;
  bool trained;
  Group *groups; /* in the order in which they were found */
  size_t count, capacity;
} Examination;

static const char *name_of(const Examination *e, int file) {
  return corpus_is_stdin(e->corpus, file) ? "standard input" : corpus_file(e->corpus, file)->path;
}

/* Returns whether the same command fixes the finding in another file. */
static bool same_command(const Examination *e, const Group *g, const Finding *finding, int file) {
  const Finding *known = &g->finding;
  const char *path = name_of(e, g->files[0]), *other = name_of(e, file);
  return known->kind == finding->kind && known->variant == finding->variant && known->format == finding->format &&
         strcmp(known->command, finding->command) == 0 && strcmp(known->options, finding->options) == 0 &&
         text_has_ending(path) == text_has_ending(other) && text_format_of(path) == text_format_of(other);
}

static bool add_finding(Examination *e, const Finding *finding, int file, Error *error) {
  Group *group = e->groups, *end = e->groups + e->count;
  while (group < end && !same_command(e, group, finding, file)) group++;
  if (group == end) {
    if (!array_reserve(&e->groups, &e->capacity, e->count + 1, sizeof *e->groups))
      return error_memory(error, "what was found in the text");
    group = &e->groups[e->count++];
    *group = (Group){.finding = *finding};
  }
  if (!array_reserve(&group->files, &group->capacity, group->count + 1, sizeof *group->files))
    return error_memory(error, "what was found in the text");
  group->files[group->count++] = file;
  return true;
}

/* Returns whether a finding about the fields of JSON lines concerns this run, which may read other fields. One field of
 * a pair can be read alone, but half of the data is then lost. */
static bool take_fields(const TrainSettings *s, Finding *finding) {
  const char *field = s->jsonl_field ? s->jsonl_field : "text";
  const bool half = strcmp(field, finding->prompt) == 0 || strcmp(field, finding->response) == 0;
  if (half && finding->response[0]) finding->level = FINDING_WARNING;
  return !s->prompt_field && (half || (strcmp(field, "text") == 0 && finding->level == FINDING_REFUSED));
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
  for (Finding *f = findings.items; ok && f < findings.items + findings.count; f++)
    if (f->kind != FINDING_FIELDS || take_fields(&e->run->settings, f)) ok = add_finding(e, f, index, error);
  return ok;
}

/* ---- saying it ---- */

/* Sets the options that read the command's output, or standard input, in its format. */
static void set_options(const TrainSettings *s, Finding *finding) {
  char *out = finding->options;
  const size_t size = sizeof finding->options;
  if (finding->format == FORMAT_TSV) snprintf(out, size, " --tsv");
  if (finding->format == FORMAT_FASTA) snprintf(out, size, " --fasta");
  if (finding->format != FORMAT_JSONL || finding->makes_fields || finding->kind == FINDING_FIELDS) return;
  if (s->prompt_field)
    snprintf(out, size, " --prompt-field %.120s --response-field %.120s", text_shell_word(s->prompt_field, 64).text,
             text_shell_word(s->response_field, 64).text);
  else if (s->jsonl_field) snprintf(out, size, " --jsonl-field %.300s", text_shell_word(s->jsonl_field, 64).text);
  else if (!out[0]) snprintf(out, size, " --jsonl-field text");
}

/* Writes the command line of this program, except for the options that the finding sets. */
static void set_command_line(const Run *r, const Finding *finding, DoctorCommand *command) {
  const TextList *data = &r->settings.data;
  const char *beside = finding->options[0] ? "data jsonl-field prompt-field response-field tsv fasta" : "data";
  bool fits = true;
  command->inputs[0] = '\0';
  for (int i = 0; i < data->count; i++)
    fits = text_append(command->inputs, sizeof command->inputs, " %s",
                       path_is_stdin(data->items[i]) ? "-" : text_shell_word(data->items[i], NAME_SHOWN).text) &&
           fits;
  if (!fits) strcpy(command->inputs, " ...");
  if (!options_write_command(&r->options, beside, command->typed, sizeof command->typed))
    strcpy(command->typed, " ...");
}

/* Options that name fields make standard input JSON lines. */
static DoctorRoute route_of(const Examination *e, int file, const Finding *finding) {
  const TrainSettings *s = &e->run->settings;
  if (corpus_is_stdin(e->corpus, file)) return DOCTOR_PIPED;
  if ((s->jsonl_field || s->prompt_field) && finding->format != FORMAT_JSONL) return DOCTOR_AMONG;
  return e->trained && corpus_files(e->corpus) == 1 ? DOCTOR_ALONE : DOCTOR_AMONG;
}

/* Returns whether the user named the file; *inside: whether a directory that holds it was named. Not inlined: a path
 * takes 4 KB of stack. */
static __attribute__((noinline)) bool is_named(const TrainSettings *s, const char *path, bool *inside) {
  bool named = s->val && strcmp(s->val, path) == 0;
  *inside = false;
  for (int i = 0; i < s->data.count; i++) {
    const NamedText text = settings_text(s->data.items[i]);
    const char *item = text.path.text;
    const size_t size = strlen(item);
    named = named || strcmp(item, path) == 0;
    *inside = *inside || (size && strncmp(item, path, size) == 0 && (item[size - 1] == '/' || path[size] == '/'));
  }
  return named;
}

/* Says what else must change when the command has written another file. */
static void add_next(const Examination *e, const Finding *finding, const char *path, char *out, size_t size) {
  const TrainSettings *s = &e->run->settings;
  const bool moves = !finding->replaces && !(text_has_ending(path) && text_format_of(path) == finding->format);
  const bool options =
      finding->format == FORMAT_JSONL && (finding->makes_fields || !(s->jsonl_field || s->prompt_field));
  bool inside;
  if (moves && is_named(s, path, &inside))
    text_append(out, size, inside ? ", and leave out this file" : ", and name that file instead");
  if (!finding->replaces && options && strcmp(finding->options, " --jsonl-field text") != 0)
    text_append(out, size, ", and give%s", finding->options);
}

/* Writes the command for all files of the group: a loop over them, where there are several. Returns the number of files
 * in the loop: not all names may fit. */
static size_t write_command(const Examination *e, const Group *g, const Finding *finding, DoctorCommand *command,
                            char *out, size_t size) {
  enum { NAMES = 1000 };
  const char *path = name_of(e, g->files[0]);
  const DoctorRoute route = route_of(e, g->files[0], finding);
  const bool loop =
      route == DOCTOR_AMONG && g->count > 1 && strchr(finding->command, ' ') && !doctor_keeps_text(finding);
  size_t done = 0;
  command->word = loop ? "\"$f\"" : NULL;
  doctor_command(command, finding, path, route);
  *out = '\0';
  if (loop) snprintf(out, size, "for f in");
  for (; loop && done < g->count && strlen(out) < NAMES; done++)
    text_append(out, size, " %s", text_shell_word(name_of(e, g->files[done]), NAME_SHOWN).text);
  text_append(out, size, loop ? "; do %s; done" : "%s", command->text);
  if (route == DOCTOR_AMONG) add_next(e, finding, path, out, size);
  return loop ? done : g->count;
}

/* "a.txt: ...; convert it: iconv ..." */
static void group_text(const Examination *e, const Group *g, DoctorCommand *command, char *out, size_t size) {
  const TrainSettings *s = &e->run->settings;
  Finding finding = g->finding;
  char typed[4800];
  set_options(s, &finding);
  set_command_line(e->run, &finding, command);
  const size_t done = write_command(e, g, &finding, command, typed, sizeof typed);
  const char *fields = finding.kind != FINDING_FIELDS || !finding.response[0] ? ""
                       : finding.level == FINDING_REFUSED                     ? ", and no \"text\""
                                                                              : ", and only one of them is read";
  const bool insists = finding.kind == FINDING_FOREIGN && finding.command[0];
  *out = '\0';
  if (g->count > 1) text_append(out, size, "%zu files, the first of them ", g->count);
  text_append(out, size, "%s: %s%s%s; %s", text_one_line(name_of(e, g->files[0]), NAME_SHOWN).text, finding.what,
              fields, insists ? " (--binary trains on its bytes anyway)" : "", doctor_missing(&finding).text);
  if (done < g->count) text_append(out, size, "for the first %zu, ", done);
  text_append(out, size, "%s: %s", finding.advice, typed);
}

/* All files are reported at once, so that the user can fix all of them. */
static bool report(const Examination *e, Error *error) {
  DoctorCommand command = {0};
  char text[5600];
  const Group *refused = NULL, *end = e->groups + e->count;
  for (const Group *g = e->groups; g < end; g++)
    if (g->finding.level == FINDING_REFUSED) refused = g; /* the last one */
  for (const Group *g = e->groups; g < end; g++) {
    if (refused && g->finding.level != FINDING_REFUSED) continue;
    group_text(e, g, &command, text, sizeof text);
    if (g == refused) return fail(error, EXIT_INPUT, "%s", text);
    if (g->finding.level == FINDING_NOTE) console_note(&e->run->console, "%s", text);
    else console_warning(&e->run->console, "%s", text);
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
  for (size_t i = 0; i < e.count; i++) free(e.groups[i].files);
  free(e.groups);
  return ok;
}

/* ---- special tokens in the text ---- */

enum { SPECIAL_SAMPLE = 16 << 20 }; /* bytes of text that are searched */

static bool add_special_tokens(AddedTokens *set, const Tokenizer *tokenizer, Error *error) {
  bool ok = true;
  for (int32_t id = 0; ok && id < tokenizer_vocab(tokenizer); id++) {
    const AddedToken *token = tokenizer_added(tokenizer, id);
    if (token && token->special && *token->text)
      ok = added_tokens_add(set, (const uint8_t *)token->text, strlen(token->text), token, error);
  }
  return ok;
}

/* Counts the tokens of the set in the text, by their ids. */
static bool count_tokens(const AddedTokens *set, const Tokenizer *tokenizer, Corpus *corpus, int64_t *counts,
                         Error *error) {
  Document document;
  bool ok;
  corpus_rewind(corpus, (Progress){0});
  for (size_t left = SPECIAL_SAMPLE; (ok = corpus_next(corpus, &document, error)) && document.text && left;) {
    const size_t size = document.size < left ? document.size : left;
    AddedMatch match = {0};
    while (added_tokens_next(set, tokenizer_bpe(tokenizer)->classes, true, document.text, size, &match))
      counts[match.id]++;
    left -= size;
  }
  return ok;
}

static void warn_of_tokens(Console *console, const Tokenizer *tokenizer, const int64_t *counts) {
  enum { NAMED = 3, TOKEN_BYTES = 40 };
  char names[NAMED * (ONE_LINE_BYTES + 80)] = "";
  int found = 0;
  for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++)
    if (counts[id] && found++ < NAMED)
      text_append(names, sizeof names, "%s%s %s", found > 1 ? ", " : "",
                  text_one_line(tokenizer_added(tokenizer, id)->text, TOKEN_BYTES).text,
                  text_plural((double)counts[id], "time").text);
  if (found)
    console_warning(console,
                    "the text contains special tokens of the tokenizer: %s%s. They are learned as plain text, in "
                    "several pieces, and not as these tokens; --special makes them these tokens, but for conversations",
                    names, found > NAMED ? ", ..." : "");
}

bool run_check_special_tokens(Console *console, const Tokenizer *tokenizer, Corpus *corpus, Error *error) {
  AddedTokens *set = calloc(1, sizeof *set);
  int64_t *counts = calloc((size_t)tokenizer_vocab(tokenizer), sizeof *counts);
  bool ok = (set && counts) || error_memory(error, "the special tokens");
  ok = ok && add_special_tokens(set, tokenizer, error) && count_tokens(set, tokenizer, corpus, counts, error);
  if (ok) warn_of_tokens(console, tokenizer, counts);
  added_tokens_free(set);
  free(counts);
  return ok;
}
