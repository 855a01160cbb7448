/* text/corpus, with its file list, JSON lines and spool: documents against a naive reference, and everything that can
 * be wrong with files. */
#include "cli/one_line.h"
#include "kernels/philox.h"
#include "store/file.h"
#include "text/corpus.h"
#include "text/jsonl.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MARK = 13 /* bytes of <|endoftext|> */, PATHS = 64 };

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

typedef struct Fixture {
  char dir[64];
  char *paths[PATHS]; /* what at() returned last */
  int next;
} Fixture;

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-corpus-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  *state = f;
  return 0;
}

static void remove_tree(const char *dir) {
  DIR *entries = opendir(dir);
  assert_non_null(entries);
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char *path = path_join(dir, entry->d_name);
    assert_non_null(path);
    if (unlink(path) != 0) remove_tree(path);
    free(path);
  }
  closedir(entries);
  assert_int_equal(rmdir(dir), 0);
}

static int tear_down(void **state) {
  Fixture *f = *state;
  remove_tree(f->dir);
  for (int i = 0; i < PATHS; i++) free(f->paths[i]);
  free(f);
  return 0;
}

/* Path of a name in the fixture's directory; valid for PATHS - 1 more calls. */
static const char *at(Fixture *f, const char *name) {
  char **path = &f->paths[f->next++ % PATHS];
  free(*path);
  *path = path_join(f->dir, name);
  assert_non_null(*path);
  return *path;
}

static const char *put(Fixture *f, const char *name, const void *bytes, size_t size) {
  const char *path = at(f, name);
  unlink(path); /* a file that is cut to be filled again goes to the disk at once */
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
  return path;
}

static const char *put_text(Fixture *f, const char *name, const char *text) { return put(f, name, text, strlen(text)); }

static const char *make_dir(Fixture *f, const char *name) {
  const char *path = at(f, name);
  assert_int_equal(mkdir(path, 0777), 0);
  return path;
}

static Corpus *open_with(const char *const *sources, int count, const CorpusOptions *options) {
  Error error = {0};
  Corpus *corpus = NULL;
  if (!corpus_open(&corpus, sources, count, options, &error)) fail_msg("%s", error.text);
  assert_non_null(corpus);
  return corpus;
}

static Corpus *open_one(const char *source) { return open_with(&source, 1, NULL); }

static Document next(Corpus *corpus) {
  Error error = {0};
  Document document;
  if (!corpus_next(corpus, &document, &error)) fail_msg("%s", error.text);
  assert_true(document.text == NULL || document.size > 0);
  return document;
}

static void expect_text(Corpus *corpus, const void *text, size_t size) {
  Document document = next(corpus);
  assert_non_null(document.text);
  assert_int_equal(document.size, size);
  assert_memory_equal(document.text, text, size);
}

static void expect_end(Corpus *corpus) {
  assert_null(next(corpus).text);
  assert_int_equal(corpus_position(corpus), corpus_bytes(corpus));
  assert_null(next(corpus).text);
}

/* All documents, each followed by a '$'; a prompt by a '|'. Closes the corpus. */
static void expect_documents(Corpus *corpus, const char *expected) {
  char shown[4096];
  size_t used = 0;
  for (Document d; (d = next(corpus)).text != NULL;) {
    assert_true(used + d.size + 3 < sizeof shown);
    memcpy(shown + used, d.text, d.prompt);
    used += d.prompt;
    if (d.prompt > 0) shown[used++] = '|';
    memcpy(shown + used, d.text + d.prompt, d.size - d.prompt);
    used += d.size - d.prompt;
    shown[used++] = '$';
  }
  shown[used] = '\0';
  assert_string_equal(shown, expected);
  expect_end(corpus);
  corpus_close(corpus);
}

