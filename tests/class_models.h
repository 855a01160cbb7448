/* Small models of every class, for the tests of files/. */
#ifndef INKLING_TESTS_CLASS_MODELS_H
#define INKLING_TESTS_CLASS_MODELS_H

#include "model.h"

#include <stdio.h>

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

static inline ModelConfig mixed(const char *mixers, bool qk_norm) {
  ModelConfig c = plain;
  c.qk_norm = qk_norm;
  snprintf(c.mixers, sizeof c.mixers, "%s", mixers);
  return c;
}

/* MarianMTModel, PegasusForConditionalGeneration; with learned positions BlenderbotForConditionalGeneration. */
static inline ModelConfig encoder_decoder(NormPlace place, PositionKind positions) {
  ModelConfig c = opt(place, positions);
  c.encoder_layers = 3, c.source_vocab = c.vocab;
  return c;
}

/* What no class of transformers computes. */
static inline ModelConfig own(void) {
  ModelConfig c = plain;
  c.head_bias = true;
  return c;
}

/* Model number `n` of all that differ in the parts. */
static const char *const numbered_mixers[] = {"A", "C", "AC", "NA", "N"};
#define NUMBERED_PARTS(PART)                                                                                           \
  PART(norm, NORM_KINDS)                                                                                               \
  PART(norm_place, NORM_PLACES)                                                                                        \
  PART(gated, 2)                                                                                                       \
  PART(positions, POSITION_KINDS)                                                                                      \
  PART(bias, 2) PART(qkv_bias, 2) PART(head_bias, 2) PART(tie, 2) PART(qk_norm, 2)
#define TIMES_KINDS(field, kinds) *(kinds)
enum { NUMBERED_MODELS = sizeof numbered_mixers / sizeof *numbered_mixers NUMBERED_PARTS(TIMES_KINDS) };
static inline ModelConfig numbered(int n) {
  ModelConfig c = plain;
  c.activation = (Activation)(n / 11 % ACTIVATION_KINDS);
#define TAKE_KIND(field, kinds) c.field = (__typeof__(c.field))(n % (kinds)), n /= (kinds);
  NUMBERED_PARTS(TAKE_KIND)
  snprintf(c.mixers, sizeof c.mixers, "%s", numbered_mixers[n]);
  for (char *letter = c.mixers; *letter; letter++)
    if (*letter == MIXER_NOPE && c.positions != POSITIONS_ROPE) *letter = MIXER_ATTENTION;
  return c;
}

/* `dims` of 48 numbers of a head are rotated. */
static inline ModelConfig partial(NormKind norm, int dims) {
  ModelConfig c = rope(norm, true);
  c.dim = 96, c.head_dim = 48, c.rotary_dims = dims;
  return c;
}

#endif
