/* Models of every class with weights, written and read, for the tests of files/. */
#ifndef INKLING_TESTS_CLASS_WEIGHTS_H
#define INKLING_TESTS_CLASS_WEIGHTS_H

#include "tests/model_files_helpers.h"
#include "files/checkpoint/directory.h"
#include "tests/checkpoint_helpers.h"
#include "tests/class_models.h"
#include "tests/config_fields.h"
#include "tests/config_helpers.h"
#include "files/formats/model_files.h"
#include "model/parameters.h"

static const SpecialTokens no_tokens = {.start = -1, .end = -1};

/* ---- models with weights ---- */

typedef struct Weights {
  ModelConfig config;
  ParameterTable table;
  float *arena;
} Weights;

/* Every element of every tensor another number; pads `pad`. */
static inline Weights weights_new(const ModelConfig *config, float pad) {
  Weights w = {.config = *config};
  Error error = {0};
  expect_done(parameter_table_make(&w.table, config, &error), &error);
  w.arena = malloc(w.table.arena * sizeof *w.arena);
  assert_non_null(w.arena);
  for (size_t i = 0; i < w.table.arena; i++) w.arena[i] = pad;
  for (int i = 0; i < w.table.count; i++) {
    const ParameterTensor *t = &w.table.tensors[i];
    for (int j = 0; j < t->rows * t->cols; j++) w.arena[t->offset + (size_t)j] = 1.0f + (float)(i * 1000 + j);
  }
  return w;
}

static inline void weights_free(Weights *w) {
  parameter_table_free(&w->table);
  free(w->arena);
}

static const ParameterTensor *row_of(const Weights *w, const char *name) {
  for (int i = 0; i < w->table.count; i++)
    if (strcmp(w->table.tensors[i].name, name) == 0) return &w->table.tensors[i];
  fail_msg("there is no %s", name);
  return NULL;
}

static inline float at_row(const Weights *w, const char *name, int row, int col) {
  const ParameterTensor *t = row_of(w, name);
  return w->arena[t->offset + (size_t)(row * t->cols + col)];
}

static inline void write_model(void **state, const Weights *w) {
  Error error = {0};
  expect_done(model_files_write_weights(*state, &w->config, &w->table, w->arena, &error), &error);
  expect_done(write_config(*state, &w->config, no_tokens, &error), &error);
}

static inline void expect_same(const ModelConfig *a, const ModelConfig *b) {
  for (int i = 0; i < CONFIG_FIELDS; i++) {
    const size_t at = config_fields[i].offset;
    if (config_fields[i].kind != 's' && memcmp((const char *)a + at, (const char *)b + at, sizeof(int)) != 0)
      fail_msg("%s differs", config_fields[i].name);
  }
  assert_true(model_same_mixers(a->mixers, b->mixers, a->layers));
}

static inline bool read_model(void **state, Weights *out, float pad, Error *error) {
  ModelConfig config;
  SpecialTokens tokens;
  *error = (Error){0};
  *out = (Weights){0};
  if (!read_config(*state, &config, &tokens, error)) return false;
  *out = weights_new(&config, pad);
  for (size_t i = 0; i < out->table.arena; i++) out->arena[i] = pad;
  return read_weights(*state, &config, &out->table, out->arena, error);
}

static inline void expect_round_trip(void **state, const ModelConfig *config) {
  Weights ours = weights_new(config, -7), back;
  Error error;
  write_model(state, &ours);
  expect_done(read_model(state, &back, -7, &error), &error);
  expect_same(config, &back.config);
  assert_memory_equal(ours.arena, back.arena, ours.table.arena * sizeof *ours.arena); /* pads are left alone */
  weights_free(&ours);
  weights_free(&back);
}

/* ---- files ---- */

/* Replaces the value of a key, given as JSON; NULL: removes it. */
static inline void set_key(void **state, const char *key, const char *value) {
  json_t *root = config_object(state);
  if (value) assert_int_equal(json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
  else json_object_del(root, key);
  put_config(state, root);
  json_decref(root);
}

static inline SafeTensors open_weights(void **state) {
  SafeTensors file;
  Error error = {0};
  expect_done(safetensors_open(&file, at(state, MODEL_FILE_WEIGHTS).text, &error), &error);
  return file;
}

/* A tensor of that shape; its numbers (written files are aligned). */
static const float *floats(const SafeTensors *file, const char *name, int rank, int64_t rows, int64_t cols) {
  const SafeTensor *t = safetensors_find(file, name);
  if (!t) fail_msg("there is no %s", name);
  assert_int_equal(t->rank, rank);
  assert_int_equal(t->shape[0], rows);
  if (rank == 3) assert_int_equal(t->shape[1], 1);
  if (rank > 1) assert_int_equal(t->shape[rank - 1], cols);
  return t->data;
}

/* Writes the tensors of the file again, `more` with them, after names have lost `prefix`; those of `without` are left
 * out. */
static inline void rewrite(void **state, const char *prefix, const char *without, const SafeTensor *more, int count) {
  SafeTensors file = open_weights(state);
  SafeTensor *tensors = calloc((size_t)(file.count + count), sizeof *tensors);
  int kept = 0;
  Error error = {0};
  assert_non_null(tensors);
  for (int i = 0; i < file.count; i++) {
    if (without && strstr(file.tensors[i].name, without)) continue;
    tensors[kept] = file.tensors[i];
    if (prefix && strncmp(tensors[kept].name, prefix, strlen(prefix)) == 0) tensors[kept].name += strlen(prefix);
    kept++;
  }
  for (int i = 0; i < count; i++) tensors[kept++] = more[i];
  Path copy = at(state, "copy");
  expect_done(safetensors_write(copy.text, tensors, kept, NULL, 0, &error), &error);
  free(tensors);
  safetensors_close(&file);
  assert_int_equal(rename(copy.text, at(state, MODEL_FILE_WEIGHTS).text), 0);
}

/* ---- which class ---- */

static inline void expect_class(ModelConfig config, const char *class) {
  bool own;
  assert_string_equal(model_files_class(&config, &own), class);
  assert_int_equal(own, strncmp(class, "Inkling", 7) == 0);
}

#endif
