/* Inside formats/: the classes of transformers that models are written as and read from, one row a class. */
#ifndef INKLING_FORMATS_CLASSES_H
#define INKLING_FORMATS_CLASSES_H

#include "formats/model_files.h"
#include "model/parameters.h"

/* ---- biases ---- */

/* Which products have biases. A class has some of them all or none, a model has BIAS_QKV (ModelConfig.qkv_bias) or not,
 * BIAS_OUTPUT and BIAS_MLP (ModelConfig.bias) or not, and BIAS_HEAD (ModelConfig.head_bias) or not. What a file has and
 * the model has not is zeros. */
enum { BIAS_QKV = 1, BIAS_OUTPUT = 2, BIAS_MLP = 4, BIAS_LAYERS = 7, BIAS_HEAD = 8 };
enum { BIAS_KINDS = 4 };
extern const char *const bias_names[BIAS_KINDS]; /* in a list under KEY_MISSING_BIASES: of bits 1, 2, 4, 8 */

#define KEY_MISSING_BIASES "missing_biases" /* our own key: what the file has as zeros and the model has not */
#define KEY_POSITIONS "positions"           /* our own, too: what a table of positions is */

/* ---- keys of config.json ---- */

typedef enum KeyKind {
  KEY_SET,        /* `text`, JSON, is written and never read */
  KEY_FIXED,      /* the same, and refused when it is anything else */
  KEY_INT,        /* int from 1 to `high`; `absent` 0: follows from others (config_json.c) */
  KEY_INT_AGAIN,  /* the int of another key, `text`, once more; `absent` 0: follows from that */
  KEY_REAL,       /* float */
  KEY_BOOL,       /* bool */
  KEY_BOOL_AGAIN, /* the bool of another key, `text`, once more */
  KEY_CHOICE,     /* an enum by name; written always, or unless it is `text` (`optional`) */
  KEY_BIASES,     /* whether the file has `biases` */
  KEY_THETA,      /* rope_theta beside... */
  KEY_ROPE,       /* ...rope_parameters, where transformers 5 looks for it; `absent`: the part of a head that turns */
  KEY_SCALING,    /* rope_scaling, the same of transformers 4 */
  KEY_WINDOW,     /* sliding_window; absent: its size where the key is absent, and null is none */
  KEY_ROPE_LAYERS /* a list: 1 for a layer with RoPE, 0 for one without; all have to be alike */
} KeyKind;

/* What an enum's value is called; `true` and `false` stand for themselves. The first of a value is written. */
typedef struct Choice {
  const char *text; /* NULL: end */
  int value;
} Choice;

typedef struct ConfigKey {
  const char *name; /* NULL: end */
  KeyKind kind;
  size_t field;      /* in ModelConfig */
  double absent;     /* transformers' value of the class where the key is absent or null */
  int high;          /* KEY_INT */
  bool null_follows; /* KEY_INT: null is no such value, but follows from others */
  const char *text;  /* KEY_SET, KEY_FIXED: JSON; KEY_CHOICE: the choice where the key is absent or null; ..._AGAIN */
  const Choice *choices; /* KEY_CHOICE */
  bool optional;
  unsigned biases; /* KEY_BIASES */
} ConfigKey;

/* ---- tensors ---- */

/* Part of a tensor's name, ours and the class's: what stands before the number of a layer ("model.layers"), or what
 * stands between that (or the beginning) and ".weight" or ".bias". Neighbors that get the same name are one tensor, one
 * below the other. */
typedef struct Rename {
  const char *native, *file;
} Rename;

/* ---- classes ---- */

