/* Saves the state in last/ and prev/ for exact resuming, and replaces the old state with the new one. */
#include "files/checkpoint/state.h"

#include "files/checkpoint/directory.h"
#include "model/parameters.h"
#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/path.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one state file ---- */

enum { STATE_NAME = 80 /* capacity of a tensor's name */ };
static const char CHECKSUM_KEY[] = "checksum";
static const char *const state_names[] = {CHECKPOINT_LAST_STATE, CHECKPOINT_PREV_STATE};

/* The contents of a state to write. */
typedef struct State {
  const ParameterTable *table;
  float *const *arenas;
  const MetadataEntry *metadata;
  int metadata_count;
} State;

/* The checksum of a state is that of its data, in the order of list_tensors(), each with the checksum so far as its
 * seed. Returns the first seed: the sum of the checksums of the metadata, whose order therefore does not matter. */
static uint64_t metadata_checksum(const MetadataEntry *metadata, int count) {
  uint64_t sum = 0;
  for (int i = 0; i < count; i++) {
    const MetadataEntry *entry = &metadata[i];
    if (strcmp(entry->key, CHECKSUM_KEY) == 0 || strcmp(entry->key, "format") == 0) continue;
    sum += checksum_xxh64(entry->value, strlen(entry->value), checksum_xxh64(entry->key, strlen(entry->key), 0));
  }
  return sum;
}

static void checksum_text(char out[17], uint64_t sum) { snprintf(out, 17, "%016jx", (uintmax_t)sum); }

/* The tensors of a state in the arenas: weights, first and second moments, each in the order of the table. */
typedef struct StateTensors {
  SafeTensor *tensors;
  char (*names)[STATE_NAME];
  int count;
} StateTensors;

static void free_tensors(StateTensors *t) {
  free(t->tensors);
  free(t->names);
}

/* Prefixes of the names of moments and of mean weights. */
#define MUON_MOMENT "muon.m."
#define ADAM_MOMENT "adam.m."
#define ADAM_SECOND "adam.v."
#define MEAN "mean."

static void add_tensor(StateTensors *t, const char *prefix, const ParameterTensor *p, size_t offset, float *arena) {
  ParameterTensor at = *p;
  char *name = t->names[t->count];
  snprintf(name, STATE_NAME, "%s%s", prefix, p->name);
  at.offset = offset;
  t->tensors[t->count++] = safetensors_of_parameter(&at, name, arena);
}

/* Lists the tensors of a state, with or without a mean. Free *out with free_tensors(), also on failure. */
static bool list_tensors(const char *path, const ParameterTable *table, float *const *arenas, bool mean,
                         StateTensors *out, Error *error) {
  const size_t capacity = CHECKPOINT_ARENAS * (size_t)table->count + 1;
  *out =
      (StateTensors){.tensors = calloc(capacity, sizeof *out->tensors), .names = calloc(capacity, sizeof *out->names)};
  if (!out->tensors || !out->names) return error_memory(error, path);
  const ParameterTensor *const end = table->tensors + table->count;
  for (const ParameterTensor *p = table->tensors; p < end; p++) add_tensor(out, "", p, p->offset, arenas[0]);
  for (const ParameterTensor *p = table->tensors; p < end; p++)
    add_tensor(out, p->v_offset < 0 ? MUON_MOMENT : ADAM_MOMENT, p, p->offset, arenas[1]);
  for (const ParameterTensor *p = table->tensors; p < end; p++)
    if (p->v_offset >= 0) add_tensor(out, ADAM_SECOND, p, (size_t)p->v_offset, arenas[2]);
  for (const ParameterTensor *p = table->tensors; mean && p < end; p++)
    add_tensor(out, MEAN, p, p->offset, arenas[CHECKPOINT_MEAN]);
  return true;
}

static bool write_file(const char *path, const State *state, Error *error) {
  StateTensors t;
  MetadataEntry *metadata = calloc((size_t)state->metadata_count + 1, sizeof *metadata);
  const bool mean = state->arenas[CHECKPOINT_MEAN];
  bool ok = list_tensors(path, state->table, state->arenas, mean, &t, error) && (metadata || error_memory(error, path));
  if (ok) {
    char text[17];
    uint64_t sum = metadata_checksum(state->metadata, state->metadata_count);
    for (int i = 0; i < t.count; i++) sum = checksum_xxh64(t.tensors[i].data, t.tensors[i].bytes, sum);
    checksum_text(text, sum);
    for (int i = 0; i < state->metadata_count; i++) metadata[i] = state->metadata[i];
    metadata[state->metadata_count] = (MetadataEntry){CHECKSUM_KEY, text};
    ok = safetensors_write(path, t.tensors, t.count, metadata, state->metadata_count + 1, error);
  }
  free(metadata);
  free_tensors(&t);
  return ok;
}

