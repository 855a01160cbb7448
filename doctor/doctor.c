#include "doctor/doctor.h"

#include "util/program_name.h"
#include "util/text.h"

#include <stdio.h>
#include <string.h>

/* ---- kinds ---- */

static const struct {
  TextLevel level;
  const char *advice, *becomes;
} kinds[TEXT_KINDS] = {[TEXT_FOREIGN] = {TEXT_REFUSED, "for its text", ".txt"},
                       [TEXT_WIDE] = {TEXT_REFUSED, "convert it", NULL},
                       [TEXT_BINARY] = {TEXT_WARNING, "if its bytes are to be learned", NULL},
                       [TEXT_ENCODING] = {TEXT_WARNING, "convert it", NULL},
                       [TEXT_NULS] = {TEXT_WARNING, "without them", NULL},
                       [TEXT_MARKS] = {TEXT_NOTE, "without them", NULL},
                       [TEXT_LINE_ENDS] = {TEXT_NOTE, "for plain line ends", NULL},
                       [TEXT_MARKUP] = {TEXT_WARNING, "for its text", ".txt"},
                       [TEXT_JSON] = {TEXT_WARNING, "as JSON lines", ".jsonl"},
                       [TEXT_JSON_LINES] = {TEXT_NOTE, "as documents", ".jsonl"},
                       [TEXT_CSV] = {TEXT_NOTE, "as documents", ".jsonl"},
                       [TEXT_GUTENBERG] = {TEXT_NOTE, "without them", NULL},
                       [TEXT_REPEATS] = {TEXT_WARNING, "to have it once", NULL}};

TextFinding *text_findings_add(TextFindings *findings, TextKind kind, int variant) {
  TextFinding *out = &findings->items[findings->count++];
  *out = (TextFinding){.kind = kind,
                       .variant = variant,
                       .level = kinds[kind].level,
                       .advice = kinds[kind].advice,
                       .becomes = kinds[kind].becomes};
  return out;
}

/* ---- words ---- */

TextExtent text_extent(const TextView *view) {
  TextExtent out = {"of its bytes"};
  if (view->seen + 3 < view->size)
    snprintf(out.text, sizeof out.text, "of the %s looked at", text_bytes((double)view->seen).text);
  return out;
}

TextShare text_share(double part, double all) {
  TextShare out;
  const double percent = 100 * part / all;
  snprintf(out.text, sizeof out.text, percent < 1 ? "%.1g %%" : "%.1f %%", percent);
  return out;
}

static uint8_t small_letter(uint8_t c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; }

bool text_begins(const uint8_t *bytes, size_t size, const char *words) {
  size_t i = 0;
  while (i < size && words[i] && small_letter(bytes[i]) == small_letter((uint8_t)words[i])) i++;
  return !words[i];
}

size_t text_find(const uint8_t *bytes, size_t size, const char *words) {
  for (size_t i = 0; i < size; i++)
    if (text_begins(bytes + i, size - i, words)) return i;
  return size;
}

size_t text_skip_blanks(const uint8_t *bytes, size_t size) {
  size_t i = 0;
  while (i < size && (bytes[i] == ' ' || (bytes[i] >= '\t' && bytes[i] <= '\r'))) i++;
  return i;
}

/* ---- what plain text may have ---- */

/* Every concatenated file brings its mark; the first of a file is dropped by its reader. */
static void find_marks(const TextView *view, TextFindings *out) {
  int64_t marks = 0;
  for (int i = 0; i < view->count; i++) {
    const TextSample *s = &view->samples[i];
    const uint8_t *end = s->bytes + s->size, *found;
    for (const uint8_t *at = s->bytes; (found = memchr(at, 0xEF, (size_t)(end - at))); at = found + 1)
      marks += found > s->bytes && found[-1] == '\n' && end - found >= 3 && memcmp(found, "\xEF\xBB\xBF", 3) == 0;
  }
  if (!marks) return;
  TextFinding *finding = text_findings_add(out, TEXT_MARKS, 0);
  snprintf(finding->what, sizeof finding->what,
           "byte-order marks stand at the beginning of lines (%s), as where files were joined",
           text_plural((double)marks, "time").text);
  strcpy(finding->command, "sed 's/\\xef\\xbb\\xbf//g' @");
}

