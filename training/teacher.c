/* The teacher: a trained model whose probabilities the run learns in addition to the text. It is that of --teacher, or
 * with --minutes one that is trained first, by another process of ./train, in the run directory. Rank 0 reads its
 * files. */
#include "training/run.h"

#include "cli/processes.h"
#include "report/result.h"
#include "tokenizer/tokenizer.h"
#include "util/checksum.h"
#include "util/path.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const float TEACHER_WEIGHT = 0.5f;

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

/* A teacher that was trained first is in the run's directory, which may have been moved. */
static void find_moved(Run *r) {
  const PathText inside = path_in(r->files.dir, CHECKPOINT_TEACHER);
  if (!r->settings.resume || access(r->settings.teacher, F_OK) == 0 || !checkpoint_is_run(inside.text)) return;
  r->teacher.dir = inside;
  r->settings.teacher = r->teacher.dir.text;
}

bool run_open_teacher(Run *r, Error *error) {
  RunTeacher *t = &r->teacher;
  Tokenizer *tokenizer = NULL;
  if (!r->settings.teacher) return true;
  find_moved(r);
  const OneLine name = text_one_line(r->settings.teacher, 250);
  if (isnan(r->settings.teacher_weight)) r->settings.teacher_weight = TEACHER_WEIGHT;
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
  if (!r->settings.teacher || (r->settings.dry_run && *r->teacher.dir.text)) return true;
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
  if (run_leads(r->peers) && t->files) { /* a dry run may only plan a teacher */
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

/* ---- a teacher that is trained first ---- */

/* The arguments of the process that trains it, and the same as text, with a checksum of the training text. */
typedef struct Order {
  const char **words; /* ends with NULL */
  char *given;        /* the arguments of this process, each with a zero after it */
  char *text;         /* one word on each line */
  char out[sizeof(PathText) + 8], minutes[40], seed[40], preset[40];
} Order;

static void free_order(Order *o) {
  free(o->words);
  free(o->given);
  free(o->text);
}

static bool make_order(const Run *r, const char *dir, Order *o, Error *error) {
  size_t size = 0, written = 0, count = 0;
  *o = (Order){0};
  if (!run_arguments_text(&r->options, &r->settings, &o->given, &size, error)) return false;
  for (size_t i = 0; i < size; i++) count += !o->given[i];
  o->words = calloc(count + 7, sizeof *o->words);
  FILE *text = open_memstream(&o->text, &written);
  if (!o->words || !text) {
    if (text) fclose(text);
    return error_memory(error, "the teacher's options");
  }
  count = 0;
  for (const char *at = o->given; at < o->given + size; at += strlen(at) + 1)
    if (strncmp(at, "--keep-at=", 10) != 0) o->words[count++] = at;
  snprintf(o->out, sizeof o->out, "--out=%s", dir);
  snprintf(o->minutes, sizeof o->minutes, "--minutes=%.10g", AUTO_TEACHER_SHARE * r->settings.minutes);
  snprintf(o->seed, sizeof o->seed, "--seed=%" PRIu64, r->settings.seed + 1);
  snprintf(o->preset, sizeof o->preset, "--preset=%s", preset_names[r->teacher.preset]);
  o->words[count++] = o->out;
  o->words[count++] = o->minutes;
  o->words[count++] = o->seed;
  o->words[count++] = o->preset;
  o->words[count++] = "--sample-tokens=0";
  o->words[count] = "--overwrite";
  for (size_t i = 0; i < count; i++) fprintf(text, "%s\n", o->words[i]);
  fprintf(text, "text %016" PRIx64 "\n", r->text.tokens_file.info.sum);
  return fclose(text) == 0 || error_memory(error, "the teacher's options");
}

/* Returns whether the teacher in the directory was begun with this order. */
static bool was_ordered(const Run *r, const char *dir, const Order *o) {
  Error ignored = {0};
  MappedFile file = {0};
  const bool found = checkpoint_is_run(dir) && file_map(&file, path_in(r->files.dir, CHECKPOINT_TEACHER_ORDER).text,
                                                        EXIT_CHECKPOINT, &ignored);
  const bool same = found && file.size == strlen(o->text) && memcmp(file.bytes, o->text, file.size) == 0;
  file_unmap(&file);
  return same;
}

static bool has_ended(const char *dir) {
  Error ignored = {0};
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &ignored);
  const bool ended = result_has_ended(result_state(dir, result));
  json_decref(result);
  return ended;
}

static bool train_teacher(Run *r, const char *dir, Order *o, Error *error) {
  const bool begun = was_ordered(r, dir, o);
  if (begun && has_ended(dir)) return true;
  char resume[sizeof(PathText) + 16];
  snprintf(resume, sizeof resume, "--resume=%s", dir);
  const char *const again[] = {resume, r->console.quiet ? "--quiet" : NULL, NULL};
  const PathText in = path_in(r->files.dir, CHECKPOINT_STDIN_COPY);
  Process process = {.arguments = begun ? again : o->words, .in = access(in.text, R_OK) == 0 ? in.text : NULL};
  if (!begun && !file_write_in(r->files.dir, CHECKPOINT_TEACHER_ORDER, o->text, strlen(o->text), error)) return false;
  console_line(&r->console, "first, a teacher in %s: a smaller model of the same text, in at most %s", dir,
               text_duration(60 * AUTO_TEACHER_SHARE * r->settings.minutes).text);
  if (!processes_run(&process, 1, 1, NULL, NULL, error))
    return error->code <= EXIT_SIGNALS ? false : error_append(error, "; the same command continues the teacher's training");
  return process.status == EXIT_DONE ||
         fail(error, (ExitCode)process.status, "the training of the teacher has failed; without a teacher: --teacher none");
}

bool run_make_teacher(Run *r, Error *error) {
  const char *dir = r->teacher.dir.text;
  Order order;
  r->teacher.dir = path_in(r->files.dir, CHECKPOINT_TEACHER);
  r->settings.teacher = dir;
  if (isnan(r->settings.teacher_weight)) r->settings.teacher_weight = TEACHER_WEIGHT;
  if (r->settings.dry_run) return true;
  const bool ok = make_order(r, dir, &order, error) && train_teacher(r, dir, &order, error);
  free_order(&order);
  return ok && run_open_teacher(r, error);
}

static double kept_loss(const char *dir) {
  Error ignored = {0};
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &ignored);
  const double loss = result_value(json_object_get(result, "kept"), "loss");
  json_decref(result);
  return loss;
}

void run_compare_teacher(Run *r) {
  if (!*r->teacher.dir.text || !run_leads(r->peers)) return;
  const double teacher = kept_loss(r->teacher.dir.text), own = kept_loss(r->files.dir);
  if (teacher < own)
    console_warning(&r->console, "the teacher is better: its validation loss is %.4f, that of this model %.4f; use %s",
                    teacher, own, r->teacher.dir.text);
}
