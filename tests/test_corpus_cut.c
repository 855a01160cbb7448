/* corpus_cut(): where a corpus is cut, and that its parts are read as if the other did not exist. */
#include "kernels/philox.h"
#include "tests/corpus_helpers.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>

enum { ALL = 1 << 20 };

/* Cuts the corpus and compares the documents of both parts; `rest` NULL: it is not cut. */
static void expect_parts(Corpus *corpus, double fraction, int64_t most, const char *train, const char *rest) {
  Error error = {0};
  Corpus *end = NULL;
  const int64_t bytes = corpus_bytes(corpus);
  const uint64_t whole = corpus_fingerprint(corpus);
  if (!corpus_cut(corpus, fraction, most, &end, &error)) fail_msg("%s", error.text);
  assert_int_equal(corpus_bytes(corpus) + (end ? corpus_bytes(end) : 0), bytes);
  if (!rest) assert_null(end);
  else {
    assert_non_null(end);
    assert_true(corpus_fingerprint(corpus) != corpus_fingerprint(end));
    assert_true(whole != corpus_fingerprint(corpus) && whole != corpus_fingerprint(end));
    assert_int_equal(corpus_has_prompts(end), corpus_has_prompts(corpus));
    expect_documents(end, rest);
  }
  if (!rest) assert_true(whole == corpus_fingerprint(corpus));
  expect_documents(corpus, train);
}

static void expect_cut(Fixture *f, const char *name, const char *text, double fraction, const char *train,
                       const char *rest) {
  expect_parts(open_one(put_text(f, name, text)), fraction, ALL, train, rest);
}

static void text_files(void **state) {
  Fixture *f = *state;
  /* a document in the first half of the end, or at its beginning */
  expect_cut(f, "a", "1\n3\n5\n7\n9\n<|endoftext|>\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n", 0.6, "1\n3\n5\n7\n9\n$",
             "b\nc\nd\ne\nf\ng\nh\ni\nj\nk\n$");
  expect_cut(f, "a", "12345\n<|endoftext|>\r\n12345678901", 1 / 3.0, "12345\n$", "12345678901$");
  expect_cut(f, "a", "12345\n<|endoftext|>\n1234567890", 1 / 3.0, "12345\n$", "1234567890$");
  /* none there: a line */
  expect_cut(f, "a", "aaaaaaaaa\nbb\nccc\ndd\n<|endoftext|>\ne", 0.65, "aaaaaaaaa\nbb\n$", "ccc\ndd\n$e$");
  expect_cut(f, "a", "aaaaaaa\nbb\ncccccccc\n", 0.6, "aaaaaaa\n$", "bb\ncccccccc\n$");
  expect_cut(f, "a", "aaaaaaa\nb <|endoftext|>\nc\ncccccccccccccccc\n", 0.55, "aaaaaaa\nb <|endoftext|>\n$",
             "c\ncccccccccccccccc\n$");
  /* no line: a character */
  expect_cut(f, "a", "aaaaaaaaaa", 0.3, "aaaaaaa$", "aaa$");
  expect_cut(f, "a", "aaaaaaaaaa\n", 0.3, "aaaaaaa$", "aaa\n$");
  expect_cut(f, "a",
             "aaaaaa\xE2\x82\xAC"
             "aaa",
             0.4, "aaaaaa\xE2\x82\xAC$", "aaa$");
  expect_cut(f, "a", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 0.5, "\x80\x80\x80\x80\x80\x80\x80\x80$", "\x80\x80$");
  /* a part begins and ends as a file does */
  expect_cut(f, "a",
             "\xEF\xBB\xBF"
             "aaaa\n\xEF\xBB\xBF"
             "bb\n",
             0.4, "aaaa\n$", "bb\n$");
  /* at most so many bytes */
  expect_parts(open_one(put_text(f, "a", "a\nb\nc\nd\ne\n")), 0.8, 4, "a\nb\nc\n$", "d\ne\n$");
  expect_parts(open_one(put_text(f, "a", "a\nb\nc\nd\ne\n")), 0.8, 0, "a\nb\nc\nd\ne\n$", NULL);
}

