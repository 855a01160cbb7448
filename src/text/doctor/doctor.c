#define _GNU_SOURCE /* memmem() */
#include "text/doctor/doctor.h"

#include "base/shell.h"
#include "base/text.h"
#include "base/utf8.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- kinds ---- */

static const struct {
  FindingLevel level;
  const char *advice;
  bool replaces;
  TextFormat format; /* unless the text replaces the file */
} kinds[FINDING_KINDS] = {[FINDING_FOREIGN] = {FINDING_REFUSED, "extract its text", false, FORMAT_TEXT},
                          [FINDING_WIDE] = {FINDING_REFUSED, SHELL_FROM_UTF_16, true, FORMAT_TEXT},
                          [FINDING_BINARY] = {FINDING_WARNING, "to train on its bytes", true, FORMAT_TEXT},
                          [FINDING_ENCODING] = {FINDING_WARNING, "convert it", true, FORMAT_TEXT},
                          [FINDING_NULS] = {FINDING_WARNING, "remove them", true, FORMAT_TEXT},
                          [FINDING_MARKS] = {FINDING_NOTE, "remove them", true, FORMAT_TEXT},
                          [FINDING_LINE_ENDS] = {FINDING_NOTE, "convert them", true, FORMAT_TEXT},
                          [FINDING_MARKUP] = {FINDING_WARNING, "extract its text", false, FORMAT_TEXT},
                          [FINDING_JSON] = {FINDING_WARNING, "convert it to JSON lines", false, FORMAT_JSONL},
                          [FINDING_JSON_LINES] = {FINDING_NOTE, "read it as documents", false, FORMAT_JSONL},
                          [FINDING_FIELDS] = {FINDING_WARNING, "read both", true, FORMAT_TEXT},
                          [FINDING_CSV] = {FINDING_NOTE, "read a column as documents", false, FORMAT_JSONL},
                          [FINDING_CHESS] = {FINDING_NOTE, "read the moves as documents", false, FORMAT_JSONL},
                          [FINDING_GUTENBERG] = {FINDING_NOTE, "remove them", true, FORMAT_TEXT},
                          [FINDING_REPEATS] = {FINDING_WARNING, "remove the repetitions", true, FORMAT_TEXT}};

