/* Internal to formats/: the weight files of a model directory: model.safetensors, or several files with an index. */
#ifndef INKLING_FORMATS_WEIGHT_FILES_H
#define INKLING_FORMATS_WEIGHT_FILES_H

#include "util/path.h"
#include "formats/safetensors.h"
#include "formats/model_files.h"

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

/* Checks that `path` is a directory with a model's configuration; otherwise the error says what it is (find_model.c).
 * EXIT_CHECKPOINT. */
bool model_files_check(const char *path, Error *error);

/* Parses a JSON file of at most `limit` bytes. NULL with EXIT_CHECKPOINT or EXIT_MEMORY. */
struct json_t *model_files_read_json(const char *path, size_t limit, Error *error);

#endif
