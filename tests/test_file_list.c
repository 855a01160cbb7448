/* text/dataset/file_list, through text/dataset/corpus: which files are read, in which order, and names that cannot
 * be. */
#include "base/text.h"
#include "tests/corpus_helpers.h"

#include <fcntl.h>

static void refuse(const char *source, const char *part) { refuse_with(&source, 1, NULL, EXIT_INPUT, part); }

static void sources_keep_their_order(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  put_text(f, "d/2.txt", "two");
  put_text(f, "d/1.jsonl", "{\"text\": \"one\"}\n");
  const char *sources[] = {put_text(f, "z", "z"), at(f, "d"), put_text(f, "a", "a"), at(f, "z")};
  Corpus *corpus = open_with(sources, 4, NULL);
  assert_int_equal(corpus_files(corpus), 5);
  assert_int_equal(corpus_bytes(corpus), 1 + 16 + 3 + 1 + 1);
  assert_string_equal(corpus_skipped_names(corpus, false).text, "");
  expect_documents(corpus, "z$one$two$a$z$");
  sources[0] = sources[1] = at(f, "d/1.jsonl");
  corpus = open_with(sources, 2, NULL);
  for (int i = 0; i < 2; i++) assert_int_equal(next(corpus).line, 1); /* every file counts its own lines */
  expect_end(corpus);
  corpus_close(corpus);
}

static void directories_are_sorted_and_sifted(void **state) {
  Fixture *f = *state;
  const char *const dirs[] = {"d", "d/b", "d/b/deep", "d/b-", "d/.git", "d/x.txt", "d/empty"};
  const char *const files[] = {"d/b/1.txt",   "d/b/deep/2.txt", "d/b-/3.txt",  "d/b.txt",    "d/x.txt/4.TXT",
                               "d/\xff.txt",  "d/\xc3\xa9.txt", "d/\nnew.txt", "d/.hid.txt", "d/.git/no.txt",
                               "d/readme.md", "d/txt",          "d/a.txt~"};
  for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) make_dir(f, dirs[i]);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) put_text(f, files[i], files[i] + 2);
  Corpus *corpus = open_one(at(f, "d"));
  assert_int_equal(corpus_files(corpus), 8);
  assert_true(text_ends_with(corpus_skipped_names(corpus, false).text, " and 2 more"));
  expect_documents(corpus, "\nnew.txt$b-/3.txt$b.txt$b/1.txt$b/deep/2.txt$x.txt/4.TXT$\xc3\xa9.txt$\xff.txt$");
  expect_documents(open_one(at(f, "d/")),
                   "\nnew.txt$b-/3.txt$b.txt$b/1.txt$b/deep/2.txt$x.txt/4.TXT$\xc3\xa9.txt$\xff.txt$");
  expect_documents(open_one(at(f, "d/.git")), ".git/no.txt$");
  expect_documents(open_one(at(f, "d/readme.md")), "readme.md$");
}

static void empty_inputs(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  refuse(at(f, "d"), "has no .txt, .jsonl, .json, .tsv, .chat or FASTA file");
  put_text(f, "d/a.md", "a");
  refuse(at(f, "d"), "FASTA file, only ");
  put_text(f, "d/a.txt", "");
  refuse(at(f, "d"), "d/a.txt is empty");
  put_text(f, "d/b.txt", "");
  refuse(at(f, "d"), "all 2 files are empty");
  put_text(f, "d/c.txt", "c");
  expect_documents(open_one(at(f, "d")), "c$");
  refuse(at(f, "missing"), "missing: No such file");
  refuse(at(f, "d/a.md/x"), "Not a directory");
  refuse_with(NULL, 0, NULL, EXIT_INPUT, "no text was given");
  const char *const sources[] = {at(f, "d"), at(f, "missing")};
  refuse_with(sources, 2, NULL, EXIT_INPUT, "missing: No such file");
  corpus_close(NULL);
}

