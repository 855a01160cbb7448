/* Inside formats/: one key of config.json, written and read. */
#ifndef INKLING_FORMATS_CONFIG_KEYS_H
#define INKLING_FORMATS_CONFIG_KEYS_H

#include "formats/classes.h"

#include <jansson.h>

/* What is read, from where, and what of it is known already. */
typedef struct ConfigReader {
  const json_t *root;
  const char *path;
  ConfigFile *out;
  Error *error;
} ConfigReader;

/* EXIT_CHECKPOINT with the file's name before the text; false. */
bool config_refuse(const ConfigReader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value of a key; NULL when it is absent or null: transformers treats both alike. */
const json_t *config_lookup(const json_t *object, const char *key);

/* Into r->out: its configuration or its biases. */
bool config_key_read(const ConfigReader *r, const ConfigKey *key);

/* Adds it to `root`; false without memory. */
bool config_key_write(json_t *root, const ConfigKey *key, const ModelClass *a, const ModelConfig *config);

#endif
