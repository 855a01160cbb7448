/* cli/: options, configuration files, progress lines, metrics. */
#include "cli/error.h"
#include "cli/metrics.h"
#include "cli/options.h"
#include "cli/progress.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROWS = 21, MAX_ARGUMENTS = 32, TEXT_BYTES = 1 << 16 };

static const char *const schedules[] = {"cosine", "linear", "constant", NULL};

typedef struct Settings {
  TextList data;
  const char *val, *prompt, *resume;
  double val_frac, lr, epochs, minutes;
  float clip, dropout;
  int layers, batch, grad_accum, tie, schedule;
  int64_t steps, tokens;
  uint64_t seed;
  bool quiet, checks, dry_run;
  Interval save_every;
} Settings;

typedef struct Fixture {
  char path[64];
  Settings s;
  Option rows[ROWS];
  Options options;
  Error error;
} Fixture;

static const OptionHint hints[] = {{"-t", "did you mean --schedule? (hint)"},
                                   {"--batch-size", "did you mean --batch? (hint)"}};

static void describe(Fixture *f) {
  Settings *s = &f->s;
  *s = (Settings){.val_frac = 0.1,
                  .lr = NAN,
                  .epochs = NAN,
                  .minutes = NAN,
                  .clip = 1,
                  .dropout = 0.1f,
                  .tie = -1,
                  .batch = 12,
                  .grad_accum = 1,
                  .schedule = 0,
                  .steps = -1,
                  .seed = 1337,
                  .checks = true,
                  .save_every = {0, 600}};
  const Option rows[ROWS] = {
      {.group = "data",
       .name = "data",
       .kind = OPTION_LIST,
       .value = &s->data,
       .positional = true,
       .argument = "FILE",
       .help = "text to learn from"},
      {.name = "val", .kind = OPTION_TEXT, .value = &s->val, .argument = "FILE", .help = "validation text"},
      {.name = "val-frac", .kind = OPTION_DOUBLE, .value = &s->val_frac, .max = 1, .below = true, .help = "tail"},
      {.group = "model",
       .name = "layers",
       .letter = 'l',
       .kind = OPTION_INT,
       .value = &s->layers,
       .min = 1,
       .max = 64,
       .shown_default = "auto",
       .help = "blocks"},
      {.name = "dropout", .kind = OPTION_FLOAT, .value = &s->dropout, .max = 0.1, .help = "dropout"},
      {.name = "tie", .kind = OPTION_TRISTATE, .value = &s->tie, .shown_default = "auto", .help = "tied embeddings"},
      {.group = "optimizer",
       .name = "lr",
       .kind = OPTION_DOUBLE,
       .value = &s->lr,
       .max = 10,
       .above = true,
       .shown_default = "auto",
       .help = "peak learning rate"},
      {.name = "clip", .kind = OPTION_FLOAT, .value = &s->clip, .max = INFINITY, .help = "global norm"},
      {.name = "schedule",
       .kind = OPTION_CHOICE,
       .value = &s->schedule,
       .choices = schedules,
       .help = "shape of the rate"},
      {.group = "length",
       .name = "steps",
       .kind = OPTION_INT64,
       .value = &s->steps,
       .max = 1e12,
       .exclusive = 1,
       .shown_default = "auto",
       .help = "optimizer steps"},
      {.name = "epochs",
       .kind = OPTION_DOUBLE,
       .value = &s->epochs,
       .max = 1e6,
       .above = true,
       .exclusive = 1,
       .help = "passes"},
      {.name = "minutes",
       .kind = OPTION_DOUBLE,
       .value = &s->minutes,
       .max = 1e6,
       .above = true,
       .exclusive = 1,
       .help = "time"},
      {.name = "batch", .kind = OPTION_INT, .value = &s->batch, .min = 1, .max = 65536, .help = "sequences"},
      {.name = "tokens", .kind = OPTION_INT64, .value = &s->tokens, .help = "any number"},
      {.group = "output",
       .name = "seed",
       .letter = 's',
       .kind = OPTION_UINT64,
       .value = &s->seed,
       .help = "of everything"},
      {.name = "prompt", .letter = 'p', .kind = OPTION_TEXT, .value = &s->prompt, .help = "what a sample begins with"},
      {.name = "resume",
       .kind = OPTION_OPTIONAL,
       .value = &s->resume,
       .argument = "DIR",
       .transient = true,
       .help = "go on with an interrupted run"},
      {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .value = &s->quiet, .help = "only warnings and errors"},
      {.name = "checks", .kind = OPTION_FLAG, .value = &s->checks, .help = "look twice"},
      {.name = "dry-run", .kind = OPTION_FLAG, .value = &s->dry_run, .transient = true, .help = "plan only"},
      {.name = "save-every",
       .kind = OPTION_INTERVAL,
       .value = &s->save_every,
       .help = "steps or time between checkpoints"},
  };
  memcpy(f->rows, rows, sizeof rows);
  f->options = (Options){.program = "train",
                         .usage = "FILE... [options]",
                         .about = "Trains.",
                         .rows = f->rows,
                         .count = ROWS,
                         .hints = hints,
                         .hint_count = 2};
  f->error = (Error){0};
}

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->path, sizeof f->path, "/tmp/inkling-cli-XXXXXX");
  int fd = mkstemp(f->path);
  assert_true(fd >= 0);
  close(fd);
  describe(f);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  options_free(&f->options);
  unlink(f->path);
  free(f);
  return 0;
}