static void find_line_ends(const TextView *view, TextFindings *out) {
  int64_t lines = 0, both = 0, returns = 0;
  for (int i = 0; i < view->count; i++) {
    const TextSample *s = &view->samples[i];
    const uint8_t *end = s->bytes + s->size, *found;
    for (const uint8_t *at = s->bytes; (found = memchr(at, '\n', (size_t)(end - at))); at = found + 1) {
      lines++;
      both += found > s->bytes && found[-1] == '\r';
    }
    for (const uint8_t *at = s->bytes; lines == 0 && (found = memchr(at, '\r', (size_t)(end - at))); at = found + 1)
      returns++;
  }
  const bool alone = lines == 0 && returns >= 5;
  if (!alone && (both == 0 || both * 10 < lines)) return;
  TextFinding *finding = text_findings_add(out, TEXT_LINE_ENDS, alone);
  if (alone)
    snprintf(finding->what, sizeof finding->what, "its lines end in CR alone (%lld of them)", (long long)returns);
  else
    snprintf(finding->what, sizeof finding->what, "%lld of %s%lld lines end in CR LF", (long long)both,
             view->count > 1 ? "the first and some further " : "its ", (long long)lines);
  strcpy(finding->command, alone ? "tr '\\r' '\\n' <@" : "tr -d '\\r' <@");
}

/* ---- Project Gutenberg ---- */

#define GUTENBERG_LINE(which) "/^\\*\\*\\* *" which " OF .*PROJECT GUTENBERG/"

static bool holds(const uint8_t *bytes, size_t size, const char *words) {
  const size_t length = strlen(words);
  for (size_t i = 0; i + length <= size; i++)
    if (memcmp(bytes + i, words, length) == 0) return true;
  return false;
}

/* Where a line begins as "*** START OF THE PROJECT GUTENBERG EBOOK ..." does, or that of the end; `size` where none
 * does. */
static size_t find_stars(const TextSample *s, const char *which) {
  const uint8_t *star, *end = s->bytes + s->size;
  for (const uint8_t *at = s->bytes; (star = memchr(at, '*', (size_t)(end - at))); at = star + 1) {
    if (end - star < 4 || memcmp(star, "***", 3) != 0 || (star > s->bytes && star[-1] != '\n')) continue;
    const uint8_t *newline = memchr(star, '\n', (size_t)(end - star));
    const size_t length = (size_t)((newline ? newline : end) - star), word = star[3] == ' ' ? 4 : 3;
    if (length >= word + strlen(which) && memcmp(star + word, which, strlen(which)) == 0 &&
        holds(star, length, "PROJECT GUTENBERG"))
      return (size_t)(star - s->bytes);
  }
  return s->size;
}

static void find_gutenberg(const TextView *view, TextFindings *out) {
  const TextSample *head = &view->samples[0], *tail = &view->samples[view->count - 1];
  const size_t start = find_stars(head, "START OF "), end = find_stars(tail, "END OF ");
  const bool starts = start < head->size, ends = end < tail->size;
  if (!starts && !ends) return;
  const uint8_t *line = starts ? memchr(head->bytes + start, '\n', head->size - start) : NULL;
  const size_t before = line ? (size_t)(line + 1 - head->bytes) : starts ? head->size : 0;
  const size_t behind = tail->size - end;
  TextFinding *finding = text_findings_add(out, TEXT_GUTENBERG, !starts);
  snprintf(finding->what, sizeof finding->what,
           "Project Gutenberg's header and license stand around the text: %zu bytes before it, %zu behind it", before,
           behind);
  strcpy(finding->command, starts ? "sed -n '" GUTENBERG_LINE("START") "," GUTENBERG_LINE("END") "{//!p;}' @"
                                  : "sed '" GUTENBERG_LINE("END") ",$d' @");
}

/* ---- all of it ---- */

static void take_sample(TextView *view, size_t at, size_t size) {
  view->samples[view->count++] = (TextSample){view->bytes + at, size};
  view->seen += size;
}

