/* text/dataset/record, JSON lines: by itself and through text/dataset/corpus: fields and invalid lines. */
#include "tests/corpus_helpers.h"
#include "text/dataset/line.h"
#include "text/dataset/record.h"

static void json_lines(void **state) {
  Fixture *f = *state;
  const char *text = "{\"text\": \"a\"}\r\n"
                     "\n \t\r\n"
                     "  {\"id\": 18446744073709551615, \"text\": \"b\\nc\", \"meta\": {\"x\": [1e3, null]}}  \n"
                     "{\"text\": \"\"}\n"
                     "{\"text\": \"old\", \"text\": \"\\u00e9\\ud83d\\ude00<|endoftext|>\"}";
  Corpus *corpus = open_one(put_text(f, "x.JSONL", text));
  Document d = next(corpus);
  assert_int_equal(d.line, 1);
  assert_int_equal(d.offset, 0);
  assert_int_equal(d.prompt, 0);
  assert_string_equal(d.file, at(f, "x.JSONL"));
  d = next(corpus);
  assert_int_equal(d.line, 4);
  assert_int_equal(d.offset, 20);
  assert_int_equal(next(corpus).line, 6);
  corpus_rewind(corpus, (Progress){0});
  expect_documents(corpus, "a$b\nc$é😀<|endoftext|>$");
}

static void json_nul_bytes(void **state) {
  Corpus *corpus = open_one(put_text(*state, "x.jsonl", "{\"text\": \"a\\u0000b\"}"));
  expect_text(corpus, "a\0b", 3);
  expect_end(corpus);
  corpus_close(corpus);
}

static void json_fields(void **state) {
  Fixture *f = *state;
  const char *path = put_text(f, "x.jsonl",
                              "{\"q\": \"Who?\", \"a\": \"Me.\", \"text\": \"t\", \"\": \"e\"}\n"
                              "{\"q\": \"\", \"a\": \"No.\", \"text\": \"u\", \"\": \"\"}\n"
                              "{\"q\": \"Why\", \"a\": \"\", \"text\": \"v\", \"\": \"f\"}\n"
                              "{\"q\": \"\", \"a\": \"\", \"text\": \"w\", \"\": \"g\"}\n");
  expect_documents(open_one(path), "t$u$v$w$");
  CorpusOptions other = {.field = "a"}, nameless = {.field = ""};
  expect_documents(open_with(&path, 1, &other), "Me.$No.$");
  expect_documents(open_with(&path, 1, &nameless), "e$f$g$");
  CorpusOptions pair = {.prompt_field = "q", .response_field = "a"};
  expect_documents(open_with(&path, 1, &pair), "Who?|Me.$No.$Why|$");
  Corpus *corpus = open_with(&path, 1, &pair);
  assert_int_equal(next(corpus).prompt, 4);
  assert_int_equal(next(corpus).prompt, 0);
  Document d = next(corpus);
  assert_int_equal(d.prompt, d.size);
  corpus_close(corpus);
  CorpusOptions half = {.prompt_field = "q"}, three = {.field = "t", .prompt_field = "q", .response_field = "a"};
  refuse_with(&path, 1, &half, EXIT_USAGE, "--response-field is missing");
  half = (CorpusOptions){.response_field = "a"};
  refuse_with(&path, 1, &half, EXIT_USAGE, "--prompt-field is missing");
  refuse_with(&path, 1, &three, EXIT_USAGE, "leave out --jsonl-field");
}

static void broken_json(void **state) {
  Fixture *f = *state;
  const struct {
    const char *line, *message;
  } cases[] = {
      {"{\"content\": \"c\", \"id\": 7}",
       "x.jsonl, line 3, has no field \"text\"; use --jsonl-field to choose a field with text: \"content\""},
      {"{\"id\": 7}", "line 3, has no field \"text\"; the object has no field with text, only \"id\""},
      {"{}", "has no field \"text\"; the object is empty"},
      {"{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}", "\"7\", \"8\", ..."},
      {"{\"a\\n\\u001b\\u009b\": 1}", "only \"a????\""},
      {"{\"text\": 7}",
       "line 3: the field \"text\" is a number, not a string; the object has no field with text, only \"text\""},
      {"{\"text\": null}", "is null, not a string"},
      {"{\"text\": [\"a\"]}", "is an array, not a string"},
      {"{\"text\": {\"text\": \"a\"}}", "is an object, not a string"},
      {"{\"text\": true}", "is true, not"},
      {"{\"text\": \"a\"", "line 3, is not valid JSON: '}' expected"},
      {"{\"text\": \"a\"} x", "line 3, is not valid JSON: end of file expected near 'x' (at column 15)"},
      {"{\"text\": \"a\"}{\"text\": \"b\"}", "end of file expected"},
      {"{\"text\": \"a\\ud800\"}", "line 3, is not valid JSON: invalid Unicode"},
      {"{\"text\": \"\xff\"}", "line 3, is not valid JSON: unable to decode byte 0xff"},
      {"{\"text\": \"\x01\"}", "line 3, is not valid JSON: control character 0x1"},
      {"{\"a\\u0000b\": \"\"}", "line 3, is not valid JSON: NUL byte in object key"},
      {"{\"n\": 1e999}", "line 3, is not valid JSON: real number overflow"},
      {"[", "line 3, is not valid JSON"},
      {"[1]", "line 3, is an array; every line must be one JSON object"},
      {"\"text\"", "line 3, is a string"},
      {"text", "line 3, is not valid JSON: invalid token near 'text' (at column 4)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[512];
    snprintf(text, sizeof text, "{\"text\": \"a\"}\n\n%s\n{\"text\": \"b\"}\n", cases[i].line);
    Corpus *corpus = open_one(put_text(f, "x.jsonl", text));
    expect_text(corpus, "a", 1);
    Error error = first_error(corpus);
    expect_error(&error, EXIT_INPUT, cases[i].message);
    corpus_rewind(corpus, (Progress){0});
    expect_text(corpus, "a", 1);
    corpus_close(corpus);
  }
}

static void several_broken_lines(void **state) {
  const char *text = "{\"text\": \"a\"}\n{\"text\": 1}\n{\"id\": 2}\n\n[]\n{\n{\"text\": \"b\"}\n";
  Corpus *corpus = open_one(put_text(*state, "x.jsonl", text));
  const Error error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "line 2: the field \"text\" is a number, not a string");
  expect_error(&error, EXIT_INPUT, "; 4 of 7 lines cannot be read: 2, 3, 5, 6");
  corpus_close(corpus);
}

