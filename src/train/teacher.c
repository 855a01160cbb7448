/* The teacher: a trained model whose probabilities the run learns in addition to the text. That of --teacher exists,
 * that of --teacher-steps is trained first. Rank 0 reads its files. */
#include "cli/processes.h"
#include "train/run.h"

#include "text/tokenizer/tokenizer.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- --teacher ---- */

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
  if (r->settings.teacher_steps > 0)
    return fail(error, EXIT_USAGE, "--teacher and --teacher-steps exclude each other; give --teacher-steps 0");
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
  const PathText own = path_in(r->files.dir, CHECKPOINT_TEACHER);
  if (r->settings.teacher_steps > 0 && !r->settings.resume && access(own.text, F_OK) == 0 &&
      !checkpoint_has_teacher(r->files.dir))
    return fail(error, EXIT_USAGE,
                "%s exists and is not of this run; choose another directory with --out DIR, or give "
                "--teacher-steps 0",
                own.text);
  if (r->settings.teacher_steps > 0 && c->encoder_layers)
    return fail(error, EXIT_USAGE, "--teacher-steps is for models without an encoder; leave it out");
  if (r->settings.teacher_steps > 0 && r->peers->size > 1)
    return fail(error, EXIT_USAGE,
                "--teacher-steps is for one process, and there are %d; train a teacher first, and give it as --teacher",
                r->peers->size);
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

static bool load(Run *r, ModelFiles *files, Error *error) {
  Model *model = r->model.teacher;
  const size_t count = model_arena_size(model, ARENA_MASTER);
  float *weights = model_host_weights(model), *copy = NULL;
  if (run_leads(r->peers)) {
    if (!weights) weights = copy = calloc(count, sizeof *copy);
    if (!weights) error_memory(error, "the weights of the teacher");
    else if (model_files_read_weights(files, model_config(model), model_table(model), weights, r->text.threads, error))
      r->teacher.weights = checksum_xxh64(weights, count * sizeof *weights, 0);
  }
  const bool ok = run_agree(r->peers, error);
  if (ok) model_upload(model, ARENA_MASTER, copy);
  free(copy);
  return ok;
}

bool run_load_teacher(Run *r, Error *error) { return !r->settings.teacher || load(r, r->teacher.files, error); }

/* ---- --teacher-steps ---- */

/* Trains the teacher by config.txt of the run, or continues that: with the next seed, and with the length and what
 * depends on it of a run without a teacher. */
static bool train(Run *r, const char *dir, Error *error) {
  const PathText config = path_in(r->files.dir, CHECKPOINT_SETTINGS);
  const PathText copy = path_in(r->files.dir, run_stdin_file(&r->settings));
  const bool begun = checkpoint_find_number(dir, "step") >= 0;
  char seed[32], steps[32], resume[sizeof(PathText) + 16];
  snprintf(seed, sizeof seed, "--seed=%" PRIu64, r->settings.seed + 1);
  snprintf(steps, sizeof steps, "--steps=%" PRId64, r->settings.teacher_steps);
  snprintf(resume, sizeof resume, "--resume=%s", dir);
  const char *quiet = r->console.quiet ? "--quiet" : NULL;
  const char *const fresh[] = {"--config",
                               config.text,
                               "--out",
                               dir,
                               "--overwrite",
                               seed,
                               steps,
                               "--wd=auto",
                               "--warmup=auto",
                               "--eval-every=auto",
                               "--log-every=auto",
                               "--sample-tokens=0",
                               "--keep-at=none",
                               "--earlier-steps=",
                               "--teacher-steps=0",
                               quiet,
                               NULL};
  const char *const again[] = {resume, quiet, NULL};
  Process process = {.arguments = begun ? again : fresh, .in = access(copy.text, F_OK) == 0 ? copy.text : NULL};
  console_line(&r->console, "the teacher:");
  if (!processes_run(&process, 1, 1, NULL, NULL, error))
    return error_append(error, ". Resume with: %s", run_resume_command(&r->files).text);
  if (process.status)
    return fail(error, (ExitCode)process.status, "the teacher in %s was not trained. Resume with: %s", dir,
                run_resume_command(&r->files).text);
  console_line(&r->console, "the run:");
  return true;
}

static bool make(Run *r, Error *error) {
  ModelFiles *files = NULL;
  const PathText dir = path_in(r->files.dir, CHECKPOINT_TEACHER);
  r->session.started = r->session.saved_at = clock_seconds();
  if (r->session.saved_step < 0 && !run_save_state(r, error)) return false; /* which --resume needs */
  const bool trained = checkpoint_find_number(dir.text, "finished") > 0;
  const bool ok = (trained || train(r, dir.text, error)) && model_files_open(&files, dir.text, error) &&
                  model_files_check_weights_size(files, error) && load(r, files, error);
  model_files_close(files);
  return ok;
}

bool run_make_teacher(Run *r, Error *error) {
  if (r->settings.teacher_steps > 0 && !run_in_phase(r, PHASE_TEACHER, make, error)) return false;
  if (r->teacher.expected && r->teacher.weights != r->teacher.expected)
    console_warning(&r->console, "the teacher has changed: the run will not continue exactly");
  return true;
}
