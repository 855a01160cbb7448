/* text/dataset/record, TSV: by itself and through text/dataset/corpus: prompts and responses in columns, lines
 * without them. */
#include "tests/corpus_helpers.h"
#include "text/dataset/record.h"

static void columns(void **state) {
  Fixture *f = *state;
  const char *text = "Who?\tMe.\r\n"
                     "\n\r\n"
                     "a\tb\tc\td\n"
                     "\tno prompt\n"
                     "no response\t\n"
                     "\t\n"
                     "\t\tneither\n"
                     " \"1\\t2\" \t é😀<|endoftext|>\r\r\n"
                     "the\tend";
  Corpus *corpus = open_one(put_text(f, "x.TSV", text));
  assert_true(corpus_has_prompts(corpus));
  assert_int_equal(corpus_jsonl_files(corpus), 0);
  Document d = next(corpus);
  assert_int_equal(d.line, 1);
  assert_int_equal(d.offset, 0);
  assert_int_equal(d.prompt, 4);
  assert_string_equal(d.file, at(f, "x.TSV"));
  d = next(corpus);
  assert_int_equal(d.line, 4);
  assert_int_equal(d.offset, 13);
  d = next(corpus);
  assert_int_equal(d.line, 5);
  assert_int_equal(d.prompt, 0);
  d = next(corpus);
  assert_int_equal(d.prompt, d.size);
  assert_int_equal(next(corpus).line, 9);
  corpus_rewind(corpus, (Progress){0});
  expect_documents(corpus, "Who?|Me.$a|b$no prompt$no response|$ \"1\\t2\" | é😀<|endoftext|>\r$the|end$");
}

static void bytes_stay_bytes(void **state) {
  Corpus *corpus = open_one(put(*state, "x.tsv", "\xEF\xBB\xBF\0\xff\t\r\0\t\xfe\n\xEF\xBB\xBF\t", 15));
  Document d = next(corpus);
  assert_int_equal(d.prompt, 2);
  assert_int_equal(d.size, 4);
  assert_memory_equal(d.text, "\0\xff\r", 4);
  expect_text(corpus, "\xEF\xBB\xBF", 3); /* a byte-order mark is one at the beginning of the file alone */
  expect_end(corpus);
  corpus_close(corpus);
}

static void lines_without_a_tab(void **state) {
  Fixture *f = *state;
  const char *const lines[] = {"one", " ", "{\"text\": \"a\"}", "<|endoftext|>", "a\\tb", "\r\r", "x\r"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char text[256];
    snprintf(text, sizeof text, "a\tb\n\n%s\nc\td\n", lines[i]);
    Corpus *corpus = open_one(put_text(f, "x.tsv", text));
    expect_text(corpus, "ab", 2);
    Error error = first_error(corpus);
    expect_error(&error, EXIT_INPUT,
                 "x.tsv, line 3, has one column; a line of a .tsv file is a prompt, a tab and a response");
    corpus_rewind(corpus, (Progress){0});
    expect_text(corpus, "ab", 2);
    corpus_close(corpus);
  }
}