/* Parses `line`, split at blanks ('_' stands for a blank inside an argument). Fresh settings each time. */
static bool parse(Fixture *f, const char *line) {
  static char text[1024];
  char *arguments[MAX_ARGUMENTS + 1] = {(char *)"train"};
  int count = 1;
  options_free(&f->options);
  describe(f);
  snprintf(text, sizeof text, "%s", line);
  for (char *word = strtok(text, " "); word && count < MAX_ARGUMENTS; word = strtok(NULL, " "))
    arguments[count++] = word;
  for (int i = 1; i < count; i++) {
    for (char *c = arguments[i]; *c; c++) *c = *c == '_' ? ' ' : *c;
  }
  return options_parse(&f->options, count, arguments, &f->error);
}

static void expect_ok(Fixture *f, const char *line) {
  if (!parse(f, line)) fail_msg("%s: %s", line, f->error.text);
}

/* `parts`: what the message must contain, separated by '|'. */
static void expect_error(Fixture *f, const char *line, const char *parts) {
  char copy[256];
  bool ok = parse(f, line);
  if (ok || f->error.code != EXIT_USAGE) fail_msg("%s: accepted, or code %d: %s", line, f->error.code, f->error.text);
  snprintf(copy, sizeof copy, "%s", parts);
  for (char *part = strtok(copy, "|"); part; part = strtok(NULL, "|")) {
    if (!strstr(f->error.text, part)) fail_msg("%s: \"%s\" lacks \"%s\"", line, f->error.text, part);
  }
}

static void put_text(const char *path, const char *text) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  fputs(text, stream);
  assert_int_equal(fclose(stream), 0);
}

static char *get_text(const char *path) {
  static char text[TEXT_BYTES];
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  text[fread(text, 1, sizeof text - 1, stream)] = '\0';
  fclose(stream);
  return text;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static void first_error_wins(void **state) {
  (void)state;
  Error error = {0};
  assert_false((fail)(&error, EXIT_INPUT, "%d of %s", 3, "x\033[2J\n"));
  assert_false((fail)(&error, EXIT_USAGE, "second"));
  assert_int_equal(error.code, EXIT_INPUT);
  assert_string_equal(error.text, "3 of x?[2J\n");
  assert_false((fail)(NULL, EXIT_USAGE, "nobody listens"));
}

static void long_errors_end_at_a_character(void **state) {
  (void)state;
  Error error = {0};
  char text[3001] = "x";
  for (int i = 1; i + 2 < 3000; i += 3) memcpy(text + i, "€", 3);
  (fail)(&error, EXIT_INPUT, "%s", text);
  size_t size = strlen(error.text);
  assert_true(size > 1000 && size < sizeof error.text);
  assert_int_equal((size - 1) % 3, 0);
}

/* ---- The command line -------------------------------------------------------------------------------------------- */

static void values_of_every_kind(void **state) {
  Fixture *f = *state;
  expect_ok(f,
            "a.txt --layers 3 --lr=1e-3 --clip 0.5 --tie --schedule linear --steps 1e5 --seed 18446744073709551615 - "
            "--prompt=Once_upon --quiet --no-checks --save-every 30s --tokens -9223372036854775808 --resume b.txt");
  const Settings *s = &f->s;
  assert_int_equal(s->data.count, 3);
  assert_string_equal(s->data.items[0], "a.txt");
  assert_string_equal(s->data.items[1], "-");
  assert_string_equal(s->data.items[2], "b.txt");
  assert_int_equal(s->layers, 3);
  assert_true(s->lr == 1e-3 && s->clip == 0.5f && s->save_every.seconds == 30 && s->save_every.steps == 0);
  assert_int_equal(s->tie, 1);
  assert_int_equal(s->schedule, 1);
  assert_int_equal(s->steps, 100000);
  assert_true(s->seed == UINT64_MAX && s->tokens == INT64_MIN);
  assert_string_equal(s->prompt, "Once upon");
  assert_string_equal(s->resume, "");
  assert_true(s->quiet && !s->checks && !s->dry_run);
}

static void origins(void **state) {
  Fixture *f = *state;
  put_text(f->path, "lr = 0.5\nclip = 2\n");
  char line[128];
  snprintf(line, sizeof line, "--clip 3 --config %s", f->path);
  expect_ok(f, line);
  assert_int_equal(options_origin(&f->options, &f->s.clip), ORIGIN_COMMAND_LINE);
  assert_int_equal(options_origin(&f->options, &f->s.lr), ORIGIN_FILE);
  assert_int_equal(options_origin(&f->options, &f->s.seed), ORIGIN_DEFAULT);
  assert_true(options_given(&f->options, &f->s.lr));
  assert_false(options_given(&f->options, &f->s.seed));
  assert_false(options_given(&f->options, f));
}

static void defaults_stay(void **state) {
  Fixture *f = *state;
  expect_ok(f, "");
  assert_int_equal(f->s.data.count, 0);
  assert_true(isnan(f->s.lr) && f->s.batch == 12 && f->s.tie == -1 && f->s.steps == -1 && f->s.checks);
  assert_null(f->s.resume);
}

static void letters_dashes_and_negatives(void **state) {
  Fixture *f = *state;
  expect_ok(f, "-p -x -s 7 -q -l 4");
  assert_string_equal(f->s.prompt, "-x");
  assert_true(f->s.seed == 7 && f->s.quiet && f->s.layers == 4);
  expect_ok(f, "--tokens -5 -- --lr -- -p");
  assert_true(f->s.tokens == -5);
  assert_int_equal(f->s.data.count, 3);
  assert_string_equal(f->s.data.items[0], "--lr");
  assert_string_equal(f->s.data.items[1], "--");
  expect_ok(f, "--resume=x.run --prompt=--lr --prompt= --no-tie");
  assert_string_equal(f->s.resume, "x.run");
  assert_string_equal(f->s.prompt, "");
  assert_int_equal(f->s.tie, 0);
  expect_ok(f, "--tie=no --quiet=yes --lr 1 --lr 2");
  assert_true(f->s.tie == 0 && f->s.quiet && f->s.lr == 2);
  expect_ok(f, "--lr 1 --lr auto --tie --tie=auto --layers 2 --layers=auto");
  assert_true(isnan(f->s.lr) && f->s.tie == -1 && f->s.layers == 0);
}

static void intervals(void **state) {
  Fixture *f = *state;
  const struct {
    const char *line;
    int64_t steps;
    double seconds;
  } cases[] = {{"--save-every 500", 500, 0}, {"--save-every=10m", 0, 600}, {"--save-every 2h", 0, 7200},
               {"--save-every 1.5m", 0, 90}, {"--save-every 0", 0, 0},     {"--save-every 90s", 0, 90}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect_ok(f, cases[i].line);
    assert_int_equal(f->s.save_every.steps, cases[i].steps);
    assert_true(f->s.save_every.seconds == cases[i].seconds);
  }
  const char *const bad[] = {"m", "-1", "-1m", "0m", "1d", "10 m", "nanm", "1e300h", "1.5"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char line[64];
    snprintf(line, sizeof line, "--save-every=%s", bad[i]);
    for (char *c = line; *c; c++) *c = *c == ' ' ? '_' : *c;
    expect_error(f, line, "--save-every: got|10m");
  }
}

static void bad_numbers(void **state) {
  Fixture *f = *state;
  const char *const bad[] = {
      "",     "x",          "1x", "0x10", "_1", "1_", "1.5", "1e", "--", "nan", "inf", "1,000", "99999999999999999999",
      "1e30", "2147483648", "+",  "1e-1"};
  char line[128];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    snprintf(line, sizeof line, "--layers=%s", bad[i]);
    expect_error(f, line, "--layers: got \"|need a whole number 1..64");
  }
  const char *const bad_reals[] = {"", "x", "0x1p3", "nan", "inf", "-inf", "1e999", "_1", "1_", "1.2.3", "infinity"};
  for (size_t i = 0; i < sizeof bad_reals / sizeof *bad_reals; i++) {
    snprintf(line, sizeof line, "--lr=%s", bad_reals[i]);
    expect_error(f, line, "--lr: got \"|need a number > 0, <= 10");
  }
  expect_error(f, "--clip 1e39", "--clip: got \"1e39\", need a number >= 0");
  expect_error(f, "--seed -1", "--seed: got \"-1\", need a whole number >= 0");
  expect_error(f, "--seed 18446744073709551616", "--seed");
  expect_error(f, "--tokens 9223372036854775808", "--tokens: got");
  expect_error(f, "--tie=maybe", "--tie: got \"maybe\", need yes or no");
}

