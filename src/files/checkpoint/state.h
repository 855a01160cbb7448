/* The state of a run, from which training resumes exactly: weights, moments and metadata, in last/ and prev/.
 *
 * Every file is replaced atomically (base/file.h), so readers and power cuts are safe at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_FILES_CHECKPOINT_STATE_H
#define INKLING_FILES_CHECKPOINT_STATE_H

#include "base/error.h"
#include "model.h"
#include "files/formats/safetensors.h"
#include "model/parameters.h"

/* The arenas of a state: weights, first moments, second moments, and the mean of earlier weights, which may be NULL. */
enum { CHECKPOINT_MEAN = 3, CHECKPOINT_ARENAS };

/* Saves the state in last/ and keeps the previous one in prev/. A complete state is in last/ or prev/ at every moment,
 * even if the process is killed or power fails. Needs disk space for three states. The metadata must not have the keys
 * "format" and "checksum". */
bool checkpoint_write_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                            const MetadataEntry *metadata, int metadata_count, Error *error);

/* The metadata of a state that was read. */
typedef struct CheckpointState {
  SafeTensors file;   /* only its metadata: the data are unmapped */
  char warning[1024]; /* empty, or the reason why prev/ was read instead of last/ */
} CheckpointState;

/* Reads last/, or prev/ when last/ is missing or damaged (shapes, checksum of tensors and metadata, finite numbers).
 * The arenas are changed only on success; pads never. A state without a mean leaves that arena as it is. */
bool checkpoint_read_state(const char *dir, const ParameterTable *table, float *const arenas[CHECKPOINT_ARENAS],
                           CheckpointState *state, Error *error);
/* Return a string of the metadata, or a number; NULL and NaN when the key is absent. */
const char *checkpoint_state_text(const CheckpointState *state, const char *key);
double checkpoint_state_number(const CheckpointState *state, const char *key);
void checkpoint_state_free(CheckpointState *state); /* harmless on a zeroed struct */

/* Returns the number under `key` in the metadata of last/, or of prev/ when last/ has none, without reading the
 * tensors; NaN when neither has it. */
double checkpoint_find_number(const char *dir, const char *key);
/* Returns the OptimizerKind whose moments the state contains; negative when there is no state. */
int checkpoint_find_optimizer(const char *dir);

#endif
