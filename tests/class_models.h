/* Small models of every class, for the tests of checkpoint/. */
#ifndef INKLING_TESTS_CLASS_MODELS_H
#define INKLING_TESTS_CLASS_MODELS_H

#include "model.h"

/* A LLaMA. */
static const ModelConfig plain = {.vocab = 5,
                                  .ctx = 3,
                                  .layers = 2,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .dim = 4,
                                  .head_dim = 2,
                                  .ffn = 6,
                                  .rope_base = 10000.0f,
                                  .norm_eps = 1e-5f,
                                  .gated = true};

static inline ModelConfig gpt2(void) {
  ModelConfig c = plain;
  c.norm = NORM_LAYER, c.gated = false, c.positions = POSITIONS_LEARNED, c.activation = ACTIVATION_GELU_TANH;
  c.bias = c.qkv_bias = true;
  return c;
}

static inline ModelConfig opt(NormPlace place, PositionKind positions) {
  ModelConfig c = gpt2();
  c.norm_place = place, c.positions = positions, c.activation = ACTIVATION_RELU;
  return c;
}

static inline ModelConfig rope(NormKind norm, bool gated) {
  ModelConfig c = plain;
  c.norm = norm, c.gated = gated;
  return c;
}

/* What no class of transformers computes. */
static inline ModelConfig own(void) {
  ModelConfig c = plain;
  c.head_bias = true;
  return c;
}

#endif
