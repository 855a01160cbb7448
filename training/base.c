/* The initial model of a run, from --init or from the run that is resumed. Its shape is kept. */
#include "cli/vocabulary.h"
#include "formats/model_files.h"
#include "training/architecture.h"
#include "training/run.h"
#include "util/path.h"

#include <math.h>
#include <string.h>

/* ---- what may not be another ---- */

static const char *const no_yes[] = {"no", "yes", NULL};

typedef struct FieldText {
  char text[32];
} FieldText;
static FieldText field_text(double value, const char *const *names) {
  FieldText out;
  if (names) snprintf(out.text, sizeof out.text, "%s", names[(int)value]);
  else snprintf(out.text, sizeof out.text, "%g", value);
  return out;
}

/* 0 where there is none. */
static double rope_base(const ModelConfig *c) { return c->positions == POSITIONS_ROPE ? (double)c->rope_base : 0; }

static bool check_same(const Run *r, const ModelConfig *asked, Error *error) {
  const ModelConfig *saved = &r->base;
  const bool resumes = r->settings.resume;
  const struct {
    const char *flag;
    double asked, saved;
    const char *const *names; /* of what the numbers stand for */
  } fields[] = {{"norm", asked->norm, saved->norm, architecture_norms},
                {"norm-place", asked->norm_place, saved->norm_place, architecture_norm_places},
                {"norm-eps", (double)asked->norm_eps, (double)saved->norm_eps, NULL},
                {"act", asked->activation, saved->activation, architecture_activations},
                {"gated", asked->gated, saved->gated, no_yes},
                {"bias", asked->bias, saved->bias, no_yes},
                {"qkv-bias", asked->qkv_bias, saved->qkv_bias, no_yes},
                {"head-bias", asked->head_bias, saved->head_bias, no_yes},
                {"positions", asked->positions, saved->positions, architecture_positions},
                {"rope-base", rope_base(asked), rope_base(saved), NULL},
                {"layers", asked->layers, saved->layers, NULL},
                {"encoder-layers", asked->encoder_layers, saved->encoder_layers, NULL},
                {"heads", asked->heads, saved->heads, NULL},
                {"kv-heads", asked->kv_heads, saved->kv_heads, NULL},
                {"dim", asked->dim, saved->dim, NULL},
                {"ffn", asked->ffn, saved->ffn, NULL},
                {"ctx", asked->ctx, !resumes && asked->ctx < saved->ctx ? asked->ctx : saved->ctx, NULL},
                {"tie", asked->tie, saved->tie, no_yes}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    if (fields[i].asked == fields[i].saved) continue;
    const FieldText given = field_text(fields[i].asked, fields[i].names);
    const FieldText kept = field_text(fields[i].saved, fields[i].names);
    if (resumes)
      return fail(error, EXIT_USAGE,
                  "--%s is %s, but %s was trained with %s; the model cannot change when a run is resumed",
                  fields[i].flag, given.text, run_base_dir(r), kept.text);
    return fail(error, EXIT_USAGE, "--%s is %s, but the model in %s has %s%s; leave it out", fields[i].flag, given.text,
                run_base_dir(r), kept.text,
                fields[i].asked > fields[i].saved && !strcmp(fields[i].flag, "ctx")
                    ? ", and its context can only become smaller"
                    : "");
  }
  return true;
}

bool run_check_same_model(const Run *r, Error *error) { return check_same(r, &r->config, error); }

/* ---- its shape as settings ---- */

static void take(Run *r, int *setting, int value) {
  if (options_origin(&r->options, setting) != ORIGIN_COMMAND_LINE) *setting = value;
}

static void take_real(Run *r, float *setting, float value) {
  if (options_origin(&r->options, setting) != ORIGIN_COMMAND_LINE) *setting = value;
}

