/* The run directory: a model directory as Hugging Face transformers (LlamaForCausalLM) has it, a lock, and beside them
 * the state that continues a training run exactly.
 *
 *   DIR/config.json, generation_config.json   checkpoint_write_config()
 *   DIR/model.safetensors                     checkpoint_write_weights(): fp32, names and shapes of LlamaForCausalLM
 *   DIR/last/state.safetensors                checkpoint_write_state(): weights, moments, the caller's strings, a
 *                                             checksum
 *   DIR/prev/state.safetensors                the state saved before that
 *   DIR/.lock                                 checkpoint_lock()
 *
 * Every file is replaced atomically (util/file.h): a reader, or the power, may come at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_CHECKPOINT_CHECKPOINT_H
#define INKLING_CHECKPOINT_CHECKPOINT_H

#include "util/error.h"
#include "model.h"
#include "checkpoint/safetensors.h"

/* ---- configuration ---- */

/* Ids as Hugging Face's configuration has them; -1: none. */
typedef struct SpecialTokens {
  int start; /* bos: what text without a prompt starts from */
  int end;   /* eos: <|endoftext|> */
} SpecialTokens;

bool checkpoint_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, Error *error);

/* Reads DIR/config.json, ours or that of any LlamaForCausalLM: what is absent or null has the value that transformers
 * gives it. Refuses what the model here cannot do (other architectures, activations, biases, scaled RoPE, quantisation)
 * and sizes beyond all reason, then asks model_config_check(). Of several eos ids the first counts. */
bool checkpoint_read_config(const char *dir, ModelConfig *config, SpecialTokens *tokens, Error *error);

/* ---- weights ---- */

/* arena: host fp32, laid out by `table`; pads are not written. */
bool checkpoint_write_weights(const char *path, const ParameterTable *table, const float *arena,
                              const MetadataEntry *metadata, int metadata_count, Error *error);

/* Fills the tensors of the arena from F32, F16 or BF16; pads are left as they are. Every tensor of the table must be
 * there with exactly its shape, all values finite. Tensors that are not in the table are refused, but for an
 * lm_head.weight of the embedding's shape (tied models are sometimes saved with it) and *.rotary_emb.inv_freq (old
 * exports). After a failure the arena may be partly filled. */
bool checkpoint_read_weights(const char *path, const ParameterTable *table, float *arena, Error *error);

/* ---- exact resume ---- */

/* Saves DIR/last/state.safetensors and keeps the one before as DIR/prev/state.safetensors. At every moment, a killed
 * process or a power cut included, a complete state is in last/ or prev/. Needs room for three states. The metadata
 * must not have the keys "format" and "checksum". */
bool checkpoint_write_state(const char *dir, const ParameterTable *table, const float *master, const float *m,
                            const float *v, const MetadataEntry *metadata, int metadata_count, Error *error);

/* What came with a state. */
typedef struct CheckpointState {
  SafeTensors file;   /* only its metadata: the data are unmapped */
  char warning[1024]; /* empty, or: last/ could not be used and why, prev/ was read instead */
} CheckpointState;

/* Reads last/, or prev/ when last/ is missing or damaged (shapes, checksum of tensors and metadata, finite numbers).
 * The arenas are not touched unless it succeeds; pads never are. */
bool checkpoint_read_state(const char *dir, const ParameterTable *table, float *master, float *m, float *v,
                           CheckpointState *state, Error *error);
const char *checkpoint_state_get(const CheckpointState *state,
                                 const char *key);  /* a string of its metadata; NULL when absent */
void checkpoint_state_free(CheckpointState *state); /* harmless on a zeroed struct */

/* ---- lock ---- */

/* Takes the directory for one writer: EXIT_BUSY when another process has it. The lock lives as long as *fd is open in
 * this process, so that a killed one leaves none behind; release it with close(). Also deletes temporary files that a
 * killed process left. */
bool checkpoint_lock(const char *dir, int *fd, Error *error);

/* ---- finding runs ---- */

/* Whether `dir` holds a model: config.json and model.safetensors. */
bool checkpoint_is_model(const char *dir);

/* The *.run of the current directory whose model was written last; the caller frees it. EXIT_USAGE when there is none.
 */
bool checkpoint_newest(char **out, Error *error);

#endif
