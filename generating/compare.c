/* Comparison of models (--compare): one prompt, the same random numbers, side by side. */
#include "generating/program.h"

#include "checkpoint/directory.h"
#include "cli/startup.h"
#include "generating/outputs.h"
#include "model/decoder.h"
#include "report/history.h"
#include "util/path.h"
#include "util/program_name.h"
#include "util/text.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 3, LEAST_COLUMNS = 24, MOST_COLUMNS = 70, USUAL_COLUMNS = 100 };

typedef struct Compared {
  const char *dir;
  char about[64]; /* what is known of its training */
  Output text;
} Compared;

/* ---- texts ---- */

static bool keep_bytes(void *context, void *text, const uint8_t *bytes, size_t size) {
  (void)context;
  return output_add(text, bytes, size);
}

static bool go_on(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens;
  return startup_go_on("comparing", error);
}

/* A model of another program has no metrics. */
static bool describe(Compared *c, Error *error) {
  History history = {0};
  Error none = {0};
  const bool read = history_read(&history, path_in(c->dir, CHECKPOINT_METRICS).text, &none);
  const HistoryEvaluation *kept = read ? history_kept(&history) : NULL;
  if (kept) snprintf(c->about, sizeof c->about, "step %" PRId64 ", loss %.4f", kept->step, kept->loss);
  history_free(&history);
  return none.code != EXIT_MEMORY || fail(error, EXIT_MEMORY, "%s", none.text);
}

static bool generate(Program *p, Compared *c, const Program *asked, uint64_t seed, Error *error) {
  if (!program_encode(p, asked->given, asked->given_size, &p->source, &p->prompt, error) ||
      !decoder_open(&p->decoder, p->model, 1, error))
    return false;
  GenerationRequest request = program_request(p);
  GenerationResult result;
  request.sampling.seed = seed;
  request.text = &c->text;
  const Generation generation = {
      .decoder = p->decoder, .tokenizer = p->tokenizer, .emit = keep_bytes, .progress = {go_on, NULL}};
  return generation_run_one(&generation, &request, &result, error) && startup_go_on("comparing", error) &&
         output_end(&c->text, &result, error);
}

/* A program of its own for each model, with the settings of this one. */
static bool compare(const Program *p, Compared *c, uint64_t seed, Error *error) {
  Program own = {.settings = p->settings, .options = p->options, .console = p->console, .stops = p->stops};
  const bool ok = program_open(&own, c->dir, error) && program_load(&own, error) &&
                  (!own.config.encoder_layers || p->given_size ||
                   fail(error, EXIT_USAGE, "%s answers a text: give one with -p TEXT or -f FILE", c->dir)) &&
                  (generate(&own, c, p, seed, error) || error_append(error, " (%s)", c->dir));
  program_close(&own);
  return ok && describe(c, error);
}

/* ---- columns ---- */

/* Bytes of the next line of at most `width` characters; *next: where the one after it begins. Lines are broken between
 * words where there are some. */
static size_t line_size(const uint8_t *text, size_t size, int width, size_t *next) {
  size_t at = 0, blank = 0;
  for (int columns = 0; at < size && text[at] != '\n' && columns < width; columns++) {
    if (text[at] == ' ') blank = at;
    uint32_t point;
    const size_t length = utf8_read(text + at, size - at, &point);
    at += length ? length : 1;
  }
  const bool broken = at < size && text[at] != '\n' && text[at] != ' ';
  const size_t end = broken && blank ? blank : at;
  *next = end + (end < size && (text[end] == '\n' || text[end] == ' '));
  return end;
}

/* In so many columns; `last`: nothing stands to the right. */
static void put_cell(const char *text, size_t size, int width, bool last) {
  char bytes[ONE_LINE_BYTES];
  if (size >= sizeof bytes) size = sizeof bytes - 1;
  memcpy(bytes, text, size);
  bytes[size] = '\0';
  for (size_t i = 0; i < size; i++)
    if (!bytes[i]) bytes[i] = '?';
  const OneLine line = text_one_line(bytes, ONE_LINE_BYTES - 1);
  fputs(line.text, stdout);
  if (!last) printf("%*s", width - utf8_characters(line.text) + GAP, "");
}

static void put_name(const char *text, int width, bool last) {
  const OneLine line = text_one_line(text, (size_t)width);
  put_cell(line.text, strlen(line.text), width, last);
}

static void print_columns(const Compared *compared, size_t *at, int count, int width) {
  for (int i = 0; i < count; i++) put_name(compared[i].dir, width, i == count - 1);
  putchar('\n');
  for (int i = 0; i < count; i++) put_name(compared[i].about, width, i == count - 1);
  putchar('\n');
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < count; i++) {
      const Output *text = &compared[i].text;
      size_t next = 0, size = 0;
      const uint8_t *line = text->bytes ? text->bytes + at[i] : (const uint8_t *)"";
      if (at[i] < text->size) size = line_size(line, text->size - at[i], width, &next);
      put_cell((const char *)line, size, width, i == count - 1);
      at[i] += next;
      more = more || at[i] < text->size;
    }
    putchar('\n');
  }
}

static void print_blocks(const Compared *compared, int count) {
  for (int i = 0; i < count; i++) {
    printf("%s=== %s%s%s\n", i ? "\n" : "", text_one_line(compared[i].dir, ONE_LINE_BYTES - 1).text,
           *compared[i].about ? ": " : "", compared[i].about);
    fwrite(compared[i].text.bytes, 1, compared[i].text.size, stdout);
    putchar('\n');
  }
}

/* `at`: [count] zeros. */
static void print(const Compared *compared, size_t *at, int count) {
  const int terminal = console_width(stdout), room = terminal > 0 ? terminal : USUAL_COLUMNS;
  const int width = (room - GAP * (count - 1)) / count;
  if (width < LEAST_COLUMNS) print_blocks(compared, count);
  else print_columns(compared, at, count, width < MOST_COLUMNS ? width : MOST_COLUMNS);
}

/* ---- all of it ---- */

bool program_compare(Program *p, Error *error) {
  const TextList *dirs = &p->settings.runs;
  if (dirs->count < 2)
    return fail(error, EXIT_USAGE, "--compare needs two runs or more: %s --compare A.run B.run",
                program_name("generate").text);
  Compared *compared = calloc((size_t)dirs->count, sizeof *compared);
  size_t *at = calloc((size_t)dirs->count, sizeof *at);
  const uint64_t seed = program_seed(p);
  bool ok = ((compared && at) || error_memory(error, "texts")) && program_read_prompt(p, error);
  for (int i = 0; ok && i < dirs->count; i++) {
    compared[i].dir = dirs->items[i];
    compared[i].text.request.alternatives = -1;
    ok = compare(p, &compared[i], seed, error);
  }
  if (ok) {
    print(compared, at, dirs->count);
    program_flush(p);
    console_note(&p->console, "seed %" PRIu64, seed);
  }
  for (int i = 0; compared && i < dirs->count; i++) output_free(&compared[i].text);
  free(compared);
  free(at);
  return ok && program_report_output(p, error);
}
