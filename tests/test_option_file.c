/* cli/option_file: configuration files. */
#include "tests/option_helpers.h"

#include <unistd.h>

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
      "prompt = \"tab\\there \\\"x\\\" \\\\ \\x41\\n\"\ntie = off\nmixer = CAN # letters\nsteps=7\nsave-every = "
      "5m\nschedule = constant";
  if (!parse_config(f, config, "")) fail_msg("%s", f->error.text);
  assert_true(f->s.lr == 1e-3 && f->s.tie == 0 && f->s.steps == 7 && f->s.save_every.seconds == 300 &&
              f->s.schedule == 2);
  assert_int_equal(f->s.data.count, 2);
  assert_string_equal(f->s.data.items[0], "a#b.txt");
  assert_string_equal(f->s.data.items[1], "two words.txt");
  assert_string_equal(f->s.mixer, "CAN");
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
                                  {"mixer = \"A C\"\n", ":1: mixer: got \"A C\", need 1 to 8 of the letters ANC"},
                                  {"help = yes\n", ":1: unknown key \"help\""},
                                  {"prompt = \"x\n", ":1: prompt: the closing quote is missing"},
                                  {"prompt = \"x\\\"\n", "the closing quote is missing"},
                                  {"prompt = \"x\" y\n", "text after the closing quote"},
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
  expect_error(f, line, "longer than 1 MiB");
  stream = fopen(f->path, "wb");
  fwrite("lr = 1\0\n", 1, 8, stream);
  fclose(stream);
  expect_error(f, line, "zero byte");
}

/* Writes, forgets, reads back. */
static void write_and_reload(Fixture *f, char *written) {
  FILE *stream = fopen(f->path, "wb");
  assert_non_null(stream);
  assert_true(options_write(&f->options, stream, NULL, NULL));
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
  expect_ok(f, "a.txt b_c.txt #d --resume --dry-run --save-every 90s --tie --mixer CCAN --seed 18446744073709551615");
  f->s.prompt = every;
  f->s.lr = 1.0 / 3;
  f->s.clip = 0.1f;
  f->s.steps = 123456789012;
  f->s.tokens = INT64_MIN;
  write_and_reload(f, first);
  assert_string_equal(f->s.prompt, every);
  assert_non_null(strstr(first, "\"\\x01\\x02")); /* the file stays readable */
  assert_non_null(strstr(first, "\nmixer = CCAN\n"));
  assert_string_equal(f->s.mixer, "CCAN");
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
  assert_null(strstr(written, "mixer"));
  assert_non_null(strstr(written, "epochs = 2\n"));
  assert_non_null(strstr(written, "# data\ndata = x\n"));
  f->s.epochs = NAN;
  f->s.steps = 500;
  f->s.minutes = 3; /* two known, none given: the first one */
  for (int i = 0; i < f->options.count; i++) f->options.rows[i].origin = ORIGIN_DEFAULT;
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
  assert_false(options_write(&f->options, stream, NULL, NULL));
  fclose(stream);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(config_is_read),
      WITH_FIXTURE(command_line_wins),
      WITH_FIXTURE(later_files_fill_in),
      WITH_FIXTURE(config_errors),
      WITH_FIXTURE(config_size_and_zeros),
      WITH_FIXTURE(config_round_trip),
      WITH_FIXTURE(unknown_values_are_not_written),
      WITH_FIXTURE(write_failure_is_seen),
  };
  return cmocka_run_group_tests_name("configuration files", tests, NULL, NULL);
}
