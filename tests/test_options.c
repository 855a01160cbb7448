/* cli/options: the command line and --help. */
#include "tests/option_helpers.h"

static void values_of_every_kind(void **state) {
  Fixture *f = *state;
  expect_ok(f,
            "a.txt --layers 3 --lr=1e-3 --clip 0.5 --tie --schedule linear --steps 1e5 --seed 18446744073709551615 - "
            "--prompt=Once_upon --quiet --no-checks --mixer CCA --save-every 30s --tokens -9223372036854775808 "
            "--resume b.txt");
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
  assert_string_equal(s->mixer, "CCA");
  assert_true(f->options.quiet && !s->checks && !s->dry_run);
}

static void origins(void **state) {
  Fixture *f = *state;
  put_text(f->path, "lr = 0.5\nclip = 2\n");
  char line[128];
  snprintf(line, sizeof line, "--clip 3 --config %s", f->path);
  expect_ok(f, line);
  assert_string_equal(options_typed(&f->options, "lr seed clip"), "clip");
  assert_null(options_typed(&f->options, "lr seed"));
  assert_true(options_given(&f->options, &f->s.clip));
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
  expect_ok(f, "-p -x -s 7 --no-checks -c -l 4");
  assert_string_equal(f->s.prompt, "-x");
  assert_true(f->s.seed == 7 && f->s.checks && f->s.layers == 4);
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
  assert_true(f->s.tie == 0 && f->options.quiet && f->s.lr == 2);
  expect_ok(f, "--lr 1 --lr auto --tie --tie=auto --layers 2 --layers=auto");
  assert_true(isnan(f->s.lr) && f->s.tie == -1 && f->s.layers == 0);
  expect_ok(f, "--mixer AN --mixer auto");
  assert_string_equal(f->s.mixer, "");
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
  expect_error(f, "--mixer CAX", "--mixer: got \"CAX\", need 1 to 8 of the letters ANC");
  expect_error(f, "--mixer cca", "--mixer: got \"cca\"");
  expect_error(f, "--mixer=", "--mixer: got \"\"");
  expect_error(f, "--mixer CCCCCCCCA", "--mixer: got \"CCCCCCCCA\"");
  expect_ok(f, "--mixer CCCCCCCA");
  assert_string_equal(f->s.mixer, "CCCCCCCA");
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
                                  {"--rate 8", "did you mean --batch? (hint)"},
                                  {"--ratex 8", "unknown flag --ratex: `./train --help-all`"},
                                  {"--gpus 2", "unknown flag --gpus: `./train --help-all`"},
                                  {"-z", "unknown flag -z: `./train --help-all`"},
                                  {"--zzzzzzzz", "unknown flag --zzzzzzzz: `./train --help-all`"},
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
  expect_error(f, "--prompt --quiet", "--prompt needs a value, but the flag --quiet follows|--prompt=--quiet");
  expect_error(f, "--prompt --no-tie", "--no-tie follows");
  expect_error(f, "--prompt --lr=3", "--lr=3 follows");
  expect_error(f, "--prompt -c", "-c follows");
  expect_error(f, "--no-tie=yes", "--no-tie takes no value, got \"yes\"");
  expect_error(f, "--steps 5 --epochs 2", "--epochs: excludes --steps");
  expect_error(f, "--minutes 5 --steps 2", "--steps: excludes --minutes");
  expect_ok(f, "--steps 5 --steps 6");
}

static void one_positional_or_none(void **state) {
  (void)state;
  const char *model = NULL;
  char *arguments[] = {(char *)"generate", (char *)"a.run", (char *)"b.run", NULL};
  const Option row = TEXT("model", &model, "RUN", NULL, "run directory", .positional = true);
  Error error = {0}, other = {0};
  Options one = {.program = "generate"}, none = {.program = "generate"};
  options_init(&one, &row, 1);
  assert_true(options_parse(&one, 2, arguments, &error));
  assert_string_equal(model, "a.run");
  options_free(&one);
  assert_null(model);
  options_init(&one, &row, 1);
  assert_false(options_parse(&one, 3, arguments, &error));
  assert_string_equal(error.text, "unexpected argument \"b.run\" after \"a.run\": only one RUN is allowed");
  options_free(&one);
  options_init(&none, NULL, 0);
  assert_false(options_parse(&none, 2, arguments, &other));
  assert_non_null(strstr(other.text, "unexpected argument \"a.run\""));
  options_free(&none);
}