static void expect_error(const Error *error, ExitCode code, const char *part) {
  if (error->code != code || !strstr(error->text, part))
    fail_msg("code %d, \"%s\" lacks \"%s\"", (int)error->code, error->text, part);
  for (const char *c = error->text; *c; c++) assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void refuse_with(const char *const *sources, int count, const CorpusOptions *options, ExitCode code,
                        const char *part) {
  Error error = {0};
  Corpus *corpus = (Corpus *)&error;
  assert_false(corpus_open(&corpus, sources, count, options, &error));
  assert_null(corpus);
  expect_error(&error, code, part);
}

static void refuse(const char *source, const char *part) { refuse_with(&source, 1, NULL, EXIT_INPUT, part); }

/* The error of the first document that has one. */
static Error first_error(Corpus *corpus) {
  Error error = {0};
  for (Document d;;) {
    bool ok = corpus_next(corpus, &d, &error);
    if (ok && d.text == NULL) fail_msg("no error up to the end");
    if (ok) continue;
    assert_null(d.text);
    return error;
  }
}

typedef struct Random {
  uint32_t next;
} Random;

static uint32_t draw(Random *random, uint32_t below) { return philox(7, random->next++, 0, 0, 0).word[0] % below; }

/* ---- Text files -------------------------------------------------------------------------------------------------- */

static void expect_split(Fixture *f, const char *text, const char *expected) {
  expect_documents(open_one(put_text(f, "text", text)), expected);
}

static void separators(void **state) {
  Fixture *f = *state;
  expect_split(f, "a", "a$");
  expect_split(f, "a\n", "a\n$");
  expect_split(f, "a\n<|endoftext|>\nb\n", "a\n$b\n$");
  expect_split(f, "a\n<|endoftext|>\nb\n<|endoftext|>\n", "a\n$b\n$");
  expect_split(f, "a\n<|endoftext|>\nb\n<|endoftext|>", "a\n$b\n$");
  expect_split(f, "<|endoftext|>\na", "a$");
  expect_split(f, "<|endoftext|>", "");
  expect_split(f, "<|endoftext|>\n<|endoftext|>\n", "");
  expect_split(f, "a\n<|endoftext|>\n<|endoftext|>\nb", "a\n$b$");
  expect_split(f, "a\n<|endoftext|>\n\n<|endoftext|>\n", "a\n$\n$");
  expect_split(f, "a\r\n<|endoftext|>\r\nb\r\n", "a\r\n$b\r\n$");
  expect_split(f, "a\n<|endoftext|>\r", "a\n<|endoftext|>\r$");
  expect_split(f, "a<|endoftext|>\nb", "a<|endoftext|>\nb$");
  expect_split(f, "a\n <|endoftext|>\n", "a\n <|endoftext|>\n$");
  expect_split(f, "a\n<|endoftext|> \nb", "a\n<|endoftext|> \nb$");
  expect_split(f, "<|endoftext|><|endoftext|>\n", "<|endoftext|><|endoftext|>\n$");
  expect_split(f, "a\n<|endoftext|", "a\n<|endoftext|$");
  expect_split(f, "<\n<<|endoftext|>\n<|endoftext|>\n<", "<\n<<|endoftext|>\n$<$");
}

/* Line by line, the way the header tells it: where documents begin and end. */
static int reference(const char *text, size_t size, size_t (*spans)[2]) {
  int count = 0;
  size_t begin = 0;
  for (size_t line = 0; line <= size;) {
    const char *newline = line < size ? memchr(text + line, '\n', size - line) : NULL;
    size_t end = newline ? (size_t)(newline - text) : size, next_line = end + 1;
    size_t bare = newline && end > line && text[end - 1] == '\r' ? end - 1 : end;
    bool separator = bare - line == MARK && memcmp(text + line, END_OF_TEXT, MARK) == 0;
    if (separator || next_line > size) {
      size_t stop = separator ? line : size;
      if (stop > begin) spans[count][0] = begin, spans[count++][1] = stop;
      begin = next_line;
    }
    line = next_line;
  }
  return count;
}

static void random_texts_match_the_reference(void **state) {
  static const char *const pieces[] = {"a",
                                       "\n",
                                       "\r\n",
                                       "\r",
                                       "<",
                                       "<|en",
                                       "word",
                                       "\xff",
                                       ">\n",
                                       END_OF_TEXT,
                                       "\xEF\xBB\xBF",
                                       END_OF_TEXT "\n",
                                       "\n" END_OF_TEXT "\n",
                                       END_OF_TEXT "\r\n"};
  Random random = {0};
  char text[2048];
  size_t spans[2048][2];
  for (int round = 0; round < 1500; round++) {
    size_t size = 0;
    for (uint32_t n = 1 + draw(&random, 40); n > 0; n--) {
      const char *piece = pieces[draw(&random, sizeof pieces / sizeof *pieces)];
      memcpy(text + size, piece, strlen(piece));
      size += strlen(piece);
    }
    Corpus *corpus = open_one(put(*state, "text", text, size));
    size_t mark = size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    int count = reference(text + mark, size - mark, spans);
    for (int i = 0; i < count; i++) {
      Document d = next(corpus);
      assert_int_equal(d.offset, spans[i][0] + mark);
      assert_int_equal(d.size, spans[i][1] - spans[i][0]);
      assert_memory_equal(d.text, text + mark + spans[i][0], d.size);
    }
    expect_end(corpus);
    corpus_close(corpus);
  }
}

static void bytes_stay_bytes(void **state) {
  Fixture *f = *state;
  char bytes[512];
  for (int i = 0; i < 512; i++) bytes[i] = (char)(uint8_t)(i * 7 + i / 256);
  Corpus *corpus = open_one(put(f, "binary", bytes, sizeof bytes));
  expect_text(corpus, bytes, sizeof bytes);
  expect_end(corpus);
  corpus_close(corpus);
  corpus = open_one(put(f, "one", "\0", 1));
  Document d = next(corpus);
  assert_int_equal(d.size, 1);
  assert_int_equal(d.text[0], 0);
  assert_int_equal(d.prompt, 0);
  assert_int_equal(d.line, 0);
  assert_string_equal(d.file, at(f, "one"));
  expect_end(corpus);
  corpus_close(corpus);
}

static void byte_order_marks(void **state) {
  Fixture *f = *state;
  expect_split(f,
               "\xEF\xBB\xBF"
               "a\xEF\xBB\xBF",
               "a\xEF\xBB\xBF$");
  expect_split(f, "\xEF\xBB\xBF<|endoftext|>\na", "a$");
  expect_split(f, "\xEF\xBB\xBF", "");
  expect_split(f, "\xEF\xBB", "\xEF\xBB$");
  expect_split(f,
               "\xFF\xFE"
               "a",
               "\xFF\xFE"
               "a$");
  expect_split(f,
               "a\n<|endoftext|>\n\xEF\xBB\xBF"
               "b",
               "a\n$\xEF\xBB\xBF"
               "b$");
  expect_documents(open_one(put_text(f, "x.jsonl", "\xEF\xBB\xBF{\"text\": \"\\ufeffa\"}")), "\xEF\xBB\xBF"
                                                                                             "a$");
}

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

static void sources_keep_their_order(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  put_text(f, "d/2.txt", "two");
  put_text(f, "d/1.jsonl", "{\"text\": \"one\"}\n");
  const char *sources[] = {put_text(f, "z", "z"), at(f, "d"), put_text(f, "a", "a"), at(f, "z")};
  Corpus *corpus = open_with(sources, 4, NULL);
  assert_int_equal(corpus_files(corpus), 5);
  assert_int_equal(corpus_bytes(corpus), 1 + 16 + 3 + 1 + 1);
  assert_int_equal(corpus_skipped(corpus), 0);
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
  assert_int_equal(corpus_skipped(corpus), 5);
  expect_documents(corpus, "\nnew.txt$b-/3.txt$b.txt$b/1.txt$b/deep/2.txt$x.txt/4.TXT$\xc3\xa9.txt$\xff.txt$");
  expect_documents(open_one(at(f, "d/")),
                   "\nnew.txt$b-/3.txt$b.txt$b/1.txt$b/deep/2.txt$x.txt/4.TXT$\xc3\xa9.txt$\xff.txt$");
  expect_documents(open_one(at(f, "d/.git")), ".git/no.txt$");
  expect_documents(open_one(at(f, "d/readme.md")), "readme.md$");
}

static void empty_inputs(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  refuse(at(f, "d"), "has no files that end in .txt or .jsonl (0 other names");
  put_text(f, "d/a.md", "a");
  refuse(at(f, "d"), "(1 other names");
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
  assert_int_equal(corpus_skipped(corpus), 4);
  assert_string_equal(next(corpus).file, at(f, "d/a/a.txt")); /* of all names the first in order */
  corpus_rewind(corpus);
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
  assert_int_equal(corpus_skipped(corpus), 1);
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
  assert_string_equal(one_line("", 40).text, "");
  assert_string_equal(one_line("a\tb\x7f\n", 40).text, "a?b??");
  assert_string_equal(one_line("Ġé€😀", 40).text, "Ġé€😀");
  assert_string_equal(one_line("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82", 40).text, "???????????");
  assert_string_equal(one_line("abcdefghijklmno", 10).text, "abc...lmno");
  assert_string_equal(one_line("aéé0123456789éé", 10).text, "aé...éé");
  char longest[5000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_int_equal(strlen(one_line(longest, 9999).text), ONE_LINE_BYTES - 1);
  memset(longest, 0x80, sizeof longest - 1);
  assert_string_equal(one_line(longest, 100).text, "...");
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

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

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
  corpus_rewind(corpus);
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
  refuse_with(&path, 1, &three, EXIT_USAGE, "leave one of them out");
}

static void broken_json(void **state) {
  Fixture *f = *state;
  const struct {
    const char *line, *message;
  } cases[] = {
      {"{\"content\": \"c\", \"id\": 7}",
       "x.jsonl, line 3, has no field \"text\"; it has \"content\", \"id\": --jsonl-field names another"},
      {"{}", "it has no fields at all: --jsonl-field"},
      {"{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}", "\"7\", \"8\", ...: --jsonl-field"},
      {"{\"a\\n\\u001b\\u009b\": 1}", "it has \"a????\""},
      {"{\"text\": 7}", "line 3: the field \"text\" is a number, not a string; --jsonl-field"},
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
    corpus_rewind(corpus);
    expect_text(corpus, "a", 1);
    corpus_close(corpus);
  }
}

static void missing_pair_fields(void **state) {
  const char *path = put_text(*state, "x.jsonl", "{\"q\": \"a\"}\n");
  CorpusOptions no_answer = {.prompt_field = "q", .response_field = "a"};
  Corpus *corpus = open_with(&path, 1, &no_answer);
  Error error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "no field \"a\"; it has \"q\": --response-field names another");
  corpus_close(corpus);
  CorpusOptions no_question = {.prompt_field = "a", .response_field = "q"};
  corpus = open_with(&path, 1, &no_question);
  error = first_error(corpus);
  expect_error(&error, EXIT_INPUT, "no field \"a\"; it has \"q\": --prompt-field names another");
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
  expect_error(&error, EXIT_INPUT, "kkk...kkk");
  assert_non_null(strstr(error.text, "--jsonl-field names another"));
  corpus_close(corpus);
  free(text);
  /* The limit is looked at before the bytes are. */
  JsonlRecord record = {0};
  JsonlFields fields = {NULL, "text"};
  Error too_long = {0};
  assert_false(jsonl_parse(&record, &fields, (const uint8_t *)"", JSONL_LINE_LIMIT + 1, "x", 5, &too_long));
  expect_error(&too_long, EXIT_INPUT, "x, line 5, has more than the 1073741824 bytes");
  jsonl_free(&record);
}

/* Every way to cut or change one byte of a line: an error or a document, but nothing else. */
static void damaged_json(void **state) {
  (void)state;
  static const char line[] = "{\"p\": \"\\u00e9\\\"\", \"n\": [1, {\"x\": -2.5e3}], \"text\": \"a\\ud83d\\ude00\"}";
  JsonlRecord record = {0};
  JsonlFields fields = {"p", "text"};
  int parsed = 0;
  for (size_t i = 0; i < sizeof line - 1; i++) {
    for (int byte = 0; byte < 257; byte++) { /* 256: cut */
      Error error = {0};
      size_t size = byte < 256 ? sizeof line - 1 : i;
      uint8_t *copy = malloc(size > 0 ? size : 1); /* on its own, so that a sanitizer sees a byte too far */
      assert_non_null(copy);
      memcpy(copy, line, size);
      if (byte < 256) copy[i] = (uint8_t)byte;
      bool ok = jsonl_parse(&record, &fields, copy, size, "x", 1, &error);
      assert_true(ok ? record.size >= record.prompt : error.code == EXIT_INPUT);
      parsed += ok;
      free(copy);
    }
  }
  assert_true(parsed > (int)sizeof line);
  jsonl_free(&record);
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

/* ---- Standard input ---------------------------------------------------------------------------------------------- */

/* Puts a file in the place of standard input; give the result to restore_stdin. */
static int replace_stdin(const char *path) {
  int kept = dup(STDIN_FILENO), fd = open(path, O_RDONLY);
  assert_true(fd >= 0);
  assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
  close(fd);
  return kept;
}

static void restore_stdin(int kept) {
  if (kept < 0) {
    close(STDIN_FILENO);
    return;
  }
  dup2(kept, STDIN_FILENO);
  close(kept);
}

typedef struct Heard {
  int64_t bytes;
  int calls, stop_after; /* calls; 0: never */
} Heard;

static bool hear(void *context, int64_t bytes, Error *error) {
  Heard *heard = context;
  assert_true(bytes >= heard->bytes);
  heard->bytes = bytes;
  heard->calls++;
  if (heard->stop_after > 0 && heard->calls >= heard->stop_after) return (fail)(error, EXIT_SIGINT, "stopped");
  return true;
}

static void standard_input(void **state) {
  Fixture *f = *state;
  const char *text = "{\"text\": \"x\"}\n<|endoftext|>\nb";
  const char *sources[] = {put_text(f, "first", "1"), "-", put_text(f, "last", "2")};
  put_text(f, "in", text);
  Heard heard = {0};
  char copy[128];
  snprintf(copy, sizeof copy, "%s", at(f, "stdin.jsonl"));
  CorpusOptions options = {.spool = copy, .progress = hear, .progress_context = &heard};
  int kept = replace_stdin(at(f, "in"));
  Corpus *corpus = open_with(sources, 3, &options);
  restore_stdin(kept);
  assert_int_equal(heard.bytes, strlen(text));
  assert_int_equal(corpus_bytes(corpus), strlen(text) + 2);
  expect_text(corpus, "1", 1);
  assert_string_equal(next(corpus).file, copy);
  corpus_rewind(corpus);
  expect_documents(corpus, "1${\"text\": \"x\"}\n$b$2$"); /* text, whatever the name */
  put_text(f, "in", "{\"text\": \"x\"}\n");
  options = (CorpusOptions){.spool = copy, .stdin_is_jsonl = true};
  kept = replace_stdin(at(f, "in"));
  corpus = open_with(sources, 3, &options);
  restore_stdin(kept);
  expect_documents(corpus, "1$x$2$");
}

static void standard_input_fails(void **state) {
  Fixture *f = *state;
  const char *dash[] = {"-", "-"}, *missing[] = {"-", "/nowhere/at/all"};
  char copy[128];
  snprintf(copy, sizeof copy, "%s", at(f, "copy"));
  CorpusOptions options = {.spool = copy};
  put_text(f, "empty", "");
  put_text(f, "text", "text");
  int kept = replace_stdin(at(f, "empty"));
  refuse_with(dash, 1, &options, EXIT_INPUT, "standard input is empty");
  restore_stdin(kept);
  assert_int_equal(unlink(copy), 0);
  kept = replace_stdin(f->dir);
  refuse_with(dash, 1, &options, EXIT_INPUT, "cannot read standard input: Is a directory");
  restore_stdin(kept);
  kept = replace_stdin(at(f, "text"));
  refuse_with(dash, 2, &options, EXIT_USAGE, "given twice");
  refuse_with(missing, 2, &options, EXIT_INPUT, "/nowhere/at/all: No such file");
  refuse_with(dash, 1, NULL, EXIT_INTERNAL, "no file to be copied to");
  Heard heard = {.stop_after = 1};
  options.progress = hear;
  options.progress_context = &heard;
  refuse_with(dash, 1, &options, EXIT_SIGINT, "stopped");
  options = (CorpusOptions){.spool = "/nowhere/at/all"};
  refuse_with(dash, 1, &options, EXIT_OUTPUT, "/nowhere/at/all");
  restore_stdin(kept);
  assert_int_equal(access(copy, F_OK), -1);
}

/* A pipe that nobody writes to: the progress function is asked all the same, and can end it. */
static void silent_pipes_can_be_stopped(void **state) {
  int ends[2];
  Error error = {0};
  Heard heard = {.stop_after = 2};
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], "abc", 3), 3);
  assert_false(spool(ends[0], at(*state, "copy"), hear, &heard, &error));
  expect_error(&error, EXIT_SIGINT, "stopped");
  assert_int_equal(heard.bytes, 3);
  assert_int_equal(write(ends[1], "def", 3), 3);
  close(ends[1]);
  Error none = {0};
  assert_true(spool(ends[0], at(*state, "copy"), NULL, NULL, &none));
  close(ends[0]);
  expect_documents(open_one(at(*state, "copy")), "def$");
}

