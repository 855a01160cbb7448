#include "training/architecture.h"

#include "model/parameters.h"
#include "training/choices.h"

#include <math.h>
#include <stdio.h>

typedef struct Whole {
  NormKind norm;
  NormPlace norm_place;
  Activation activation;
  bool gated;
  PositionKind positions;
  bool bias;
  int tie;
} Whole;

#define WHOLE_NAME(id, name, ...) name,
#define WHOLE_ROW(id, name, norm, place, activation, gated, positions, bias, tie, help)                                \
  {norm, place, activation, gated, positions, bias, tie},
const char *const architecture_names[] = {ARCHITECTURES(WHOLE_NAME) NULL};
static const Whole wholes[] = {ARCHITECTURES(WHOLE_ROW)};

const char *const architecture_norms[] = {[NORM_RMS] = "rms", [NORM_LAYER] = "layer", NULL};
const char *const architecture_norm_places[] = {
    [NORM_BEFORE] = "before", [NORM_AFTER] = "after", [NORM_ON_BRANCH] = "branch", NULL};
const char *const architecture_activations[] = {[ACTIVATION_SILU] = "silu",
                                                [ACTIVATION_GELU] = "gelu",
                                                [ACTIVATION_GELU_TANH] = "gelu-tanh",
                                                [ACTIVATION_RELU] = "relu",
                                                NULL};
const char *const architecture_positions[] = {[POSITIONS_ROPE] = "rope",
                                              [POSITIONS_LEARNED] = "learned",
                                              [POSITIONS_SINUSOIDAL] = "sinusoidal",
                                              [POSITIONS_NONE] = "none",
                                              NULL};
const char *const architecture_inits[] = {[INIT_GPT2] = "gpt2", [INIT_TORCH] = "torch", NULL};

static void fill(int *setting, int value) {
  if (*setting < 0) *setting = value;
}

bool architecture_has_encoder(const TrainSettings *s, bool pairs) {
  return s->encoder_layers < 0 ? s->arch == ARCHITECTURE_ORIGINAL && pairs : s->encoder_layers > 0;
}

void architecture_fill(TrainSettings *s, bool pairs) {
  const Whole *w = &wholes[s->arch];
  fill(&s->encoder_layers, architecture_has_encoder(s, pairs) ? s->layers : 0);
  fill(&s->norm, (int)w->norm);
  fill(&s->norm_place, (int)w->norm_place);
  fill(&s->activation, (int)w->activation);
  fill(&s->gated, w->gated);
  fill(&s->positions, (int)w->positions);
  fill(&s->qkv_bias, s->bias < 0 ? w->bias : s->bias);
  fill(&s->bias, w->bias);
  fill(&s->head_bias, false);
  const bool narrow = s->dim < CHOICES_TIE_DIM && s->positions != POSITIONS_SINUSOIDAL;
  const bool tied = w->tie < 0 ? narrow : w->tie && s->positions != POSITIONS_SINUSOIDAL;
  fill(&s->tie, tied && !settings_separate_vocabs(s));
  if (isnan(s->rope_base) && s->positions == POSITIONS_ROPE) s->rope_base = CHOICES_ROPE_BASE;
  if (isnan(s->init_std) && s->init_like == INIT_GPT2)
    s->init_std = s->arch == ARCHITECTURE_LLAMA ? INIT_DEFAULT_STD : (float)(CHOICES_INIT / sqrt(s->dim));
  if (!s->ffn) s->ffn = s->gated ? model_default_ffn(s->dim) : 4 * s->dim;
}

bool architecture_check_sources(const TrainSettings *s, bool pairs, Error *error) {
  if (!settings_separate_vocabs(s)) return true;
  if (!architecture_has_encoder(s, pairs))
    return fail(error, EXIT_USAGE,
                "--source-%s is for a model with an encoder: --arch original and prompts with responses, or "
                "--encoder-layers N",
                s->source_tokenizer ? "tokenizer" : "vocab-size");
  return s->tie <= 0 || fail(error, EXIT_USAGE,
                             "--tie and --source-%s exclude each other: a tied model has one table of tokens for both",
                             s->source_tokenizer ? "tokenizer" : "vocab-size");
}

bool architecture_check(const TrainSettings *s, bool trained, Error *error) {
  if (!isnan(s->rope_base) && s->positions != POSITIONS_ROPE)
    return fail(error, EXIT_USAGE,
                "--rope-base is for rotary positions, and these are %s; leave it out, or give "
                "--positions rope",
                architecture_positions[s->positions]);
  if (!isnan(s->init_std) && s->init_like != INIT_GPT2)
    return fail(error, EXIT_USAGE, "--init-std is for --init-like gpt2; torch has ranges of its own");
  if (!trained && s->tie && s->positions == POSITIONS_SINUSOIDAL)
    return fail(error, EXIT_USAGE,
                "--tie and --positions sinusoidal exclude each other: beside sinusoids the embedding begins 50 times "
                "larger than a head may; leave out --tie");
  return true;
}

void architecture_apply(const TrainSettings *s, ModelConfig *m) {
  m->encoder_layers = s->encoder_layers;
  if (!s->encoder_layers) m->source_vocab = 0;
  m->tie = s->tie;
  m->norm = (NormKind)s->norm;
  m->norm_place = (NormPlace)s->norm_place;
  m->norm_eps = s->norm_eps;
  m->activation = (Activation)s->activation;
  m->gated = s->gated;
  m->bias = s->bias;
  m->qkv_bias = s->qkv_bias;
  m->head_bias = s->head_bias;
  m->positions = (PositionKind)s->positions;
  m->rope_base = isnan(s->rope_base) ? CHOICES_ROPE_BASE : s->rope_base;
}

static const char *mlp_words(const ModelConfig *m) {
  switch (m->activation) {
  case ACTIVATION_SILU: return m->gated ? "SwiGLU" : "SiLU";
  case ACTIVATION_GELU: return m->gated ? "GEGLU" : "GELU";
  case ACTIVATION_GELU_TANH: return m->gated ? "GEGLU (tanh)" : "GELU (tanh)";
  case ACTIVATION_RELU: return m->gated ? "ReGLU" : "ReLU";
  }
  return "";
}

static const char *bias_words(const ModelConfig *m) {
  if (m->bias && m->qkv_bias) return m->head_bias ? "biases everywhere" : "biases";
  if (m->bias) return m->head_bias ? "biases but of queries, keys and values" : "biases of outputs and MLP";
  if (m->qkv_bias)
    return m->head_bias ? "biases of queries, keys, values and head" : "biases of queries, keys and values";
  return m->head_bias ? "a bias of the head" : "no biases";
}

ArchitectureWords architecture_words(const ModelConfig *m) {
  static const char *const places[] = {
      [NORM_BEFORE] = "before each part", [NORM_AFTER] = "after each part", [NORM_ON_BRANCH] = "on each branch"};
  static const char *const positions[] = {[POSITIONS_ROPE] = "rotary positions",
                                          [POSITIONS_LEARNED] = "learned positions",
                                          [POSITIONS_SINUSOIDAL] = "sinusoidal positions",
                                          [POSITIONS_NONE] = "no positions"};
  ArchitectureWords words;
  snprintf(words.text, sizeof words.text, "%s %s, %s, %s, %s", m->norm == NORM_LAYER ? "LayerNorm" : "RMSNorm",
           places[m->norm_place], mlp_words(m), positions[m->positions], bias_words(m));
  return words;
}
