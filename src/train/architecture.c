#include "train/architecture.h"

#include "model/parameters.h"
#include "text/tokenizer/word_level.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE_NAME(id, name, ...) name,
#define ARCHITECTURE_PRESET(id, name, help, norm_, place_, mixers_, qk_norm_, activation_, gated_, positions_, bias_,  \
                            tie_)                                                                                      \
  {.norm = norm_,                                                                                                      \
   .norm_place = place_,                                                                                               \
   .mixers = mixers_,                                                                                                  \
   .qk_norm = qk_norm_,                                                                                                \
   .activation = activation_,                                                                                          \
   .gated = gated_,                                                                                                    \
   .positions = positions_,                                                                                            \
   .bias = bias_,                                                                                                      \
   .tie = tie_},
const char *const architecture_names[] = {ARCHITECTURES(ARCHITECTURE_NAME) NULL};
const char *const architecture_inits[] = {[INIT_GPT2] = "gpt2", [INIT_TORCH] = "torch", NULL};
static const ModelConfig presets[] = {ARCHITECTURES(ARCHITECTURE_PRESET)};

bool architecture_has_rms(int arch) { return arch >= 0 && !norm_has_mean(presets[arch].norm); }

static void fill(int *setting, int value) {
  if (*setting < 0) *setting = value;
}

bool architecture_has_encoder(const TrainSettings *s, bool pairs) {
  return s->model.encoder_layers < 0 ? s->arch == ARCHITECTURE_ORIGINAL && pairs : s->model.encoder_layers > 0;
}

/* The best architecture (docs/measurements/experiments.md). Whoever names components expects the others to be those of
 * llama, unless convolutions are among them. */
static int usual_architecture(const ModelConfig *m) {
  const bool plain = m->encoder_layers <= 0 && (int)m->norm < 0 && (int)m->norm_place < 0 && m->qk_norm < 0 &&
                     (int)m->activation < 0 && m->gated < 0 && m->bias < 0 && m->qkv_bias < 0 &&
                     (int)m->positions < 0 && !m->rotary_dims && (!*m->mixers || strchr(m->mixers, MIXER_CONVOLUTION));
  return plain ? ARCHITECTURE_LFM2 : ARCHITECTURE_LLAMA;
}

void architecture_fill(TrainSettings *s, bool pairs) {
  ModelConfig *m = &s->model;
  if (s->arch < 0 && !s->init) s->arch = usual_architecture(m);
  const ModelConfig *preset = &presets[s->arch < 0 ? ARCHITECTURE_LLAMA : s->arch]; /* -1: nothing is unset */
  fill(&m->encoder_layers, architecture_has_encoder(s, pairs) ? m->layers : 0);
  fill((int *)&m->norm, (int)preset->norm);
  fill((int *)&m->norm_place, (int)preset->norm_place);
  fill((int *)&m->activation, (int)preset->activation);
  fill((int *)&m->positions, (int)preset->positions);
  fill(&m->qk_norm, preset->qk_norm);
  const int mixers = (int)strlen(preset->mixers); /* a model of fewer layers has the last ones, which attend */
  if (!*m->mixers)
    snprintf(m->mixers, sizeof m->mixers, "%.*s", MODEL_MAX_LAYERS,
             preset->mixers + (m->layers < mixers ? mixers - m->layers : 0));
  fill(&m->gated, preset->gated);
  fill(&m->qkv_bias, m->bias < 0 ? preset->bias : m->bias);
  fill(&m->bias, preset->bias);
  const char *tokenizer = s->tokenizer ? s->tokenizer : "";
  const bool small = strcmp(tokenizer, "byte") == 0 || word_level_named(tokenizer) == WORD_LEVEL_CHARS; /* a table */
  const bool tied = preset->tie < 0 ? m->dim < ARCHITECTURE_TIE_DIM && !small : preset->tie;
  fill(&m->tie, tied && m->positions != POSITIONS_SINUSOIDAL && !settings_separate_vocabs(s));
#define SWITCH_OFF(member) fill(&m->member, false);
  MODEL_SWITCHES(SWITCH_OFF) /* the others */
  if (isnan(m->rope_base) && m->positions == POSITIONS_ROPE) m->rope_base = ARCHITECTURE_ROPE_BASE;
  if (isnan(s->init_std) && s->init_like == INIT_GPT2 && s->arch >= 0)
    s->init_std = architecture_has_rms(s->arch) ? INIT_DEFAULT_STD : (float)(ARCHITECTURE_INIT / sqrt(m->dim));
  if (!m->ffn) m->ffn = m->gated ? model_default_ffn(m->dim) : 4 * m->dim;
}

bool architecture_check_sources(const TrainSettings *s, bool pairs, Error *error) {
  const char *option = s->source_tokenizer ? "tokenizer" : "vocab-size";
  if (!settings_separate_vocabs(s)) return true;
  if (!architecture_has_encoder(s, pairs))
    return fail(error, EXIT_USAGE,
                "--source-%s is for a model with an encoder: --arch original and prompts with responses, or "
                "--encoder-layers N",
                option);
  return s->model.tie <= 0 ||
         fail(error, EXIT_USAGE,
              "--tie and --source-%s exclude each other: a tied model has one table of tokens for both", option);
}

