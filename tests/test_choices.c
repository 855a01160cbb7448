/* text/dataset/choice_file and inference/choices: lines that are read and refused, tokens, and what is
 * chosen. */
#include "tests/corpus_helpers.h"
#include "inference/choices.h"

#include <math.h>

/* ---- files ---- */

/* All items of a file: "line: context[delimiter]text|text*", with a star after the right one. */
static void expect_items(const char *path, const char *expected) {
  char shown[1024];
  size_t used = 0;
  ChoiceFile file;
  const ChoiceItem *item;
  Error error = {0};
  if (!choice_file_open(&file, path, &error)) fail_msg("%s", error.text);
  while (choice_file_next(&file, &item, &error) && item) {
    used += (size_t)snprintf(shown + used, sizeof shown - used, "%d: %.*s[%.*s]", (int)item->line,
                             (int)item->context.size, (const char *)item->context.bytes, (int)item->delimiter.size,
                             (const char *)item->delimiter.bytes);
    for (size_t i = 0; i < item->count; i++)
      used += (size_t)snprintf(shown + used, sizeof shown - used, "%s%.*s%s", i ? "|" : "", (int)item->texts[i].size,
                               (const char *)item->texts[i].bytes, i == item->right ? "*" : "");
    used += (size_t)snprintf(shown + used, sizeof shown - used, "\n");
    assert_true(used < sizeof shown);
  }
  if (error.code) fail_msg("%s", error.text);
  assert_string_equal(shown, expected);
  choice_file_close(&file);
}

static void tsv_lines(void **state) {
  Fixture *f = *state;
  const char *path = put_text(f, "x.TSV", "\xEF\xBB\xBFgood\tbad\r\n\n \t\r\na\tb\tc\n\"x\"\\t\t y \nthe\tend");
  expect_items(path, "1: []good*|bad\n4: []a*|b|c\n5: []\"x\"\\t*| y \n6: []the*|end\n");
}

static void json_lines(void **state) {
  Fixture *f = *state;
  const char *text = "{\"sentence_good\": \"a\", \"sentence_bad\": \"b\", \"UID\": 18446744073709551615}\r\n"
                     "  \n"
                     "{\"choices\": [\"a\", \"b\"]}\n"
                     "{\"query\": \"q\", \"choices\": [\"a\", \"b\", \"c\"], \"gold\": 2, \"label\": \"1\"}\n"
                     "{\"context\": \"\", \"choices\": [\"a\", \"\\u00e9\"], \"answer\": 1, \"delimiter\": \"\"}\n"
                     "{\"context\": \"c\", \"choices\": [\"a\", \"b\"], \"answer\": 0.0, \"delimiter\": \": \"}";
  expect_items(put_text(f, "x.jsonl", text), "1: [ ]a*|b\n3: [ ]a*|b\n4: q[ ]a|b|c*\n5: []a|é*\n6: c[: ]a*|b\n");
}

static void json_nulls(void **state) {
  Fixture *f = *state;
  const char *text =
      "\xEF\xBB\xBF{\"choices\": [\"a\", \"b\"], \"context\": null, \"answer\": null, \"delimiter\": null}\r\n"
      "{\"choices\": [\"a\", \"b\"], \"context\": null, \"query\": \"q\", \"answer\": 1, \"gold\": null}\n"
      "{\"choices\": null, \"sentence_good\": \"a\", \"sentence_bad\": \"b\"}\n";
  expect_items(put_text(f, "x.jsonl", text), "1: [ ]a*|b\n2: q[ ]a|b*\n3: [ ]a*|b\n");
}

static void expect_refused(const char *path, ExitCode code, const char *part) {
  ChoiceSet set;
  Error error = {0};
  Tokenizer *tokenizer = tokenizer_byte();
  assert_false(choices_read(&set, path, tokenizer, 256, 8, &error));
  expect_error(&error, code, part);
  assert_null(strchr(error.text, '\n'));
  choices_free(&set);
  tokenizer_free(tokenizer);
}