static bool damaged(const char *path, Error *error, const char *what, const char *name) {
  return fail(error, EXIT_CHECKPOINT, "%s is damaged: %s%s", path, what, name);
}

/* Finds the `count` tensors of a state and checks everything about them: names, shapes, types, checksum, values. */
static bool verify_file(const char *path, const SafeTensors *file, const SafeTensor *tensors, int count, Error *error) {
  uint64_t sum = metadata_checksum(file->metadata, file->metadata_count);
  for (int i = 0; i < count; i++) {
    const SafeTensor *tensor = safetensors_expect(path, file, &tensors[i], error);
    if (!tensor) return false;
    if (tensor->type != TENSOR_F32) return damaged(path, error, "expected F32 in tensor ", tensors[i].name);
    sum = checksum_xxh64(tensor->data, tensor->bytes, sum);
  }
  if (file->count != count) return damaged(path, error, "it has tensors that are not the model's", "");
  const char *given = safetensors_metadata(file, CHECKSUM_KEY);
  if (!given) return damaged(path, error, "it has no checksum", "");
  char text[17];
  checksum_text(text, sum);
  if (!checksum_accept(strcmp(text, given) == 0))
    return damaged(path, error, "its checksum does not match; it should be ", text);
  for (int i = 0; i < count; i++)
    if (!half_all_finite(safetensors_find(file, tensors[i].name)->data, tensors[i].bytes / sizeof(float)))
      return damaged(path, error, "numbers that are not finite in tensor ", tensors[i].name);
  return true;
}

/* Reads a state into the arenas; leaves only the metadata open in `file`. */
static bool read_file(const char *path, const ParameterTable *table, float *const *arenas, SafeTensors *file,
                      Error *error) {
  if (!safetensors_open(file, path, error)) return false;
  StateTensors t;
  char of_mean[STATE_NAME];
  snprintf(of_mean, sizeof of_mean, MEAN "%s", table->tensors[0].name);
  const bool mean = safetensors_find(file, of_mean);
  const bool ok =
      list_tensors(path, table, arenas, mean, &t, error) && verify_file(path, file, t.tensors, t.count, error);
  for (int i = 0; ok && i < t.count; i++) {
    const SafeTensor *to = &t.tensors[i], *from = safetensors_find(file, to->name);
    if (from->bytes > 0 && to->data) memcpy((void *)(uintptr_t)to->data, from->data, from->bytes);
  }
  free_tensors(&t);
  if (!ok) {
    safetensors_close(file);
    return false;
  }
  free(file->tensors); /* they point into the mapping, which would keep a deleted file on disk */
  file->tensors = NULL;
  file->count = 0;
  file_unmap(&file->file);
  return true;
}

/* ---- last/ and prev/ ---- */

typedef struct StatePaths {
  PathText last_dir, prev_dir, last, prev; /* last, prev: the files */
  PathText old;                            /* a second name of the file in last/ while it is replaced */
} StatePaths;

static StatePaths make_paths(const char *dir) {
  return (StatePaths){.last_dir = path_in(dir, CHECKPOINT_LAST),
                      .prev_dir = path_in(dir, CHECKPOINT_PREV),
                      .last = path_in(dir, CHECKPOINT_LAST_STATE),
                      .prev = path_in(dir, CHECKPOINT_PREV_STATE),
                      .old = path_in(dir, CHECKPOINT_LAST "/.state.safetensors.old")};
}

static bool move(const char *from, const char *to, Error *error) {
  return rename(from, to) == 0 ||
         fail(error, EXIT_OUTPUT, "cannot move a file to %s: %s; check the run directory", to, strerror(errno));
}

/* Replaces the state with hard links. One rename replaces the old state in last/, so that last/ always has a state;
 * then the old state, which has a second name, becomes prev/. So if last/ was damaged and the run resumed from prev/,
 * prev/ is not replaced before the new last/ is safe. */
