/* Comparison of models (--compare): one prompt, the same random numbers, side by side. */
#include "files/checkpoint/directory.h"
#include "generate/program.h"
#include "cli/startup.h"
#include "generate/series.h"
#include "report/history.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 3, LEAST_COLUMNS = 24, MOST_COLUMNS = 70, USUAL_COLUMNS = 100 };

typedef struct Compared {
  const char *dir;
  char about[64]; /* the step and loss of its training; "": unknown */
  Text text;
  size_t printed; /* bytes */
} Compared;

/* ---- texts ---- */

static void describe_as(Compared *c, int64_t step, double loss) {
  snprintf(c->about, sizeof c->about, "step %" PRId64, step);
  if (isfinite(loss)) text_append(c->about, sizeof c->about, ", loss %.4f", loss);
}

/* Describes the training of a model, if it is of a series or a run of ./train. */
static bool describe(Compared *c, const SeriesModel *model, Error *error) {
  History history = {0};
  Error none = {0};
  const bool read = model->step < 0 && history_read(&history, path_in(c->dir, CHECKPOINT_METRICS).text, &none);
  const MetricsLine *kept = read ? history_kept(&history) : NULL;
  if (model->step >= 0) describe_as(c, model->step, model->val_loss);
  else if (kept) describe_as(c, kept->step, kept->val_loss);
  history_free(&history);
  return none.code != EXIT_MEMORY || fail(error, EXIT_MEMORY, "%s", none.text);
}

static bool generate(Program *p, Compared *c, uint64_t seed, Error *error) {
  PromptTokens tokens = {0};
  bool ok = prompt_encode(p, p->prompt.text.bytes, p->prompt.text.size, &tokens, error);
  c->text = prompt_text(p, &tokens);
  c->text.sampling.seed = seed;
  ok = ok && program_make_text(p, &c->text, false, error) && startup_go_on("comparing", error);
  prompt_tokens_free(&tokens);
  return ok || error_append(error, " (%s)", c->dir);
}

static bool compare(Program *p, Compared *c, const SeriesModel *model, uint64_t seed, Error *error) {
  const bool ok = program_open_files(p, c->dir, error) && program_open_model(p, error) &&
                  (!p->model.config.encoder_layers || p->prompt.text.size ||
                   fail(error, EXIT_USAGE, "%s needs a prompt: give one with -p TEXT or -f FILE", c->dir)) &&
                  generate(p, c, seed, error);
  program_close_model(p);
  return ok && describe(c, model, error);
}

/* ---- columns ---- */

/* Returns the bytes of the next line of at most `width` characters, broken between words where possible. Sets *next to
 * the beginning of the line after it. */
static size_t line_size(const uint8_t *text, size_t size, int width, size_t *next) {
  size_t at = 0, blank = 0;
  for (int columns = 0; at < size && text[at] != '\n' && columns < width; columns++) {
    if (text[at] == ' ') blank = at;
    size_t length;
    utf8_next(text + at, size - at, &length);
    at += length;
  }
  const bool broken = at < size && text[at] != '\n' && text[at] != ' ';
  const size_t end = broken && blank ? blank : at;
  *next = end + (end < size && (text[end] == '\n' || text[end] == ' '));
  return end;
}

/* Prints a text padded to `width` columns; `last`: there is no cell to its right. */
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

static void print_columns(Compared *compared, int count, int width) {
  for (int row = 0; row < 2; row++) {
    for (int i = 0; i < count; i++) put_name(row ? compared[i].about : compared[i].dir, width, i == count - 1);
    putchar('\n');
  }
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < count; i++) {
      Compared *c = &compared[i];
      const size_t left = c->text.bytes.size - c->printed;
      const uint8_t *line = left ? c->text.bytes.bytes + c->printed : (const uint8_t *)"";
      size_t next;
      const size_t size = line_size(line, left, width, &next);
      put_cell((const char *)line, size, width, i == count - 1);
      c->printed += next;
      more = more || next < left;
    }
    putchar('\n');
  }
}

static void print_blocks(const Compared *compared, int count) {
  for (int i = 0; i < count; i++) {
    printf("%s=== %s%s%s\n", i ? "\n" : "", text_one_line(compared[i].dir, ONE_LINE_BYTES - 1).text,
           *compared[i].about ? ": " : "", compared[i].about);
    fwrite(compared[i].text.bytes.bytes, 1, compared[i].text.bytes.size, stdout);
    putchar('\n');
  }
}

static void print(Compared *compared, int count) {
  const int terminal = console_width(stdout), columns = terminal > 0 ? terminal : USUAL_COLUMNS;
  const int width = (columns - GAP * (count - 1)) / count;
  if (width < LEAST_COLUMNS) print_blocks(compared, count);
  else print_columns(compared, count, width < MOST_COLUMNS ? width : MOST_COLUMNS);
}

/* Opens one model at a time. */
static bool compare_all(Program *p, const ModelSeries *series, Error *error) {
  const int count = (int)series->count;
  Compared *compared = calloc(series->count, sizeof *compared);
  const uint64_t seed = prompt_seed(p);
  bool ok = (compared || error_memory(error, "texts")) && prompt_read(p, error);
  for (int i = 0; ok && i < count; i++) {
    compared[i].dir = series->models[i].dir;
    ok = compare(p, &compared[i], &series->models[i], seed, error);
  }
  if (ok) {
    print(compared, count);
    program_flush(p);
    console_note(&p->console, "seed %" PRIu64, seed);
  }
  for (int i = 0; compared && i < count; i++) generation_free_text(&compared[i].text);
  free(compared);
  return ok && program_check(p, error);
}

bool program_compare(Program *p, Error *error) {
  const TextList *dirs = &p->settings.runs;
  ModelSeries series = {0};
  bool ok = true;
  for (int i = 0; ok && i < dirs->count; i++) ok = series_add(&series, dirs->items[i], error);
  if (ok && series.count >= 2) compare_all(p, &series, error);
  else if (ok)
    fail(error, EXIT_USAGE, "--compare needs two models or more: %s --compare A.run B.run, or A.run/series",
         program_name("generate").text);
  series_free(&series);
  return !error->code;
}