static void lines_stay_whole(void **state) {
  Fixture *f = *state;
  const char *five = "a\tb\nc\td\ne\tf\ng\th\ni\tj\n";
  expect_cut(f, "a.tsv", five, 0.4, "a|b$c|d$e|f$", "g|h$i|j$");
  expect_cut(f, "a.tsv", five, 0.3, "a|b$c|d$e|f$g|h$", "i|j$");
  expect_cut(f, "a.tsv", five, 0.35, "a|b$c|d$e|f$g|h$", "i|j$");
  expect_cut(f, "a.tsv", "a\tb\nc\td\ne\tffffff\n", 0.4, "a|b$c|d$", "e|ffffff$"); /* begins before */
  expect_cut(f, "a.tsv", five, 0.01, "a|b$c|d$e|f$g|h$", "i|j$");
  expect_cut(f, "a.tsv", "a\tb\nc\tdddddd\n", 0.1, "a|b$c|dddddd$", NULL); /* that would be more than half */
  expect_cut(f, "a.tsv", "aaaaaaa\tb\nc\tdd", 0.1, "aaaaaaa|b$", "c|dd$");
  expect_cut(f, "a.tsv", "a\tb\n\n\n\n\n\n", 0.3, "a|b$", NULL); /* no document is left */
  expect_cut(f, "a.tsv", "\n\n\n\n\na\tb\n", 0.4, "a|b$", NULL);
  expect_cut(f, "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n", 0.1, "a$b$", "c$");
  expect_cut(f, "a.fa", ">1\nAC\n>2\nGT\nAA\n>3\nTT\n", 0.4, "AC$GTAA$", "TT$");
  expect_cut(f, "a.fa", ">1\nAC\n>2\nGT\nAA\nGGGGGGGG", 0.5, "AC$GT$", "AAGGGGGGGG$"); /* in a sequence */
  expect_cut(f, "a.fa", ">1\nACGTACGTACGT", 0.4, "ACGTAC$", "GTACGT$");
  expect_cut(f, "a.fa", ">1\nACAC\n>2 a long header\nA\n", 0.5, "ACAC$A$", NULL); /* not in a header */
  expect_cut(f, "a.fa", ">1\nACGTACGTACGTACGTACGTACG\n>2 a long header\nA\n", 0.3, "ACGTACGTACGTACGTACGTACG$", "A$");
  expect_cut(f, "a.fa", ">1\n;2\n;3\nACGT\n", 0.6, "ACGT$", NULL); /* only headers before */
}

static void files(void **state) {
  Fixture *f = *state;
  const char *sources[] = {put_text(f, "1", "aaaa"), put_text(f, "2", ""), put_text(f, "3", "bbb"),
                           put_text(f, "4", "c\nd\n")};
  expect_parts(open_with(sources, 4, NULL), 0.5, ALL, "aaaa$bbb$", "c\nd\n$"); /* a file begins in the first half */
  expect_parts(open_with(sources, 4, NULL), 4 / 11.0, ALL, "aaaa$bbb$", "c\nd\n$");
  expect_parts(open_with(sources, 4, NULL), 0.25, ALL, "aaaa$bbb$c\n$", "d\n$");
  expect_parts(open_with(sources, 4, NULL), 0.6, ALL, "aaaa$", "bbb$c\nd\n$");
  const char *mixed[] = {sources[0], put_text(f, "5.tsv", "a\tb\n")};
  expect_parts(open_with(mixed, 2, NULL), 0.5, ALL, "aaaa$", "a|b$"); /* both have prompts, maybe empty ones */
}

/* Every group is cut by itself; one with nothing to cut stays whole. */
static void groups(void **state) {
  Fixture *f = *state;
  const char *dir = make_dir(f, "folder");
  put_text(f, "folder/3.txt", "o\np\n");
  put_text(f, "folder/4.txt", "q\nr\n");
  const char *sources[] = {put_text(f, "1", "a\nb\n"), put_text(f, "2", "c\nd\ne\nf\n"), dir, put_text(f, "5", "x"),
                           put_text(f, "6", "")};
  const CorpusOptions options = {.groups = 3};
  expect_parts(open_with(sources, 5, &options), 0.5, ALL, "a\nb\n$c\n$o\np\n$x$", "d\ne\nf\n$q\nr\n$");
  expect_parts(open_with(sources, 5, &options), 0.9, 2, "a\nb\n$c\nd\ne\n$o\np\n$q\n$x$", "f\n$r\n$");
  Corpus *corpus = open_with(sources, 5, &options), *rest;
  Error error = {0};
  assert_true(corpus_cut(corpus, 0.5, ALL, &rest, &error));
  for (int i = 0; i < 4; i++) assert_int_equal(next(corpus).group, i < 2 ? 0 : i - 1);
  for (int i = 0; i < 2; i++) assert_int_equal(next(rest).group, i);
  Corpus *other = open_with(sources, 5, &(CorpusOptions){.groups = 2}), *plain = open_with(sources, 5, NULL);
  assert_true(corpus_fingerprint(other) != corpus_fingerprint(plain));
  corpus_close(corpus);
  corpus_close(rest);
  corpus_close(other);
  corpus_close(plain);
}

