/* cli/console and base/error: errors, numbers, progress lines, work lines and the messages of the console. */
#include "cli/console.h"
#include "tests/cli_helpers.h"
#include "base/error.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- errors ---- */

static void first_error_wins(void **state) {
  (void)state;
  Error error = {0};
  assert_false((fail)(&error, EXIT_INPUT, "%d of %s", 3,
                      "x\033[2J\n\xC2\x9B"
                      "2J\xFF\xC3\xA9"));
  assert_false((fail)(&error, EXIT_USAGE, "second"));
  assert_int_equal(error.code, EXIT_INPUT);
  assert_string_equal(error.text, "3 of x?[2J ??2J?\xC3\xA9");
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

static void wrapped_lines(void **state) {
  (void)state;
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  text_print_wrapped(stream, "über den Wolken > 0 [auto: preset] averylongwordthatdoesnotfit x", 3, 3, 18);
  assert_int_equal(fclose(stream), 0);
  assert_string_equal(text, "über den Wolken\n   > 0\n   [auto: preset]\n   averylongwordthatdoesnotfit\n   x\n");
  free(text);
}

/* ---- progress ---- */

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
    assert_string_equal(text_count(cases[i].value).text, cases[i].count);
    assert_string_equal(text_bytes(cases[i].value).text, cases[i].bytes);
    assert_string_equal(text_duration(cases[i].value).text, cases[i].duration);
  }
  assert_string_equal(text_count(-48211).text, "-48.2k");
  assert_string_equal(text_duration(-1).text, "-");
}

static void counted_nouns(void **state) {
  (void)state;
  assert_string_equal(text_plural(0, "step").text, "0 steps");
  assert_string_equal(text_plural(1, "step").text, "1 step");
  assert_string_equal(text_plural(1234567, "step").text, "1234567 steps");
  assert_string_equal(text_plural(1.02, "epoch").text, "1.02 epochs");
  assert_string_equal(text_plural_short(1, "window").text, "1 window");
  assert_string_equal(text_plural_short(1000, "window").text, "1.0k windows");
  assert_string_equal(text_plural_short(0.96, "window").text, "1.0 windows");
}

static void exact_numbers(void **state) {
  (void)state;
  assert_string_equal(text_number(600, false).text, "600");
  assert_string_equal(text_number(0.1, false).text, "0.1");
  assert_string_equal(text_number((double)0.1f, true).text, "0.1");
  assert_string_equal(text_number((double)0.1f, false).text, "0.10000000149011612");
  assert_string_equal(text_number(1e-8, false).text, "1e-08");
  assert_string_equal(text_number(-1e300, false).text, "-1e+300");
  assert_string_equal(text_number(12.5, false).text, "12.5");
}

static const ConsoleProgress all_numbers = {.step = 1200,
                                            .steps = 2000,
                                            .loss = 1.812,
                                            .val_loss = 1.904,
                                            .accuracy = 0.9567,
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
  const ConsoleProgress few = {.step = 3,
                               .loss = NAN,
                               .val_loss = NAN,
                               .accuracy = NAN,
                               .lr = NAN,
                               .tokens_per_s = NAN,
                               .peak = NAN,
                               .seconds_left = NAN};
  console_format_progress(line, sizeof line, &all_numbers, 0, true, true);
  assert_string_equal(
      line, "step 1200/2000 ███████░░░░░ loss 1.812  val 1.904  acc 95.7%  lr 8.1e-04  48.2k tok/s  71% of peak  "
            "ETA 0:21");
  console_format_progress(line, sizeof line, &all_numbers, 0, true, false);
  assert_non_null(strstr(line, "step 1200/2000 #######..... loss"));
  console_format_progress(line, sizeof line, &all_numbers, 0, false, true);
  assert_non_null(strstr(line, "step 1200/2000  loss 1.812  val"));
  assert_int_equal(console_format_progress(line, sizeof line, &few, 80, true, true), 6);
  assert_string_equal(line, "step 3");
}

static void progress_fits_every_width(void **state) {
  (void)state;
  char line[256];
  int last = 0;
  for (int width = 1; width <= 130; width++) {
    int columns = console_format_progress(line, sizeof line, &all_numbers, width, true, true);
    assert_int_equal(columns, columns_of(line));
    assert_true(columns > 0 && columns <= width && columns >= last);
    last = columns;
  }
  assert_int_equal(last, console_format_progress(line, sizeof line, &all_numbers, 0, true, true));
  console_format_progress(line, sizeof line, &all_numbers, 40, true, true);
  assert_string_equal(line, "step 1200/2000  loss 1.812  ETA 0:21");
}