/* ---- Again, and change ------------------------------------------------------------------------------------------- */

static void rewind_gives_the_same(void **state) {
  Fixture *f = *state;
  const char *sources[] = {put_text(f, "a.txt", "a\n<|endoftext|>\nb"), put_text(f, "empty.txt", ""),
                           put_text(f, "c.jsonl", "{\"text\": \"c\"}\n{\"text\": \"d\"}\n")};
  Corpus *corpus = open_with(sources, 3, NULL);
  for (int documents = 0; documents <= 5; documents++) { /* from every place */
    for (int i = 0; i < documents; i++) next(corpus);
    corpus_rewind(corpus);
    assert_int_equal(corpus_position(corpus), 0);
  }
  const char *const texts[] = {"a\n", "b", "c", "d"};
  int64_t position = 0;
  for (int i = 0; i < 4; i++) {
    expect_text(corpus, texts[i], strlen(texts[i]));
    assert_true(corpus_position(corpus) > position);
    position = corpus_position(corpus);
  }
  expect_end(corpus);
  corpus_rewind(corpus);
  expect_documents(corpus, "a\n$b$c$d$");
}

static uint64_t print_of(const char *const *sources, int count, const CorpusOptions *options) {
  Corpus *corpus = open_with(sources, count, options);
  uint64_t out = corpus_fingerprint(corpus);
  corpus_close(corpus);
  return out;
}