static void ranges(void **state) {
  Fixture *f = *state;
  expect_error(f, "--layers 0", "--layers: got \"0\"|1..64");
  expect_error(f, "--layers 65", "--layers: got \"65\"|1..64");
  expect_error(f, "--lr 0", "--lr: got \"0\"|> 0, <= 10");
  expect_error(f, "--lr -1e-3", "--lr: got \"-1e-3\"");
  expect_error(f, "--val-frac 1", "--val-frac: got \"1\"|>= 0, < 1");
  expect_error(f, "--schedule cosin", "--schedule: got \"cosin\"|one of cosine, linear, constant");
  expect_ok(f, "--layers 64 --lr 10 --val-frac 0");
  expect_ok(f, "--dropout 0.1"); /* 0.1f lies above 0.1 */
  expect_error(f, "--dropout 0.1001", "--dropout: got \"0.1001\", need a number 0..0.1");
}

static void unknown_flags(void **state) {
  Fixture *f = *state;
  const char *const cases[][2] = {{"--bacth 3", "unknown flag --bacth: did you mean --batch?"},
                                  {"--leyers 3", "--layers?"},
                                  {"--lr-rate=3", "unknown flag --lr-rate: did you mean --lr?"},
                                  {"--num-layers 3", "--layers?"},
                                  {"--n_layers 3", "--layers?"},
                                  {"--val-fraction 0.1", "--val-frac?"},
                                  {"--no-tei", "unknown flag --no-tei: did you mean --no-tie?"},
                                  {"--no-lr", "unknown flag --no-lr"},
                                  {"--dryrun", "--dry-run?"},
                                  {"--dry_run", "--dry-run?"},
                                  {"--hlep", "--help?"},
                                  {"--sched linear", "--schedule?"},
                                  {"-lr 1", "unknown flag -lr: did you mean --lr?"},
                                  {"-l5", "unknown flag -l5: write -l 5, or --layers"},
                                  {"-t 1", "unknown flag -t: did you mean --schedule? (hint)"},
                                  {"--batch-size=8", "unknown flag --batch-size: did you mean --batch? (hint)"},
                                  {"-z", "unknown flag -z: `train --help`"},
                                  {"--zzzzzzzz", "unknown flag --zzzzzzzz: `train --help`"},
                                  {"---lr", "unknown flag ---lr"},
                                  {"--=3", "unknown flag --"},
                                  {"--no-", "unknown flag --no-"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_error(f, cases[i][0], cases[i][1]);
  char line[600] = "--";
  memset(line + 2, 'l', 500);
  expect_error(f, line, "unknown flag --llll");
}

static void missing_values_and_conflicts(void **state) {
  Fixture *f = *state;
  expect_error(f, "--lr", "--lr needs a value");
  expect_error(f, "a --prompt", "--prompt needs a value");
  expect_error(f, "--prompt --quiet", "--prompt needs a value, but --quiet follows|--prompt=--quiet");
  expect_error(f, "--prompt --no-tie", "--no-tie follows");
  expect_error(f, "--prompt --lr=3", "--lr=3 follows");
  expect_error(f, "--prompt -q", "-q follows");
  expect_error(f, "--no-tie=yes", "--no-tie takes no value, got \"yes\"");
  expect_error(f, "--steps 5 --epochs 2", "--epochs: excludes --steps");
  expect_error(f, "--minutes 5 --steps 2", "--steps: excludes --minutes");
  expect_ok(f, "--steps 5 --steps 6");
}

static void one_positional_or_none(void **state) {
  Fixture *f = *state;
  const char *model = NULL;
  char *arguments[] = {(char *)"generate", (char *)"a.run", (char *)"b.run", NULL};
  Option row = {.group = "model",
                .name = "model",
                .letter = 'm',
                .kind = OPTION_TEXT,
                .value = &model,
                .positional = true,
                .argument = "RUN"};
  Options one = {.program = "generate", .rows = &row, .count = 1};
  assert_true(options_parse(&one, 2, arguments, &f->error));
  assert_string_equal(model, "a.run");
  options_free(&one);
  assert_null(model);
  one = (Options){.program = "generate", .rows = &row, .count = 1};
  row.origin = ORIGIN_DEFAULT;
  assert_false(options_parse(&one, 3, arguments, &f->error));
  assert_string_equal(f->error.text, "unexpected argument \"b.run\" after \"a.run\": only one RUN is taken");
  options_free(&one);
  Options none = {.program = "generate"};
  Error error = {0};
  assert_false(options_parse(&none, 2, arguments, &error));
  assert_non_null(strstr(error.text, "unexpected argument \"a.run\""));
  options_free(&none);
}

static void help_and_version_come_first(void **state) {
  Fixture *f = *state;
  expect_ok(f, "--help --bogus");
  assert_true(f->options.help);
  expect_ok(f, "-h --lr");
  assert_true(f->options.help);
  expect_ok(f, "--version --lr");
  assert_true(f->options.version && !f->options.help);
  expect_error(f, "--bogus --help", "unknown flag --bogus");
}

static void help_fits_and_is_complete(void **state) {
  Fixture *f = *state;
  f->rows[8].help =
      "a sentence that is so long that it cannot stand in one line of one hundred columns, as some must be: "
      "it is wrapped at blanks — and counted in characters, not in bytes";
  FILE *stream = fopen(f->path, "wb");
  options_help(&f->options, stream);
  fclose(stream);
  char *text = get_text(f->path);
  for (int i = 0; i < ROWS; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", f->rows[i].kind == OPTION_TRISTATE || i == 18 ? "--[no-]" : "--",
             f->rows[i].name);
    if (!strstr(text, name)) fail_msg("--help lacks %s", name);
  }
  const char *const expected[] = {"Usage: train FILE... [options]\n",
                                  "\ndata\n",
                                  "  FILE, --data FILE",
                                  "\nOther\n",
                                  "peak learning rate [auto; > 0, <= 10]",
                                  "  -p, --prompt TEXT",
                                  "--schedule cosine|linear|constant",
                                  "[cosine]",
                                  "--resume[=DIR]",
                                  "--config FILE",
                                  "-h, --help",
                                  "--version",
                                  "[12; 1..65536]",
                                  "[10m]",
                                  "[yes]",
                                  "[1337]"};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    if (!strstr(text, expected[i])) fail_msg("--help lacks \"%s\":\n%s", expected[i], text);
  }
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    int columns = 0;
    for (char *c = line; *c; c++) columns += ((unsigned char)*c & 0xC0) != 0x80;
    if (columns > 100 || line[strlen(line) - 1] == ' ') fail_msg("%d columns: \"%s\"", columns, line);
  }
}

