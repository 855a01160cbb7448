/* cli/options: the command line, --help and configuration files. */
#include "cli/options.h"
#include "tests/cli_helpers.h"

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

enum { ROWS = 21, MAX_ARGUMENTS = 32 };

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
  char path[PATH_BYTES];
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
  file_temporary(f->path);
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
  for (int i = 1; i < count; i++)
    for (char *c = arguments[i]; *c; c++) *c = *c == '_' ? ' ' : *c;
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
  for (char *part = strtok(copy, "|"); part; part = strtok(NULL, "|"))
    if (!strstr(f->error.text, part)) fail_msg("%s: \"%s\" lacks \"%s\"", line, f->error.text, part);
}

/* ---- the command line ---- */

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
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    if (!strstr(text, expected[i])) fail_msg("--help lacks \"%s\":\n%s", expected[i], text);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    int columns = 0;
    for (char *c = line; *c; c++) columns += ((unsigned char)*c & 0xC0) != 0x80;
    if (columns > 100 || line[strlen(line) - 1] == ' ') fail_msg("%d columns: \"%s\"", columns, line);
  }
}

/* ---- configuration files ---- */

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
    if (ok || f->error.code != EXIT_USAGE || !named || !strstr(f->error.text, cases[i][1]))
      fail_msg("%s: ok %d, \"%s\" lacks \"%s\"", cases[i][0], ok, f->error.text, cases[i][1]);
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

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
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
  };
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