static void skipped_names(void **state) {
  Fixture *f = *state;
  static const char *const files[] = {"d/a.txt",  "d/.hidden.md", "d/z.PDF",   "d/8.md",
                                      "d/6.docx", "d/b.jpg",      "d/t.tsv.gz"};
  make_dir(f, "d");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) put_text(f, files[i], "x");
  Corpus *corpus = open_one(at(f, "d"));
  char all[1000];
  snprintf(all, sizeof all, "%s, ", at(f, "d/6.docx"));
  snprintf(all + strlen(all), sizeof all - strlen(all), "%s, ", at(f, "d/8.md"));
  snprintf(all + strlen(all), sizeof all - strlen(all), "%s and 3 more", at(f, "d/t.tsv.gz"));
  assert_string_equal(corpus_skipped_names(corpus, false).text, all);
  strcpy(strrchr(all, '3'), "1 more");
  assert_string_equal(corpus_skipped_names(corpus, true).text, all);
  corpus_close(corpus);
}

static void link_loops_end(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  make_dir(f, "d/sub");
  put_text(f, "d/sub/a.txt", "a");
  put_text(f, "b.txt", "b");
  assert_int_equal(symlink("..", at(f, "d/sub/up")), 0);
  for (char name[] = "d/a"; name[2] <= 'p'; name[2]++) assert_int_equal(symlink("sub", at(f, name)), 0);
  assert_int_equal(symlink("self", at(f, "d/self")), 0);
  assert_int_equal(symlink("pong", at(f, "d/ping")), 0);
  assert_int_equal(symlink("ping", at(f, "d/pong")), 0);
  assert_int_equal(symlink("gone", at(f, "d/dangling")), 0);
  assert_int_equal(symlink("../b.txt", at(f, "d/link.txt")), 0);
  Corpus *corpus = open_one(at(f, "d"));
  assert_true(text_ends_with(corpus_skipped_names(corpus, false).text, " and 1 more"));
  assert_string_equal(next(corpus).file, at(f, "d/a/a.txt")); /* of all names the first in order */
  corpus_rewind(corpus, (Progress){0});
  expect_documents(corpus, "a$b$");
  assert_int_equal(symlink("loop.txt", at(f, "d/loop.txt")), 0);
  refuse(at(f, "d"), "d/loop.txt: Too many levels of symbolic links");
  unlink(at(f, "d/loop.txt"));
  assert_int_equal(symlink("gone", at(f, "d/lost.txt")), 0);
  refuse(at(f, "d"), "d/lost.txt: No such file");
}

/* Without a memory of directories the walk would take 2^40 ways. */
static void link_lattices_end(void **state) {
  Fixture *f = *state;
  char name[64], target[64];
  for (int i = 0; i <= 40; i++) {
    snprintf(name, sizeof name, "%d", i);
    make_dir(f, name);
    snprintf(target, sizeof target, "../%d", i + 1);
    for (int k = 0; i < 40 && k < 2; k++) {
      snprintf(name, sizeof name, "%d/%c", i, 'a' + k);
      assert_int_equal(symlink(target, at(f, name)), 0);
    }
  }
  put_text(f, "39/x.txt", "x");
  Error error = {0};
  Corpus *corpus = NULL;
  /* More than 40 links in one path are ELOOP: a name without an ending, skipped. */
  const char *source = at(f, "0");
  if (!corpus_open(&corpus, &source, 1, NULL, &error)) fail_msg("%s", error.text);
  expect_documents(corpus, "x$");
}

static void special_files(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  assert_int_equal(mkfifo(at(f, "d/pipe.txt"), 0666), 0);
  put_text(f, "d/a.txt", "a");
  refuse(at(f, "d/pipe.txt"), "neither a file nor a directory; give it as standard input: - < ");
  refuse("/dev/null", "neither a file nor a directory");
  Corpus *corpus = open_one(at(f, "d"));
  assert_string_equal(corpus_skipped_names(corpus, false).text, at(f, "d/pipe.txt"));
  expect_documents(corpus, "a$");
}

