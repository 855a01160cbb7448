/* last/ and prev/: everything that resuming exactly needs, and how a new state takes the place of the old one. */
#include "checkpoint/internal.h"

#include "util/checksum.h"
#include "util/file.h"
#include "util/path.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- exact resume: one state file ---- */

enum { PARTS = 3, STATE_NAME = 80 };
static const char *const part_prefix[PARTS] = {"", "adam.m.", "adam.v."};
static const char CHECKSUM_KEY[] = "checksum";

/* Of the data in the order of `tensors`, each with the sum so far as its seed; the first seed is a sum over the
 * metadata, which therefore may come in any order. */
static uint64_t state_checksum(const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                               int metadata_count) {
  uint64_t sum = 0;
  for (int i = 0; i < metadata_count; i++) {
    const MetadataEntry *entry = &metadata[i];
    if (strcmp(entry->key, CHECKSUM_KEY) == 0 || strcmp(entry->key, "format") == 0) continue;
    sum += checksum_xxh64(entry->value, strlen(entry->value), checksum_xxh64(entry->key, strlen(entry->key), 0));
  }
  for (int i = 0; i < count; i++) {
    size_t bytes = safetensors_type_bytes(tensors[i].type);
    for (int d = 0; d < tensors[i].rank; d++) bytes *= (size_t)tensors[i].shape[d];
    sum = checksum_xxh64(tensors[i].data, bytes, sum);
  }
  return sum;
}

static void checksum_text(char out[17], uint64_t sum) { snprintf(out, 17, "%016jx", (uintmax_t)sum); }

static void state_name(char out[STATE_NAME], int part, const ParameterTensor *p) {
  snprintf(out, STATE_NAME, "%s%s", part_prefix[part], p->name);
}

/* Writes one state; `tensors` and `names` are scratch for PARTS * table->count, `strings` for metadata_count + 1. */
static bool write_state_file(const char *path, const ParameterTable *table, const float *const arenas[PARTS],
                             const MetadataEntry *metadata, int metadata_count, SafeTensor *tensors,
                             char (*names)[STATE_NAME], MetadataEntry *strings, Error *error) {
  int count = 0;
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++, count++) {
      state_name(names[count], part, &table->tensors[i]);
      tensors[count] = checkpoint_tensor(&table->tensors[i], names[count], arenas[part]);
    }
  char text[17];
  checksum_text(text, state_checksum(tensors, count, metadata, metadata_count));
  for (int i = 0; i < metadata_count; i++) strings[i] = metadata[i];
  strings[metadata_count] = (MetadataEntry){CHECKSUM_KEY, text};
  return safetensors_write(path, tensors, count, strings, metadata_count + 1, error);
}

static bool make_state_file(const char *path, const ParameterTable *table, const float *const arenas[PARTS],
                            const MetadataEntry *metadata, int metadata_count, Error *error) {
  size_t count = PARTS * (size_t)table->count + 1;
  SafeTensor *tensors = calloc(count, sizeof *tensors);
  char(*names)[STATE_NAME] = calloc(count, sizeof *names);
  MetadataEntry *strings = calloc((size_t)metadata_count + 1, sizeof *strings);
  bool ok = tensors && names && strings
                ? write_state_file(path, table, arenas, metadata, metadata_count, tensors, names, strings, error)
                : checkpoint_no_memory(path, error);
  free(strings);
  free(names);
  free(tensors);
  return ok;
}

static bool damaged(const char *path, Error *error, const char *what, const char *name) {
  return fail(error, EXIT_CHECKPOINT, "%s is damaged: %s%s", path, what, name);
}

static bool all_finite(const SafeTensor *tensor) {
  const uint8_t *bytes = tensor->data;
  for (size_t i = 0; i < tensor->bytes; i += sizeof(float)) {
    float value;
    memcpy(&value, bytes + i, sizeof value);
    if (!isfinite(value)) return false;
  }
  return true;
}

