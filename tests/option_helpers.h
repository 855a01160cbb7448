/* A table of options of every kind, for the tests of cli/options. */
#ifndef INKLING_TESTS_OPTION_HELPERS_H
#define INKLING_TESTS_OPTION_HELPERS_H

#include "cli/option_rows.h"
#include "tests/cli_helpers.h"

#include <math.h>
#include <string.h>

enum { MAX_ARGUMENTS = 32 };

static const char *const schedules[] = {"cosine", "linear", "constant", NULL};

static const char schedule_help[] =
    "a sentence that is so long that it cannot stand in one line of one hundred columns, as some must be: "
    "it is wrapped at blanks — and counted in characters, not in bytes";

typedef struct Settings {
  TextList data;
  const char *val, *prompt, *resume;
  double val_frac, lr, epochs, minutes;
  float clip, dropout;
  int layers, batch, grad_accum, tie, schedule;
  int64_t steps, tokens;
  uint64_t seed;
  bool checks, dry_run;
  char mixer[9];
  Interval save_every;
} Settings;

typedef struct Fixture {
  char path[PATH_BYTES];
  Settings s;
  Options options;
  Error error;
} Fixture;

static const OptionHint hints[] = {{"t", "did you mean --schedule? (hint)"},
                                   {"rate batch-size", "did you mean --batch? (hint)"}};

static inline void describe(Fixture *f) {
  Settings *s = &f->s;
  *s = (Settings){.val_frac = 0.1,
                  .epochs = NAN,
                  .minutes = NAN,
                  .clip = 1,
                  .dropout = 0.1f,
                  .batch = 12,
                  .grad_accum = 1,
                  .schedule = 0,
                  .seed = 1337,
                  .checks = true,
                  .save_every = {0, 600}};
  const Option rows[] = {
      GROUP("data"),
      LIST("data", &s->data, "FILE", "training text", .positional = true),
      TEXT("val", &s->val, "FILE", NULL, "validation text"),
      DOUBLE("val-frac", &s->val_frac, 0, 1, NULL, "held out", .below = true),

      GROUP("model"),
      INT("layers", &s->layers, 1, 64, "auto", "blocks", .letter = 'l'),
      FLOAT("dropout", &s->dropout, 0, 0.1, NULL, "dropout", .follows = "epochs"),
      TRISTATE("tie", &s->tie, "auto", "tied embeddings", .follows = "layers schedule", .stays = true),
      LETTERS("mixer", s->mixer, 8, "ANC", "auto", "letters", .argument = "CCA"),

      GROUP("optimizer"),
      DOUBLE("lr", &s->lr, 0, 10, "auto", "peak learning rate", .above = true),
      FLOAT("clip", &s->clip, 0, INFINITY, NULL, "global norm"),
      CHOICE("schedule", &s->schedule, schedules, NULL, schedule_help),

      GROUP("length"),
      INT64("steps", &s->steps, 0, 1e12, "auto", "optimizer steps", .exclusive = 1),
      DOUBLE("epochs", &s->epochs, 0, 1e6, NULL, "passes", .above = true, .exclusive = 1),
      DOUBLE("minutes", &s->minutes, 0, 1e6, NULL, "time", .above = true, .exclusive = 1),
      INT("batch", &s->batch, 1, 65536, NULL, "sequences"),
      INT64("tokens", &s->tokens, 0, 0, NULL, "any number"),

      GROUP("output"),
      UINT64("seed", &s->seed, NULL, "random seed", .letter = 's'),
      TEXT("prompt", &s->prompt, NULL, NULL, "prompt for samples", .letter = 'p'),
      OPTIONAL("resume", &s->resume, "DIR", "resume a stopped run", .transient = true),
      FLAG("checks", &s->checks, "look twice", .letter = 'c'),
      FLAG("dry-run", &s->dry_run, "plan only", .transient = true),
      INTERVAL("save-every", &s->save_every, "steps or time between checkpoints"),
  };
  f->options = (Options){.program = "train",
                         .usage = "FILE... [options]",
                         .about = "Trains.",
                         .hints = hints,
                         .hint_count = sizeof hints / sizeof *hints};
  options_init(&f->options, rows, sizeof rows / sizeof *rows);
  f->error = (Error){0};
}

static inline int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  make_file(f->path);
  describe(f);
  *state = f;
  return 0;
}

static inline int tear_down(void **state) {
  Fixture *f = *state;
  options_free(&f->options);
  unlink(f->path);
  free(f);
  return 0;
}

/* Parses `line`, split at blanks ('_' stands for a blank inside an argument). Fresh settings each time. */
static inline bool parse(Fixture *f, const char *line) {
  static char text[1024];
  char *arguments[MAX_ARGUMENTS + 1] = {(char *)"train"};
  int count = 1;
  options_free(&f->options);
  describe(f);
  snprintf(text, sizeof text, "%s", line);
  for (char *word = strtok(text, " "); word && count < MAX_ARGUMENTS; word = strtok(NULL, " "))
    arguments[count++] = word;
  for (int i = 1; i < count; i++)
    for (char *c = arguments[i]; *c; c++) *c = *c == '_' ? ' ' : *c;
  return options_parse(&f->options, count, arguments, &f->error);
}

static inline void expect_ok(Fixture *f, const char *line) {
  if (!parse(f, line)) fail_msg("%s: %s", line, f->error.text);
}

/* `parts`: what the message must contain, separated by '|'. */
static inline void expect_error(Fixture *f, const char *line, const char *parts) {
  char copy[256];
  bool ok = parse(f, line);
  if (ok || f->error.code != EXIT_USAGE) fail_msg("%s: accepted, or code %d: %s", line, f->error.code, f->error.text);
  snprintf(copy, sizeof copy, "%s", parts);
  for (char *part = strtok(copy, "|"); part; part = strtok(NULL, "|"))
    if (!strstr(f->error.text, part)) fail_msg("%s: \"%s\" lacks \"%s\"", line, f->error.text, part);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
