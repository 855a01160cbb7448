/* base/file: whole files, mapped and written atomically, and what cannot be read or written. */
#include "base/file.h"
#include "base/path.h"
#include "tests/checkpoint_helpers.h"

static void test_file_round_trip(void **state) {
  Error error = {0};
  Path path = at(state, "a");
  mode_t mask = umask(027);
  expect_done(file_write(path.text, "one", 3, &error), &error);
  umask(mask);
  expect_done(file_write(path.text, "second", 6, &error), &error);
  size_t size;
  uint8_t *bytes = get(path.text, &size);
  assert_string_equal((char *)bytes, "second");
  free(bytes);
  Path other = at(state, "b");
  mask = umask(027);
  expect_done(file_write(other.text, "", 0, &error), &error);
  umask(mask);
  struct stat st;
  assert_int_equal(stat(other.text, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0640);
  MappedFile file;
  expect_done(file_map(&file, other.text, EXIT_INPUT, &error), &error);
  assert_null(file.bytes);
  assert_int_equal(file.size, 0);
  file_unmap(&file);
  assert_int_equal(entries(*state), 2);
}

static void test_file_map_refuses(void **state) {
  MappedFile file;
  Path pipe = at(state, "pipe"), missing = at(state, "missing");
  assert_int_equal(mkfifo(pipe.text, 0666), 0);
  const struct {
    const char *path, *text;
  } cases[] = {{missing.text, "No such file"},
               {*state, "is a directory"},
               {pipe.text, "is a pipe"},
               {"/dev/null", "is a device"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Error error = {0};
    expect_error(file_map(&file, cases[i].path, EXIT_INPUT, &error), &error, EXIT_INPUT, cases[i].text);
    assert_null(file.bytes);
  }
}

static void test_path_in(void **state) {
  (void)state;
  static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
  for (size_t i = 0; i < 4; i++) assert_string_equal(path_in(cases[i][0], cases[i][1]).text, cases[i][2]);
}

static void test_atomic_abort_and_sweep(void **state) {
  Error error = {0};
  FileWriter file;
  expect_done(file_writer_begin(&file, at(state, "x").text, &error), &error);
  expect_done(file_writer_add(&file, "half", 4, &error), &error);
  assert_int_equal(entries(*state), 1); /* the temporary only */
  file_writer_abort(&file);
  file_writer_abort(&file);
  assert_int_equal(entries(*state), 0);
  put(at(state, ".model.safetensors.inkling-a1b2c3").text, "x", 1);
  put(at(state, ".gitignore").text, "x", 1);
  put(at(state, "book.inkling-a1b2c3").text, "x", 1);
  file_sweep(*state);
  assert_int_equal(entries(*state), 2);
  file_sweep(at(state, "missing").text);
}

static void test_long_name(void **state) {
  Error error = {0};
  char name[256];
  memset(name, 'n', 255);
  name[255] = '\0';
  expect_done(file_write(at(state, name).text, "x", 1, &error), &error);
  assert_int_equal(entries(*state), 1);
}

static void test_write_failures(void **state) {
  static const uint8_t zeros[100000];
  Path file = at(state, "file"), inside = at(state, "file/x"), nowhere = at(state, "no/x");
  put(file.text, "old", 3);
  const struct {
    const char *path, *text;
  } cases[] = {{nowhere.text, "create the directory"}, {inside.text, "Not a directory"}, {*state, "is a directory"},
               {"/dev/full", "is a device"},           {"/proc/x", "cannot write"},      {"", "not a file name"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Error error = {0};
    expect_error(file_write(cases[i].path, "x", 1, &error), &error, EXIT_OUTPUT, cases[i].text);
  }
  for (size_t size = 5000; size <= sizeof zeros; size += sizeof zeros - 5000) { /* fails in fflush(), in fwrite() */
    Error error = {0};
    struct rlimit before = limit_file_size(4500);
    bool done = file_write(file.text, zeros, size, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    expect_error(done, &error, EXIT_OUTPUT, "ulimit -f");
    assert_int_equal(entries(*state), 1);
    size_t left;
    uint8_t *bytes = get(file.text, &left);
    assert_string_equal((char *)bytes, "old");
    free(bytes);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_file_round_trip),        TEST(test_file_map_refuses), TEST(test_path_in),
      TEST(test_atomic_abort_and_sweep), TEST(test_long_name),        TEST(test_write_failures),
  };
  return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
