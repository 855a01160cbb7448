/* Internal to files/formats/: the table of transformers classes that models are written as and read from, one row per
 * class. */
#ifndef INKLING_FILES_FORMATS_CLASSES_H
#define INKLING_FILES_FORMATS_CLASSES_H

#include "files/formats/model_files.h"
#include "model/parameters.h"

/* ---- biases ---- */

/* Flags for the products that have biases. For each of these groups, a model has all or none: BIAS_QKV
 * (ModelConfig.qkv_bias), BIAS_OUTPUT and BIAS_MLP (ModelConfig.bias), BIAS_HEAD (ModelConfig.head_bias). A class may
 * group them differently; biases of a file that the model does not have are zeros. */
enum { BIAS_QKV = 1, BIAS_OUTPUT = 2, BIAS_MLP = 4, BIAS_LAYERS = 7, BIAS_HEAD = 8 };
enum { BIAS_KINDS = 4 };
extern const char *const bias_names[BIAS_KINDS]; /* names in the list under KEY_MISSING_BIASES, for bits 1, 2, 4, 8 */

#define KEY_MISSING_BIASES "missing_biases" /* our own key: biases that are zeros in the file and absent in the model */
#define KEY_POSITIONS "positions"           /* our own key: the kind of a table of positions */

/* ---- keys of config.json ---- */

typedef enum KeyKind {
  KEY_SET,         /* `text`, JSON, is written, not read by itself */
  KEY_FIXED,       /* the same, but any other value is refused */
  KEY_INT,         /* int from 1 to `high`; `absent` 0: derived from others (config_json.c) */
  KEY_INT_AGAIN,   /* the int of another key, `text`, repeated; `absent` 0: derived from that key */
  KEY_REAL,        /* float */
  KEY_BOOL,        /* bool */
  KEY_BOOL_AGAIN,  /* the bool of another key, `text`, repeated */
  KEY_CHOICE,      /* an enum by name; written always, or unless it is `text` (`optional`) */
  KEY_BIASES,      /* whether the file has `biases` */
  KEY_THETA,       /* rope_theta next to... */
  KEY_ROPE,        /* ...rope_parameters, read by transformers 5; `absent`: the rotated fraction of a head, which must
                    * be 1 without KEY_ROTARY */
  KEY_ROTARY,      /* the rotated fraction of a head, also read from rope_parameters */
  KEY_SCALING,     /* rope_scaling, the same for transformers 4 */
  KEY_WINDOW,      /* sliding_window; `absent`: its size when the key is absent, 0 and null: no window; `text`: the key
                    * that switches it on; then layer_types lists the layers with it, or else it begins in layer
                    * max_window_layers, by default `high`, or is in the layers without RoPE (KEY_ROPE_LAYERS) */
  KEY_ROPE_LAYERS, /* the kind of positions by a list: 1 for a layer with RoPE, 0 without */
  KEY_MIXERS, /* a list of the layers' mixers by name; absent: read from `text`, a list of the layers with attention */
  KEY_FFN_ADJUSTED /* whether the width of the MLP, already read, is rounded as in LFM2; written as false */
} KeyKind;

/* The name of an enum value in JSON; `true` and `false` are the JSON booleans. For a value with several names the first
 * is written. */
typedef struct Choice {
  const char *text; /* NULL: end */
  int value;
} Choice;

typedef struct ConfigKey {
  const char *name; /* NULL: end */
  const char *also; /* another name in files, which then takes precedence; or NULL */
  KeyKind kind;
  size_t field;          /* in ModelConfig */
  double absent;         /* transformers' default of the class when the key is absent or null */
  int high;              /* KEY_INT, KEY_WINDOW */
  bool null_follows;     /* KEY_INT: null means derived from others, not the default */
  const char *text;      /* KEY_SET, KEY_FIXED: JSON; KEY_CHOICE: the choice if absent or null; others: another key */
  const Choice *choices; /* KEY_CHOICE, KEY_ROPE_LAYERS, KEY_MIXERS... */
  const char *const *names; /* ...or this list of model.h, by value */
  bool optional;            /* KEY_CHOICE, KEY_MIXERS: the default is not written */
  unsigned biases;          /* KEY_BIASES */
} ConfigKey;

/* ---- tensors ---- */

/* A part of a tensor's name, in our names and in the class's: the part before the layer number ("model.layers"), or the
 * part between that (or the beginning) and ".weight" or ".bias". Neighboring tensors that get the same name are
 * concatenated by rows into one tensor. */
typedef struct Rename {
  const char *native, *file;
} Rename;

/* ---- classes ---- */

typedef struct ModelClass {
  const char *class, *model_type;
  bool (*fits)(const ModelConfig *config); /* whether the class computes exactly that model */
  bool own;                                /* our own class: needs MODEL_FILE_CODE in the directory */
  ModelConfig base;                        /* values that no key sets */
  SpecialTokens tokens;                    /* defaults when keys are absent */
  const ConfigKey *keys;
  unsigned biases;            /* biases in every file, regardless of keys */
  const char *mixers;         /* letters of ModelConfig.mixers that it has; NULL: attention everywhere */
  const Rename *names;        /* ends with .native NULL; NULL: names are unchanged */
  const char *prefix;         /* files may omit it: transformers reads both */
  const char *const *ignored; /* suffixes of tensors to ignore, ends with NULL; or NULL */
  const char *head_bias; /* the full name of a tensor [1][vocab], which files may omit; NULL: named like any bias */
  bool transposed;       /* weights of layers are [inputs][outputs] */
  bool position_table;   /* files always have a table of positions; zeros for POSITIONS_NONE */
  int unused_positions;  /* rows before position 0 */
  bool sinusoids;        /* files may omit sinusoid tables: the class computes them */
  bool shared;           /* files of untied models have an additional, unused shared table */
  bool by_head;          /* the joined queries, keys and values are ordered by head: [H][3][D] */
  bool interleaved;      /* RoPE rotates neighboring channels: rows of queries and keys are in another order */
} ModelClass;

