/* What a resumed run keeps: its settings and its model. */
#include "training/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds_settings(const char *dir) {
  return access(checkpoint_path(dir, CHECKPOINT_SETTINGS).text, F_OK) == 0;
}

static bool check_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->data.count && !*s->resume && holds_settings(s->data.items[0]))
    return fail(error, EXIT_USAGE, "%s is a run; did you mean --resume=%s?", s->data.items[0], s->data.items[0]);
  if (s->overwrite) return fail(error, EXIT_USAGE, "--resume and --overwrite exclude each other");
  if (*s->resume && s->out && strcmp(s->resume, s->out) != 0)
    return fail(error, EXIT_USAGE, "--resume=%s writes to that directory, not to --out %s; leave out --out", s->resume,
                s->out);
  const void *const fixed[] = {&s->tokenizer,   &s->vocab_size,   &s->pack,
                               &s->jsonl_field, &s->prompt_field, &s->response_field};
  for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
    if (options_origin(&r->options, fixed[i]) == ORIGIN_COMMAND_LINE)
      return fail(error, EXIT_USAGE,
                  "a resumed run keeps its tokenizer and how it reads its text; leave out --tokenizer, --vocab-size, "
                  "--pack, --jsonl-field, --prompt-field and --response-field");
  return true;
}

static bool find_directory(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (*s->resume) r->dir = strdup(s->resume);
  else if (!s->out && !s->data.count)
    return checkpoint_newest(&r->dir, error) || error_append(error, "; name the run: --resume=DIR");
  return run_name_directory(r, error);
}

bool run_resume_settings(Run *r, Error *error) {
  if (!check_flags(r, error) || !find_directory(r, error)) return false;
  const CheckpointPath path = checkpoint_path(r->dir, CHECKPOINT_SETTINGS);
  if (access(path.text, R_OK) == 0) return options_load(&r->options, path.text, EXIT_CHECKPOINT, error);
  return fail(error, EXIT_CHECKPOINT, "%s holds no run to resume (no " CHECKPOINT_SETTINGS " in it)", r->dir);
}

bool run_check_same_model(const Run *r, Error *error) {
  ModelConfig saved;
  SpecialTokens special;
  if (!checkpoint_read_config(r->dir, &saved, &special, error)) return false;
  const ModelConfig *asked = &r->config;
  const struct {
    const char *flag;
    int asked, saved;
  } fields[] = {{"layers", asked->layers, saved.layers},
                {"heads", asked->heads, saved.heads},
                {"kv-heads", asked->kv_heads, saved.kv_heads},
                {"dim", asked->dim, saved.dim},
                {"ffn", asked->ffn, saved.ffn},
                {"ctx", asked->ctx, saved.ctx},
                {"tie", asked->tie, saved.tie},
                {"tokenizer (vocabulary)", asked->vocab, saved.vocab}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].asked != fields[i].saved)
      return fail(error, EXIT_USAGE,
                  "--%s is %d, but %s was trained with %d; the model cannot change when a run is resumed",
                  fields[i].flag, fields[i].asked, r->dir, fields[i].saved);
  return true;
}
