/* A small model for the tests of files/, laid out by hand, with pads. */
#ifndef INKLING_TESTS_SMALL_MODEL_H
#define INKLING_TESTS_SMALL_MODEL_H

#include "model.h"
#include "tests/checkpoint_helpers.h"
#include "model/parameters.h"

enum { ARENA = 192 + 64 };
static ParameterTensor small_tensors[] = {
    {.name = "model.embed_tokens.weight",
     .rows = 5,
     .cols = 4,
     .rank = 2,
     .offset = 0,
     .v_offset = 0}, /* three rows of pad follow */
    {.name = "model.layers.0.self_attn.q_proj.weight", .rows = 4, .cols = 4, .rank = 2, .offset = 64, .v_offset = 64},
    {.name = "model.layers.0.self_attn.k_proj.weight", .rows = 2, .cols = 4, .rank = 2, .offset = 80, .v_offset = 80},
    {.name = "model.norm.weight", .rows = 1, .cols = 4, .rank = 1, .offset = 192, .v_offset = 192},
};
static const ParameterTable small_table = {.tensors = small_tensors, .count = 4, .arena = ARENA};
/* What config.json says of it. */
__attribute__((unused)) static const ModelConfig small_config = {.vocab = 5,
                                                                 .ctx = 4,
                                                                 .layers = 1,
                                                                 .heads = 2,
                                                                 .kv_heads = 1,
                                                                 .dim = 4,
                                                                 .head_dim = 2,
                                                                 .ffn = 4,
                                                                 .tie = true,
                                                                 .rope_base = 10000.0f,
                                                                 .norm_eps = 1e-5f,
                                                                 .gated = true};

enum { WEIGHTS = 20 + 16 + 8 + 4 };

static inline void fill(float *arena, float base) {
  for (int i = 0; i < ARENA; i++) arena[i] = base + (float)i;
}

/* Did every tensor arrive, and were pads left alone? */
static inline void expect_arena(const float *arena, float base, float pad) {
  int weights = 0;
  bool is_weight[ARENA] = {false};
  for (int t = 0; t < small_table.count; t++)
    for (size_t i = 0; i < (size_t)(small_tensors[t].rows * small_tensors[t].cols); i++)
      is_weight[small_tensors[t].offset + i] = true;
  for (int i = 0; i < ARENA; i++) {
    float wanted = is_weight[i] ? base + (float)i : pad;
    if (arena[i] != wanted) fail_msg("element %d is %g, should be %g", i, (double)arena[i], (double)wanted);
    weights += is_weight[i];
  }
  assert_int_equal(weights, WEIGHTS);
}

#endif
