/* Internal to formats/: reading and writing one key of config.json. */
#ifndef INKLING_FORMATS_CONFIG_KEYS_H
#define INKLING_FORMATS_CONFIG_KEYS_H

#include "formats/classes.h"

#include <jansson.h>

/* The state of reading a config.json. */
typedef struct ConfigReader {
  const json_t *root;
  const char *path;
  ConfigFile *out;
  Error *error;
} ConfigReader;

/* Fills EXIT_CHECKPOINT with the file's name and the text; returns false. */
bool config_refuse(const ConfigReader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the value of a key; NULL when it is absent or null: transformers treats both alike. */
const json_t *config_lookup(const json_t *object, const char *key);

/* Reads a key into the configuration or the biases of r->out. */
bool config_key_read(const ConfigReader *r, const ConfigKey *key);

/* Adds a key to `root`; returns false when memory is out. */
bool config_key_write(json_t *root, const ConfigKey *key, const ModelClass *a, const ModelConfig *config);

#endif