static void fingerprints(void **state) {
  Fixture *f = *state;
  make_dir(f, "d");
  put_text(f, "d/a.txt", "aa");
  put_text(f, "d/b.jsonl", "{\"text\": \"b\"}\n");
  const char *dir = at(f, "d"), *both[] = {at(f, "d/b.jsonl"), at(f, "d/a.txt")};
  const char *ordered[] = {both[1], both[0]};
  uint64_t base = print_of(&dir, 1, NULL);
  assert_true(base == print_of(&dir, 1, NULL));
  assert_true(base == print_of(ordered, 2, NULL)); /* the same documents, found in another way */
  assert_true(base != print_of(both, 2, NULL));
  CorpusOptions options[] = {{.field = "text"},
                             {.field = "txet"},
                             {.prompt_field = "a", .response_field = "text"},
                             {.prompt_field = "text", .response_field = "a"}};
  assert_true(base == print_of(&dir, 1, &options[0]));
  for (int i = 1; i < 4; i++) {
    assert_true(base != print_of(&dir, 1, &options[i]));
    assert_true(print_of(&dir, 1, &options[i]) != print_of(&dir, 1, &options[i % 3 + 1]));
  }
  struct stat st;
  assert_int_equal(stat(at(f, "d/a.txt"), &st), 0);
  struct timespec times[2] = {st.st_atim, st.st_mtim};
  times[1].tv_nsec ^= 1;
  assert_int_equal(utimensat(AT_FDCWD, at(f, "d/a.txt"), times, 0), 0);
  assert_true(base != print_of(&dir, 1, NULL)); /* one nanosecond */
  times[1] = st.st_mtim;
  assert_int_equal(utimensat(AT_FDCWD, at(f, "d/a.txt"), times, 0), 0);
  assert_true(base == print_of(&dir, 1, NULL));
  assert_int_equal(truncate(at(f, "d/a.txt"), 3), 0);
  assert_int_equal(utimensat(AT_FDCWD, at(f, "d/a.txt"), times, 0), 0);
  assert_true(base != print_of(&dir, 1, NULL)); /* size */
  put_text(f, "d/copy", "aa");
  assert_int_equal(rename(at(f, "d/copy"), at(f, "d/a.txt")), 0);
  assert_int_equal(utimensat(AT_FDCWD, at(f, "d/a.txt"), times, 0), 0);
  assert_true(base != print_of(&dir, 1, NULL)); /* inode */
  base = print_of(&dir, 1, NULL);
  put_text(f, "d/empty.txt", "");
  assert_true(base != print_of(&dir, 1, NULL));
  unlink(at(f, "d/empty.txt"));
  assert_int_equal(rename(at(f, "d/a.txt"), at(f, "d/0.txt")), 0);
  assert_true(base == print_of(&dir, 1, NULL)); /* the same documents in the same order */
  assert_int_equal(rename(at(f, "d/0.txt"), at(f, "d/0.jsonl")), 0);
  assert_true(base != print_of(&dir, 1, NULL)); /* kind */
}