static void lines_that_are_refused(void **state) {
  Fixture *f = *state;
  const struct {
    const char *name, *text, *part;
  } cases[] = {
      {"x.tsv", "a\tb\none\n",
       "x.tsv, line 2, has one text; write two or more, separated by tabs, the right one first"},
      {"x.tsv", "a\t\n", "x.tsv, line 1: text 2 is empty; write it, or delete the line"},
      {"x.tsv", "\ta", "x.tsv, line 1: text 1 is empty"},
      {"x.tsv", "a\t\tb", "x.tsv, line 1: text 2 is empty"},
      {"x.tsv", "", "x.tsv has no choices: write two or more texts on each line"},
      {"x.tsv", "\n\n", "x.tsv has no choices"},
      {"x.tsv", "\xEF\xBB\xBF", "x.tsv has no choices"},
      {"x.jsonl", "", "x.jsonl has no choices"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"]}\n{\"text\": \"a\"}",
       "x.jsonl, line 2, has \"text\"; write \"choices\", or \"sentence_good\" and \"sentence_bad\""},
      {"x.jsonl", "{}", "has no fields; write \"choices\""},
      {"x.jsonl", "{\"sentence_good\": \"a\"}", "has \"sentence_good\"; write"},
      {"x.jsonl", "{\"sentence_good\": \"a\", \"sentence_bad\": 1}", "\"sentence_bad\" is a number; write a string"},
      {"x.jsonl", "{\"sentence_good\": \"\", \"sentence_bad\": \"b\"}", "text 1 is empty"},
      {"x.jsonl", "{\"sentence_good\": \"a\", \"sentence_bad\": null}", "text 2 is empty"},
      {"x.jsonl", "{\"choices\": null}", "has \"choices\"; write"},
      {"x.jsonl", "{\"choices\": [\"a\"]}", "\"choices\" must be a list of two or more texts"},
      {"x.jsonl", "{\"choices\": \"ab\"}", "\"choices\" must be a list"},
      {"x.jsonl", "{\"choices\": [\"a\", null]}", "text 2 of \"choices\" is null; write a string"},
      {"x.jsonl", "{\"choices\": [\"a\", \"\"]}", "text 2 is empty"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"answer\": 2}",
       "\"answer\" must be the index of a text, a whole number from 0 to 1"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"gold\": -1}", "\"gold\" must be the index"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"gold\": 1e300}", "\"gold\" must be the index"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"gold\": 0.5}", "\"gold\" must be the index"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"gold\": \"0\"}", "\"gold\" must be the index"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"gold\": 0, \"answer\": 1}",
       "has both \"answer\" and \"gold\"; leave out one of the two"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"query\": \"\", \"context\": \"\"}",
       "has both \"context\" and \"query\""},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"context\": []}", "\"context\" is an array; write a string"},
      {"x.jsonl", "{\"choices\": [\"a\", \"b\"], \"delimiter\": 0}", "\"delimiter\" is a number"},
      {"x.jsonl", "[\"a\", \"b\"]", "x.jsonl, line 1, is an array; every line must be one JSON object"},
      {"x.jsonl", "{\"choices\": [\"a\", \"\xff\"]}", "is not valid JSON"},
      {"x.jsonl", "{\"choices\"", "is not valid JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refused(put_text(f, cases[i].name, cases[i].text), EXIT_INPUT, cases[i].part);
  expect_refused(put_text(f, "x.txt", "a\tb"), EXIT_USAGE,
                 "x.txt: the name of a file of choices ends in .tsv or .jsonl");
  expect_refused(at(f, "none.tsv"), EXIT_INPUT, "none.tsv");
}

/* ---- tokens ---- */

static ChoiceSet read_set(Fixture *f, const char *name, const char *text, int ctx, bool begins) {
  ChoiceSet set;
  Error error = {0};
  Tokenizer *tokenizer = tokenizer_byte();
  tokenizer_set_begins_with_end(tokenizer, begins);
  if (!choices_read(&set, put_text(f, name, text), tokenizer, '\n', ctx, &error)) fail_msg("%s", error.text);
  tokenizer_free(tokenizer);
  return set;
}

/* The ids of a text as bytes, 256 as '^', with a '|' before the scored ones. */
static void expect_tokens(const ChoiceSet *set, size_t text, const char *expected) {
  char shown[256];
  size_t used = 0;
  const Choice *choice = &set->texts[text];
  for (int i = 0; i < choice->count; i++) {
    const int32_t id = set->ids.ids[choice->first + (size_t)i];
    if (i == choice->count - choice->scored) shown[used++] = '|';
    shown[used++] = id == 256 ? '^' : (char)id;
  }
  shown[used] = '\0';
  assert_string_equal(shown, expected);
}

static void tokens_of_texts(void **state) {
  Fixture *f = *state;
  ChoiceSet set = read_set(f, "x.tsv", "ab\tc\n\xff\xc3\xa9\t\xe2\x82\n", 8, false);
  expect_tokens(&set, 0, "\n|ab"); /* from the start token */
  expect_tokens(&set, 1, "\n|c");
  assert_int_equal(set.texts[2].lengths[CHOICE_BYTES], 3);
  assert_int_equal(set.texts[2].lengths[CHOICE_CHARACTERS], 2);
  assert_int_equal(set.texts[3].lengths[CHOICE_CHARACTERS], 2);
  assert_true(set.cut == 0 && set.chance == 0.5 && set.count == 2 && set.text_count == 4);
  choices_free(&set);

  const char *contexts = "{\"context\": \"Q \", \"choices\": [\"a\", \"b\"]}\n"
                         "{\"context\": \"Q\", \"choices\": [\"a\", \"b\", \"c\", \"d\"], \"delimiter\": \"\"}\n"
                         "{\"context\": \"\\u3000\\n\", \"choices\": [\"a\", \"b\"]}\n";
  set = read_set(f, "x.jsonl", contexts, 16, false);
  expect_tokens(&set, 0, "Q|  a"); /* spaces at the end of a context belong to the text */
  expect_tokens(&set, 2, "Q|a");
  expect_tokens(&set, 6, "\n|\u3000\n a"); /* no context */
  assert_true(set.texts[0].lengths[CHOICE_TOKENS] == 3 && set.texts[0].lengths[CHOICE_BYTES] == 1);
  assert_true(fabs(set.chance - 1.25 / 3) < 1e-12);
  choices_free(&set);

  set = read_set(f, "x.jsonl", contexts, 16, true);
  expect_tokens(&set, 0, "^Q|  a");
  expect_tokens(&set, 6, "^|\u3000\n a");
  choices_free(&set);
}

static void long_texts_keep_their_ends(void **state) {
  Fixture *f = *state;
  ChoiceSet set = read_set(f, "x.jsonl",
                           "{\"context\": \"context\", \"choices\": [\"ab\", \"c\"]}\n"
                           "{\"choices\": [\"0123456789\", \"1\"], \"delimiter\": \"\"}\n",
                           4, false);
  expect_tokens(&set, 0, "xt| ab");
  expect_tokens(&set, 1, "ext| c");
  expect_tokens(&set, 2, "5|6789"); /* of a text that does not fit alone */
  expect_tokens(&set, 3, "\n|1");
  assert_int_equal(set.cut, 3);
  assert_int_equal(set.texts[2].lengths[CHOICE_TOKENS], 4);
  assert_int_equal(choices_within(&set, 0), 1);
  assert_int_equal(choices_within(&set, 10), 2);
  assert_int_equal(choices_within(&set, SIZE_MAX), 2);
  choices_free(&set);
}

/* ---- choosing ---- */

static void measures_choose(void **state) {
  Fixture *f = *state;
  ChoiceSet set = read_set(f, "x.tsv", "ab\té\naa\tbb\taa\n", 8, false); /* é: two tokens and bytes, one character */
  const double scores[] = {-4, -3, -2, -1, -1};
  for (int i = 0; i < 5; i++) set.texts[i].loglikelihood = scores[i];
  bool tie;
  assert_int_equal(choices_chosen(&set, &set.questions[0], CHOICE_SUM, &tie), 1);
  assert_false(tie);
  assert_int_equal(choices_chosen(&set, &set.questions[0], CHOICE_CHARACTERS, &tie), 0);
  assert_int_equal(choices_chosen(&set, &set.questions[1], CHOICE_SUM, &tie), 1); /* the first of equal ones */
  assert_true(tie);
  set.texts[2].loglikelihood = -1;
  const ChoiceCount count = choices_count(&set, 2);
  assert_true(count.questions == 2 && count.right[CHOICE_SUM] == 0 && count.right[CHOICE_CHARACTERS] == 1);
  assert_true(count.ties[CHOICE_SUM] == 1 && count.ties[CHOICE_BYTES] == 1);
  choices_free(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {WITH_FIXTURE(tsv_lines),       WITH_FIXTURE(json_lines),
                                     WITH_FIXTURE(json_nulls),      WITH_FIXTURE(lines_that_are_refused),
                                     WITH_FIXTURE(tokens_of_texts), WITH_FIXTURE(long_texts_keep_their_ends),
                                     WITH_FIXTURE(measures_choose)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