bool architecture_check(const TrainSettings *s, bool trained, Error *error) {
  if (!isnan(s->model.rope_base) && s->model.positions != POSITIONS_ROPE)
    return fail(error, EXIT_USAGE,
                "--rope-base is for rotary positions, and these are %s; leave it out, or give "
                "--positions rope",
                model_position_names[s->model.positions]);
  if (s->model.rotary_dims && s->model.positions != POSITIONS_ROPE)
    return fail(error, EXIT_USAGE, "--rotary-dims is for rotary positions, and these are %s; leave it out",
                model_position_names[s->model.positions]);
  if (!trained && s->model.rotary_dims && (int64_t)s->model.rotary_dims * s->model.heads == s->model.dim)
    return fail(error, EXIT_USAGE, "--rotary-dims %d is the whole head, as without the option; leave it out",
                s->model.rotary_dims);
  if (!trained && model_count_mixers(&s->model, MIXER_NOPE) == s->model.layers)
    return fail(error, EXIT_USAGE, "--mixer N means no positions in all layers; give --positions none instead");
  if (s->model.rotary_dims && !model_count_mixers(&s->model, MIXER_ATTENTION) && !s->model.encoder_layers)
    return fail(error, EXIT_USAGE,
                "--rotary-dims is for layers with rotary positions, and --mixer %s has none; leave it out",
                s->model.mixers);
  const int mixers = (int)strlen(s->model.mixers);
  if (mixers > s->model.layers)
    return fail(error, EXIT_USAGE, "--mixer has %d letters for %s; give at most one letter per layer", mixers,
                text_plural(s->model.layers, "layer").text);
  if (s->model.norm_place == NORM_PARALLEL && s->model.encoder_layers > 0)
    return fail(error, EXIT_USAGE, "--norm-place parallel is for a model without an encoder; leave it out");
  if (!isnan(s->init_std) && s->init_like != INIT_GPT2)
    return fail(error, EXIT_USAGE, "--init-std is for --init-like gpt2; torch has ranges of its own");
  if (!trained && s->model.tie && s->model.positions == POSITIONS_SINUSOIDAL)
    return fail(error, EXIT_USAGE,
                "--tie and --positions sinusoidal exclude each other: beside sinusoids the embedding begins 50 times "
                "larger than a head may; leave out --tie");
  return true;
}

static const char *bias_words(const ModelConfig *m) {
  if (m->bias && m->qkv_bias) return m->head_bias ? "biases everywhere" : "biases";
  if (m->bias) return m->head_bias ? "biases but of queries, keys and values" : "biases of outputs and MLP";
  if (m->qkv_bias)
    return m->head_bias ? "biases of queries, keys, values and head" : "biases of queries, keys and values";
  return m->head_bias ? "a bias of the head" : "no biases";
}

/* Appends ", WHAT in 3 of 4 layers"; nothing if it is in none. */
static void add_layers(ArchitectureWords *words, const char *what, int count, const ModelConfig *m) {
  const size_t used = strlen(words->text);
  char *end = words->text + used;
  if (count == m->layers) snprintf(end, sizeof words->text - used, ", %s", what);
  else if (count) snprintf(end, sizeof words->text - used, ", %s in %d of %d layers", what, count, m->layers);
}

ArchitectureWords architecture_words(const ModelConfig *m) {
#define NORM_WORDS(id, name, words) [NORM_##id] = words,
  static const char *const norms[] = {NORMS(NORM_WORDS)};
  static const char *const places[] = {[NORM_BEFORE] = "before each sublayer",
                                       [NORM_AFTER] = "after each sublayer",
                                       [NORM_ON_BRANCH] = "on each branch",
                                       [NORM_PARALLEL] = "before each of two parallel sublayers"};
  static const char *const positions[] = {[POSITIONS_ROPE] = "rotary positions",
                                          [POSITIONS_LEARNED] = "learned positions",
                                          [POSITIONS_SINUSOIDAL] = "sinusoidal positions",
                                          [POSITIONS_NONE] = "no positions"};
#define MLP_WORDS(id, name, plain, gated) [ACTIVATION_##id] = {plain, gated},
  static const char *const mlps[][2] = {ACTIVATIONS(MLP_WORDS)};
  ArchitectureWords words;
  char rope[80];
  snprintf(rope, sizeof rope, "%s of %d of %d numbers of a head", positions[m->positions], m->rotary_dims, m->head_dim);
  const bool partial = m->positions == POSITIONS_ROPE && m->rotary_dims;
  const int attention = model_count_mixers(m, MIXER_ATTENTION), nope = model_count_mixers(m, MIXER_NOPE);
  const bool attends = m->encoder_layers || attention || nope;
  const int rotary = nope ? attention : attends ? m->layers : 0;
  snprintf(words.text, sizeof words.text, "%s %s", norms[m->norm], places[m->norm_place]);
  add_layers(&words, "convolutions", model_count_mixers(m, MIXER_CONVOLUTION), m);
  add_layers(&words, "norms of queries and keys", m->qk_norm && attends ? m->layers : 0, m);
  add_layers(&words, mlps[m->activation][m->gated], m->layers, m);
  add_layers(&words, partial ? rope : positions[m->positions], m->positions == POSITIONS_ROPE ? rotary : m->layers, m);
  add_layers(&words, bias_words(m), m->layers, m);
  return words;
}