/* One document, then the second file is changed. */
static Error error_after(Fixture *f, void (*change)(Fixture *)) {
  const char *sources[] = {put_text(f, "a", "a"), put_text(f, "b", "bb\n<|endoftext|>\nbb")};
  Corpus *corpus = open_with(sources, 2, NULL);
  expect_text(corpus, "a", 1);
  change(f);
  Error error = first_error(corpus);
  corpus_close(corpus);
  return error;
}

static void grow(Fixture *f) { put_text(f, "b", "bb\n<|endoftext|>\nbbb"); }
static void shrink(Fixture *f) { assert_int_equal(truncate(at(f, "b"), 1), 0); }
static void clear(Fixture *f) { assert_int_equal(truncate(at(f, "b"), 0), 0); }
static void remove_it(Fixture *f) { unlink(at(f, "b")); }
static void swap(Fixture *f) {
  struct stat st;
  put_text(f, "c", "bb\n<|endoftext|>\nbB");
  assert_int_equal(stat(at(f, "b"), &st), 0);
  const struct timespec times[2] = {st.st_atim, st.st_mtim}; /* then only the inode tells */
  assert_int_equal(utimensat(AT_FDCWD, at(f, "c"), times, 0), 0);
  assert_int_equal(rename(at(f, "c"), at(f, "b")), 0);
}
static void make_pipe(Fixture *f) {
  unlink(at(f, "b"));
  assert_int_equal(mkfifo(at(f, "b"), 0666), 0);
}

