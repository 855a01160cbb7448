/* checkpoint: the run directory, its lock, and what is never replaced. */
#include "files/checkpoint/directory.h"
#include "tests/checkpoint_helpers.h"
#include "base/path.h"
#include "files/formats/model_files.h"

#include <sys/wait.h>

static void test_lock(void **state) {
  int ready[2];
  CheckpointLock lock, again;
  Error error = {0};
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    Error problem = {0};
    char ok = checkpoint_lock(&lock, *state, &problem) ? 'y' : 'n';
    if (write(ready[1], &ok, 1) == 1) pause();
    _exit(0);
  }
  char ok = 0;
  assert_int_equal(read(ready[0], &ok, 1), 1);
  assert_int_equal(ok, 'y');
  char text[64];
  snprintf(text, sizeof text, "is in use by another process (%ld)", (long)child);
  expect_error(checkpoint_lock(&lock, *state, &error), &error, EXIT_BUSY, text);
  assert_int_equal(lock.fd, -1);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  close(ready[0]);
  close(ready[1]);
  error = (Error){0};
  put(at(state, ".model.safetensors.inkling-abcdef").text, "x", 1);
  expect_done(checkpoint_lock(&lock, *state, &error), &error); /* the dead leave no lock */
  assert_int_equal(entries(*state), 1);                        /* .lock */
  expect_error(checkpoint_lock(&again, *state, &error), &error, EXIT_BUSY,
               "is in use"); /* not twice in one process either */
  checkpoint_unlock(&again, *state, false);
  checkpoint_unlock(&lock, *state, true);
  checkpoint_unlock(&lock, *state, false);
  error = (Error){0};
  expect_done(checkpoint_lock(&lock, *state, &error), &error);
  checkpoint_unlock(&lock, *state, true);
  expect_done(checkpoint_lock(&lock, at(state, "new//parents/of/it/").text, &error), &error);
  assert_int_equal(access(at(state, "new/parents/of/it").text, F_OK), 0);
  checkpoint_unlock(&lock, at(state, "new//parents/of/it/").text, false);
  assert_int_equal(access(at(state, "new").text, F_OK), -1);
  expect_done(file_write_in(*state, "file", "", 0, &error), &error);
  expect_error(checkpoint_lock(&lock, at(state, "file/no/where").text, &error), &error, EXIT_OUTPUT,
               "cannot make the run directory");
  put(at(state, "file").text, "x", 1);
  error = (Error){0};
  expect_error(checkpoint_lock(&lock, at(state, "file").text, &error), &error, EXIT_OUTPUT, "cannot make the lock");
}

/* A run that fails before it began leaves nothing behind, but what was there before. */
static void test_abandoned(void **state) {
  Error error = {0};
  CheckpointLock lock;
  const char *const written[] = {MODEL_FILE_CONFIG, MODEL_FILE_WEIGHTS, CHECKPOINT_STDIN_COPY, CHECKPOINT_TOKENS};
  Path dir = at(state, "new.run");
  for (int round = 0; round < 2; round++) { /* round 1: the directory is there, and not the run's */
    expect_done(checkpoint_lock(&lock, dir.text, &error), &error);
    assert_true(lock.created == !round && !lock.had_run);
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
      expect_done(file_write_in(dir.text, written[i], "x", 1, &error), &error);
    assert_int_equal(mkdir(path_in(dir.text, MODEL_FILE_SOURCE_TOKENIZER).text, 0777), 0);
    expect_done(file_write_in(dir.text, MODEL_FILE_SOURCE_TOKENIZER "/tokenizer.json", "x", 1, &error), &error);
    checkpoint_unlock(&lock, dir.text, false);
    assert_int_equal(access(dir.text, F_OK), round ? 0 : -1);
    if (round) assert_int_equal(entries(dir.text), 0);
    else assert_int_equal(mkdir(dir.text, 0777), 0);
  }
  expect_done(file_write_in(dir.text, MODEL_FILE_CONFIG, "x", 1, &error), &error);
  expect_done(file_write_in(dir.text, MODEL_FILE_WEIGHTS, "x", 1, &error), &error);
  expect_done(checkpoint_lock(&lock, dir.text, &error), &error);
  assert_true(lock.had_run && !lock.created);
  expect_done(file_write_in(dir.text, CHECKPOINT_STDIN_COPY, "x", 1, &error), &error);
  checkpoint_unlock(&lock, dir.text, false);
  assert_int_equal(entries(dir.text), 3); /* the model and the lock */
  expect_done(file_write_in(dir.text, CHECKPOINT_SAMPLES, "x", 1, &error), &error);
  checkpoint_remove_old(dir.text);
  assert_int_equal(entries(dir.text), 3);
}

static void test_nothing_is_replaced(void **state) {
  Error error = {0};
  CheckpointLock lock;
  Path dir = at(state, "mine"), text = at(state, "mine/samples.txt");
  assert_int_equal(mkdir(dir.text, 0777), 0);
  put(at(state, "book.txt").text, "x", 1);
  expect_done(checkpoint_check_input(dir.text, at(state, "book.txt").text, &error), &error);
  expect_done(checkpoint_check_input(dir.text, at(state, "missing").text, &error), &error);
  expect_error(checkpoint_check_input(dir.text, dir.text, &error), &error, EXIT_USAGE, "is the text to train on");
  put(text.text, "x", 1);
  error = (Error){0};
  expect_error(checkpoint_check_input(dir.text, text.text, &error), &error, EXIT_USAGE,
               "is the text to train on and would be replaced");
  error = (Error){0};
  expect_error(checkpoint_lock(&lock, dir.text, &error), &error, EXIT_USAGE, "does not belong to a run");
  assert_int_equal(remove(text.text), 0);
  assert_int_equal(mkdir(text.text, 0777), 0);
  error = (Error){0};
  expect_error(checkpoint_lock(&lock, dir.text, &error), &error, EXIT_USAGE, "samples.txt in");
  assert_int_equal(entries(dir.text), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_lock),
      TEST(test_abandoned),
      TEST(test_nothing_is_replaced),
  };
  return cmocka_run_group_tests_name("checkpoint_directory", tests, NULL, NULL);
}
