/* Inside formats/: the weights of a model directory, in model.safetensors or in several files beside an index. */
#ifndef INKLING_FORMATS_WEIGHT_FILES_H
#define INKLING_FORMATS_WEIGHT_FILES_H

#include "util/path.h"
#include "formats/safetensors.h"
#include "formats/model_files.h"

typedef struct WeightFiles {
  PathText path; /* for messages: the file, or the index of several */
  SafeTensors *files;
  int count;
  SafeTensors all; /* the tensors of all files, sorted by name, which point into them; nothing else of it is there */
  size_t bytes;    /* of tensors */
} WeightFiles;

/* Where both are there, model.safetensors is read, as transformers does. An index may name files of its own directory
 * alone; every tensor must be in the file that it says, and in no other. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool weight_files_open(WeightFiles *out, const char *dir, Error *error);
void weight_files_close(WeightFiles *files); /* harmless on a zeroed struct */

/* Whether `path` is a directory that holds a model's configuration; where not, what it is instead (find_model.c).
 * EXIT_CHECKPOINT. */
bool model_files_check(const char *path, Error *error);
/* False, with what is there instead of weights. EXIT_CHECKPOINT. */
bool model_files_fail_without_weights(const char *dir, Error *error);

#endif
