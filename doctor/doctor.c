#define _GNU_SOURCE /* memmem() */
#include "doctor/doctor.h"

#include "util/program_name.h"
#include "util/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- kinds ---- */

static const struct {
  FindingLevel level;
  const char *advice, *becomes;
} kinds[FINDING_KINDS] = {[FINDING_FOREIGN] = {FINDING_REFUSED, "extract its text", ".txt"},
                          [FINDING_WIDE] = {FINDING_REFUSED, "convert it", NULL},
                          [FINDING_BINARY] = {FINDING_WARNING, "to train on its bytes", NULL},
                          [FINDING_ENCODING] = {FINDING_WARNING, "convert it", NULL},
                          [FINDING_NULS] = {FINDING_WARNING, "remove them", NULL},
                          [FINDING_MARKS] = {FINDING_NOTE, "remove them", NULL},
                          [FINDING_LINE_ENDS] = {FINDING_NOTE, "convert them", NULL},
                          [FINDING_MARKUP] = {FINDING_WARNING, "extract its text", ".txt"},
                          [FINDING_JSON] = {FINDING_WARNING, "convert it to JSON lines", ".jsonl"},
                          [FINDING_JSON_LINES] = {FINDING_NOTE, "read it as documents", ".jsonl"},
                          [FINDING_CSV] = {FINDING_NOTE, "read it as documents", ".jsonl"},
                          [FINDING_GUTENBERG] = {FINDING_NOTE, "remove them", NULL},
                          [FINDING_REPEATS] = {FINDING_WARNING, "remove the repetitions", NULL}};

Finding *doctor_add(Findings *findings, FindingKind kind, int variant, const char *command, const char *format, ...) {
  Finding *out = &findings->items[findings->count++];
  *out = (Finding){.kind = kind,
                   .variant = variant,
                   .level = kinds[kind].level,
                   .advice = kinds[kind].advice,
                   .becomes = kinds[kind].becomes};
  if (command) strcpy(out->command, command);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out->what, sizeof out->what, format, arguments);
  va_end(arguments);
  return out;
}

/* ---- helpers of the checks ---- */

OneLine doctor_percent(const DoctorView *view, double count, double all) {
  OneLine out;
  const double percent = 100 * count / all;
  const int used = snprintf(out.text, sizeof out.text, percent < 1 ? "%.1g %% of " : "%.1f %% of ", percent);
  char *rest = out.text + used;
  const size_t size = sizeof out.text - (size_t)used;
  if (view->seen + 3 < view->size) snprintf(rest, size, "the %s looked at", text_bytes((double)view->seen).text);
  else snprintf(rest, size, "its bytes");
  return out;
}

bool doctor_begins(const uint8_t *bytes, size_t size, const char *words) {
  return size >= strlen(words) && strncasecmp((const char *)bytes, words, strlen(words)) == 0;
}

size_t doctor_search(const uint8_t *bytes, size_t size, const char *words) {
  for (size_t i = 0; i < size; i++)
    if (doctor_begins(bytes + i, size - i, words)) return i;
  return size;
}

size_t doctor_skip_blanks(const uint8_t *bytes, size_t size) {
  size_t i = 0;
  while (i < size && (bytes[i] == ' ' || (bytes[i] >= '\t' && bytes[i] <= '\r'))) i++;
  return i;
}

/* ---- byte-order marks and line ends in plain text ---- */

static int64_t count(const DoctorView *view, const char *sequence) {
  const size_t length = strlen(sequence);
  int64_t out = 0;
  for (int i = 0; i < view->count; i++) {
    const uint8_t *end = view->samples[i].bytes + view->samples[i].size, *at = view->samples[i].bytes;
    for (; (at = memmem(at, (size_t)(end - at), sequence, length)); at += length) out++;
  }
  return out;
}

/* Finds the byte-order marks of concatenated files. The corpus drops a mark at the beginning of a file. */
static void find_marks(const DoctorView *view, Findings *out) {
  const int64_t marks = count(view, "\n\xEF\xBB\xBF");
  if (marks)
    doctor_add(out, FINDING_MARKS, 0, "sed 's/\\xef\\xbb\\xbf//g' @",
               "byte-order marks are at the beginning of lines (%s), where files were joined",
               text_plural((double)marks, "time").text);
}