static void unreadable_files(void **state) {
  Fixture *f = *state;
  if (geteuid() == 0) skip();
  make_dir(f, "d");
  put_text(f, "d/a.txt", "a");
  put_text(f, "d/b.txt", "b");
  chmod(at(f, "d/b.txt"), 0);
  refuse(at(f, "d"), "d/b.txt: Permission denied");
  refuse(at(f, "d/b.txt"), "d/b.txt: Permission denied");
  unlink(at(f, "d/b.txt"));
  make_dir(f, "d/locked");
  chmod(at(f, "d/locked"), 0);
  refuse(at(f, "d"), "d/locked: Permission denied");
  chmod(at(f, "d/locked"), 0700);
  expect_documents(open_one(at(f, "d")), "a$");
}

static void odd_names_are_printable(void **state) {
  Fixture *f = *state;
  refuse(at(f, "a\nb\x1b[2J\xff\xc2\x9b.txt"), "a?b?[2J???.txt: No such file");
  put_text(f, "a\nb\xff.jsonl", "{}\n");
  Corpus *corpus = open_one(at(f, "a\nb\xff.jsonl"));
  Error error = first_error(corpus);
  corpus_close(corpus);
  expect_error(&error, EXIT_INPUT, "a?b?.jsonl, line 1, has no field");
}

static void printable_texts(void **state) {
  (void)state;
  assert_string_equal(text_one_line("", 40).text, "");
  assert_string_equal(text_one_line("a\tb\x7f\n", 40).text, "a?b??");
  assert_string_equal(text_one_line("Ġé€😀", 40).text, "Ġé€😀");
  assert_string_equal(text_one_line("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82", 40).text, "???????????");
  assert_string_equal(text_one_line("abcdefghijklmno", 10).text, "abc...lmno");
  assert_string_equal(text_one_line("aéé0123456789éé", 10).text, "aé...éé");
  char longest[5000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_int_equal(strlen(text_one_line(longest, 9999).text), ONE_LINE_BYTES - 1);
  memset(longest, 0x80, sizeof longest - 1);
  assert_string_equal(text_one_line(longest, 100).text, "...");
}

static void thousands_of_files(void **state) {
  Fixture *f = *state;
  enum { FILES = 5000 };
  char name[64];
  make_dir(f, "d");
  for (int i = 0; i < FILES; i++) {
    if (i % 100 == 0) {
      snprintf(name, sizeof name, "d/%02d", i / 100);
      make_dir(f, name);
    }
    snprintf(name, sizeof name, "d/%02d/%02d.txt", i / 100, i % 100);
    put(f, name, &i, sizeof i);
  }
  Corpus *corpus = open_one(at(f, "d"));
  assert_int_equal(corpus_files(corpus), FILES);
  for (int i = 0; i < FILES; i++) {
    assert_int_equal(corpus_position(corpus), (size_t)i * sizeof i);
    expect_text(corpus, &i, sizeof i);
  }
  expect_end(corpus);
  corpus_close(corpus);
}

/* Deeper than a path can be long. */
static void deep_directories(void **state) {
  Fixture *f = *state;
  enum { LEVELS = 30, NAME = 200 };
  char name[NAME + 1];
  int here = open(".", O_RDONLY | O_DIRECTORY);
  memset(name, 'd', NAME);
  name[NAME] = '\0';
  assert_int_equal(chdir(f->dir), 0);
  for (int i = 0; i < LEVELS; i++) {
    assert_int_equal(mkdir(name, 0777), 0);
    assert_int_equal(chdir(name), 0);
  }
  refuse(f->dir, "File name too long");
  for (int i = 0; i < LEVELS; i++) {
    assert_int_equal(chdir(".."), 0);
    assert_int_equal(rmdir(name), 0);
  }
  assert_int_equal(fchdir(here), 0);
  close(here);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(sources_keep_their_order),
      WITH_FIXTURE(directories_are_sorted_and_sifted),
      WITH_FIXTURE(empty_inputs),
      WITH_FIXTURE(skipped_names),
      WITH_FIXTURE(link_loops_end),
      WITH_FIXTURE(link_lattices_end),
      WITH_FIXTURE(special_files),
      WITH_FIXTURE(unreadable_files),
      WITH_FIXTURE(odd_names_are_printable),
      WITH_FIXTURE(printable_texts),
      WITH_FIXTURE(thousands_of_files),
      WITH_FIXTURE(deep_directories),
  };
  return cmocka_run_group_tests_name("file_list", tests, NULL, NULL);
}
