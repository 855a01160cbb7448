/* Configurations: sizes, ranges, what a device can compute. */
#include "model/internal.h"

#include <math.h>
#include <string.h>

#define ACTIVATION_NAME(id, name, ...) [ACTIVATION_##id] = name,
#define NORM_NAME(id, name, ...) [NORM_##id] = name,
const char *const model_norm_names[] = {NORMS(NORM_NAME) NULL};
const char *const model_norm_place_names[] = {
    [NORM_BEFORE] = "before", [NORM_AFTER] = "after", [NORM_ON_BRANCH] = "branch", [NORM_PARALLEL] = "parallel", NULL};
const char *const model_activation_names[] = {ACTIVATIONS(ACTIVATION_NAME) NULL};
const char *const model_position_names[] = {[POSITIONS_ROPE] = "rope",
                                            [POSITIONS_LEARNED] = "learned",
                                            [POSITIONS_SINUSOIDAL] = "sinusoidal",
                                            [POSITIONS_NONE] = "none",
                                            NULL};

/* Of the tensors whose role is not among `excluded`, bits 1 << ParameterRole. */
static int64_t count_parameters(const ModelConfig *c, unsigned excluded) {
  ParameterTable table;
  int64_t count = 0;
  if (!parameter_table_count(&table, c)) return 0;
  for (int i = 0; i < table.count; i++)
    if (!(excluded >> table.tensors[i].role & 1)) count += (int64_t)table.tensors[i].rows * table.tensors[i].cols;
  parameter_table_free(&table);
  return count;
}

int64_t model_parameters(const ModelConfig *c) { return count_parameters(c, 1u << ROLE_SINUSOIDS); }

int64_t model_parameters_without_embeddings(const ModelConfig *c) {
  return count_parameters(c, 1u << ROLE_SINUSOIDS | 1u << ROLE_EMBEDDING | 1u << ROLE_POSITIONS);
}

/* ---- mixers ---- */

static char letter_of(const char *mixers, int layer) {
  const size_t count = strlen(mixers);
  return count ? mixers[(size_t)layer % count] : MIXER_ATTENTION;
}

Mixer model_mixer(const ModelConfig *c, int layer) { return (Mixer)letter_of(c->mixers, layer); }

int model_count_mixers(const ModelConfig *c, Mixer mixer) {
  int count = 0;
  for (int layer = 0; layer < c->layers; layer++) count += model_mixer(c, layer) == mixer;
  return count;
}

bool model_same_mixers(const char *a, const char *b, int layers) {
  for (int layer = 0; layer < layers; layer++)
    if (letter_of(a, layer) != letter_of(b, layer)) return false;
  return true;
}

void model_shorten_mixers(char *mixers) {
  const int count = (int)strlen(mixers);
  int period = 1;
  if (!count) strcpy(mixers, "A");
  for (; period < count; period++) {
    int same = period;
    while (same < count && mixers[same] == mixers[same - period]) same++;
    if (same == count) break;
  }
  mixers[period] = '\0';
}

/* ---- sizes and ranges ---- */

int model_default_ffn(int dim) { return (int)round_up64(((int64_t)dim * 8 + 2) / 3, 32); }

static bool in_range(const char *name, int value, int low, int high, ExitCode code, Error *error) {
  return (value >= low && value <= high) ||
         fail(error, code, "%s is %d; it must be from %d to %d", name, value, low, high);
}