/* Returns the key of our own class for a component of the model that a class does not have; NULL: it has all. */
const char *class_lacks(const ModelClass *a, const ModelConfig *config);
/* Returns the class's first key of a kind, or NULL. */
const ConfigKey *class_key(const ModelClass *a, KeyKind kind);
/* Returns the first class that fits; there always is one. */
const ModelClass *class_of(const ModelConfig *config);
/* Returns the class with these names, one of which may be NULL; NULL when there is none. */
const ModelClass *class_named(const char *model_type, const char *class);
/* Writes the list of model types: "llama, arcee, ..." */
void class_types(char *out, size_t size);

/* Return the biases of a model, and of a file that it is written to. */
unsigned class_model_biases(const ModelConfig *config);
unsigned class_file_biases(const ModelClass *a, const ModelConfig *config);

/* ---- configuration of a model directory ---- */

typedef struct ConfigFile {
  const ModelClass *class;
  ModelConfig config;
  SpecialTokens tokens;
  unsigned biases; /* biases in the weight file; `config` has those of the model */
  float rotated;   /* fraction of a head, of KEY_ROTARY; 0: there is no such key */
} ConfigFile;

/* Reads config.json, and the end tokens of generation_config.json if it exists. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool config_file_read(const char *dir, ConfigFile *out, Error *error);
/* Tells the tokenizer the tokens that end a text. */
void config_file_set_ends(const ConfigFile *file, Tokenizer *tokenizer);
/* Parses a JSON file of at most `limit` bytes. NULL with EXIT_CHECKPOINT or EXIT_MEMORY. */
struct json_t *model_files_read_json(const char *path, size_t limit, Error *error);

/* ---- a model's tensors in a file ---- */

typedef struct FileTensor {
  char name[160];
  int first, count;  /* rows of the table, concatenated; count 0: zeros without a tensor of the model */
  const char *zeros; /* the key of config.json that requires the zeros */
  int rank;
  int rows, cols; /* outputs, inputs; rank 1: cols = 1 */
  int unused;     /* additional rows before those */
  int longer;     /* additional rows after those: positions that the model does not use */
  bool transposed;
  bool optional;   /* may be absent: zeros, or sinusoids */
  bool copy;       /* a copy of other tensors: written, never read */
  int by_head;     /* head size if queries, keys and values are joined by head, rows [H][3][D]; 0: [3][H][D] */
  int interleaved; /* head size if RoPE rotates neighboring rows of queries and keys; 0: half a head apart, as here */
} FileTensor;

typedef struct FileLayout {
  FileTensor *tensors;
  int count;
} FileLayout;

/* Makes the list of tensors in file order. `biases`: those of the file. Biases of the model that the file does not have
 * are left out. EXIT_MEMORY. */
bool file_layout_make(FileLayout *out, const ModelClass *a, unsigned biases, const ModelConfig *config,
                      const ParameterTable *table, Error *error);
/* Sets the rows of position tables in the file to `ctx`; the model uses the first of them. */
void file_layout_lengthen(FileLayout *layout, const ParameterTable *table, int ctx);
/* Adds a copy of the first tensor, the embedding, under another name. */
void file_layout_add_copy(FileLayout *layout, const char *name);
void file_layout_free(FileLayout *layout);

/* Returns the number of rows of the file's tensor that a tensor of the model takes: the rows of a vector are its
 * elements. */
static inline int file_tensor_rows(const FileTensor *t, const ParameterTensor *p) {
  return t->rank == 1 ? p->cols : p->rows;
}

/* Returns the index in the file's tensor of an element of a tensor of the model that begins in row `first`. */
static inline size_t file_tensor_index(const FileTensor *t, int first, int row, int col) {
  row = t->rank == 1 ? first + col : first + row;
  col = t->rank == 1 ? 0 : col;
  if (t->interleaved) {
    const int of_head = row % t->interleaved, half = t->interleaved / 2;
    row += (of_head < half ? 2 * of_head : 2 * (of_head - half) + 1) - of_head;
  }
  if (t->by_head) {
    const int third = t->rows / 3, part = row / third, of_part = row % third;
    row = (of_part / t->by_head * 3 + part) * t->by_head + of_part % t->by_head;
  }
  const size_t at = (size_t)t->unused + (size_t)row, rows = (size_t)t->rows + (size_t)t->unused + (size_t)t->longer;
  return t->transposed ? (size_t)col * rows + at : at * (size_t)t->cols + (size_t)col;
}

/* Returns name, type and shape of a tensor. */
SafeTensor file_tensor_shape(const FileTensor *t);

/* ---- code of our own class ---- */

extern const char class_modeling[]; /* files/formats/modeling_inkling.py */

#endif
