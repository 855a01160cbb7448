/* The fields of ModelConfig by name: a new one stops the build of the tests until it is listed here. */
#ifndef INKLING_TESTS_CONFIG_FIELDS_H
#define INKLING_TESTS_CONFIG_FIELDS_H

#include "model.h"

#include <stddef.h>

static const struct {
  const char *name;
  size_t offset;
  char kind; /* int, float, text */
} config_fields[] = {
#define FIELD(member, kind)                                                                                            \
  { #member, offsetof(ModelConfig, member), kind }
    FIELD(vocab, 'i'),        FIELD(ctx, 'i'),        FIELD(layers, 'i'),    FIELD(heads, 'i'),
    FIELD(kv_heads, 'i'),     FIELD(dim, 'i'),        FIELD(head_dim, 'i'),  FIELD(ffn, 'i'),
    FIELD(tie, 'i'),          FIELD(rope_base, 'f'),  FIELD(norm_eps, 'f'),  FIELD(norm, 'i'),
    FIELD(norm_place, 'i'),   FIELD(activation, 'i'), FIELD(gated, 'i'),     FIELD(bias, 'i'),
    FIELD(qkv_bias, 'i'),     FIELD(head_bias, 'i'),  FIELD(positions, 'i'), FIELD(encoder_layers, 'i'),
    FIELD(source_vocab, 'i'), FIELD(qk_norm, 'i'),    FIELD(mixers, 's'),    FIELD(rotary_dims, 'i'),
#undef FIELD
};
enum { CONFIG_FIELDS = sizeof config_fields / sizeof *config_fields };
_Static_assert((sizeof(ModelConfig) - MODEL_MAX_LAYERS - 1) / sizeof(int) == CONFIG_FIELDS - 1,
               "a field is not listed");

#endif
