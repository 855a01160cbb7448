/* The state of a run, from which training resumes exactly: weights, moments and numbers, in last/ and prev/.
 *
 * Every file is replaced atomically (util/file.h): a reader, or a power cut, may come at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_CHECKPOINT_STATE_H
#define INKLING_CHECKPOINT_STATE_H

#include "util/error.h"
#include "model.h"
#include "formats/safetensors.h"
#include "model/parameters.h"

enum { CHECKPOINT_ARENAS = 3 }; /* of a state: weights, first moments, second moments */

/* Saves the state in last/ and keeps the one before in prev/. At every moment, a killed process or a power cut
 * included, a complete state is in last/ or prev/. Needs room for three states. The metadata must not have the keys
 * "format" and "checksum". */
bool checkpoint_write_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                            const MetadataEntry *metadata, int metadata_count, Error *error);

/* What came with a state. */
typedef struct CheckpointState {
  SafeTensors file;   /* only its metadata: the data are unmapped */
  char warning[1024]; /* empty, or: why last/ could not be used, and that prev/ was read instead */
} CheckpointState;

/* Reads last/, or prev/ when last/ is missing or damaged (shapes, checksum of tensors and metadata, finite numbers).
 * The arenas are not touched unless it succeeds; pads never are. */
bool checkpoint_read_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                           CheckpointState *state, Error *error);
/* A string of its metadata, or that as a number; NULL and NaN when it is absent. */
const char *checkpoint_state_text(const CheckpointState *state, const char *key);
double checkpoint_state_number(const CheckpointState *state, const char *key);
void checkpoint_state_free(CheckpointState *state); /* harmless on a zeroed struct */

/* The number under `key` in the metadata of last/, or of prev/ where last/ has none, without reading the tensors; NaN
 * when neither says. */
double checkpoint_find_number(const char *dir, const char *key);
/* The OptimizerKind whose moments such a state holds; negative when there is none. */
int checkpoint_find_optimizer(const char *dir);

#endif