/* Checks that nothing is left open. */
static bool is_decided(const ModelConfig *c, Error *error) {
  const struct {
    const char *name;
    int value, last;
  } choices[] = {{"norm", (int)c->norm, NORM_KINDS - 1},
                 {"norm-place", (int)c->norm_place, NORM_PLACES - 1},
                 {"act", (int)c->activation, ACTIVATION_KINDS - 1},
                 {"positions", (int)c->positions, POSITION_KINDS - 1}};
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    if (!in_range(choices[i].name, choices[i].value, 0, choices[i].last, EXIT_INTERNAL, error)) return false;
#define CHECK_SWITCH(member)                                                                                           \
  if (!in_range(#member, c->member, 0, 1, EXIT_INTERNAL, error)) return false;
  MODEL_SWITCHES(CHECK_SWITCH)
  return true;
}

bool model_config_check(const ModelConfig *c, ExitCode code, Error *error) {
  if (!is_decided(c, error) || !in_range("vocabulary size", c->vocab, 1, MODEL_MAX_VOCAB, code, error) ||
      !in_range("layers", c->layers, 1, MODEL_MAX_LAYERS, code, error) ||
      !in_range("heads", c->heads, 1, MODEL_MAX_HEADS, code, error) ||
      !in_range("kv-heads", c->kv_heads, 1, c->heads, code, error) ||
      !in_range("dim", c->dim, MODEL_MIN_DIM, MODEL_MAX_DIM, code, error) ||
      !in_range("ffn", c->ffn, 1, MODEL_MAX_FFN, code, error) ||
      !in_range("ctx", c->ctx, 1, MODEL_MAX_CTX, code, error) ||
      !in_range("head size", c->head_dim, 2, HEAD_DIM_LIMIT, code, error))
    return false;
  const size_t mixers = strlen(c->mixers), known = strspn(c->mixers, MODEL_MIXERS);
  if (known < mixers) return fail(error, code, "unknown mixer \"%c\"; the mixers are " MODEL_MIXERS, c->mixers[known]);
  if (strchr(c->mixers, MIXER_NOPE) && c->positions != POSITIONS_ROPE)
    return fail(error, code, "mixer %c needs rotary positions, but the positions are %s", MIXER_NOPE,
                model_position_names[c->positions]);
  if (c->head_dim % 2) return fail(error, code, "head size %d is odd; it must be even", c->head_dim);
  if (c->heads % c->kv_heads)
    return fail(error, code, "%d heads cannot share %d kv-heads evenly; heads must be a multiple of kv-heads", c->heads,
                c->kv_heads);
  if (!in_range("encoder layers", c->encoder_layers, 0, MODEL_MAX_LAYERS, code, error)) return false;
  if (has_encoder(c)) {
    if (c->norm_place == NORM_PARALLEL)
      return fail(error, code, "parallel sublayers and an encoder exclude each other");
    if (!in_range("source vocabulary size", c->source_vocab, 1, MODEL_MAX_VOCAB, code, error)) return false;
    if (c->tie && c->source_vocab != c->vocab)
      return fail(error, code, "a tied model has one table for sources of %d tokens and targets of %d; untie it",
                  c->source_vocab, c->vocab);
  }
  if (c->positions == POSITIONS_ROPE && (!(c->rope_base > 0) || !isfinite(c->rope_base)))
    return fail(error, code, "rope base %g must be positive", (double)c->rope_base);
  if (c->rotary_dims && (c->rotary_dims < 2 || c->rotary_dims > c->head_dim || c->rotary_dims % 2))
    return fail(error, code, "%d rotary dims; the number must be even, from 2 to the head size %d", c->rotary_dims,
                c->head_dim);
  if (!(c->norm_eps > 0) || !isfinite(c->norm_eps))
    return fail(error, code, "norm eps %g must be positive", (double)c->norm_eps);
  return true;
}

bool model_check_device(const ModelConfig *config, const ContextInfo *device, Error *error) {
  const struct {
    const char *name;
    int size;
  } widths[] = {{"dim", config->dim}, {"ffn", config->ffn}};
  for (int i = 0; i < 2; i++)
    if (widths[i].size % device->width_multiple)
      return fail(error, EXIT_USAGE, "%s %d is not supported on %s: use a multiple of %d", widths[i].name,
                  widths[i].size, device->device, device->width_multiple);
  if (config->dim > device->dim_max)
    return fail(error, EXIT_USAGE, "dim %d is not supported on %s: use at most %d", config->dim, device->device,
                device->dim_max);
  if (config->rotary_dims % (device->head_dim_multiple / 2))
    return fail(error, EXIT_USAGE, "%d rotated numbers of a head are not supported on %s: use a multiple of %d",
                config->rotary_dims, device->device, device->head_dim_multiple / 2);
  if (config->head_dim % device->head_dim_multiple == 0 && config->head_dim <= device->head_dim_max) return true;
  return fail(error, EXIT_USAGE,
              "head size %d (dim %d, %d heads) is not supported on %s: use a multiple of %d up to %d", config->head_dim,
              config->dim, config->heads, device->device, device->head_dim_multiple, device->head_dim_max);
}