/* Finds the tensors of a state, in the order of state_checksum(), and checks all that can be wrong with them. */
static bool verify_state(const char *path, const SafeTensors *file, const ParameterTable *table, SafeTensor *tensors,
                         Error *error) {
  int count = 0;
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++, count++) {
      char name[STATE_NAME];
      state_name(name, part, &table->tensors[i]);
      const SafeTensor *tensor = safetensors_find(file, name);
      if (!tensor)
        return fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is config.json of the same run?", path, name);
      if (!checkpoint_check_shape(path, tensor, &table->tensors[i], error)) return false;
      if (tensor->type != TENSOR_F32) return damaged(path, error, "F32 is due for tensor ", name);
      tensors[count] = *tensor;
    }
  if (file->count != count) return damaged(path, error, "it has tensors that are not the model's", "");
  const char *given = safetensors_metadata(file, CHECKSUM_KEY);
  if (!given) return damaged(path, error, "it has no checksum", "");
  char text[17];
  checksum_text(text, state_checksum(tensors, count, file->metadata, file->metadata_count));
  if (strcmp(text, given) != 0) return damaged(path, error, "its checksum does not fit; it should be ", text);
  for (int i = 0; i < count; i++)
    if (!all_finite(&tensors[i]))
      return damaged(path, error, "numbers that are not finite in tensor ", tensors[i].name);
  return true;
}

static void copy_state(const SafeTensor *tensors, const ParameterTable *table, float *const arenas[PARTS]) {
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++) {
      const SafeTensor *tensor = &tensors[part * table->count + i];
      if (tensor->bytes > 0) memcpy(arenas[part] + table->tensors[i].offset, tensor->data, tensor->bytes);
    }
}

/* Reads DIR/generation/state.safetensors into the arenas; leaves only the metadata open in `file`. */
static bool read_generation(const char *path, const ParameterTable *table, float *const arenas[PARTS],
                            SafeTensors *file, Error *error) {
  if (!safetensors_open(file, path, error)) return false;
  SafeTensor *tensors = calloc(PARTS * (size_t)table->count + 1, sizeof *tensors);
  bool ok = tensors ? verify_state(path, file, table, tensors, error) : checkpoint_no_memory(path, error);
  if (ok) copy_state(tensors, table, arenas);
  free(tensors);
  if (!ok) {
    safetensors_close(file);
    return false;
  }
  free(file->tensors); /* they point into the mapping, which would keep a deleted file on the disk */
  file->tensors = NULL;
  file->count = 0;
  file_unmap(&file->file);
  return true;
}

/* ---- exact resume: the two generations ---- */

typedef struct StatePaths {
  char *last_dir, *prev_dir;
  char *last, *prev; /* the files */
  char *old;         /* a second name of the file in last/ while it is replaced */
} StatePaths;

static void free_paths(StatePaths *p) {
  free(p->last_dir);
  free(p->prev_dir);
  free(p->last);
  free(p->prev);
  free(p->old);
}

static bool make_paths(StatePaths *p, const char *dir, Error *error) {
  *p = (StatePaths){.last_dir = path_join(dir, "last"), .prev_dir = path_join(dir, "prev")};
  if (p->last_dir && p->prev_dir) {
    p->last = path_join(p->last_dir, "state.safetensors");
    p->prev = path_join(p->prev_dir, "state.safetensors");
    p->old = path_join(p->last_dir, ".state.safetensors.old");
  }
  if (p->last && p->prev && p->old) return true;
  free_paths(p);
  return checkpoint_no_memory(dir, error);
}

static bool make_directory(const char *path, Error *error) {
  return mkdir(path, 0777) == 0 || errno == EEXIST || checkpoint_system_failed("make the directory", path, error);
}

static bool rename_file(const char *from, const char *to, Error *error) {
  return rename(from, to) == 0 || checkpoint_system_failed("move a file to", to, error);
}