Finding *doctor_add(Findings *findings, FindingKind kind, int variant, const char *command, const char *format, ...) {
  Finding *out = &findings->items[findings->count++];
  *out = (Finding){.kind = kind,
                   .variant = variant,
                   .level = kinds[kind].level,
                   .advice = kinds[kind].advice,
                   .replaces = kinds[kind].replaces,
                   .format = kinds[kind].format};
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
  while (i < size && text_is_space(bytes[i])) i++;
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
  const bool whole = view->count == 1;
  char part[32] = "";
  if (both < lines) snprintf(part, sizeof part, "%lld of ", (long long)both);
  if (returns >= 5)
    doctor_add(out, FINDING_LINE_ENDS, 1, "tr '\\r' '\\n' <@", "its lines end in CR alone (%lld of them)",
               (long long)returns);
  else if (both && both * 10 >= lines)
    doctor_add(out, FINDING_LINE_ENDS, 0, "tr -d '\\r' <@", "%s%s %lld %s end in CR LF", part, whole ? "its" : "the",
               (long long)lines, whole ? "lines" : "lines looked at");
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

/* ---- chess ---- */

/* Finds games in PGN, by two of the tags that each game must have. */
static bool find_chess(const DoctorView *view, Findings *out) {
  const DoctorSample *head = &view->samples[0];
  if (!doctor_begins(head->bytes, head->size, "[Event \"") ||
      doctor_search(head->bytes, head->size, "\n[White \"") == head->size)
    return false;
  Finding *finding = doctor_add(out, FINDING_CHESS, 0, NULL,
                                "it looks like chess games in PGN and is read as plain text, with tags and comments");
  finding->advice = "read the moves as documents, with the Python package chess";
  finding->makes_fields = true;
  strcpy(finding->command, "python3 -c 'import chess.pgn as p,json; f=open(0); [print(json.dumps({\"text\":\" \".join("
                           "m.uci() for m in g.mainline_moves())})) for g in iter(lambda:p.read_game(f),None)]' <@");
  strcpy(finding->options, " --jsonl-field text --pack docs");
  return true;
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

static void examine(Findings *out, const DoctorView *view) {
  const TextFormat format = view->format;
  if (format == FORMAT_TEXT && !doctor_find_markup(view, out) && !doctor_find_json(view, out) &&
      !doctor_find_csv(view, out) && !find_chess(view, out)) {
    find_marks(view, out);
    find_line_ends(view, out);
    find_gutenberg(view, out);
  }
  if (format == FORMAT_JSONL) doctor_find_json(view, out);
  if (format != FORMAT_FASTA) doctor_find_repeats(view, out); /* genomes repeat themselves */
}

void doctor_examine(Findings *out, const uint8_t *bytes, size_t size, TextFormat format, const char *name) {
  DoctorView view = {.bytes = bytes, .size = size, .format = format, .name = name};
  if (!identify(&view, out)) examine(out, &view);
  for (Finding *finding = out->items; finding < out->items + out->count; finding++)
    if (finding->replaces) finding->format = format;
}

/* ---- commands ---- */

/* Appends the command with `name` in place of its '@' or '#'. `name` NULL: the command reads its standard input. */
static void append_command(char *out, size_t size, const char *command, const char *name) {
  const char *mark = strpbrk(command, "@#");
  const int before = (int)(mark ? mark - command : (ptrdiff_t)strlen(command));
  if (!mark) text_append(out, size, "%s", command);
  else if (name) text_append(out, size, "%.*s%s%s", before, command, name, mark + 1);
  else if (mark[1] && mark[-1] != '<') text_append(out, size, "%.*s-%s", before, command, mark + 1);
  else /* without " @" or " <@" */ text_append(out, size, "%.*s%s", before - (mark[-1] == '<') - 1, command, mark + 1);
}

/* Returns whether the command prints the text as it is. */
static bool only_prints(const Finding *finding) { return strcmp(finding->command, "cat @") == 0; }

bool doctor_keeps_text(const Finding *finding) { return finding->replaces && only_prints(finding); }

/* Makes the command for one of several files. It replaces the file, or moves a file away that a directory would offer
 * again, and puts the text in its place. Names decide the format of files. */
static void command_among(DoctorCommand *command, const Finding *finding, const char *name, const char *path) {
  char *out = command->text;
  const size_t size = sizeof command->text;
  const bool listed = text_has_ending(path), same = listed && text_format_of(path) == finding->format;
  const char *ending = text_ending(finding->format);
  out[0] = '\0';
  append_command(out, size, finding->command, name);
  if (finding->replaces) text_append(out, size, " >tmp && mv tmp %s", name);
  else if (same) text_append(out, size, " >tmp && mv %s %s.original && mv tmp %s", name, name, name);
  else if (listed) text_append(out, size, " >%s%s && mv %s %s.original", name, ending, name, name);
  else text_append(out, size, " >%s%s", name, ending);
}

/* Makes the command for the only file, or for standard input. */
static void command_alone(DoctorCommand *command, const Finding *finding, const char *name, bool piped) {
  char *filters = command->filters;
  const bool first = !filters[0], kept = piped && strchr(finding->command, '#');
  const bool reads = only_prints(finding);
  const ShellWord train = program_name("train");
  if (finding->options[0]) strcpy(command->options, finding->options);
  if (reads && !piped && first) {
    snprintf(command->text, sizeof command->text, "%s -%s%s <%s", train.text, command->options, command->typed, name);
    return;
  }
  const char *before = kept             ? "... >tmp && "
                       : reads && first ? "..."
                       : first && piped ? "... | "
                       : first || reads ? ""
                                        : " | ";
  text_append(filters, sizeof command->filters, "%s", before);
  if (!reads)
    append_command(filters, sizeof command->filters, finding->command, kept ? "tmp" : first && !piped ? name : NULL);
  snprintf(command->text, sizeof command->text, "%s | %s -%s%s", filters, train.text, command->options, command->typed);
}

void doctor_command(DoctorCommand *command, const Finding *finding, const char *name, DoctorRoute route) {
  const bool piped = route == DOCTOR_PIPED, again = doctor_keeps_text(finding) && !command->filters[0];
  const ShellWord own = text_shell_word(name, 250), train = program_name("train");
  const char *word = command->word ? command->word : own.text;
  if (!finding->command[0] || again)
    snprintf(command->text, sizeof command->text, "%s%s%s%s%s%s", piped ? "... | " : "", train.text,
             command->inputs[0] ? command->inputs : " ",
             command->inputs[0] ? ""
             : piped            ? "-"
                                : word,
             again ? finding->options : " --binary", command->typed);
  else if (route == DOCTOR_AMONG) command_among(command, finding, word, name);
  else command_alone(command, finding, word, piped);
}

/* ---- programs ---- */

static bool is_installed(const char *program, size_t length) {
  const char *path = getenv("PATH");
  char file[PATH_MAX];
  for (size_t size; path && *path; path += size + (path[size] == ':')) {
    size = strcspn(path, ":");
    snprintf(file, sizeof file, "%.*s/%.*s", (int)size, path, (int)length, program);
    if (access(file, X_OK) == 0) return true;
  }
  return false;
}

OneLine doctor_missing(const Finding *finding) {
  static const char *const packages[][2] = {{"7z", "p7zip-full"},
                                            {"bzcat", "bzip2"},
                                            {"djvutxt", "djvulibre-bin"},
                                            {"lz4cat", "lz4"},
                                            {"pdftotext", "poppler-utils"},
                                            {"ps2ascii", "ghostscript"},
                                            {"tesseract", "tesseract-ocr"},
                                            {"xzcat", "xz-utils"},
                                            {"zstdcat", "zstd"}};
  OneLine out = {""};
  const char *program = finding->command, *package = program;
  const size_t length = strcspn(program, " ");
  size_t size = length;
  if (!length || is_installed(program, length)) return out;
  for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
    if (strlen(packages[i][0]) == length && memcmp(packages[i][0], program, length) == 0)
      size = strlen(package = packages[i][1]);
  if (is_installed("apt", 3))
    snprintf(out.text, sizeof out.text, "after `sudo apt install %.*s`, ", (int)size, package);
  else snprintf(out.text, sizeof out.text, "after you have installed %.*s, ", (int)length, program);
  return out;
}
