/* Inside checkpoint/: the weights of a model directory, in model.safetensors or in several files beside an index. */
#ifndef INKLING_CHECKPOINT_WEIGHT_FILES_H
#define INKLING_CHECKPOINT_WEIGHT_FILES_H

#include "checkpoint/directory.h"
#include "checkpoint/safetensors.h"

typedef struct WeightFiles {
  CheckpointPath path; /* for messages: the file, or the index of several */
  SafeTensors *files;
  int count;
  SafeTensors all; /* the tensors of all files, sorted by name, which point into them; nothing else of it is there */
  size_t bytes;    /* of tensors */
} WeightFiles;

/* Where both are there, model.safetensors is read, as transformers does. An index may name files of its own directory
 * alone; every tensor must be in the file that it says, and in no other. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool weight_files_open(WeightFiles *out, const char *dir, Error *error);
void weight_files_close(WeightFiles *files); /* harmless on a zeroed struct */

#endif