static void find_line_ends(const DoctorView *view, Findings *out) {
  const int64_t lines = count(view, "\n"), both = count(view, "\r\n"), returns = lines ? 0 : count(view, "\r");
  if (returns >= 5)
    doctor_add(out, FINDING_LINE_ENDS, 1, "tr '\\r' '\\n' <@", "its lines end in CR alone (%lld of them)",
               (long long)returns);
  else if (both && both * 10 >= lines)
    doctor_add(out, FINDING_LINE_ENDS, 0, "tr -d '\\r' <@", "%lld of %s%lld lines end in CR LF", (long long)both,
               view->count > 1 ? "the first and some further " : "its ", (long long)lines);
}

/* ---- Project Gutenberg ---- */

#define GUTENBERG_LINE(which) "/^\\*\\*\\* *" which " OF .*PROJECT GUTENBERG/"

/* Returns the offset of the line "*** START OF THE PROJECT GUTENBERG EBOOK ...", or of the line "*** END OF ...", in
 * the sample; s->size when there is none. */
static size_t find_stars(const DoctorSample *s, const char *which) {
  const uint8_t *star, *end = s->bytes + s->size;
  for (const uint8_t *at = s->bytes; (star = memchr(at, '*', (size_t)(end - at))); at = star + 1) {
    if (end - star < 4 || memcmp(star, "***", 3) != 0 || (star > s->bytes && star[-1] != '\n')) continue;
    const uint8_t *newline = memchr(star, '\n', (size_t)(end - star));
    const size_t length = (size_t)((newline ? newline : end) - star), word = star[3] == ' ' ? 4 : 3;
    if (length >= word + strlen(which) && memcmp(star + word, which, strlen(which)) == 0 &&
        memmem(star, length, "PROJECT GUTENBERG", strlen("PROJECT GUTENBERG")))
      return (size_t)(star - s->bytes);
  }
  return s->size;
}

static void find_gutenberg(const DoctorView *view, Findings *out) {
  const DoctorSample *head = &view->samples[0], *tail = &view->samples[view->count - 1];
  const size_t start = find_stars(head, "START OF "), end = find_stars(tail, "END OF ");
  const bool starts = start < head->size, ends = end < tail->size;
  if (!starts && !ends) return;
  const uint8_t *line = starts ? memchr(head->bytes + start, '\n', head->size - start) : NULL;
  const size_t before = line ? (size_t)(line + 1 - head->bytes) : starts ? head->size : 0;
  const size_t after = tail->size - end;
  doctor_add(out, FINDING_GUTENBERG, !starts,
             starts ? "sed -n '" GUTENBERG_LINE("START") "," GUTENBERG_LINE("END") "{//!p;}' @"
                    : "sed '" GUTENBERG_LINE("END") ",$d' @",
             "Project Gutenberg's header and license are around the text: %zu bytes before it, %zu after it", before,
             after);
}

/* ---- examination of a file ---- */

static void take_sample(DoctorView *view, size_t at, size_t size) {
  view->samples[view->count++] = (DoctorSample){view->bytes + at, size};
  view->seen += size;
}

static void take_samples(DoctorView *view) {
  const size_t size = view->size, mark = utf8_mark(view->bytes, size);
  if (size <= 3 * DOCTOR_HEAD) {
    take_sample(view, mark, size - mark);
    return;
  }
  take_sample(view, mark, DOCTOR_HEAD - mark);
  for (size_t quarter = 1; quarter <= 3; quarter++)
    take_sample(view, size / 4 * quarter - DOCTOR_MIDDLE / 2, DOCTOR_MIDDLE);
  take_sample(view, size - DOCTOR_HEAD, DOCTOR_HEAD);
}

/* Returns true where further checks are unnecessary. */
static bool identify(DoctorView *view, Findings *out) {
  out->count = 0;
  if (view->size == 0) return true;
  take_samples(view);
  return view->seen == 0 || doctor_find_foreign(view, out) || doctor_find_encoding(view, out);
}

