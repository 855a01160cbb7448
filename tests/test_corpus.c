/* text/dataset/corpus: documents against a naive reference, standard input, and files that change. */
#include "kernels/philox.h"
#include "tests/corpus_helpers.h"
#include "text/tokenizer/tokenizer.h"
#include "base/system.h"

#include <fcntl.h>

enum { MARK = 13 /* bytes of <|endoftext|> */ };

typedef struct Random {
  uint32_t next;
} Random;

static uint32_t draw(Random *random, uint32_t below) { return philox(7, random->next++, 0, 0, 0).word[0] % below; }

/* ---- text files ---- */

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

/* ---- standard input ---- */

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
  if (heard->stop_after > 0 && heard->calls >= heard->stop_after) return (fail)(error, EXIT_SIGNALS, "stopped");
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
  CorpusOptions options = {.spool = copy, .copying = {hear, &heard}};
  int kept = replace_stdin(at(f, "in"));
  Corpus *corpus = open_with(sources, 3, &options);
  restore_stdin(kept);
  assert_int_equal(heard.bytes, strlen(text));
  assert_int_equal(corpus_bytes(corpus), strlen(text) + 2);
  assert_int_equal(corpus_stdin_bytes(corpus), strlen(text));
  expect_text(corpus, "1", 1);
  assert_string_equal(next(corpus).file, copy);
  corpus_rewind(corpus, (Progress){0});
  expect_documents(corpus, "1${\"text\": \"x\"}\n$b$2$"); /* text, whatever the name */
  put_text(f, "in", "{\"text\": \"x\"}\n");
  options = (CorpusOptions){.spool = copy, .field = "text"};
  kept = replace_stdin(at(f, "in"));
  corpus = open_with(sources, 3, &options);
  restore_stdin(kept);
  expect_documents(corpus, "1$x$2$");
  options.spooled = true; /* and again, without reading anything */
  corpus = open_with(sources, 3, &options);
  assert_int_equal(corpus_stdin_bytes(corpus), 14);
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
  options.copying = (Progress){hear, &heard};
  refuse_with(dash, 1, &options, EXIT_SIGNALS, "stopped");
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
  assert_false(corpus_copy_stdin(ends[0], at(*state, "copy"), (Progress){hear, &heard}, &error));
  expect_error(&error, EXIT_SIGNALS, "stopped");
  assert_int_equal(heard.bytes, 3);
  assert_int_equal(write(ends[1], "def", 3), 3);
  close(ends[1]);
  Error none = {0};
  assert_true(corpus_copy_stdin(ends[0], at(*state, "copy"), (Progress){0}, &none));
  close(ends[0]);
  expect_documents(open_one(at(*state, "copy")), "def$");
}

/* ---- again, and change ---- */

static void rewind_gives_the_same(void **state) {
  Fixture *f = *state;
  const char *sources[] = {put_text(f, "a.txt", "a\n<|endoftext|>\nb"), put_text(f, "empty.txt", ""),
                           put_text(f, "c.jsonl", "{\"text\": \"c\"}\n{\"text\": \"d\"}\n")};
  Corpus *corpus = open_with(sources, 3, NULL);
  for (int documents = 0; documents <= 5; documents++) { /* from every place */
    for (int i = 0; i < documents; i++) next(corpus);
    corpus_rewind(corpus, (Progress){0});
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
  corpus_rewind(corpus, (Progress){0});
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
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, system_modified(&st)};
  times[1].tv_nsec ^= 1;
  assert_int_equal(utimensat(AT_FDCWD, at(f, "d/a.txt"), times, 0), 0);
  assert_true(base != print_of(&dir, 1, NULL)); /* one nanosecond */
  times[1] = system_modified(&st);
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
  const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, system_modified(&st)}; /* then only the inode tells */
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
      WITH_FIXTURE(separators),
      WITH_FIXTURE(random_texts_match_the_reference),
      WITH_FIXTURE(bytes_stay_bytes),
      WITH_FIXTURE(byte_order_marks),
      WITH_FIXTURE(standard_input),
      WITH_FIXTURE(standard_input_fails),
      WITH_FIXTURE(silent_pipes_can_be_stopped),
      WITH_FIXTURE(rewind_gives_the_same),
      WITH_FIXTURE(fingerprints),
      WITH_FIXTURE(changes_are_noticed),
      WITH_FIXTURE(changes_of_the_mapped_file_are_noticed),
  };
  return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}
