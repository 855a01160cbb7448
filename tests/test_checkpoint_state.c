/* checkpoint: the state of a run, also damaged, unwritable and killed while it is saved. */
#include "files/checkpoint/state.h"
#include "files/checkpoint/directory.h"
#include "tests/small_model.h"
#include "files/formats/model_files.h"
#include "model/parameters.h"

#include <math.h>
#include <sys/wait.h>
#include <time.h>

typedef struct Arenas {
  float values[CHECKPOINT_ARENAS][ARENA];
  float *at[CHECKPOINT_ARENAS];
} Arenas;

static void make_arenas(Arenas *a) {
  memset(a, 0, sizeof *a);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) a->at[i] = a->values[i];
}

/* Saves a state in which everything follows from `step`. */
static bool save_step(const char *dir, int step, Error *error) {
  Arenas a;
  char text[16];
  make_arenas(&a);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) fill(a.at[i], (float)step + 0.25f * (float)i);
  snprintf(text, sizeof text, "%d", step);
  const MetadataEntry metadata[] = {{"step", text}, {"note", "x"}};
  return checkpoint_write_state(dir, &small_table, a.at, metadata, 2, error);
}

/* The step that is read back, everything in it checked; -1 with the error. */
static int load_step(const char *dir, char warning[1024], Error *error) {
  Arenas a;
  CheckpointState run = {0};
  *error = (Error){0};
  make_arenas(&a);
  if (!checkpoint_read_state(dir, &small_table, a.at, &run, error)) {
    assert_true(a.at[0][0] == 0 && a.at[1][0] == 0 && a.at[2][64] == 0); /* untouched */
    return -1;
  }
  const char *text = checkpoint_state_text(&run, "step");
  assert_non_null(text);
  int step = atoi(text);
  assert_true(checkpoint_state_number(&run, "step") == step && isnan(checkpoint_state_number(&run, "absent")));
  snprintf(warning, 1024, "%s", run.warning);
  checkpoint_state_free(&run);
  checkpoint_state_free(&run);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) expect_arena(a.at[i], (float)step + 0.25f * (float)i, 0);
  return step;
}

static void test_state_round_trip(void **state) {
  char warning[1024];
  Error error = {0};
  assert_int_equal(load_step(*state, warning, &error), -1);
  expect_error(false, &error, EXIT_CHECKPOINT, "holds no state to resume from");
  error = (Error){0};
  for (int step = 1; step <= 4; step++) {
    expect_done(save_step(*state, step, &error), &error);
    assert_int_equal(load_step(*state, warning, &error), step);
    assert_string_equal(warning, "");
    assert_true(checkpoint_find_number(*state, "step") == step && isnan(checkpoint_find_number(*state, "absent")));
    assert_int_equal(entries(at(state, "last").text), 1);
    assert_int_equal(entries(at(state, "prev").text), step > 1);
  }
  assert_int_equal(remove(at(state, "last/state.safetensors").text), 0);
  assert_int_equal(load_step(*state, warning, &error), 3);
  assert_true(checkpoint_find_number(*state, "step") == 3);
  assert_non_null(strstr(warning, "No such file"));
  assert_non_null(strstr(warning, "prev/state.safetensors"));
  assert_int_equal(remove(at(state, "prev/state.safetensors").text), 0);
  assert_int_equal(load_step(*state, warning, &error), -1);
}

/* Changes one byte of a file, or cuts the file there. */
static void damage(const char *path, size_t place, bool cut) {
  size_t size;
  uint8_t *bytes = get(path, &size);
  assert_true(place < size);
  bytes[place] ^= 1;
  put(path, bytes, cut ? place : size);
  free(bytes);
}

static void test_state_every_byte_counts(void **state) {
  char warning[1024];
  Error error = {0};
  Path last = at(state, "last/state.safetensors");
  expect_done(save_step(*state, 1, &error), &error);
  expect_done(save_step(*state, 2, &error), &error);
  size_t size;
  uint8_t *good = get(last.text, &size);
  uint64_t header;
  memcpy(&header, good, 8);
  int unnoticed = 0;
  for (size_t i = 0; i < size; i++) {
    damage(last.text, i, false);
    int step = load_step(*state, warning, &error);
    bool harmless = i < 8 + header && step == 2; /* e.g. "format":"pt" */
    unnoticed += harmless;
    if (!harmless) assert_int_equal(step, 1), assert_true(strlen(warning) > 20);
    put(last.text, good, size);
    damage(last.text, i, true);
    assert_int_equal(load_step(*state, warning, &error), 1);
    put(last.text, good, size);
  }
  assert_true(unnoticed < 10);
  char *note = strstr((char *)good + 8, "\"step\":\"2\""); /* a plausible change of the metadata */
  assert_non_null(note);
  note[8] = '3';
  put(last.text, good, size);
  assert_int_equal(load_step(*state, warning, &error), 1);
  assert_non_null(strstr(warning, "checksum"));
  damage(at(state, "prev/state.safetensors").text, size - 1, false);
  assert_int_equal(load_step(*state, warning, &error), -1);
  expect_error(false, &error, EXIT_CHECKPOINT, "prev/state.safetensors is damaged: its checksum");
  free(good);
}

