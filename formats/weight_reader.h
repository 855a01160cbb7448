/* Inside formats/: the weights of a model directory, tensor by tensor as the model has them, whatever its class, its
 * files and its number format are. */
#ifndef INKLING_FORMATS_WEIGHT_READER_H
#define INKLING_FORMATS_WEIGHT_READER_H

#include "formats/classes.h"
#include "formats/weight_files.h"
#include "model/parameters.h"

/* Where a tensor of the model stands. */
typedef struct TensorPlace {
  const FileTensor *tensor; /* NULL: nowhere, and it is zeros */
  const SafeTensor *data;   /* NULL: likewise, or sinusoids */
  int row;                  /* its first one */
} TensorPlace;

/* What is behind a ModelFiles. */
struct ModelFiles {
  char *dir;
  ConfigFile saved;
  WeightFiles weights; /* .files NULL: not opened yet */
};
bool model_files_need_weights(ModelFiles *files, Error *error); /* opens them */

typedef struct WeightReader {
  const WeightFiles *files;
  const ConfigFile *saved;
  FileLayout layout;
  const ParameterTable *table;
  TensorPlace *places; /* [table->count] */
  float *sinusoids;    /* a table of them, where the files have none; NULL: they have, or the model has not */
} WeightReader;

/* Checks all that can be said without looking at numbers: that every tensor is there, of its shape and in F32, F16 or
 * BF16, and no other; and that those are zeros that the model does not have. `config` and exceptions as in
 * model_files_read_weights(). `files` and `table` have to outlive it. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool weight_reader_open(WeightReader *out, ModelFiles *files, const ModelConfig *config, const ParameterTable *table,
                        Error *error);
void weight_reader_close(WeightReader *reader); /* harmless on a zeroed struct */

/* Rows [first, first + count) of tensor `index` of the table in fp32, one behind the other; a vector is one row. All
 * are finite: else EXIT_CHECKPOINT. */
bool weight_reader_rows(const WeightReader *reader, int index, int first, int count, float *out, Error *error);
/* It will not be read again soon: the memory that it took can be used otherwise. */
void weight_reader_forget(const WeightReader *reader, int index);

#endif
