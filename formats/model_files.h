/* A model directory as Hugging Face transformers has it: its names, reading and writing it, and how models are found.
 *
 * Every file is replaced atomically (util/file.h): a reader, or a power cut, may come at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_FORMATS_MODEL_FILES_H
#define INKLING_FORMATS_MODEL_FILES_H

#include "util/error.h"
#include "tokenizer/tokenizer.h"
#include "model.h"
#include "formats/safetensors.h"
#include "model/parameters.h"

/* ---- names; those of the tokenizer's files are in tokenizer/tokenizer.h ---- */

#define MODEL_FILE_CONFIG "config.json"
#define MODEL_FILE_GENERATION_CONFIG "generation_config.json"
#define MODEL_FILE_WEIGHTS "model.safetensors"
#define MODEL_FILE_WEIGHTS_INDEX MODEL_FILE_WEIGHTS ".index.json" /* of weights in several files; only read */
#define MODEL_FILE_CODE "modeling_inkling.py"                     /* only where config.json names the class in it */
/* The tokenizer of sources, where they have one of their own: the same two files, as transformers reads them with
 * subfolder="source_tokenizer". */
#define MODEL_FILE_SOURCE_TOKENIZER "source_tokenizer"

/* ---- the model ---- */

/* Token ids as config.json has them; -1: none. */
typedef struct SpecialTokens {
  int start; /* bos: what text without a prompt starts from; above an encoder decoder_start: what every answer does */
  int end;   /* eos: <|endoftext|> */
} SpecialTokens;

/* The class of transformers that a model is written as: LlamaForCausalLM, GPT2LMHeadModel, ... (the table is in
 * formats/classes.c). *own: none of them computes it; then MODEL_FILE_CODE is beside it, and loading needs
 * trust_remote_code=True. */
const char *model_files_class(const ModelConfig *config, bool *own);

/* ---- reading: the directory is opened once, and its files are parsed once ---- */

typedef struct ModelFiles ModelFiles;

/* Reads config.json, ours or that of any model of the classes above: what is absent or null has the value that
 * transformers gives it. Refuses what the model here cannot do (other classes and activations, scaled RoPE, sliding
 * windows, quantization ...) and sizes beyond all reason, then asks model_config_check(). Of several eos ids the first
 * counts. Where a class has the biases of several products all or none, a key of our own, "missing_biases", says which
 * of them the model does not have. What `dir` is instead of a model's directory is said. Weights are opened when they
 * are needed first. */
bool model_files_open(ModelFiles **out, const char *dir, Error *error);
void model_files_close(ModelFiles *files); /* NULL is allowed */
const char *model_files_directory(const ModelFiles *files);
const ModelConfig *model_files_config(const ModelFiles *files);
SpecialTokens model_files_special_tokens(const ModelFiles *files);

/* Reads tokenizer.json. The model must have a row for each of its ids, and may have more. A decoder alone reads no text
 * with the end token behind it. */
bool model_files_read_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error);
/* Reads the tokenizer of sources. *out NULL: there is none, the other one is theirs, too. It must be there where
 * vocabularies differ in size, or where tokenizer_config.json says that they are separate. */
bool model_files_read_source_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error);

/* Whether the weights there can be those of the model: before memory is allocated for it. EXIT_CHECKPOINT for none, or
 * for fewer than it has parameters. */
bool model_files_check_weights_size(ModelFiles *files, Error *error);
/* Fills the tensors of the arena from F32, F16 or BF16, of model.safetensors or of several files with an index; pads
 * are left as they are. `config` is that of config.json, but may have a shorter context: then the first positions of
 * tables are read. The class in config.json says which names and shapes the tensors have; every tensor must be there,
 * all values finite. Biases that the file does not have though others of the same kind are there become zeros, and what
 * the class has and the model has not must be zeros. Marian and its like may leave out the bias of the head and tables
 * of sinusoids: the class makes its own, and so does this. Other tensors are refused, but for an lm_head.weight of the
 * embedding's shape (tied models are sometimes saved with it), masks of GPT-2 and *.rotary_emb.inv_freq (old exports).
 * After a failure the arena may be partly filled. */
bool model_files_read_weights(ModelFiles *files, const ModelConfig *config, const ParameterTable *table, float *arena,
                              Error *error);
/* The model on a device, with its weights. A configuration that asks for more parameters than the weights can hold is
 * refused before memory is allocated for it. */
bool model_files_load(ModelFiles *files, Model **out, const Backend *backend, Context *context, Error *error);

/* ---- writing ---- */

/* config.json and generation_config.json for weights of `type` (F32 or BF16), and MODEL_FILE_CODE for a model of our
 * own class. */
bool model_files_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, TensorType type,
                              Error *error);
/* model.safetensors in fp32. arena: on the host, laid out by `table`; pads are not written. */
bool model_files_write_weights(const char *dir, const ModelConfig *config, const ParameterTable *table,
                               const float *arena, Error *error);
/* The weights of one directory as another's model.safetensors, in F32 or BF16, a tensor at a time. Fails as reading and
 * writing do. */
bool model_files_copy_weights(ModelFiles *from, const char *to, TensorType type, Error *error);
/* The files of both tokenizers; `source` may be NULL. */
bool model_files_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx,
                                  Error *error);
void model_files_remove_source_tokenizer(const char *dir); /* of an older run; fine when there is none */

/* ---- finding models ---- */

/* Whether `dir` holds a model: its configuration and weights. */
bool model_files_exist(const char *dir);
/* The *.run of the current directory whose model was written last; the caller frees it. EXIT_USAGE when there is
 * none. */
bool model_files_newest_run(char **out, Error *error);

#endif