static void help_and_version_come_first(void **state) {
  Fixture *f = *state;
  expect_ok(f, "--help --bogus");
  assert_true(f->options.help);
  expect_ok(f, "-h --lr");
  assert_true(f->options.help && !f->options.help_all);
  expect_ok(f, "--help-all --lr");
  assert_true(f->options.help && f->options.help_all);
  expect_ok(f, "--version --lr");
  assert_true(f->options.version && !f->options.help);
  expect_error(f, "--bogus --help", "unknown flag --bogus");
}

static char *help_text(const Options *options, const char *path) {
  FILE *stream = fopen(path, "wb");
  options_help(options, stream);
  fclose(stream);
  return get_text(path);
}

static int widest_line(const char *text) {
  int widest = 0, columns = 0;
  for (; *text; text++) {
    columns = *text == '\n' ? 0 : columns + (((unsigned char)*text & 0xC0) != 0x80);
    if (columns > widest) widest = columns;
  }
  return widest;
}

static void help_fits_and_is_complete(void **state) {
  Fixture *f = *state;
  setenv("COLUMNS", "100", 1);
  char *text = help_text(&f->options, f->path);
  for (const Option *row = f->options.rows; row < f->options.rows + f->options.count; row++) {
    bool no = row->kind == OPTION_SWITCH && row->initial.integer;
    char name[64];
    snprintf(name, sizeof name, "%s%s", no ? "--[no-]" : "--", row->name);
    if (!strstr(text, name)) fail_msg("--help lacks %s", name);
  }
  const char *const expected[] = {"Usage: ./train FILE... [options]\n",
                                  "\ndata\n",
                                  "  FILE..., --data FILE",
                                  "\nOther\n",
                                  "peak learning rate [auto]",
                                  "  -p, --prompt TEXT",
                                  "--schedule cosine|linear|constant",
                                  "[cosine]",
                                  "--resume[=DIR]",
                                  "  --mixer CCA",
                                  "letters [auto]",
                                  "--config FILE",
                                  "-h, --help",
                                  "--version",
                                  "sequences [12]",
                                  "[10m]",
                                  "held out [0.1; >= 0, < 1]",

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

/* ---- modes ---- */

enum { PRINT = OPTION_DEFAULT_MODE, SUM = 2, LIST_FILES = 4, TABLE = 8 };

typedef struct ModeSettings {
  const char *text, *sum, *field, *kept;
  TextList marks;
  bool list, exact, plain, every, secret, table;
  int count;
} ModeSettings;

/* What `words`, with an own line each in a configuration file, or none, is parsed to. */
static bool parse_modes(Options *options, ModeSettings *s, const char *path, char *words, Error *error) {
  static const char usage[] = "[options]";
  *s = (ModeSettings){.count = 1};
  const Option rows[] = {
      GROUP("Text", .modes = PRINT | SUM),
      TEXT("text", &s->text, NULL, NULL, "text", .letter = 'p', .modes = PRINT, .common = true),
      INT("count", &s->count, 1, 9, NULL, "count"),
      LIST("mark", &s->marks, NULL, "marks"),
      FLAG("list", &s->list, "list", .letter = 'l', .selects = LIST_FILES),
      GROUP("Rest"),
      TEXT("sum", &s->sum, "FILE", NULL, "sum", .selects = SUM),
      FLAG("exact", &s->exact, "exact", .modes = SUM, .excludes = "plain field"),
      FLAG("plain", &s->plain, "plain", .modes = SUM),
      FLAG("table", &s->table, "table", .selects = TABLE, .modes = LIST_FILES),
      FLAG("every", &s->every, "every"),
      TEXT("field", &s->field, NULL, NULL, "field", .modes = PRINT | SUM, .needs = "text sum"),
      TEXT("secret", &s->kept, NULL, NULL, "secret", .hidden = true),
  };
  char *arguments[MAX_ARGUMENTS] = {(char *)"train"};
  int count = 1;
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) arguments[count++] = word;
  if (path) arguments[count++] = (char *)"--config", arguments[count++] = (char *)path;
  *error = (Error){0};
  *options = (Options){.program = "train", .usage = usage, .default_mode = "printing"};
  options_init(options, rows, sizeof rows / sizeof *rows);
  return options_parse(options, count, arguments, error);
}

static void modes_are_selected(void **state) {
  (void)state;
  const struct {
    const char *words;
    unsigned mode;
  } cases[] = {{"", PRINT},
               {"-p x --count 2", PRINT},
               {"--sum x --exact --count 3", SUM},
               {"-l --every", LIST_FILES},
               {"--table", TABLE},
               {"--table -l", LIST_FILES}, /* an option of the other mode */
               {"--no-list --text x", PRINT},
               {"-l --no-exact", LIST_FILES},
               {"--sum x --field y", SUM}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Options options;
    ModeSettings s;
    Error error;
    char words[80];
    snprintf(words, sizeof words, "%s", cases[i].words);
    if (!parse_modes(&options, &s, NULL, words, &error)) fail_msg("%s: %s", cases[i].words, error.text);
    assert_int_equal(options.mode, cases[i].mode);
    options_free(&options);
  }
}

static void modes_refuse_options(void **state) {
  (void)state;
  const char *const cases[][2] = {
      {"--exact", "--exact belongs to --sum FILE"},
      {"--sum x -p y", "-p does not go with --sum; it is for printing"},
      {"-l --count 1", "--count does not go with -l; it is for printing, --sum FILE"},
      {"--list --mark x", "--mark does not go with -l; it is for printing, --sum FILE"},
      {"-l --sum x", "use only one of -l and --sum"},
      {"--table --sum x", "use only one of --sum and --table"},
      {"-l --table --sum x", "use only one of -l and --sum"},
      {"--table --exact", "--exact does not go with --table; it is for --sum FILE"},
      {"--sum x --exact --plain", "--exact does not go with --plain; leave out one of the two"},
      {"--sum x --field y --exact", "--exact does not go with --field; leave out one of the two"},
      {"--field y", "--field needs -p or --sum"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Options options;
    ModeSettings s;
    Error error;
    char words[80];
    snprintf(words, sizeof words, "%s", cases[i][0]);
    if (parse_modes(&options, &s, NULL, words, &error)) fail_msg("%s is accepted", cases[i][0]);
    assert_int_equal(error.code, EXIT_USAGE);
    assert_string_equal(error.text, cases[i][1]);
    options_free(&options);
  }
}

/* A file may be for several calls: what another mode has is as if it were not there. */
static void files_may_be_for_other_modes(void **state) {
  Fixture *f = *state;
  Options options;
  ModeSettings s;
  Error error;
  char list[] = "-l", none[] = "";
  put_text(f->path, "text = x\ncount = 7\nmark = a\nmark = b\nexact = yes\n");
  assert_true(parse_modes(&options, &s, f->path, list, &error));
  assert_true(!s.text && s.count == 1 && s.marks.count == 0 && !s.exact && !options_given(&options, &s.count));
  options_free(&options);
  assert_true(parse_modes(&options, &s, f->path, none, &error));
  assert_true(s.count == 7 && s.marks.count == 2 && !s.exact);
  assert_string_equal(s.text, "x");
  options_free(&options);
  put_text(f->path, "sum = x\n");
  assert_true(parse_modes(&options, &s, f->path, none, &error));
  assert_int_equal(options.mode, SUM);
  options_free(&options);
}

static void help_shows_modes_and_common_rows(void **state) {
  Fixture *f = *state;
  Options options;
  ModeSettings s;
  Error error;
  char few[] = "--help", all[] = "--help-all";
  assert_true(parse_modes(&options, &s, NULL, few, &error));
  char *text = help_text(&options, f->path);
  assert_true(strstr(text, "--text") && strstr(text, "--help-all") && strstr(text, "Common options"));
  assert_true(!strstr(text, "--sum") && !strstr(text, "--version"));
  options_free(&options);
  for (int width = 60; width <= 140; width += 40) {
    char columns[16];
    snprintf(columns, sizeof columns, "%d", width);
    setenv("COLUMNS", columns, 1);
    assert_true(parse_modes(&options, &s, NULL, strcpy(all, "--help-all"), &error));
    text = help_text(&options, f->path);
    assert_true(strstr(text, "\nText (with printing, --sum)\n") && strstr(text, "text [with printing]"));
    assert_true(strstr(text, "exact [with --sum]") && strstr(text, "every\n") && strstr(text, "count [1]"));
    assert_true(strstr(text, " list\n") && strstr(text, "table [also with -l]"));
    assert_null(strstr(text, "--secret"));
    assert_in_range(widest_line(text), width - 12, width - 1);
    options_free(&options);
  }
}

/* A row of a file is reset when the command line gives an option that it follows, but not the row itself. */
static void rows_follow_options(void **state) {
  Fixture *f = *state;
  const struct {
    const char *line;
    bool continues;
    int tie;
    float dropout;
  } cases[] = {{"", false, 1, 0.05f},
               {"--layers 3", false, -1, 0.05f},
               {"--schedule=linear", false, -1, 0.05f},
               {"--schedule=linear", true, 1, 0.05f},
               {"--layers 3 --no-tie", false, 0, 0.05f},
               {"--epochs 2 --layers 3", false, -1, 0.1f},
               {"--epochs 2 --layers 3", true, 1, 0.1f},
               {"--tie auto", false, 1, 0.05f}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_text(f->path, "tie = yes\ndropout = 0.05\nlayers = 2\n");
    assert_true(parse(f, cases[i].line));
    options_drop_auto(&f->options);
    assert_true(options_load(&f->options, f->path, EXIT_USAGE, &f->error));
    options_follow(&f->options, cases[i].continues);
    assert_int_equal(f->s.tie, cases[i].tie);
    assert_true(f->s.dropout == cases[i].dropout);
  }
  assert_true(parse(f, "--epochs 2 --no-tie"));
  assert_string_equal(options_typed(&f->options, "layers tie epochs"), "tie");
  assert_null(options_typed(&f->options, "layers lr"));
  assert_string_equal(options_typed(&f->options, "layers layer"), "layer");
  assert_string_equal(options_typed(&f->options, "epoch tie"), "epoch tie");
}

/* Rows by the object that holds their variables, for another object of the same type. */
static void rows_of_an_object(void **state) {
  Fixture *f = *state;
  const Settings *s = &f->s;
  assert_true(parse(f, "--layers 3 --tie"));
  Settings other = *s;
  other.layers = 5, other.tie = -1;
  int count = 0;
  const size_t size = offsetof(Settings, schedule) - offsetof(Settings, layers);
  const Option *row = NULL;
  while ((row = options_next_in(&f->options, row, &s->layers, size))) {
    const void *variable = (const char *)&other + ((const char *)row->value - (const char *)s);
    char text[40];
    option_format_variable(row, variable, text, sizeof text);
    if (row->value == &s->layers) assert_string_equal(text, "5");
    if (row->value == &s->tie) assert_string_equal(text, "unset");
    option_take(row, variable);
    count++;
  }
  assert_int_equal(count, 3); /* layers, batch, tie; grad_accum has no row */
  assert_true(s->layers == 5 && s->tie == -1 && s->batch == other.batch);
}

/* Letters are in the variable itself: those of an object are copied. */
static void letters_of_an_object(void **state) {
  Fixture *f = *state;
  char text[40];
  assert_true(parse(f, "--mixer CCA"));
  Settings other = f->s;
  strcpy(other.mixer, "AN");
  const Option *row = options_next_in(&f->options, NULL, f->s.mixer, sizeof f->s.mixer);
  assert_ptr_equal(row->value, f->s.mixer);
  option_format_variable(row, other.mixer, text, sizeof text);
  assert_string_equal(text, "AN");
  option_take(row, other.mixer);
  assert_string_equal(f->s.mixer, "AN");
  other.mixer[0] = '\0';
  option_format_variable(row, other.mixer, text, sizeof text);
  assert_string_equal(text, "unset");
}

/* All values and origins, whatever the other process was given. */
static void between_processes(void **state) {
  Fixture *f = *state;
  static const char *const lines[][2] = {
      {"a b --mixer CAN --prompt x --lr 2 --resume --no-checks", "--mixer AAAAAA --val v c"},
      {"--val v --tie", "a --mixer AAAAAA --prompt x --lr 2"}};
  for (int i = 0; i < 2; i++) {
    char *dump = NULL;
    size_t size;
    FILE *stream = open_memstream(&dump, &size);
    assert_non_null(stream);
    expect_ok(f, lines[i][0]);
    assert_true(options_dump(&f->options, stream) && fclose(stream) == 0);
    expect_ok(f, lines[i][1]);
    assert_true(options_copy(&f->options, dump, &f->error));
    free(dump);
    const Settings *s = &f->s;
    assert_string_equal(s->mixer, i == 0 ? "CAN" : "");
    assert_int_equal(s->data.count, i == 0 ? 2 : 0);
    assert_int_equal(s->tie, i == 0 ? -1 : 1);
    assert_int_equal(s->checks, i != 0);
    if (i == 0) assert_true(!s->val && s->lr == 2 && strcmp(s->prompt, "x") == 0 && strcmp(s->resume, "") == 0);
    else assert_true(strcmp(s->val, "v") == 0 && isnan(s->lr) && !s->prompt && !s->resume);
    assert_int_equal(options_given(&f->options, &s->mixer), i == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(letters_of_an_object),
      WITH_FIXTURE(between_processes),
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
      WITH_FIXTURE(modes_are_selected),
      WITH_FIXTURE(modes_refuse_options),
      WITH_FIXTURE(files_may_be_for_other_modes),
      WITH_FIXTURE(help_shows_modes_and_common_rows),
      WITH_FIXTURE(rows_follow_options),
      WITH_FIXTURE(rows_of_an_object),
  };
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
