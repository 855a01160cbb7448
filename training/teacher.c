/* The teacher of --teacher: a trained model whose probabilities the run learns beside the text. Rank 0 reads its files. */
#include "training/run.h"

#include "tokenizer/tokenizer.h"
#include "util/path.h"
#include "util/text.h"

#include <stdlib.h>

static bool same_tokens(const Tokenizer *a, const Tokenizer *b) {
  return !a == !b && (!a || tokenizer_fingerprint(a) == tokenizer_fingerprint(b));
}

/* The default of --tokenizer is that of the teacher. */
static bool choose_tokenizer(TrainSettings *s, const Tokenizer *taught, Error *error) {
  if (s->tokenizer || s->vocab_size) return true;
  Tokenizer *byte = tokenizer_byte();
  if (!byte) return error_memory(error, "the tokenizer");
  s->tokenizer = same_tokens(taught, byte) ? "byte" : s->teacher;
  tokenizer_free(byte);
  return true;
}

bool run_open_teacher(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  Tokenizer *taught = NULL;
  if (!s->teacher) return true;
  if (path_same(s->teacher, r->files.dir))
    return fail(error, EXIT_USAGE, "--teacher %s is the run itself; give another model",
                text_one_line(s->teacher, 250).text);
  bool ok = model_files_open(&r->teacher.files, s->teacher, error) &&
            model_files_check_weights_size(r->teacher.files, error) &&
            model_files_read_tokenizer(r->teacher.files, &taught, error);
  if (ok) r->teacher.config = *model_files_config(r->teacher.files);
  if (ok && r->teacher.config.encoder_layers)
    ok = fail(error, EXIT_USAGE, "--teacher %s has an encoder; only decoders can teach",
              text_one_line(s->teacher, 250).text);
  ok = ok && (run_base(r) || choose_tokenizer(s, taught, error));
  tokenizer_free(taught);
  return ok;
}

bool run_check_teacher(const Run *r, Error *error) {
  const ModelConfig *c = &r->model.config, *t = &r->teacher.config;
  const OneLine name = text_one_line(r->settings.teacher ? r->settings.teacher : "", 250);
  Tokenizer *taught = NULL;
  if (!r->settings.teacher) return true;
  if (c->encoder_layers)
    return fail(error, EXIT_USAGE,
                "--teacher is for models without an encoder; leave it out, or give --encoder-layers 0");
  if (!model_files_read_tokenizer(r->teacher.files, &taught, error)) return false;
  const bool same = same_tokens(taught, r->text.tokenizer) && t->vocab == c->vocab;
  tokenizer_free(taught);
  if (!same)
    return fail(error, EXIT_USAGE, "--teacher %s has other tokens than this model; give --tokenizer %s", name.text,
                name.text);
  if (t->ctx < c->ctx)
    return fail(error, EXIT_USAGE, "--teacher %s has a context of %d tokens; give --ctx %d", name.text, t->ctx, t->ctx);
  return model_check_device(t, &r->device.info, error);
}

bool run_load_teacher(Run *r, Error *error) {
  float *weights = NULL;
  Model *teacher = r->model.teacher;
  if (!r->settings.teacher) return true;
  if (run_leads(r->peers)) {
    weights = calloc(model_arena_size(teacher, ARENA_MASTER), sizeof *weights);
    if (!weights) error_memory(error, "the weights of the teacher");
    else model_files_read_weights(r->teacher.files, &r->teacher.config, model_table(teacher), weights, error);
  }
  const bool ok = run_agree(r->peers, error);
  if (ok) model_upload(teacher, ARENA_MASTER, weights);
  free(weights);
  return ok;
}