/* After a resume from prev/, the next save must not first replace the good state by the damaged one. */
static void test_state_save_over_damaged(void **state) {
  char warning[1024];
  Error error = {0};
  expect_done(save_step(*state, 1, &error), &error);
  expect_done(save_step(*state, 2, &error), &error);
  damage(at(state, "last/state.safetensors").text, 200, true);
  struct rlimit before = limit_file_size(1000); /* the save fails */
  bool done = save_step(*state, 3, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  expect_error(done, &error, EXIT_OUTPUT, "ulimit -f");
  assert_int_equal(entries(at(state, "last").text), 1); /* nothing is left behind */
  assert_int_equal(load_step(*state, warning, &error), 1);
  error = (Error){0};
  expect_done(save_step(*state, 3, &error), &error);
  assert_int_equal(load_step(*state, warning, &error), 3);
  assert_string_equal(warning, "");
}

static void test_state_refused(void **state) {
  char warning[1024];
  Error error = {0};
  Arenas a;
  CheckpointState run;
  make_arenas(&a);
  expect_error(save_step(at(state, "no").text, 1, &error), &error, EXIT_OUTPUT, "cannot make the directory");
  error = (Error){0};
  expect_done(save_step(*state, 1, &error), &error);
  ParameterTensor wider[4];
  memcpy(wider, small_tensors, sizeof wider);
  wider[0].rows = 6;
  ParameterTable other = {.tensors = wider, .count = 4, .arena = ARENA};
  bool done = checkpoint_read_state(*state, &other, a.at, &run, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "is [5, 4] where the configuration says [6, 4]");
  checkpoint_state_free(&run);
  other = (ParameterTable){.tensors = small_tensors, .count = 3, .arena = ARENA};
  error = (Error){0};
  done = checkpoint_read_state(*state, &other, a.at, &run, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "tensors that are not the model's");
  a.at[2][0] = INFINITY;
  error = (Error){0};
  expect_done(checkpoint_write_state(*state, &small_table, a.at, NULL, 0, &error), &error);
  assert_int_equal(load_step(*state, warning, &error), 1);
  assert_non_null(strstr(warning, "not finite in tensor adam.v.model.embed_tokens.weight"));
  assert_int_equal(remove(at(state, "last/state.safetensors").text), 0);
  assert_int_equal(remove(at(state, "last").text), 0);
  put(at(state, "last").text, "x", 1); /* a file in place of the directory */
  error = (Error){0};
  assert_false(save_step(*state, 2, &error));
  assert_int_equal(error.code, EXIT_OUTPUT);
  assert_int_equal(load_step(*state, warning, &error), 1);
}

/* What Muon trains has one moment, and the second moments of the rest lie closer together. */
static void test_state_of_muon(void **state) {
  Error error = {0};
  Arenas a, b;
  CheckpointState run = {0};
  ParameterTensor tensors[4];
  memcpy(tensors, small_tensors, sizeof tensors);
  tensors[1].v_offset = tensors[2].v_offset = -1;
  tensors[3].v_offset = 64;
  const ParameterTable table = {.tensors = tensors, .count = 4, .arena = ARENA, .v_arena = 128};
  make_arenas(&a);
  make_arenas(&b);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) fill(a.at[i], 1000 * (float)i);
  expect_done(checkpoint_write_state(*state, &table, a.at, NULL, 0, &error), &error);
  expect_done(checkpoint_read_state(*state, &table, b.at, &run, &error), &error);
  checkpoint_state_free(&run);
  for (int i = 0; i < 2; i++) expect_arena(b.at[i], 1000 * (float)i, 0);
  for (int i = 0; i < ARENA; i++) {
    const bool there = i < 20 || (i >= 64 && i < 68);
    assert_true(b.at[2][i] == (there ? a.at[2][i] : 0));
  }
  SafeTensors file;
  expect_done(safetensors_open(&file, at(state, "last/state.safetensors").text, &error), &error);
  assert_int_equal(file.count, 4 + 4 + 2 + 4);
  safetensors_close(&file);
  bool done = checkpoint_read_state(*state, &small_table, b.at, &run, &error); /* as if AdamW had trained it all */
  expect_error(done, &error, EXIT_CHECKPOINT, "adam.m.model.layers.0.self_attn.q_proj.weight");
}

