/* What a run directory holds (its files are in checkpoint/directory.h): a model as Hugging Face transformers has it, of
 * the class that computes the same, and the state from which training resumes exactly.
 *
 * Every file is replaced atomically (util/file.h): a reader, or a power cut, may come at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_CHECKPOINT_CHECKPOINT_H
#define INKLING_CHECKPOINT_CHECKPOINT_H

#include "util/error.h"
#include "tokenizer/tokenizer.h"
#include "model.h"
#include "checkpoint/safetensors.h"

/* ---- configuration ---- */

/* Ids as Hugging Face's configuration has them; -1: none. */
typedef struct SpecialTokens {
  int start; /* bos: what text without a prompt starts from; above an encoder decoder_start: what every answer does */
  int end;   /* eos: <|endoftext|> */
} SpecialTokens;

/* The class of transformers that a model is written as: LlamaForCausalLM, GPT2LMHeadModel, ... (the table is in
 * checkpoint/classes.c). *own: none of them computes it; then our own, modeling_inkling.py, lies beside it, and
 * loading needs trust_remote_code=True. */
const char *checkpoint_class(const ModelConfig *config, bool *own);

/* Writes config.json and generation_config.json, and modeling_inkling.py for a model of our own class. */
bool checkpoint_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, Error *error);
/* The same for weights in BF16 (or F32). */
bool checkpoint_write_config_of(const char *dir, const ModelConfig *config, SpecialTokens tokens, TensorType type,
                                Error *error);

/* Reads config.json, ours or that of any model of the classes above: what is absent or null has the value that
 * transformers gives it. Refuses what the model here cannot do (other classes and activations, scaled RoPE, sliding
 * windows, quantization ...) and sizes beyond all reason, then asks model_config_check(). Of several eos ids the first
 * counts. Where a class has the biases of several products all or none, a key of our own, "missing_biases", says which
 * of them the model does not have. */
bool checkpoint_read_config(const char *dir, ModelConfig *config, SpecialTokens *tokens, Error *error);

/* ---- weights ---- */

/* Writes model.safetensors in fp32. arena: on the host, laid out by `table`; pads are not written. */
bool checkpoint_write_weights(const char *dir, const ModelConfig *config, const ParameterTable *table,
                              const float *arena, Error *error);

/* Fills the tensors of the arena from F32, F16 or BF16, of model.safetensors or of several files with an index; pads
 * are left as they are. `config` is that of config.json beside it, but may have a shorter context: then the first
 * positions of tables are read. That file also says which class's names and shapes the tensors have; every tensor must
 * be there, all values finite. Biases that the file does not have though others of the same kind are there become
 * zeros, and what the class has and the model has not must be zeros. Marian and its like may leave out the bias of the
 * head and tables of sinusoids: the class makes its own, and so does this. Other tensors are refused, but for an
 * lm_head.weight of the embedding's shape (tied models are sometimes saved with it), masks of GPT-2 and
 * *.rotary_emb.inv_freq (old exports). After a failure the arena may be partly filled. */
bool checkpoint_read_weights(const char *dir, const ModelConfig *config, const ParameterTable *table, float *arena,
                             Error *error);

/* The weights of one directory as another's model.safetensors, in F32 or BF16, a tensor at a time. The errors of both
 * functions above. */
bool checkpoint_copy_weights(const char *from, const char *to, const ModelConfig *config, TensorType type,
                             Error *error);

/* ---- tokenizers ---- */

/* Reads tokenizer.json. The model must have a row for each of its ids, and may have more. A decoder alone reads no text
 * with the end token behind it. */
bool checkpoint_load_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error);

/* Reads the tokenizer of sources. *out NULL: there is none, the other one is theirs, too. It must be there where
 * vocabularies differ in size, or where tokenizer_config.json says that they are separate. */
bool checkpoint_load_source_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error);

/* Writes the files of both; `source` may be NULL. */
bool checkpoint_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx, Error *error);

/* ---- loading ---- */

/* Whether the weights there can be those of the model: before memory is allocated for it. EXIT_CHECKPOINT for none, or
 * for fewer than it has parameters. */
bool checkpoint_check_weights_size(const char *dir, const ModelConfig *config, Error *error);

/* The model on a device, with its weights. A configuration that asks for more parameters than the weights beside it can
 * hold is refused before memory is allocated for it. */
bool checkpoint_load_model(Model **out, const char *dir, const ModelConfig *config, const Backend *backend,
                           Context *context, Error *error);

/* ---- the state of a run ---- */

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