static void changes_are_noticed(void **state) {
  const struct {
    void (*change)(Fixture *);
    const char *message;
  } cases[] = {{grow, "b was changed while it was read: it had 19 bytes, now it has 20"},
               {shrink, "b was changed while it was read: it had 19 bytes, now it has 1;"},
               {clear, "now it has 0"},
               {remove_it, "b: No such file"},
               {swap, "b was changed while it was read; start again"},
               {make_pipe, "b is a pipe"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error error = error_after(*state, cases[i].change);
    expect_error(&error, EXIT_INPUT, cases[i].message);
    unlink(at(*state, "b"));
  }
}

/* While it is mapped: a look after every MiB, and at the end. */
static void changes_of_the_mapped_file_are_noticed(void **state) {
  Fixture *f = *state;
  enum { LINE = 1000 };
  char line[LINE];
  memset(line, 'x', sizeof line);
  memcpy(line + LINE - MARK - 2, "\n<|endoftext|>\n", MARK + 2);
  for (int lines = 2; lines <= 4000; lines += 3998) {
    FILE *stream = fopen(at(f, "big"), "wb");
    assert_non_null(stream);
    for (int i = 0; i < lines; i++) assert_int_equal(fwrite(line, 1, LINE, stream), LINE);
    fclose(stream);
    Corpus *corpus = open_one(at(f, "big"));
    expect_text(corpus, line, LINE - MARK - 1);
    stream = fopen(at(f, "big"), "ab");
    assert_non_null(stream);
    fputc('x', stream);
    fclose(stream);
    Error error = first_error(corpus);
    expect_error(&error, EXIT_INPUT, "big was changed while it was read: it had");
    if (lines > 2) assert_true(corpus_position(corpus) < 1100000); /* not only at the end */
    corpus_close(corpus);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(separators, set_up, tear_down),
      cmocka_unit_test_setup_teardown(random_texts_match_the_reference, set_up, tear_down),
      cmocka_unit_test_setup_teardown(bytes_stay_bytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(byte_order_marks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(sources_keep_their_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(directories_are_sorted_and_sifted, set_up, tear_down),
      cmocka_unit_test_setup_teardown(empty_inputs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(link_loops_end, set_up, tear_down),
      cmocka_unit_test_setup_teardown(link_lattices_end, set_up, tear_down),
      cmocka_unit_test_setup_teardown(special_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(unreadable_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(odd_names_are_printable, set_up, tear_down),
      cmocka_unit_test_setup_teardown(printable_texts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(thousands_of_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(deep_directories, set_up, tear_down),
      cmocka_unit_test_setup_teardown(json_lines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(json_nul_bytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(json_fields, set_up, tear_down),
      cmocka_unit_test_setup_teardown(broken_json, set_up, tear_down),
      cmocka_unit_test_setup_teardown(missing_pair_fields, set_up, tear_down),
      cmocka_unit_test_setup_teardown(hostile_json, set_up, tear_down),
      cmocka_unit_test_setup_teardown(damaged_json, set_up, tear_down),
      cmocka_unit_test_setup_teardown(long_lines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(standard_input, set_up, tear_down),
      cmocka_unit_test_setup_teardown(standard_input_fails, set_up, tear_down),
      cmocka_unit_test_setup_teardown(silent_pipes_can_be_stopped, set_up, tear_down),
      cmocka_unit_test_setup_teardown(rewind_gives_the_same, set_up, tear_down),
      cmocka_unit_test_setup_teardown(fingerprints, set_up, tear_down),
      cmocka_unit_test_setup_teardown(changes_are_noticed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(changes_of_the_mapped_file_are_noticed, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}