/* The new state replaces the old one in last/ by one rename, so last/ is never without; then the old one, kept by a
 * second name, becomes prev/. A damaged last/ (this run resumed from prev/) therefore never replaces prev/ before the
 * new last/ is safe. */
static bool rotate_linked(const StatePaths *p, const ParameterTable *table, const float *const arenas[PARTS],
                          const MetadataEntry *metadata, int metadata_count, Error *error) {
  if (!make_state_file(p->last, table, arenas, metadata, metadata_count, error)) {
    unlink(p->old);
    return false;
  }
  return rename_file(p->old, p->prev, error) && file_sync_directory(p->prev_dir, error) &&
         file_sync_directory(p->last_dir, error);
}

/* For file systems without hard links: the new state is complete beside the old one, then both move up. */
static bool rotate_renaming(const StatePaths *p, const ParameterTable *table, const float *const arenas[PARTS],
                            const MetadataEntry *metadata, int metadata_count, Error *error) {
  if (!make_state_file(p->old, table, arenas, metadata, metadata_count, error)) return false;
  if (rename_file(p->last, p->prev, error) && file_sync_directory(p->prev_dir, error) &&
      rename_file(p->old, p->last, error) && file_sync_directory(p->last_dir, error))
    return true;
  unlink(p->old);
  return false;
}

bool checkpoint_write_state(const char *dir, const ParameterTable *table, const float *master, const float *m,
                            const float *v, const MetadataEntry *metadata, int metadata_count, Error *error) {
  const float *const arenas[PARTS] = {master, m, v};
  StatePaths p;
  if (!make_paths(&p, dir, error)) return false;
  bool ok = make_directory(p.last_dir, error) && make_directory(p.prev_dir, error) && file_sync_directory(dir, error);
  if (ok) {
    unlink(p.old); /* of a killed process */
    if (access(p.last, F_OK) != 0) ok = make_state_file(p.last, table, arenas, metadata, metadata_count, error);
    else if (link(p.last, p.old) == 0) ok = rotate_linked(&p, table, arenas, metadata, metadata_count, error);
    else ok = rotate_renaming(&p, table, arenas, metadata, metadata_count, error);
  }
  free_paths(&p);
  return ok;
}

static bool read_either(const StatePaths *p, const char *dir, const ParameterTable *table, float *const arenas[PARTS],
                        CheckpointState *state, Error *error) {
  if (access(p->last, F_OK) != 0 && access(p->prev, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT,
                "%s holds no state to resume from (no last/state.safetensors); start it again: ./train FILE --out %s "
                "--overwrite",
                dir, dir);
  Error first = {0}, second = {0};
  if (read_generation(p->last, table, arenas, &state->file, &first)) return true;
  if (first.code == EXIT_MEMORY) return fail(error, first.code, "%s", first.text);
  if (read_generation(p->prev, table, arenas, &state->file, &second)) {
    snprintf(state->warning, sizeof state->warning, "%.700s; going on from the state saved before it, %.200s",
             first.text, p->prev);
    return true;
  }
  if (second.code == EXIT_MEMORY) return fail(error, second.code, "%s", second.text);
  return fail(error, EXIT_CHECKPOINT, "no usable state to resume from: %.450s; and %.450s", first.text, second.text);
}

bool checkpoint_read_state(const char *dir, const ParameterTable *table, float *master, float *m, float *v,
                           CheckpointState *state, Error *error) {
  float *const arenas[PARTS] = {master, m, v};
  *state = (CheckpointState){0};
  StatePaths p;
  if (!make_paths(&p, dir, error)) return false;
  bool ok = read_either(&p, dir, table, arenas, state, error);
  free_paths(&p);
  return ok;
}

const char *checkpoint_state_get(const CheckpointState *state, const char *key) {
  return safetensors_metadata(&state->file, key);
}

void checkpoint_state_free(CheckpointState *state) {
  safetensors_close(&state->file);
  *state = (CheckpointState){0};
}