static void nothing_is_cut(void **state) {
  Fixture *f = *state;
  const double fractions[] = {0, -1, 1, 2, (double)NAN};
  for (int i = 0; i < 5; i++) expect_cut(f, "a", "a\nb\n", fractions[i], "a\nb\n$", NULL);
  expect_cut(f, "a", "a", 0.5, "a$", NULL);
  expect_cut(f, "a", "ab", 0.1, "a$", "b$");
  expect_cut(f, "a", "<|endoftext|>\nab\n", 0.2, "ab\n$", NULL);
  expect_cut(f, "a", "ab\n<|endoftext|>\n", 0.6, "ab\n$", NULL);
  expect_cut(f, "a", "ab\n<|endoftext|>\nc", 0.5, "ab\n$", "c$"); /* not in a separator */
}

static void lines_have_their_numbers(void **state) {
  Fixture *f = *state;
  const struct {
    const char *name, *text;
    int64_t line;
  } cases[] = {{"a", "a\nb\nc\nd\n", 4},
               {"a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n", 3},
               {"a.fa", ">1\nAA\n>2\nTT\n", 4}};
  for (int i = 0; i < 3; i++) {
    Corpus *corpus = open_one(put_text(f, cases[i].name, cases[i].text)), *rest;
    Error error = {0};
    assert_true(corpus_cut(corpus, i ? 0.5 : 0.25, ALL, &rest, &error));
    const Document document = next(rest);
    assert_int_equal(corpus_line(rest, &document, 0), cases[i].line);
    corpus_close(corpus);
    corpus_close(rest);
  }
}

/* All bad lines of the file are named, those of the other part, too. */
static void bad_lines(void **state) {
  const char *text = "{\"text\": \"a\"}\nbad\n{\"text\": \"b\"}\n{\"text\": \"c\"}\nbad\n";
  Corpus *corpus = open_one(put_text(*state, "a.jsonl", text)), *rest;
  Error error = {0};
  assert_true(corpus_cut(corpus, 0.5, ALL, &rest, &error));
  error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "2 of 5 lines cannot be read: 2, 5");
  error = first_error(rest);
  expect_error(&error, EXIT_INPUT, "a.jsonl, line 5");
  corpus_close(corpus);
  corpus_close(rest);
}

/* In every random text, the parts are what corpora of two files with these bytes have. */
static void parts_are_as_files(void **state) {
  static const char *const pieces[] = {"a",
                                       "\n",
                                       "\r\n",
                                       "\xC3\xA9",
                                       "word ",
                                       END_OF_TEXT "\n",
                                       "\n" END_OF_TEXT "\n",
                                       END_OF_TEXT "\r\n",
                                       "\xEF\xBB\xBF",
                                       ">1\n",
                                       "\t",
                                       "\n"};
  Fixture *f = *state;
  uint32_t drawn = 0;
  int cuts = 0;
  for (int round = 0; round < 2000; round++) {
    char text[512] = "";
    for (uint32_t n = 1 + philox(3, drawn++, 0, 0, 0).word[0] % 30; n > 0; n--)
      strcat(text, pieces[philox(3, drawn++, 0, 0, 0).word[0] % (sizeof pieces / sizeof *pieces)]);
    Corpus *corpus = open_one(put_text(f, "a", text)), *rest;
    Error error = {0};
    assert_true(corpus_cut(corpus, 0.05 * (1 + round % 19), ALL, &rest, &error));
    if (rest) {
      const size_t cut = (size_t)corpus_bytes(corpus);
      assert_false(((uint8_t)text[cut] & 0xC0) == 0x80);
      Corpus *files[] = {open_one(put(f, "b", text, cut)), open_one(put_text(f, "c", text + cut))};
      Corpus *parts[] = {corpus, rest};
      for (int i = 0; i < 2; i++) {
        for (Document d; (d = next(files[i])).text;) expect_text(parts[i], d.text, d.size);
        expect_end(parts[i]);
        corpus_close(files[i]);
      }
      cuts++;
    }
    corpus_close(corpus);
    corpus_close(rest);
  }
  assert_true(cuts > 1500);
}

static void changed_files(void **state) {
  Fixture *f = *state;
  Corpus *corpus = open_one(put_text(f, "a", "a\nb\nc\nd\n")), *rest = corpus;
  Error error = {0};
  put_text(f, "a", "a\nb\nc\nd\ne\n");
  assert_false(corpus_cut(corpus, 0.5, ALL, &rest, &error));
  assert_null(rest);
  expect_error(&error, EXIT_INPUT, "a was changed while it was read");
  corpus_close(corpus);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(text_files), WITH_FIXTURE(lines_stay_whole),   WITH_FIXTURE(files),
      WITH_FIXTURE(groups),     WITH_FIXTURE(nothing_is_cut),     WITH_FIXTURE(lines_have_their_numbers),
      WITH_FIXTURE(bad_lines),  WITH_FIXTURE(parts_are_as_files), WITH_FIXTURE(changed_files),
  };
  return cmocka_run_group_tests_name("corpus_cut", tests, NULL, NULL);
}
