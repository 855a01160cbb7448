/* What a resumed run keeps: its settings and its model. */
#include "training/architecture.h"
#include "training/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool check_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && checkpoint_is_run(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a run; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume && s->out && strcmp(s->resume, s->out) != 0)
    return fail(error, EXIT_USAGE, "--resume=%s writes to that directory, not to --out %s; leave out --out", s->resume,
                s->out);
  const void *const fixed[] = {&s->tokenizer,         &s->vocab_size,     &s->source_tokenizer,
                               &s->source_vocab_size, &s->pack,           &s->jsonl_field,
                               &s->prompt_field,      &s->response_field, &s->tsv};
  for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
    if (options_origin(&r->options, fixed[i]) == ORIGIN_COMMAND_LINE)
      return fail(
          error, EXIT_USAGE,
          "a resumed run keeps its tokenizers and how it reads its text; leave out --tokenizer, --vocab-size, "
          "--source-tokenizer, --source-vocab-size, --pack, --jsonl-field, --prompt-field, --response-field and --tsv");
  const void *const starts[] = {&s->init, &s->init_std};
  for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
    if (options_origin(&r->options, starts[i]) == ORIGIN_COMMAND_LINE)
      return fail(error, EXIT_USAGE, "a resumed run has its weights; leave out --init-like and --init-std");
  return true;
}

static bool find_directory(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (*s->resume) return (r->dir = strdup(s->resume)) || error_memory(error, "a path");
  if (!s->out && !s->data.count)
    return checkpoint_newest(&r->dir, error) || error_append(error, "; name the run: --resume=DIR");
  return run_name_directory(r, error);
}

/* That of the state: settings may come from another file, or from before there was a choice. */
static bool keep_optimizer(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  const int kept = checkpoint_find_optimizer(r->dir);
  const int asked = options_origin(&r->options, &s->optimizer) != ORIGIN_DEFAULT ? s->optimizer : -1;
  if (kept < 0) return true; /* there is no state, which is said when it is read */
  if (asked >= 0 && asked != kept)
    return fail(error, EXIT_USAGE, "%s was trained with %s, and a resumed run keeps its optimizer; leave out %s",
                r->dir, settings_optimizers[kept], settings_optimizers[asked]);
  s->optimizer = kept;
  return true;
}

bool run_resume_settings(Run *r, Error *error) {
  if (!check_flags(r, error) || !find_directory(r, error)) return false;
  const CheckpointPath path = checkpoint_path(r->dir, CHECKPOINT_SETTINGS);
  if (access(path.text, R_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no " CHECKPOINT_SETTINGS " in it)", r->dir);
  return options_load(&r->options, path.text, EXIT_CHECKPOINT, error) && keep_optimizer(r, error);
}

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

bool run_check_same_model(const Run *r, Error *error) {
  ModelConfig saved;
  SpecialTokens special;
  if (!checkpoint_read_config(r->dir, &saved, &special, error)) return false;
  const ModelConfig *asked = &r->config;
  const struct {
    const char *flag;
    double asked, saved;
    const char *const *names; /* of what the numbers stand for */
  } fields[] = {{"norm", asked->norm, saved.norm, architecture_norms},
                {"norm-place", asked->norm_place, saved.norm_place, architecture_norm_places},
                {"norm-eps", (double)asked->norm_eps, (double)saved.norm_eps, NULL},
                {"act", asked->activation, saved.activation, architecture_activations},
                {"gated", asked->gated, saved.gated, no_yes},
                {"bias", asked->bias, saved.bias, no_yes},
                {"qkv-bias", asked->qkv_bias, saved.qkv_bias, no_yes},
                {"head-bias", asked->head_bias, saved.head_bias, no_yes},
                {"positions", asked->positions, saved.positions, architecture_positions},
                {"rope-base", rope_base(asked), rope_base(&saved), NULL},
                {"layers", asked->layers, saved.layers, NULL},
                {"encoder-layers", asked->encoder_layers, saved.encoder_layers, NULL},
                {"heads", asked->heads, saved.heads, NULL},
                {"kv-heads", asked->kv_heads, saved.kv_heads, NULL},
                {"dim", asked->dim, saved.dim, NULL},
                {"ffn", asked->ffn, saved.ffn, NULL},
                {"ctx", asked->ctx, saved.ctx, NULL},
                {"tie", asked->tie, saved.tie, no_yes}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].asked != fields[i].saved)
      return fail(error, EXIT_USAGE,
                  "--%s is %s, but %s was trained with %s; the model cannot change when a run is resumed",
                  fields[i].flag, field_text(fields[i].asked, fields[i].names).text, r->dir,
                  field_text(fields[i].saved, fields[i].names).text);
  return true;
}