/* Where the command line says nothing: a file of settings may be that of another run. */
static void take_shape(Run *r) {
  TrainSettings *s = &r->settings;
  const ModelConfig *m = &r->base;
  take(r, &s->layers, m->layers);
  take(r, &s->encoder_layers, m->encoder_layers);
  take(r, &s->heads, m->heads);
  take(r, &s->kv_heads, m->kv_heads);
  take(r, &s->dim, m->dim);
  take(r, &s->ffn, m->ffn);
  take(r, &s->tie, m->tie);
  take(r, &s->norm, (int)m->norm);
  take(r, &s->norm_place, (int)m->norm_place);
  take(r, &s->activation, (int)m->activation);
  take(r, &s->gated, m->gated);
  take(r, &s->bias, m->bias);
  take(r, &s->qkv_bias, m->qkv_bias);
  take(r, &s->head_bias, m->head_bias);
  take(r, &s->positions, (int)m->positions);
  take_real(r, &s->norm_eps, m->norm_eps);
  take_real(r, &s->rope_base, m->positions == POSITIONS_ROPE ? m->rope_base : NAN);
}

static ModelConfig asked_model(const Run *r) {
  const TrainSettings *s = &r->settings;
  ModelConfig m = r->base;
  m.layers = s->layers, m.heads = s->heads, m.kv_heads = s->kv_heads;
  m.dim = s->dim, m.ffn = s->ffn, m.ctx = s->ctx ? s->ctx : m.ctx;
  architecture_apply(s, &m);
  return m;
}

/* ---- --init ---- */

static bool check_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  const struct {
    const char *flag;
    const void *setting;
  } kept[] = {{"preset", &s->preset},
              {"arch", &s->arch},
              {"tokenizer", &s->tokenizer},
              {"vocab-size", &s->vocab_size},
              {"source-tokenizer", &s->source_tokenizer},
              {"source-vocab-size", &s->source_vocab_size},
              {"init-like", &s->init_like},
              {"init-std", &s->init_std}};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (options_origin(&r->options, kept[i].setting) == ORIGIN_COMMAND_LINE)
      return fail(error, EXIT_USAGE, "--init takes model, weights and tokenizer from %s; leave out --%s", s->init,
                  kept[i].flag);
  return true;
}

/* What a file of settings says of these is of another model. */
static void forget_others(TrainSettings *s) {
  s->preset = -1;
  s->tokenizer = s->source_tokenizer = NULL;
  s->vocab_size = s->source_vocab_size = 0;
}

static bool open_base(Run *r, Error *error) {
  if (!model_files_open(&r->base_files, run_base_dir(r), error)) return false;
  r->base = *model_files_config(r->base_files);
  r->base_special = model_files_special_tokens(r->base_files);
  return true;
}

static bool read_init(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (!check_flags(r, error) || !open_base(r, error) || !model_files_check_weights_size(r->base_files, error))
    return false;
  forget_others(s);
  take_shape(r);
  const ModelConfig asked = asked_model(r);
  return check_same(r, &asked, error);
}

bool run_read_base(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->resume) return open_base(r, error);
  return !s->init || read_init(r, error);
}

bool run_share_base(Run *r, Error *error) {
  struct {
    ModelConfig model;
    SpecialTokens special;
  } base = {r->base, r->base_special};
  if (!run_share_settings(r, error)) return false;
  collective_broadcast(r->peers, &base, sizeof base);
  r->base = base.model;
  r->base_special = base.special;
  return true;
}

bool run_open_base_tokenizers(Run *r, Error *error) {
  const char *dir = run_base_dir(r);
  if (!model_files_read_tokenizer(r->base_files, &r->tokenizer, error) ||
      !model_files_read_source_tokenizer(r->base_files, r->tokenizer, &r->source_tokenizer, error))
    return false;
  if (!r->settings.resume && tokenizer_has_chat_template(r->tokenizer))
    console_note(&r->console, "%s has a chat template, which the run will not have: texts are learned as they are",
                 dir);
  if (!r->settings.resume) vocabulary_note_unused(&r->console, dir, r->tokenizer, r->source_tokenizer);
  return true;
}

bool run_read_base_weights(Run *r, Error *error) {
  const bool ok = model_files_read_weights(r->base_files, &r->config, model_table(r->model), r->host[0], error);
  model_files_close(r->base_files);
  r->base_files = NULL;
  return ok;
}