/* The error names the first five, and counts all up to the end of the file. */
static void several_lines_without_a_tab(void **state) {
  Fixture *f = *state;
  const struct {
    const char *text, *ending;
  } cases[] = {{"a\tb\nx\ny\nc\td\n", "a response; 2 of 4 lines cannot be read: 2, 3"},
               {"1\n2\n3\n4\n\n6", "a response; 5 of 6 lines cannot be read: 1, 2, 3, 4, 6"},
               {"a\tb\n2\n3\n4\n5\n6\n7\n8\n9\tb\n", "a response; 7 of 9 lines cannot be read: 2, 3, 4, 5, 6, ..."},
               {"a\tb\n2\n", "a response"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Corpus *corpus = open_one(put_text(f, "x.tsv", cases[i].text));
    const Error error = first_error(corpus);
    expect_error(&error, EXIT_INPUT, "x.tsv, line ");
    const size_t length = strlen(error.text), tail = strlen(cases[i].ending);
    assert_true(length > tail);
    assert_string_equal(error.text + length - tail, cases[i].ending);
    corpus_close(corpus);
  }
}

/* Files of all formats side by side: what is not a pair has no prompt. */
static void mixed_formats(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  put_text(f, "d/a.jsonl", "{\"text\": \"ja\", \"q\": \"jq\", \"a\": \"jr\"}\n");
  put_text(f, "d/b.tsv", "q\ta\n");
  put_text(f, "d/c.txt", "x\ty\n");
  const char *dir = at(f, "d"), *text = at(f, "d/c.txt");
  Corpus *corpus = open_one(dir);
  assert_true(corpus_has_prompts(corpus));
  assert_int_equal(corpus_files(corpus), 3);
  expect_documents(corpus, "ja$q|a$x\ty\n$");
  CorpusOptions fields = {.prompt_field = "q", .response_field = "a"};
  expect_documents(open_with(&dir, 1, &fields), "jq|jr$q|a$x\ty\n$");
  corpus = open_one(text);
  assert_false(corpus_has_prompts(corpus));
  corpus_close(corpus);
}

/* The same bytes under another name are other documents. */
static void fingerprints(void **state) {
  Fixture *f = *state;
  uint64_t prints[3];
  const char *const names[] = {"a.txt", "a.tsv", "a.jsonl"};
  put_text(f, "a", "q\ta\n");
  for (int i = 0; i < 3; i++) {
    assert_int_equal(rename(at(f, i ? names[i - 1] : "a"), at(f, names[i])), 0);
    Corpus *corpus = open_one(at(f, names[i]));
    prints[i] = corpus_fingerprint(corpus);
    corpus_close(corpus);
    for (int k = 0; k < i; k++) assert_true(prints[k] != prints[i]);
  }
}

/* Standard input has no name: an option says so, also where fields of JSON lines are named. */
static void standard_input(void **state) {
  Fixture *f = *state;
  const char *sources[] = {"-", put_text(f, "b.jsonl", "{\"q\": \"Q\", \"a\": \"A\"}\n")};
  const char *copy = put_text(f, "stdin", "q\ta\n");
  CorpusOptions options = {.spool = copy, .spooled = true, .tsv = true, .prompt_field = "q", .response_field = "a"};
  expect_documents(open_with(sources, 2, &options), "q|a$Q|A$");
  options = (CorpusOptions){.spool = copy, .spooled = true, .tsv = true};
  Corpus *corpus = open_with(sources, 1, &options);
  assert_true(corpus_has_prompts(corpus));
  expect_documents(corpus, "q|a$");
  options.tsv = false;
  expect_documents(open_with(sources, 1, &options), "q\ta\n$");
}

/* Every way to cut a line or change one byte of it: an error, no document, or columns that lie inside of it. */
static void damaged_lines(void **state) {
  (void)state;
  static const char line[] = "ab\tcd\te\r";
  Record record = {0};
  for (size_t i = 0; i < sizeof line - 1; i++) {
    for (int byte = 0; byte < 257; byte++) { /* 256: cut */
      Error error = {0};
      size_t size = byte < 256 ? sizeof line - 1 : i;
      uint8_t *copy = malloc(size > 0 ? size : 1); /* on its own, so that a sanitizer sees a byte too far */
      assert_non_null(copy);
      memcpy(copy, line, size);
      if (byte < 256) copy[i] = (uint8_t)byte;
      bool ok = record_parse_tsv(&record, copy, size, "x", 1, &error);
      assert_true(ok ? record.size >= record.prompt && record.size < (size ? size : 1) : error.code == EXIT_INPUT);
      free(copy);
    }
  }
  record_free(&record);
}

/* Columns that are longer than any block. */
static void long_lines(void **state) {
  const size_t size = 30000000;
  char *text = malloc(2 * size + 1);
  assert_non_null(text);
  memset(text, 'x', 2 * size + 1);
  text[size] = '\t';
  Corpus *corpus = open_one(put(*state, "x.tsv", text, 2 * size + 1));
  const Document d = next(corpus);
  assert_int_equal(d.prompt, size);
  assert_int_equal(d.size, 2 * size);
  assert_null(memchr(d.text, '\t', d.size));
  expect_end(corpus);
  corpus_close(corpus);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(columns),
      WITH_FIXTURE(bytes_stay_bytes),
      WITH_FIXTURE(lines_without_a_tab),
      WITH_FIXTURE(mixed_formats),
      WITH_FIXTURE(fingerprints),
      WITH_FIXTURE(standard_input),
      WITH_FIXTURE(damaged_lines),
      WITH_FIXTURE(several_lines_without_a_tab),
      WITH_FIXTURE(long_lines),
  };
  return cmocka_run_group_tests_name("tsv", tests, NULL, NULL);
}
