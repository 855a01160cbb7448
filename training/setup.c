/* What a run computes with: device and model. */
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- machine ---- */

/* A resumed run works with the GEMM algorithms that it was tuned to, on a device that can compute its model. */
bool run_open_device(Run *r, Error *error) {
  const DeviceSettings *machine = &r->settings.machine;
  bool resumes = r->settings.resume;
  ModelConfig saved;
  SpecialTokens special;
  if (resumes && !checkpoint_read_config(r->dir, &saved, &special, error)) return false;
  char *tuning = resumes && machine->autotune ? run_read_tuning(r) : NULL;
  bool ok = device_open(machine, resumes ? &saved : NULL, tuning, &r->console, &r->backend, &r->context, error);
  ContextInfo info;
  if (ok && machine->autotune) {
    r->backend->info(r->context, &info);
    if (!info.accelerator) console_note(&r->console, "--autotune has nothing to choose on the CPU");
    else if (resumes && !tuning)
      console_warning(&r->console,
                      "%s/autotune.txt is missing: algorithms are chosen again, and may add in another order", r->dir);
  }
  free(tuning);
  return ok;
}

/* ---- model ---- */

/* After running out of memory: the largest micro-batch that should fit into what was free before, but for a part that
 * backends need for themselves. */
static bool say_what_fits(const Run *r, Error *error) {
  const size_t available = r->available - r->available / 32;
  ContextInfo info;
  r->backend->info(r->context, &info);
  TrainConfig train = settings_train_config(&r->settings);
  Error all = *error;
  while (train.batch > 1) {
    train.batch--;
    if (model_memory(&r->config, &train, &info).total > available) continue;
    *error = (Error){0};
    return fail(error, EXIT_MEMORY, "%s; --batch %d would fit", all.text, train.batch);
  }
  return false;
}

static bool allocate_model(Run *r, Error *error) {
  TrainConfig train = settings_train_config(&r->settings);
  return model_open(&r->model, r->backend, r->context, &r->config, error) &&
         model_train_begin(r->model, &train, error) && decoder_open(&r->decoder, r->model, 1, error);
}

/* Everything that the run will need, so that nothing can run out later. The weights are zero. */
bool run_start_model(Run *r, Error *error) {
  size_t rows = (size_t)settings_tokens_per_step(&r->settings);
  ContextInfo before;
  r->backend->info(r->context, &before);
  r->available = before.free_bytes;
  if (!allocate_model(r, error)) return error->code == EXIT_MEMORY ? say_what_fits(r, error) : false;
  r->tokens = malloc(rows * sizeof(int32_t));
  r->targets = malloc(rows * sizeof(int32_t));
  r->positions = malloc(rows * sizeof(int32_t));
  for (int i = 0; i < 3; i++) r->host[i] = calloc(model_table(r->model)->arena, sizeof(float));
  if (r->tokens && r->targets && r->positions && r->host[0] && r->host[1] && r->host[2]) return true;
  return fail(error, EXIT_MEMORY, "out of memory for a batch of %zu tokens and a copy of the weights", rows);
}

void run_upload_state(Run *r) {
  const ArenaKind arenas[] = {ARENA_MASTER, ARENA_MOMENT1, ARENA_MOMENT2};
  for (int i = 0; i < 3; i++) model_upload(r->model, arenas[i], r->host[i]);
  model_set_step(r->model, r->step);
}

void run_init_weights(Run *r) {
  parameter_table_init(model_table(r->model), r->host[0], r->settings.seed);
  run_upload_state(r);
}

bool run_warm_up(Run *r, Error *error) {
  ContextInfo info;
  StepState reports[REPORT_RING];
  r->backend->info(r->context, &info);
  if (!info.accelerator) return true;
  if (!run_fill_batch(r, r->step + 1, error)) return false;
  const TokenBatch filled = run_batch(r);
  model_train_step(r->model, &filled);
  if (model_reports(r->model, reports, REPORT_RING, true, error) < 0)
    return error->code == EXIT_MEMORY ? say_what_fits(r, error) : false;
  run_upload_state(r);
  return true;
}

void run_stop_model(Run *r) {
  decoder_close(r->decoder);
  model_close(r->model);
  r->decoder = NULL;
  r->model = NULL;
  void *memory[] = {r->tokens, r->targets, r->positions, r->host[0], r->host[1], r->host[2]};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) free(memory[i]);
  r->tokens = r->targets = r->positions = NULL;
  r->host[0] = r->host[1] = r->host[2] = NULL;
}
