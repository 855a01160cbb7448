/* Internal to files/formats/: opens a model directory and reads its weights, tensor by tensor in the layout of the
 * model, independently of class, files and number format. */
#ifndef INKLING_FILES_FORMATS_WEIGHT_READER_H
#define INKLING_FILES_FORMATS_WEIGHT_READER_H

#include "files/formats/classes.h"
#include "base/path.h"

/* The weight files: model.safetensors, or several files with an index. */
typedef struct WeightFiles {
  PathText path; /* for messages: the file, or the index of several */
  SafeTensors *files;
  int count;
  SafeTensors all; /* the tensors of all files, sorted by name, pointing into them; its other members are unused */
  size_t bytes;    /* total size of the tensors */
} WeightFiles;

/* Opens the weight files. If both forms exist, model.safetensors is read, as in transformers. An index may only name
 * files in its own directory; every tensor must be in the file that the index names, and in no other. EXIT_CHECKPOINT,
 * EXIT_MEMORY. */
bool weight_files_open(WeightFiles *out, const char *dir, Error *error);
void weight_files_close(WeightFiles *files); /* harmless on a zeroed struct */

/* The location of a tensor of the model. */
typedef struct TensorLocation {
  const FileTensor *tensor; /* NULL: not in the files; it is zeros */
  const SafeTensor *data;   /* NULL: zeros or sinusoids */
  int row;                  /* its first row */
} TensorLocation;

/* The definition of ModelFiles. */
struct ModelFiles {
  char *dir;
  ConfigFile saved;
  WeightFiles weights; /* .files NULL: not opened yet */
};
bool model_files_need_weights(ModelFiles *files, Error *error); /* opens the weight files */

typedef struct WeightReader {
  const WeightFiles *files;
  const ConfigFile *saved;
  FileLayout layout;
  const ParameterTable *table;
  TensorLocation *locations; /* [table->count] */
  float *sinusoids;          /* computed sinusoids when the files have none; NULL: not needed */
} WeightReader;

/* Opens a reader and checks everything except numbers: every tensor is present, with its shape and in F32, F16 or BF16,
 * and there are no others. Also checks that tensors that the model does not have are zeros. `config` and exceptions as
 * in model_files_read_weights(). `files` and `table` must outlive the reader. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool weight_reader_open(WeightReader *out, ModelFiles *files, const ModelConfig *config, const ParameterTable *table,
                        Error *error);
void weight_reader_close(WeightReader *reader); /* harmless on a zeroed struct */

/* Reads rows [first, first + count) of tensor `index` of the table as contiguous fp32; a vector is one row.
 * EXIT_CHECKPOINT when a value is not finite. */
bool weight_reader_rows(const WeightReader *reader, int index, int first, int count, float *out, Error *error);
/* Releases the memory of a tensor that will not be read again soon. */
void weight_reader_forget(const WeightReader *reader, int index);

#endif