static void trend_of_losses(void **state) {
  (void)state;
  char line[256];
  const double losses[15] = {9, 9, 9, 8, 7, 6, 5, NAN, 4, 3, 2, 1.5, 1.2, 1.1, 1};
  ConsoleProgress numbers = all_numbers;
  numbers.trend = losses;
  numbers.trend_count = 15; /* of which the newest 12 are shown */
  const int wide = console_format_progress(line, sizeof line, &numbers, 0, true, true);
  assert_non_null(strstr(line, "val 1.904 █▇▆▅█▄▃▂▁▁▁▁  acc"));
  assert_int_equal(wide, columns_of(line));
  assert_int_equal(console_format_progress(line, sizeof line, &numbers, wide - 1, true, true), wide - 13);
  numbers.trend_count = 1;
  console_format_progress(line, sizeof line, &numbers, 0, true, true);
  assert_non_null(strstr(line, "val 1.904  acc"));
  numbers.trend_count = 15;
  console_format_progress(line, sizeof line, &numbers, 0, true, false); /* not without UTF-8, nor in a plain line */
  assert_non_null(strstr(line, "val 1.904  acc"));
  console_format_progress(line, sizeof line, &numbers, 0, false, true);
  assert_non_null(strstr(line, "val 1.904  acc"));
}

static void extreme_progress_is_harmless(void **state) {
  (void)state;
  char line[512], small[8];
  const ConsoleProgress extreme = {.step = INT64_MAX,
                                   .steps = 1,
                                   .loss = INFINITY,
                                   .val_loss = -1e300,
                                   .accuracy = 1e300,
                                   .lr = 1e300,
                                   .tokens_per_s = 1e300,
                                   .peak = 1e300,
                                   .seconds_left = 1e300};
  int columns = console_format_progress(line, sizeof line, &extreme, 0, true, true);
  assert_int_equal(columns, columns_of(line));
  assert_non_null(strstr(line, "loss inf"));
  console_format_progress(small, sizeof small, &all_numbers, 0, true, true);
  assert_true(strlen(small) < sizeof small);
}

static char *printed(Scratch *f, Console *console) {
  fclose(console->stream);
  return get_text(f->path);
}

static Console console_to(const Scratch *f, bool terminal) {
  FILE *stream = fopen(f->path, "wb");
  assert_non_null(stream);
  return (Console){.stream = stream, .program = "train", .terminal = terminal, .drawn_at = -1};
}

static void messages_are_folded_at_blanks(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, true); /* of 80 columns */
  console_note(&console, "%s %s", "the text is computed on the CPU, because the device that was asked",
               "for is not there, ünd this goes on for a while");
  console_note(&console, "a note that fits: ./train book.txt");
  console_warning(
      &console, "%s",
      "a.txt: it is a text from another time; convert it: iconv -f windows-1252 -t utf-8 a.txt | ./train -");
  console_error(&console, &(Error){EXIT_USAGE, "one word: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "
                                               "bbbbbbbbbbbbbbb"});
  console_line(
      &console, "%s",
      "a line is as it is, because  it may be a text, of which all blanks count, in all its length of columns");
  char *text = printed(f, &console);
  assert_string_equal(
      text, "note: the text is computed on the CPU, because the device that was asked for is\n"
            "  not there, ünd this goes on for a while\n"
            "note: a note that fits: ./train book.txt\n"
            "warning: a.txt: it is a text from another time; convert it:\n"
            "  iconv -f windows-1252 -t utf-8 a.txt | ./train -\n"
            "train: one word: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
            "  bbbbbbbbbbbbbbb\n"
            "a line is as it is, because  it may be a text, of which all blanks count, in all its length of columns\n");
}

static void notes_move_no_cursor(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, false);
  console_note(&console, "%s",
               "a\033[31mb\xC2\x9B"
               "c");
  assert_string_equal(printed(f, &console), "note: a?[31mb??c\n");
  char text[5001] = "";
  memset(text, 'x', 5000);
  Console second = console_to(f, false);
  console_line(&second, "%s", text);
  assert_int_equal(strlen(printed(f, &second)), 5001);
}

static void plain_lines_elsewhere(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, false);
  console_progress(&console, &all_numbers, false);
  console_progress(&console, &all_numbers, true);
  console_note(&console, "%d things", 3);
  console_warning(&console, "careful");
  console_error(&console, &(Error){.code = EXIT_INPUT, .text = "x is empty"});
  console_line(&console, "a line");
  console_end_line(&console);
  assert_string_equal(
      printed(f, &console),
      "step 1200/2000  loss 1.812  val 1.904  acc 95.7%  lr 8.1e-04  48.2k tok/s  71% of peak  ETA 0:21\n"
      "note: 3 things\nwarning: careful\ntrain: x is empty\na line\n");
}