static bool rotate_linked(const StatePaths *p, const State *state, Error *error) {
  if (!write_file(p->last.text, state, error)) {
    unlink(p->old.text);
    return false;
  }
  if (move(p->old.text, p->prev.text, error))
    return file_sync_directory(p->prev_dir.text, error) && file_sync_directory(p->last_dir.text, error);
  unlink(p->old.text);
  return false;
}

/* Replaces the state on file systems without hard links: writes the new state beside the old one, then renames both. */
static bool rotate_renaming(const StatePaths *p, const State *state, Error *error) {
  if (!write_file(p->old.text, state, error)) return false;
  if (move(p->last.text, p->prev.text, error) && file_sync_directory(p->prev_dir.text, error) &&
      move(p->old.text, p->last.text, error) && file_sync_directory(p->last_dir.text, error))
    return true;
  unlink(p->old.text);
  return false;
}

bool checkpoint_write_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                            const MetadataEntry *metadata, int metadata_count, Error *error) {
  const State state = {table, arenas, metadata, metadata_count};
  const StatePaths p = make_paths(dir);
  if (!file_make_directory(p.last_dir.text, error) || !file_make_directory(p.prev_dir.text, error) ||
      !file_sync_directory(dir, error))
    return false;
  unlink(p.old.text); /* left by a killed process */
  if (access(p.last.text, F_OK) != 0) return write_file(p.last.text, &state, error);
  if (link(p.last.text, p.old.text) == 0) return rotate_linked(&p, &state, error);
  return rotate_renaming(&p, &state, error);
}

bool checkpoint_read_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                           CheckpointState *state, Error *error) {
  *state = (CheckpointState){0};
  const StatePaths p = make_paths(dir);
  if (access(p.last.text, F_OK) != 0 && access(p.prev.text, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s holds no state to resume from (no " CHECKPOINT_LAST_STATE ")", dir);
  Error first = {0}, second = {0};
  if (read_file(p.last.text, table, arenas, &state->file, &first)) return true;
  if (first.code == EXIT_MEMORY) return fail(error, first.code, "%s", first.text);
  if (read_file(p.prev.text, table, arenas, &state->file, &second)) {
    snprintf(state->warning, sizeof state->warning, "%.700s; resuming from the state saved before it, %.200s",
             first.text, p.prev.text);
    return true;
  }
  if (second.code == EXIT_MEMORY) return fail(error, second.code, "%s", second.text);
  return fail(error, EXIT_CHECKPOINT, "no usable state to resume from: %.400s; and %.400s", first.text, second.text);
}

/* ---- metadata ---- */

static double number_of(const SafeTensors *file, const char *key) {
  const char *text = safetensors_metadata(file, key);
  return text ? strtod(text, NULL) : NAN;
}

const char *checkpoint_state_text(const CheckpointState *state, const char *key) {
  return safetensors_metadata(&state->file, key);
}

double checkpoint_state_number(const CheckpointState *state, const char *key) { return number_of(&state->file, key); }

void checkpoint_state_free(CheckpointState *state) {
  safetensors_close(&state->file);
  *state = (CheckpointState){0};
}

/* Opens a state file to look at its header. Errors are reported when the state is read. */
static bool open_quietly(SafeTensors *file, const char *dir, const char *name) {
  Error ignored = {0};
  return safetensors_open(file, path_in(dir, name).text, &ignored);
}

double checkpoint_find_number(const char *dir, const char *key) {
  double number = NAN;
  for (int i = 0; i < 2 && isnan(number); i++) {
    SafeTensors file;
    if (open_quietly(&file, dir, state_names[i])) number = number_of(&file, key);
    safetensors_close(&file);
  }
  return number;
}

int checkpoint_find_optimizer(const char *dir) {
  int optimizer = -1;
  for (int i = 0; i < 2 && optimizer < 0; i++) {
    SafeTensors file;
    open_quietly(&file, dir, state_names[i]);
    for (int k = 0; k < file.count && optimizer != OPTIMIZER_MUON; k++) {
      const char *name = file.tensors[k].name;
      if (strncmp(name, MUON_MOMENT, strlen(MUON_MOMENT)) == 0) optimizer = OPTIMIZER_MUON;
      else if (strncmp(name, ADAM_MOMENT, strlen(ADAM_MOMENT)) == 0) optimizer = OPTIMIZER_ADAMW;
    }
    safetensors_close(&file);
  }
  return optimizer;
}
