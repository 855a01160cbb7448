/* The teacher of --teacher: a trained model whose probabilities the run learns in addition to the text. Rank 0 reads
 * its files. */
#include "train/run.h"

#include "text/tokenizer/tokenizer.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>

/* The default of --tokenizer is that of the teacher. */
static bool choose_tokenizer(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->tokenizer || s->vocab_size || run_base(r)) return true;
  Tokenizer *byte = tokenizer_byte();
  if (!byte) return error_memory(error, "the tokenizer");
  s->tokenizer = tokenizer_fingerprint(byte) == r->teacher.tokens ? "byte" : s->teacher;
  tokenizer_free(byte);
  return true;
}

bool run_open_teacher(Run *r, Error *error) {
  RunTeacher *t = &r->teacher;
  Tokenizer *tokenizer = NULL;
  if (!r->settings.teacher) return true;
  const OneLine name = text_one_line(r->settings.teacher, 250);
  if (isnan(r->settings.teacher_weight)) r->settings.teacher_weight = 0.5f;
  if (!model_files_open(&t->files, r->settings.teacher, error) || !model_files_check_weights_size(t->files, error) ||
      !model_files_read_tokenizer(t->files, &tokenizer, error))
    return error_append(error, "; give the teacher with --teacher DIR");
  t->config = *model_files_config(t->files);
  t->tokens = tokenizer_fingerprint(tokenizer);
  tokenizer_free(tokenizer);
  if (t->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--teacher %s has an encoder; only decoders can teach", name.text);
  if (t->config.ctx < r->settings.model.ctx) {
    fail(error, EXIT_USAGE, "--teacher %s has a context of %d tokens, less than --ctx %d", name.text, t->config.ctx,
         r->settings.model.ctx);
    return r->settings.resume ? false : error_append(error, "; give --ctx %d", t->config.ctx);
  }
  return choose_tokenizer(r, error);
}

bool run_check_teacher(const Run *r, Error *error) {
  const ModelConfig *c = &r->model.config, *t = &r->teacher.config;
  if (!r->settings.teacher) return true;
  const OneLine name = text_one_line(r->settings.teacher, 250);
  if (c->encoder_layers)
    return fail(error, EXIT_USAGE, "--teacher is for models without an encoder; leave it out%s",
                run_base(r) ? "" : ", or give --encoder-layers 0");
  if (tokenizer_fingerprint(r->text.tokenizer) != r->teacher.tokens) {
    fail(error, EXIT_USAGE, "--teacher %s has other tokens than this model", name.text);
    return run_base(r) ? false
                       : error_append(error, "; give --tokenizer %s", text_shell_word(r->settings.teacher, 250).text);
  }
  if (t->vocab != c->vocab)
    return fail(error, EXIT_USAGE, "--teacher %s has %d rows of embeddings, but this model has %d", name.text, t->vocab,
                c->vocab);
  return model_check_device(t, &r->device.info, error);
}

bool run_load_teacher(Run *r, Error *error) {
  Model *model = r->model.teacher;
  RunTeacher *t = &r->teacher;
  if (!model) return true;
  const size_t count = model_arena_size(model, ARENA_MASTER);
  float *weights = model_host_weights(model), *copy = NULL;
  if (run_leads(r->peers)) {
    if (!weights) weights = copy = calloc(count, sizeof *copy);
    if (!weights) error_memory(error, "the weights of the teacher");
    else if (model_files_read_weights(t->files, &t->config, model_table(model), weights, r->text.threads, error))
      t->weights = checksum_xxh64(weights, count * sizeof *weights, 0);
  }
  const bool ok = run_agree(r->peers, error);
  if (ok) model_upload(model, ARENA_MASTER, copy);
  free(copy);
  return ok;
}