static void take_samples(TextView *view) {
  const size_t size = view->size, mark = size >= 3 && memcmp(view->bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
  if (size <= 3 * TEXT_HEAD) {
    take_sample(view, mark, size - mark);
    return;
  }
  take_sample(view, mark, TEXT_HEAD - mark);
  for (size_t quarter = 1; quarter <= 3; quarter++)
    take_sample(view, size / 4 * quarter - TEXT_MIDDLE / 2, TEXT_MIDDLE);
  take_sample(view, size - TEXT_HEAD, TEXT_HEAD);
}

void text_doctor_examine(TextFindings *out, const uint8_t *bytes, size_t size, TextFormat format, const char *name) {
  TextView view = {.bytes = bytes, .size = size, .format = format, .name = name};
  out->count = 0;
  if (size == 0) return;
  take_samples(&view);
  if (view.seen == 0 || text_find_foreign(&view, out) || text_find_encoding(&view, out)) return;
  if (format == FORMAT_TEXT && !text_find_markup(&view, out) && !text_find_json(&view, out) &&
      !text_find_csv(&view, out)) {
    find_marks(&view, out);
    find_line_ends(&view, out);
    find_gutenberg(&view, out);
  }
  if (format == FORMAT_JSONL) text_find_json(&view, out);
  text_find_repeats(&view, out);
}

/* ---- commands ---- */

static void append(char *out, size_t size, const char *text, size_t length) {
  const size_t used = strlen(out), room = size - used - 1;
  const size_t taken = length < room ? length : room;
  memcpy(out + used, text, taken);
  out[used + taken] = '\0';
}

/* Adds the command with the name in its place; `name` NULL: as a filter of what comes before it. */
static void put_command(char *out, size_t size, const char *command, const char *name) {
  const char *place = strpbrk(command, "@#");
  if (!place) {
    append(out, size, command, strlen(command));
    return;
  }
  const bool last = place[1] == '\0';
  const size_t before = (size_t)(place - command), shorter = before - (place[-1] == '<');
  if (name) {
    append(out, size, command, before);
    append(out, size, name, strlen(name));
  } else if (last) {
    append(out, size, command, shorter - 1); /* the blank, too */
  } else {
    append(out, size, command, before);
    append(out, size, "-", 1);
  }
  append(out, size, place + 1, strlen(place + 1));
}

static void command_among(TextCommand *command, const TextFinding *finding, const char *name) {
  char *out = command->text;
  const size_t size = sizeof command->text;
  if (!finding->command[0]) {
    snprintf(out, size, "%s FILE... --binary", program_name("train").text);
    return;
  }
  out[0] = '\0';
  put_command(out, size, finding->command, name);
  const size_t used = strlen(out);
  if (!finding->becomes) snprintf(out + used, size - used, " >tmp && mv tmp %s", name);
  else
    snprintf(out + used, size - used, " >%s%s%s%s", name, finding->becomes, *finding->options ? ", and" : "",
             finding->options);
}

void text_doctor_command(TextCommand *command, const TextFinding *finding, const char *name, TextRoute route) {
  const ShellWord word = text_shell_word(name, 250);
  if (route == TEXT_AMONG) {
    command_among(command, finding, word.text);
    return;
  }
  const bool piped = route == TEXT_PIPED;
  if (!finding->command[0]) {
    snprintf(command->text, sizeof command->text, "%s%s %s --binary", piped ? "... | " : "", program_name("train").text,
             piped ? "-" : word.text);
    return;
  }
  if (finding->options[0]) strcpy(command->options, finding->options);
  const bool reads = strcmp(finding->command, "cat @") == 0; /* nothing but another way to read it */
  if (reads && !piped && !command->filters[0]) {
    snprintf(command->text, sizeof command->text, "%s -%s <%s", program_name("train").text, command->options,
             word.text);
    return;
  }
  char *filters = command->filters;
  const size_t size = sizeof command->filters;
  const bool first = !filters[0], kept = piped && strchr(finding->command, '#');
  const char *before = kept             ? "... >tmp && "
                       : reads && first ? "..."
                       : first && piped ? "... | "
                       : first || reads ? ""
                                        : " | ";
  append(filters, size, before, strlen(before));
  if (!reads) put_command(filters, size, finding->command, kept ? "tmp" : first && !piped ? word.text : NULL);
  snprintf(command->text, sizeof command->text, "%s | %s -%s", filters, program_name("train").text, command->options);
}