void doctor_identify(Findings *out, const uint8_t *bytes, size_t size, const char *name) {
  identify(&(DoctorView){.bytes = bytes, .size = size, .name = name}, out);
}

void doctor_examine(Findings *out, const uint8_t *bytes, size_t size, TextFormat format, const char *name) {
  DoctorView view = {.bytes = bytes, .size = size, .format = format, .name = name};
  if (identify(&view, out)) return;
  if (format == FORMAT_TEXT && !doctor_find_markup(&view, out) && !doctor_find_json(&view, out) &&
      !doctor_find_csv(&view, out)) {
    find_marks(&view, out);
    find_line_ends(&view, out);
    find_gutenberg(&view, out);
  }
  if (format == FORMAT_JSONL) doctor_find_json(&view, out);
  if (format != FORMAT_FASTA) doctor_find_repeats(&view, out); /* genomes repeat themselves */
}

/* ---- commands ---- */

__attribute__((format(printf, 3, 4))) static void append(char *out, size_t size, const char *format, ...) {
  const size_t used = strlen(out);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out + used, size - used, format, arguments);
  va_end(arguments);
}

/* Appends the command with `name` in place of its '@' or '#'. `name` NULL: the command reads its standard input. */
static void append_command(char *out, size_t size, const char *command, const char *name) {
  const char *mark = strpbrk(command, "@#");
  const int before = (int)(mark ? mark - command : (ptrdiff_t)strlen(command));
  if (!mark) append(out, size, "%s", command);
  else if (name) append(out, size, "%.*s%s%s", before, command, name, mark + 1);
  else if (mark[1]) append(out, size, "%.*s-%s", before, command, mark + 1);
  else append(out, size, "%.*s", before - (mark[-1] == '<') - 1, command); /* without " @" or " <@" */
}

/* Makes the command for one of several files: it writes another file, or replaces the file. */
static void command_among(DoctorCommand *command, const Finding *finding, const char *name) {
  char *out = command->text;
  const size_t size = sizeof command->text;
  out[0] = '\0';
  append_command(out, size, finding->command, name);
  if (!finding->becomes) append(out, size, " >tmp && mv tmp %s", name);
  else append(out, size, " >%s%s%s%s", name, finding->becomes, *finding->options ? ", and" : "", finding->options);
}

/* Makes the command for the only file, or for standard input. */
static void command_alone(DoctorCommand *command, const Finding *finding, const char *name, bool piped) {
  char *filters = command->filters;
  const bool first = !filters[0], kept = piped && strchr(finding->command, '#');
  const bool reads = strcmp(finding->command, "cat @") == 0; /* only the options change */
  const ShellWord train = program_name("train");
  if (finding->options[0]) strcpy(command->options, finding->options);
  if (reads && !piped && first) {
    snprintf(command->text, sizeof command->text, "%s -%s <%s", train.text, command->options, name);
    return;
  }
  const char *before = kept             ? "... >tmp && "
                       : reads && first ? "..."
                       : first && piped ? "... | "
                       : first || reads ? ""
                                        : " | ";
  append(filters, sizeof command->filters, "%s", before);
  if (!reads)
    append_command(filters, sizeof command->filters, finding->command, kept ? "tmp" : first && !piped ? name : NULL);
  snprintf(command->text, sizeof command->text, "%s | %s -%s", filters, train.text, command->options);
}

void doctor_command(DoctorCommand *command, const Finding *finding, const char *name, DoctorRoute route) {
  const ShellWord word = text_shell_word(name, 250);
  const bool piped = route == DOCTOR_PIPED, among = route == DOCTOR_AMONG;
  if (!finding->command[0])
    snprintf(command->text, sizeof command->text, "%s%s %s --binary", piped ? "... | " : "", program_name("train").text,
             among   ? "FILE..."
             : piped ? "-"
                     : word.text);
  else if (among) command_among(command, finding, word.text);
  else command_alone(command, finding, word.text, piped);
}