static void missing_pair_fields(void **state) {
  const char *path = put_text(*state, "x.jsonl", "{\"q\": \"a\"}\n");
  CorpusOptions no_answer = {.prompt_field = "q", .response_field = "a"};
  Corpus *corpus = open_with(&path, 1, &no_answer);
  Error error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "no field \"a\"; use --response-field to choose a field with text: \"q\"");
  corpus_close(corpus);
  CorpusOptions no_question = {.prompt_field = "a", .response_field = "q"};
  corpus = open_with(&path, 1, &no_question);
  error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "no field \"a\"; use --prompt-field to choose a field with text: \"q\"");
  corpus_close(corpus);
}

static void hostile_json(void **state) {
  Fixture *f = *state;
  enum { DEEP = 1000000 };
  char *text = malloc(DEEP + 1);
  assert_non_null(text);
  memset(text, '[', DEEP);
  Corpus *corpus = open_one(put(f, "deep.jsonl", text, DEEP));
  Error error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "line 1, is not valid JSON: maximum parsing depth reached");
  corpus_close(corpus);
  memset(text, 'k', DEEP);
  memcpy(text, "{\"", 2);
  memcpy(text + DEEP - 4, "\":1}", 4);
  corpus = open_one(put(f, "key.jsonl", text, DEEP));
  error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "the object has no field with text, only \"kkk");
  expect_error(&error, EXIT_INPUT, "kkk...kkk");
  corpus_close(corpus);
  free(text);
  /* The limit is looked at before the bytes are. */
  Record record = {0};
  RecordFields fields = {.text = "text"};
  Error too_long = {0};
  assert_false(record_parse_jsonl(&record, &fields, (const uint8_t *)"", JSONL_LINE_LIMIT + 1, "x", 5, &too_long));
  expect_error(&too_long, EXIT_INPUT, "x, line 5, has more than the 1073741824 bytes");
  record_free(&record);
}

/* Every way to cut or change one byte of a line: an error or a document, but nothing else. */
static void damaged_json(void **state) {
  (void)state;
  static const char line[] = "{\"p\": \"\\u00e9\\\"\", \"n\": [1, {\"x\": -2.5e3}], \"text\": \"a\\ud83d\\ude00\"}";
  Record record = {0};
  RecordFields fields = {.prompt = "p", .text = "text"};
  int parsed = 0;
  for (size_t i = 0; i < sizeof line - 1; i++) {
    for (int byte = 0; byte < 257; byte++) { /* 256: cut */
      Error error = {0};
      size_t size = byte < 256 ? sizeof line - 1 : i;
      uint8_t *copy = malloc(size > 0 ? size : 1); /* on its own, so that a sanitizer sees a byte too far */
      assert_non_null(copy);
      memcpy(copy, line, size);
      if (byte < 256) copy[i] = (uint8_t)byte;
      bool ok = record_parse_jsonl(&record, &fields, copy, size, "x", 1, &error);
      assert_true(ok ? record.size >= record.prompt : error.code == EXIT_INPUT);
      parsed += ok;
      free(copy);
    }
  }
  assert_true(parsed > (int)sizeof line);
  record_free(&record);
}

static void long_lines(void **state) {
  Fixture *f = *state;
  const size_t size = 50000000, head = 10;
  char *text = malloc(size + head + 3);
  assert_non_null(text);
  memcpy(text, "{\"text\": \"", head);
  memset(text + head, 'x', size);
  memcpy(text + head + size, "\"}\n", 3);
  Corpus *corpus = open_one(put(f, "x.jsonl", text, size + head + 3));
  expect_text(corpus, text + head, size);
  expect_end(corpus);
  corpus_close(corpus);
  corpus = open_one(put(f, "x.txt", text, size));
  expect_text(corpus, text, size);
  expect_end(corpus);
  corpus_close(corpus);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(json_lines),   WITH_FIXTURE(json_nul_bytes),       WITH_FIXTURE(json_fields),
      WITH_FIXTURE(broken_json),  WITH_FIXTURE(several_broken_lines), WITH_FIXTURE(missing_pair_fields),
      WITH_FIXTURE(hostile_json), WITH_FIXTURE(damaged_json),         WITH_FIXTURE(long_lines),
  };
  return cmocka_run_group_tests_name("jsonl", tests, NULL, NULL);
}