/* ---- Configuration files ----------------------------------------------------------------------------------------- */

static bool parse_config(Fixture *f, const char *config, const char *line) {
  char whole[512];
  put_text(f->path, config);
  snprintf(whole, sizeof whole, "--config %s %s", f->path, line);
  return parse(f, whole);
}

static void config_is_read(void **state) {
  Fixture *f = *state;
  const char *config =
      "\xEF\xBB\xBF# a comment\r\n\n  lr = 1e-3   # why\r\ndata = a#b.txt\n\tdata=\"two words.txt\" # c\n"
      "prompt = \"tab\\there \\\"x\\\" \\\\ \\x41\\n\"\ntie = off\nsteps=7\nsave-every = 5m\nschedule = constant";
  if (!parse_config(f, config, "")) fail_msg("%s", f->error.text);
  assert_true(f->s.lr == 1e-3 && f->s.tie == 0 && f->s.steps == 7 && f->s.save_every.seconds == 300 &&
              f->s.schedule == 2);
  assert_int_equal(f->s.data.count, 2);
  assert_string_equal(f->s.data.items[0], "a#b.txt");
  assert_string_equal(f->s.data.items[1], "two words.txt");
  assert_string_equal(f->s.prompt, "tab\there \"x\" \\ A\n");
}

static void command_line_wins(void **state) {
  Fixture *f = *state;
  const char *config = "lr = 1\nsteps = 7\ndata = a\ndata = b\nseed = 5\nlayers = 3\n";
  char line[256];
  put_text(f->path, config);
  snprintf(line, sizeof line, "--lr 2 --config %s --epochs 3 c --layers auto", f->path); /* before and after */
  expect_ok(f, line);
  assert_true(f->s.lr == 2 && f->s.seed == 5 && f->s.epochs == 3);
  assert_int_equal(f->s.steps, -1); /* gives way to --epochs */
  assert_int_equal(f->s.layers, 0);
  assert_int_equal(f->s.data.count, 1);
  assert_string_equal(f->s.data.items[0], "c");
}