/* A state may be without a mean, as those of older versions are; and a mean need not be read. */
static void test_state_without_mean(void **state) {
  for (int written = 0; written < 2; written++)
    for (int wanted = 0; wanted < 2; wanted++) {
      Error error = {0};
      Arenas a, b;
      CheckpointState run = {0};
      make_arenas(&a);
      make_arenas(&b);
      for (int i = 0; i < CHECKPOINT_ARENAS; i++) fill(a.at[i], 1000 * (float)i);
      if (!written) a.at[CHECKPOINT_MEAN] = NULL;
      if (!wanted) b.at[CHECKPOINT_MEAN] = NULL;
      expect_done(checkpoint_write_state(*state, &small_table, a.at, NULL, 0, &error), &error);
      expect_done(checkpoint_read_state(*state, &small_table, b.at, &run, &error), &error);
      checkpoint_state_free(&run);
      expect_arena(b.at[0], 0, 0);
      assert_true(b.values[CHECKPOINT_MEAN][1] == (written && wanted ? a.values[CHECKPOINT_MEAN][1] : 0));
    }
}

/* The kernel of a convolution has three dimensions in files. */
static void test_state_of_convolution(void **state) {
  const ParameterTensor kernel = {.name = "model.layers.0.conv.conv.weight", .rows = 4, .cols = 3, .rank = 3};
  const ParameterTable table = {.tensors = (ParameterTensor *)&kernel, .count = 1, .arena = 12};
  Error error = {0};
  Arenas a, b;
  CheckpointState run = {0};
  SafeTensors file;
  make_arenas(&a);
  make_arenas(&b);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) fill(a.at[i], 1000 * (float)i);
  expect_done(checkpoint_write_state(*state, &table, a.at, NULL, 0, &error), &error);
  expect_done(checkpoint_read_state(*state, &table, b.at, &run, &error), &error);
  checkpoint_state_free(&run);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) assert_memory_equal(a.at[i], b.at[i], 12 * sizeof(float));
  expect_done(safetensors_open(&file, at(state, "last/state.safetensors").text, &error), &error);
  const SafeTensor *saved = safetensors_find(&file, kernel.name);
  assert_true(saved && saved->rank == 3 && saved->shape[0] == 4 && saved->shape[1] == 1 && saved->shape[2] == 3);
  safetensors_close(&file);
}

/* kill -9 at random moments of saving: a state is always there, complete, and never older than the one acknowledged. */
static void test_state_killed(void **state) {
  char warning[1024];
  Error error = {0};
  int step = 1;
  expect_done(save_step(*state, step, &error), &error);
  for (int round = 0; round < 25; round++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      Error problem = {0};
      for (int next = step + 1; save_step(*state, next, &problem);) next++;
      _exit(1);
    }
    const struct timespec nap = {0, 1000000L + 700000L * (round * 7 % 25)};
    nanosleep(&nap, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    int found = load_step(*state, warning, &error);
    if (found < 0) fail_msg("%s", error.text);
    assert_string_equal(warning, ""); /* last/ itself is always good */
    assert_true(found >= step);
    step = found;
  }
  assert_true(step > 1);
  CheckpointLock lock;
  put(at(state, MODEL_FILE_CONFIG).text, "{}", 2); /* it is a run */
  put(at(state, MODEL_FILE_WEIGHTS).text, "x", 1);
  expect_done(checkpoint_lock(&lock, *state, &error), &error); /* sweeps what the killed ones left */
  expect_done(save_step(*state, step + 1, &error), &error);
  assert_int_equal(entries(at(state, "last").text), 1);
  checkpoint_unlock(&lock, *state, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_state_round_trip), TEST(test_state_every_byte_counts), TEST(test_state_save_over_damaged),
      TEST(test_state_refused),    TEST(test_state_of_muon),           TEST(test_state_of_convolution),
      TEST(test_state_killed),     TEST(test_state_without_mean),
  };
  return cmocka_run_group_tests_name("checkpoint_state", tests, NULL, NULL);
}
