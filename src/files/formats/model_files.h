/* A model directory in the format of Hugging Face transformers: its file names, reading, writing and finding models.
 *
 * Every file is replaced atomically (base/file.h), so readers and power cuts are safe at any moment. Writers fail with
 * EXIT_OUTPUT, readers with EXIT_CHECKPOINT, both with EXIT_MEMORY. */
#ifndef INKLING_FILES_FORMATS_MODEL_FILES_H
#define INKLING_FILES_FORMATS_MODEL_FILES_H

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"
#include "model.h"
#include "files/formats/safetensors.h"
#include "model/parameters.h"

/* ---- file names; text/tokenizer/tokenizer.h has the names of tokenizer files ---- */

#define MODEL_FILE_CONFIG "config.json"
#define MODEL_FILE_GENERATION_CONFIG "generation_config.json"
#define MODEL_FILE_WEIGHTS "model.safetensors"
#define MODEL_FILE_WEIGHTS_INDEX MODEL_FILE_WEIGHTS ".index.json" /* index of weights in several files; only read */
#define MODEL_FILE_CODE "modeling_inkling.py"                     /* only when config.json names our own class */
#define MODEL_FILE_CARD "README.md"                               /* the model card; not with a run */
/* The directory of a separate tokenizer for sources: the same two files, which transformers reads with
 * subfolder="source_tokenizer". */
#define MODEL_FILE_SOURCE_TOKENIZER "source_tokenizer"

/* ---- the model ---- */

/* Token ids of config.json and generation_config.json; -1: none. */
typedef struct SpecialTokens {
  int start;        /* bos: starts text without a prompt; with an encoder decoder_start: starts every response */
  int end;          /* eos: <|endoftext|> */
  EndTokens others; /* more eos: a text ends at any of them */
} SpecialTokens;

/* Returns the tokens of a model to be written: a document ends with the tokenizer's end token. */
SpecialTokens model_files_tokens(int start, const Tokenizer *tokenizer);

/* Returns the transformers class that a model is written as: LlamaForCausalLM, GPT2LMHeadModel, ... (table:
 * files/formats/classes.c). *own: no class of transformers computes this model; then the directory has MODEL_FILE_CODE,
 * and loading needs trust_remote_code=True. */
const char *model_files_class(const ModelConfig *config, bool *own);

/* ---- reading: the directory is opened once, and its files are parsed once ---- */

typedef struct ModelFiles ModelFiles;

/* Reads config.json of our own or any other model of the classes above; absent and null keys have transformers'
 * defaults. Refuses features that are not supported here (other classes and activations, scaled RoPE, sliding windows,
 * quantization ...) and unreasonable sizes, then calls model_config_check(). Of config.json and generation_config.json,
 * all eos ids are used, except those outside the vocabulary, which no text has. When a class groups the biases of
 * several products, our own key "missing_biases" names those that the model does not have.
 * If `dir` is not a model directory, the error says what it is. Weights are opened at first use. */
bool model_files_open(ModelFiles **out, const char *dir, Error *error);
void model_files_close(ModelFiles *files); /* NULL is allowed */
const ModelConfig *model_files_config(const ModelFiles *files);
SpecialTokens model_files_special_tokens(const ModelFiles *files);
/* Whether the class rotates neighboring numbers of each head of queries and keys. In the Model they are half a head
 * apart: numbers 0, 2, 4, ... of the class come before numbers 1, 3, 5, ... */
bool model_files_interleaved(const ModelFiles *files);

/* Reads tokenizer.json, and the tokens that end a text. The model must have a row for each of its ids, and may have
 * more. A decoder-only model does not read text with the end token appended. */
bool model_files_read_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error);
/* Reads the tokenizer of sources. *out NULL: there is none, and sources use the other tokenizer. It must exist when the
 * vocabularies differ in size, or when `target`, the other tokenizer, has separate vocabularies. */
bool model_files_read_source_tokenizer(const ModelFiles *files, const Tokenizer *target, Tokenizer **out, Error *error);

/* Checks, before memory is allocated, that the weight files are large enough for the model. EXIT_CHECKPOINT when there
 * are none, or fewer weights than parameters. */
bool model_files_check_weights_size(ModelFiles *files, Error *error);
/* Fills the tensors of the arena from F32, F16 or BF16, from model.safetensors or several files with an index; pads are
 * not changed. `config` is that of config.json, but may have a shorter context: then the first positions of tables are
 * read. The class in config.json determines names and shapes of the tensors; every tensor must be present, and all
 * values must be finite. Missing biases become zeros when the file has others of the same kind; biases that the class
 * has but the model does not have must be zeros. Marian and similar classes may omit the bias of the head and the
 * tables of sinusoids, which are then computed. Other tensors are refused, except lm_head.weight with the shape of the
 * embedding (some tied models are saved with it), masks of GPT-2 and *.rotary_emb.inv_freq (old exports). After a
 * failure the arena may be partly filled. Reads with that number of threads. */
bool model_files_read_weights(ModelFiles *files, const ModelConfig *config, const ParameterTable *table, float *arena,
                              int threads, Error *error);
/* Creates the model on a device and loads its weights. A configuration with more parameters than the weight files can
 * hold is refused before memory is allocated. */
bool model_files_load(ModelFiles *files, Model **out, const Backend *backend, Context *context, Error *error);

/* ---- writing ---- */

/* Writes config.json and generation_config.json for weights of `type` (F32 or BF16), and MODEL_FILE_CODE for a model of
 * our own class. */
bool model_files_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, TensorType type,
                              Error *error);
/* Writes model.safetensors in fp32. arena: on the host, laid out by `table`; pads are not written. */
bool model_files_write_weights(const char *dir, const ModelConfig *config, const ParameterTable *table,
                               const float *arena, Error *error);
/* Copies the weights of one directory to another's model.safetensors, in F32 or BF16, tensor by tensor. Fails with the
 * errors of reading and writing. */
bool model_files_copy_weights(ModelFiles *from, const char *to, TensorType type, Error *error);
/* Writes the files of both tokenizers; `source` may be NULL. */
bool model_files_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx,
                                  Error *error);
void model_files_remove_source_tokenizer(const char *dir); /* removes the one of an older run, if any */

/* ---- finding models ---- */

/* Returns whether `dir` contains the configuration and weights of a model. */
bool model_files_exist(const char *dir);
/* Finds the *.run in the current directory whose model was written last; the caller frees *out. EXIT_USAGE when there
 * is none. */
bool model_files_newest_run(char **out, Error *error);

#endif