static void expect_work(ConsoleWork work, double seconds, const char *expected) {
  char line[200];
  console_format_work(line, sizeof line, &work, seconds);
  assert_string_equal(line, expected);
}

static void work_lines(void **state) {
  (void)state;
  expect_work((ConsoleWork){"encoding", 3 << 20, 12 << 20, true}, 2,
              "encoding 3.0 MiB of 12.0 MiB, 1.5 MiB/s, ETA 0:06");
  expect_work((ConsoleWork){"merging pairs", 500, 32000, false}, 1, "merging pairs 500 of 32.0k, 500/s, ETA 1:03");
  expect_work((ConsoleWork){"reading", 1024, 0, true}, 4, "reading 1.0 KiB, 256 B/s");
  expect_work((ConsoleWork){"reading", 0, 5, true}, 0, "reading 0 B of 5 B, 0 B/s");
}

/* What is over within half a second shows nothing; elsewhere than on a terminal nothing does within ten. */
static void short_work_is_silent(void **state) {
  Scratch *f = *state;
  for (int terminal = 0; terminal < 2; terminal++) {
    Console console = console_to(f, terminal);
    const ConsoleWork work = {"encoding", 1, 2, true};
    console_work(&console, &work);
    console_work(&console, &work);
    console_work_end(&console);
    assert_string_equal(printed(f, &console), "");
  }
}

static void long_work_is_one_line(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, true);
  const ConsoleWork work = {"encoding", 1, 2, true};
  console_work(&console, &work);
  console.drawn_at -= 1; /* as if a second had passed */
  console_work(&console, &work);
  console_work(&console, &work);
  console_work_end(&console);
  console_work_end(&console);
  char *text = printed(f, &console);
  assert_true(strncmp(text, "\rencoding 1 B of 2 B, ", 22) == 0);
  assert_true(strcmp(text + strlen(text) - 7, "\033[K\r\033[K") == 0);
}

static void quiet_keeps_warnings(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, false);
  console.quiet = true;
  console_progress(&console, &all_numbers, true);
  console_note(&console, "note");
  console_line(&console, "line");
  console_warning(&console, "careful");
  console_error(&console, &(Error){.code = EXIT_INTERNAL});
  assert_string_equal(printed(f, &console), "warning: careful\ntrain: unknown error\n");
}

static void messages_clear_the_line(void **state) {
  Scratch *f = *state;
  Console console = console_to(f, true);
  ConsoleProgress numbers = {.step = 1,
                             .loss = NAN,
                             .val_loss = NAN,
                             .accuracy = NAN,
                             .lr = NAN,
                             .tokens_per_s = NAN,
                             .peak = NAN,
                             .seconds_left = NAN};
  console_progress(&console, &numbers, false);
  numbers.step = 2;
  console_progress(&console, &numbers, false); /* within a tenth of a second: not drawn */
  console_warning(&console, "careful");
  console_progress(&console, &numbers, false); /* comes back at once */
  numbers.step = 3;
  console_progress(&console, &numbers, true); /* a logged step is always drawn */
  console_end_line(&console);
  console_end_line(&console);
  console.color = true;
  console_warning(&console, "colored");
  assert_string_equal(printed(f, &console), "\rstep 1\033[K\r\033[Kwarning: careful\n\rstep 2\033[K\rstep 3\033[K\n"
                                            "\033[33mwarning:\033[0m colored\n");
}

static void console_looks_at_the_environment(void **state) {
  (void)state;
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "dumb", 1);
  Console console = console_open("train", true);
  assert_true(console.utf8 && console.quiet && !console.terminal && !console.color);
  setenv("LC_ALL", "C", 1);
  assert_false(console_open("train", false).utf8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_error_wins),
      cmocka_unit_test(long_errors_end_at_a_character),
      cmocka_unit_test(wrapped_lines),
      cmocka_unit_test(human_numbers),
      cmocka_unit_test(exact_numbers),
      cmocka_unit_test(counted_nouns),
      cmocka_unit_test(progress_lines),
      cmocka_unit_test(progress_fits_every_width),
      cmocka_unit_test(trend_of_losses),
      cmocka_unit_test(extreme_progress_is_harmless),
      WITH_SCRATCH(plain_lines_elsewhere),
      cmocka_unit_test(work_lines),
      WITH_SCRATCH(short_work_is_silent),
      WITH_SCRATCH(long_work_is_one_line),
      WITH_SCRATCH(quiet_keeps_warnings),
      WITH_SCRATCH(messages_clear_the_line),
      cmocka_unit_test(console_looks_at_the_environment),
      WITH_SCRATCH(messages_are_folded_at_blanks),
      WITH_SCRATCH(notes_move_no_cursor),
  };
  return cmocka_run_group_tests_name("console", tests, NULL, NULL);
}