typedef struct ModelClass {
  const char *class, *model_type;
  bool (*fits)(const ModelConfig *config); /* the class computes exactly that model */
  bool own;                                /* ours: MODEL_FILE_CODE has to lie beside it */
  ModelConfig base;                        /* what no key says */
  SpecialTokens tokens;                    /* where keys are absent */
  const ConfigKey *keys;
  unsigned biases;            /* of every file, whatever keys say */
  const Rename *names;        /* to .native NULL; NULL: all as they are */
  const char *prefix;         /* files may leave it out: transformers reads both */
  const char *const *ignored; /* endings of tensors that may be there and say nothing, to NULL; or NULL */
  const char *head_bias;      /* the whole name of a tensor [1][vocab], which files may leave out; NULL: as any bias */
  bool transposed;            /* weights of layers are [inputs][outputs] */
  bool places;                /* there always is a table of positions: POSITIONS_NONE is zeros */
  int unused_places;          /* rows before position 0 */
  bool sinusoids;             /* files may leave tables of them out: the class makes its own */
  bool shared;                /* beside the tables of an untied model it has one that nothing reads */
  bool interleaved;           /* RoPE turns neighboring channels: the rows of queries and keys stand in another order */
} ModelClass;

/* The first class that fits; there always is one. */
const ModelClass *class_of(const ModelConfig *config);
/* By its names, of which one may be NULL; NULL where there is none. */
const ModelClass *class_named(const char *model_type, const char *class);
/* "llama, arcee, ..." */
void class_types(char *out, size_t size);

/* The biases of a model, and of a file that it is written to. */
unsigned class_model_biases(const ModelConfig *config);
unsigned class_file_biases(const ModelClass *a, const ModelConfig *config);

/* ---- a configuration that was read ---- */

typedef struct ConfigFile {
  const ModelClass *class;
  ModelConfig config;
  SpecialTokens tokens;
  unsigned biases; /* in the file of weights; what of them is in the model: `config` */
} ConfigFile;

bool config_file_read(const char *dir, ConfigFile *out, Error *error);

/* ---- a model's tensors in a file ---- */

typedef struct FileTensor {
  char name[160];
  int first, count;  /* rows of the table, one below the other; count 0: zeros that stand for no tensor of the model */
  const char *zeros; /* the key of config.json that says so */
  int rank;
  int rows, cols; /* outputs, inputs; rank 1: cols = 1 */
  int unused;     /* more rows, before those */
  int longer;     /* more rows, behind those: positions that the model does not use */
  bool transposed;
  bool optional;   /* may be absent: zeros, or sinusoids */
  bool copy;       /* of what other tensors say: written, never read */
  int interleaved; /* of queries and keys: the size of a head whose rows are pairs of neighbors, which RoPE turns; 0: as
                      ours, half a head apart */
} FileTensor;

typedef struct FileLayout {
  FileTensor *tensors;
  int count;
} FileLayout;

/* In the order of the file. `biases`: of the file. Biases of the model that the file does not have are not in it.
 * EXIT_MEMORY. */
bool file_layout_make(FileLayout *out, const ModelClass *a, unsigned biases, const ModelConfig *config,
                      const ParameterTable *table, Error *error);
/* Where tables of positions have `ctx` rows in the file, of which the model has the first. */
void file_layout_lengthen(FileLayout *layout, const ParameterTable *table, int ctx);
/* The first tensor, the embedding, once more under another name. */
void file_layout_add_copy(FileLayout *layout, const char *name);
void file_layout_free(FileLayout *layout);

/* Which product's bias it is; 0: it is none. */
unsigned file_layout_bias_kind(const ParameterTensor *tensor);

/* Where an element is in the file's tensor. */
static inline size_t file_tensor_index(const FileTensor *t, int row, int col) {
  if (t->interleaved) {
    const int of_head = row % t->interleaved, half = t->interleaved / 2;
    row += (of_head < half ? 2 * of_head : 2 * (of_head - half) + 1) - of_head;
  }
  const size_t at = (size_t)t->unused + (size_t)row, rows = (size_t)t->rows + (size_t)t->unused + (size_t)t->longer;
  return t->transposed ? (size_t)col * rows + at : at * (size_t)t->cols + (size_t)col;
}

/* Name, type and shape. */
SafeTensor file_tensor_shape(const FileTensor *t);

/* ---- what the class of our own is computed by ---- */

extern const char class_modeling[]; /* scripts/modeling_inkling.py */

#endif