static void later_files_fill_in(void **state) {
  Fixture *f = *state;
  assert_true(parse_config(f, "lr = 1\nepochs = 2\n", "--seed 9"));
  put_text(f->path, "lr = 3\nseed = 4\nbatch = 5\nsteps = 6\ndata = d\ndata = e\n");
  assert_true(options_load(&f->options, f->path, EXIT_CHECKPOINT, &f->error));
  assert_true(f->s.lr == 1 && f->s.seed == 9 && f->s.batch == 5 && f->s.steps == -1 && f->s.epochs == 2);
  assert_int_equal(f->s.data.count, 2);
  put_text(f->path, "lr = x\n"); /* checked although it would not count */
  assert_false(options_load(&f->options, f->path, EXIT_CHECKPOINT, &f->error));
  assert_int_equal(f->error.code, EXIT_CHECKPOINT);
}

static void config_errors(void **state) {
  Fixture *f = *state;
  const char *const cases[][2] = {{"lr = 1\n\nlr = 2\n", ":3: lr: given twice, first in line 1"},
                                  {"lr\n", ":1: \"lr\": need `key = value`"},
                                  {"lr =\n", ":1: lr: no value"},
                                  {"lr = # 3\n", ":1: lr: no value"},
                                  {"# x\nlayers = 99\n", ":2: layers: got \"99\", need a whole number 1..64"},
                                  {"layerz = 9\n", ":1: unknown key \"layerz\": did you mean layers?"},
                                  {"= 9\n", ":1: unknown key \"\""},
                                  {"qqqqqq = 9\n", ":1: unknown key \"qqqqqq\""},
                                  {"config = x\n", ":1: unknown key \"config\""},
                                  {"help = yes\n", ":1: unknown key \"help\""},
                                  {"prompt = \"x\n", ":1: prompt: the closing quote is missing"},
                                  {"prompt = \"x\\\"\n", "the closing quote is missing"},
                                  {"prompt = \"x\" y\n", "behind the closing quote"},
                                  {"prompt = \"\\q\"\n", "unknown escape"},
                                  {"prompt = \"\\x4\"\n", "unknown escape"},
                                  {"prompt = \"\\x00\"\n", "unknown escape"},
                                  {"prompt = \"\\", "unknown escape"},
                                  {"steps = 1\nepochs = 2\n", ":2: epochs: excludes --steps"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool ok = parse_config(f, cases[i][0], "");
    bool named = strncmp(f->error.text, f->path, strlen(f->path)) == 0;
    if (ok || f->error.code != EXIT_USAGE || !named || !strstr(f->error.text, cases[i][1])) {
      fail_msg("%s: ok %d, \"%s\" lacks \"%s\"", cases[i][0], ok, f->error.text, cases[i][1]);
    }
  }
  expect_error(f, "--config /nonexistent/x.conf", "/nonexistent/x.conf: No such file");
  expect_error(f, "--config /tmp", "/tmp: ");
}

static void config_size_and_zeros(void **state) {
  Fixture *f = *state;
  FILE *stream = fopen(f->path, "wb");
  for (int i = 0; i < (1 << 20) + 1; i++) fputc('\n', stream);
  fclose(stream);
  char line[128];
  snprintf(line, sizeof line, "--config %s", f->path);
  expect_error(f, line, "longer than 1048576 bytes");
  stream = fopen(f->path, "wb");
  fwrite("lr = 1\0\n", 1, 8, stream);
  fclose(stream);
  expect_error(f, line, "zero byte");
}

/* Writes, forgets, reads back. */
static void write_and_reload(Fixture *f, char *written) {
  FILE *stream = fopen(f->path, "wb");
  assert_non_null(stream);
  assert_true(options_write(&f->options, stream));
  fclose(stream);
  strcpy(written, get_text(f->path));
  char line[128];
  snprintf(line, sizeof line, "--config %s", f->path);
  if (!parse(f, line)) fail_msg("%s\n%s", f->error.text, written);
}

static void config_round_trip(void **state) {
  Fixture *f = *state;
  static char first[TEXT_BYTES], second[TEXT_BYTES];
  char every[256];
  for (int i = 0; i < 255; i++) every[i] = (char)(unsigned char)(i + 1);
  every[255] = '\0';
  expect_ok(f, "a.txt b_c.txt #d --resume --dry-run --save-every 90s --tie --seed 18446744073709551615");
  f->s.prompt = every;
  f->s.lr = 1.0 / 3;
  f->s.clip = 0.1f;
  f->s.steps = 123456789012;
  f->s.tokens = INT64_MIN;
  write_and_reload(f, first);
  assert_string_equal(f->s.prompt, every);
  assert_non_null(strstr(first, "\"\\x01\\x02")); /* the file stays readable */
  assert_true(f->s.lr == 1.0 / 3 && f->s.clip == 0.1f && f->s.steps == 123456789012 && f->s.tokens == INT64_MIN);
  assert_true(f->s.tie == 1 && f->s.save_every.seconds == 90 && f->s.seed == UINT64_MAX && f->s.dropout == 0.1f);
  assert_int_equal(f->s.data.count, 3);
  assert_string_equal(f->s.data.items[1], "b c.txt");
  assert_string_equal(f->s.data.items[2], "#d");
  assert_true(!f->s.dry_run && !f->s.resume && !f->s.val);
  write_and_reload(f, second);
  assert_string_equal(first, second);
}

static void unknown_values_are_not_written(void **state) {
  Fixture *f = *state;
  static char written[TEXT_BYTES];
  expect_ok(f, "--epochs 2 x");
  f->s.steps = 500; /* computed from the epochs: only what was given goes out */
  write_and_reload(f, written);
  assert_null(strstr(written, "steps"));
  assert_null(strstr(written, "minutes"));
  assert_null(strstr(written, "lr ="));
  assert_null(strstr(written, "layers"));
  assert_null(strstr(written, "tie"));
  assert_non_null(strstr(written, "epochs = 2\n"));
  assert_non_null(strstr(written, "# data\ndata = x\n"));
  f->s.epochs = NAN;
  f->s.steps = 500;
  f->s.minutes = 3; /* two known, none given: the first one */
  for (int i = 0; i < ROWS; i++) f->rows[i].origin = ORIGIN_DEFAULT;
  write_and_reload(f, written);
  assert_non_null(strstr(written, "steps = 500\n"));
  assert_null(strstr(written, "minutes"));
}

static void write_failure_is_seen(void **state) {
  Fixture *f = *state;
  FILE *stream = fopen("/dev/full", "wb");
  if (!stream) skip();
  setvbuf(stream, NULL, _IONBF, 0);
  expect_ok(f, "x");
  assert_false(options_write(&f->options, stream));
  fclose(stream);
}

/* ---- Progress ---------------------------------------------------------------------------------------------------- */

static void human_numbers(void **state) {
  (void)state;
  const struct {
    double value;
    const char *count, *bytes, *duration;
  } cases[] = {{0, "0", "0 B", "0:00"},
               {7, "7", "7 B", "0:07"},
               {0.5, "0.5", "0.5 B", "0:01"},
               {65, "65", "65 B", "1:05"},
               {999, "999", "999 B", "16:39"},
               {999.7, "1.0k", "1000 B", "16:40"},
               {1000, "1.0k", "1000 B", "16:40"},
               {7390, "7.4k", "7.2 KiB", "2:03:10"},
               {48211, "48.2k", "47.1 KiB", "13:23:31"},
               {99960, "100k", "97.6 KiB", "27:46:00"},
               {999600, "1.0M", "976 KiB", "277:40:00"},
               {1234567, "1.2M", "1.2 MiB", "342:56:07"},
               {3250586, "3.3M", "3.1 MiB", "902:56:26"},
               {5e12, "5.0T", "4.5 TiB", "-"},
               {(double)NAN, "-", "-", "-"},
               {(double)INFINITY, "-", "-", "-"},
               {1e300, "1e+288T", "9.09e+287 TiB", "-"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_string_equal(human_count(cases[i].value).text, cases[i].count);
    assert_string_equal(human_bytes(cases[i].value).text, cases[i].bytes);
    assert_string_equal(human_duration(cases[i].value).text, cases[i].duration);
  }
  assert_string_equal(human_count(-48211).text, "-48.2k");
  assert_string_equal(human_duration(-1).text, "-");
}

static void exact_numbers(void **state) {
  (void)state;
  assert_string_equal(number_exact(600, false).text, "600");
  assert_string_equal(number_exact(0.1, false).text, "0.1");
  assert_string_equal(number_exact((double)0.1f, true).text, "0.1");
  assert_string_equal(number_exact((double)0.1f, false).text, "0.10000000149011612");
  assert_string_equal(number_exact(1e-8, false).text, "1e-08");
  assert_string_equal(number_exact(-1e300, false).text, "-1e+300");
  assert_string_equal(number_exact(12.5, false).text, "12.5");
}

static const ProgressNumbers all_numbers = {.step = 1200,
                                            .steps = 2000,
                                            .loss = 1.812,
                                            .val_loss = 1.904,
                                            .lr = 8.1e-4,
                                            .tokens_per_s = 48211,
                                            .peak = 0.71,
                                            .seconds_left = 21};

static int columns_of(const char *text) {
  int columns = 0;
  for (; *text; text++) columns += ((unsigned char)*text & 0xC0) != 0x80;
  return columns;
}

static void progress_lines(void **state) {
  (void)state;
  char line[256];
  const ProgressNumbers few = {
      .step = 3, .loss = NAN, .val_loss = NAN, .lr = NAN, .tokens_per_s = NAN, .peak = NAN, .seconds_left = NAN};
  progress_format(line, sizeof line, &all_numbers, 0, true, true);
  assert_string_equal(line, "step 1200/2000 ███████░░░░░ loss 1.812  val 1.904  lr 8.1e-04  48.2k tok/s  71% of peak  "
                            "ETA 0:21");
  progress_format(line, sizeof line, &all_numbers, 0, true, false);
  assert_non_null(strstr(line, "step 1200/2000 #######..... loss"));
  progress_format(line, sizeof line, &all_numbers, 0, false, true);
  assert_non_null(strstr(line, "step 1200/2000  loss 1.812  val"));
  assert_int_equal(progress_format(line, sizeof line, &few, 80, true, true), 6);
  assert_string_equal(line, "step 3");
}

static void progress_fits_every_width(void **state) {
  (void)state;
  char line[256];
  int last = 0;
  for (int width = 1; width <= 130; width++) {
    int columns = progress_format(line, sizeof line, &all_numbers, width, true, true);
    assert_int_equal(columns, columns_of(line));
    assert_true(columns > 0 && columns <= width && columns >= last);
    last = columns;
  }
  assert_int_equal(last, progress_format(line, sizeof line, &all_numbers, 0, true, true));
  progress_format(line, sizeof line, &all_numbers, 40, true, true);
  assert_string_equal(line, "step 1200/2000  loss 1.812  ETA 0:21");
}

static void extreme_progress_is_harmless(void **state) {
  (void)state;
  char line[512], small[8];
  const ProgressNumbers extreme = {.step = INT64_MAX,
                                   .steps = 1,
                                   .loss = INFINITY,
                                   .val_loss = -1e300,
                                   .lr = 1e300,
                                   .tokens_per_s = 1e300,
                                   .peak = 1e300,
                                   .seconds_left = 1e300};
  int columns = progress_format(line, sizeof line, &extreme, 0, true, true);
  assert_int_equal(columns, columns_of(line));
  assert_non_null(strstr(line, "loss inf"));
  progress_format(small, sizeof small, &all_numbers, 0, true, true);
  assert_true(strlen(small) < sizeof small);
}

static char *printed(Fixture *f, Console *console) {
  fclose(console->stream);
  return get_text(f->path);
}

static Console console_to(const Fixture *f, bool terminal) {
  FILE *stream = fopen(f->path, "wb");
  assert_non_null(stream);
  return (Console){.stream = stream, .program = "train", .terminal = terminal, .drawn_at = -1};
}

static void plain_lines_elsewhere(void **state) {
  Fixture *f = *state;
  Console console = console_to(f, false);
  progress_update(&console, &all_numbers, false);
  progress_update(&console, &all_numbers, true);
  message_note(&console, "%d things", 3);
  message_warning(&console, "careful");
  message_error(&console, &(Error){.code = EXIT_INPUT, .text = "x is empty"});
  message_line(&console, "a line");
  progress_finish(&console);
  assert_string_equal(printed(f, &console),
                      "step 1200/2000  loss 1.812  val 1.904  lr 8.1e-04  48.2k tok/s  71% of peak  ETA 0:21\n"
                      "note: 3 things\nwarning: careful\ntrain: x is empty\na line\n");
}

static void expect_work(ProgressWork work, double seconds, const char *expected) {
  char line[200];
  progress_work_format(line, sizeof line, &work, seconds);
  assert_string_equal(line, expected);
}

static void work_lines(void **state) {
  (void)state;
  expect_work((ProgressWork){"encoding", 3 << 20, 12 << 20, true}, 2,
              "encoding 3.0 MiB of 12.0 MiB, 1.5 MiB/s, ETA 0:06");
  expect_work((ProgressWork){"merging pairs", 500, 32000, false}, 1, "merging pairs 500 of 32.0k, 500/s, ETA 1:03");
  expect_work((ProgressWork){"reading", 1024, 0, true}, 4, "reading 1.0 KiB, 256 B/s");
  expect_work((ProgressWork){"reading", 0, 5, true}, 0, "reading 0 B of 5 B, 0 B/s");
}

/* What is over within half a second shows nothing; elsewhere than on a terminal nothing does within ten. */
static void short_work_is_silent(void **state) {
  Fixture *f = *state;
  for (int terminal = 0; terminal < 2; terminal++) {
    Console console = console_to(f, terminal);
    const ProgressWork work = {"encoding", 1, 2, true};
    progress_work(&console, &work);
    progress_work(&console, &work);
    progress_work_end(&console);
    assert_string_equal(printed(f, &console), "");
  }
}

static void long_work_is_one_line(void **state) {
  Fixture *f = *state;
  Console console = console_to(f, true);
  const ProgressWork work = {"encoding", 1, 2, true};
  progress_work(&console, &work);
  console.drawn_at -= 1; /* as if a second had passed */
  progress_work(&console, &work);
  progress_work(&console, &work);
  progress_work_end(&console);
  progress_work_end(&console);
  char *text = printed(f, &console);
  assert_true(strncmp(text, "\rencoding 1 B of 2 B, ", 22) == 0);
  assert_true(strcmp(text + strlen(text) - 7, "\033[K\r\033[K") == 0);
}

static void quiet_keeps_warnings(void **state) {
  Fixture *f = *state;
  Console console = console_to(f, false);
  console.quiet = true;
  progress_update(&console, &all_numbers, true);
  message_note(&console, "note");
  message_line(&console, "line");
  message_warning(&console, "careful");
  message_error(&console, &(Error){.code = EXIT_INTERNAL});
  assert_string_equal(printed(f, &console), "warning: careful\ntrain: failed without saying why\n");
}

static void messages_wipe_the_line(void **state) {
  Fixture *f = *state;
  Console console = console_to(f, true);
  ProgressNumbers numbers = {
      .step = 1, .loss = NAN, .val_loss = NAN, .lr = NAN, .tokens_per_s = NAN, .peak = NAN, .seconds_left = NAN};
  progress_update(&console, &numbers, false);
  numbers.step = 2;
  progress_update(&console, &numbers, false); /* within a tenth of a second: not drawn */
  message_warning(&console, "careful");
  progress_update(&console, &numbers, false); /* comes back at once */
  numbers.step = 3;
  progress_update(&console, &numbers, true); /* a logged step is always drawn */
  progress_finish(&console);
  progress_finish(&console);
  console.color = true;
  message_warning(&console, "colored");
  assert_string_equal(printed(f, &console), "\rstep 1\033[K\r\033[Kwarning: careful\n\rstep 2\033[K\rstep 3\033[K\n"
                                            "\033[33mwarning:\033[0m colored\n");
}

static void console_looks_at_the_environment(void **state) {
  (void)state;
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "dumb", 1);
  Console console = console_stderr("train", true);
  assert_true(console.utf8 && console.quiet && !console.terminal && !console.color);
  setenv("LC_ALL", "C", 1);
  assert_false(console_stderr("train", false).utf8);
}

/* ---- Metrics ----------------------------------------------------------------------------------------------------- */

static void metrics_lines(void **state) {
  Fixture *f = *state;
  Metrics *metrics;
  const MetricsLine train = {.step = 10,
                             .tokens = 7680,
                             .measured = METRIC_LOSS | METRIC_LR | METRIC_GRAD_NORM,
                             .loss = 1.0 / 3,
                             .lr = 0.001,
                             .grad_norm = NAN,
                             .val_loss = 9};
  const MetricsLine all = {.step = INT64_MAX,
                           .tokens = INT64_MAX,
                           .measured = ~0u,
                           .loss = -1.2345678901234567e-300,
                           .val_loss = -1.2345678901234567e-300,
                           .bits_per_byte = INFINITY,
                           .lr = -1.2345678901234567e-300,
                           .grad_norm = -1.2345678901234567e-300,
                           .tokens_per_s = 5,
                           .seconds = 1e300};
  assert_true(metrics_open(&metrics, f->path, -1, &f->error));
  assert_true(metrics_append(metrics, &train, &f->error));
  assert_string_equal(get_text(f->path), "{\"step\":10,\"tokens\":7680,\"loss\":0.3333333333333333,\"lr\":0.001,"
                                         "\"grad_norm\":null}\n"); /* on disk before the file is closed */
  assert_true(metrics_append(metrics, &all, &f->error));
  metrics_close(metrics);
  char *second = strchr(get_text(f->path), '\n') + 1;
  json_t *object = json_loads(second, 0, NULL);
  assert_int_equal(json_object_size(object), 9);
  assert_true(json_integer_value(json_object_get(object, "tokens")) == INT64_MAX);
  assert_true(json_real_value(json_object_get(object, "loss")) == -1.2345678901234567e-300);
  assert_true(json_is_null(json_object_get(object, "bits_per_byte")));
  json_decref(object);
}

static void metrics_are_cut(void **state) {
  Fixture *f = *state;
  Metrics *metrics;
  put_text(
      f->path,
      "{\"step\":1}\n{\"step\":2,\"x\":[1,2]}\n{\"step\":2,\"val_loss\":3}\nnonsense\n[3]\n{}\n\n{\"step\":\"1\"}\n"
      "{\"step\":3}\n{\"step\":0}\n{\"step\":1,\"lo");
  assert_true(metrics_open(&metrics, f->path, 2, &f->error));
  assert_true(metrics_append(metrics, &(MetricsLine){.step = 3, .tokens = 4}, &f->error));
  metrics_close(metrics);
  assert_string_equal(get_text(f->path),
                      "{\"step\":1}\n{\"step\":2,\"x\":[1,2]}\n{\"step\":2,\"val_loss\":3}\n{\"step\":0}\n"
                      "{\"step\":3,\"tokens\":4}\n");
  assert_true(metrics_open(&metrics, f->path, -1, &f->error)); /* a new run: nothing stays */
  metrics_close(metrics);
  assert_string_equal(get_text(f->path), "");
  assert_true(metrics_open(&metrics, f->path, 5, &f->error)); /* an empty file */
  metrics_close(metrics);
  unlink(f->path);
  assert_true(metrics_open(&metrics, f->path, 5, &f->error)); /* none at all */
  metrics_close(metrics);
  assert_string_equal(get_text(f->path), "");
}

static void metrics_failures(void **state) {
  Fixture *f = *state;
  Metrics *metrics;
  assert_false(metrics_open(&metrics, "/nonexistent/metrics.jsonl", -1, &f->error));
  assert_int_equal(f->error.code, EXIT_OUTPUT);
  assert_null(metrics);
  metrics_close(NULL);
  Error full = {0}, directory = {0};
  assert_false(metrics_open(&metrics, "/tmp", 3, &directory));
  assert_int_equal(directory.code, EXIT_OUTPUT);
  if (access("/dev/full", W_OK) != 0) skip();
  assert_true(metrics_open(&metrics, "/dev/full", -1, &full));
  assert_false(metrics_append(metrics, &(MetricsLine){.step = 1}, &full));
  assert_int_equal(full.code, EXIT_OUTPUT);
  assert_non_null(strstr(full.text, "/dev/full: No space"));
  metrics_close(metrics);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_error_wins),
      cmocka_unit_test(long_errors_end_at_a_character),
      WITH_FIXTURE(values_of_every_kind),
      WITH_FIXTURE(origins),
      WITH_FIXTURE(defaults_stay),
      WITH_FIXTURE(letters_dashes_and_negatives),
      WITH_FIXTURE(intervals),
      WITH_FIXTURE(bad_numbers),
      WITH_FIXTURE(ranges),
      WITH_FIXTURE(unknown_flags),
      WITH_FIXTURE(missing_values_and_conflicts),
      WITH_FIXTURE(one_positional_or_none),
      WITH_FIXTURE(help_and_version_come_first),
      WITH_FIXTURE(help_fits_and_is_complete),
      WITH_FIXTURE(config_is_read),
      WITH_FIXTURE(command_line_wins),
      WITH_FIXTURE(later_files_fill_in),
      WITH_FIXTURE(config_errors),
      WITH_FIXTURE(config_size_and_zeros),
      WITH_FIXTURE(config_round_trip),
      WITH_FIXTURE(unknown_values_are_not_written),
      WITH_FIXTURE(write_failure_is_seen),
      cmocka_unit_test(human_numbers),
      cmocka_unit_test(exact_numbers),
      cmocka_unit_test(progress_lines),
      cmocka_unit_test(progress_fits_every_width),
      cmocka_unit_test(extreme_progress_is_harmless),
      WITH_FIXTURE(plain_lines_elsewhere),
      cmocka_unit_test(work_lines),
      WITH_FIXTURE(short_work_is_silent),
      WITH_FIXTURE(long_work_is_one_line),
      WITH_FIXTURE(quiet_keeps_warnings),
      WITH_FIXTURE(messages_wipe_the_line),
      cmocka_unit_test(console_looks_at_the_environment),
      WITH_FIXTURE(metrics_lines),
      WITH_FIXTURE(metrics_are_cut),
      WITH_FIXTURE(metrics_failures),
  };
  return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
