/* What a run starts from: text and model. */
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

bool open_data(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->data.count == 0)
    return fail(error, EXIT_USAGE, "no text given; try: ./train book.txt   (./train --help lists everything)");
  if (s->data.count > 1)
    return fail(error, EXIT_USAGE,
                "%d texts given (\"%s\", \"%s\", ...); this version trains on one file: cat them together",
                s->data.count, s->data.items[0], s->data.items[1]);
  r->tokenizer = tokenizer_byte();
  if (!r->tokenizer) return fail(error, EXIT_MEMORY, "out of memory for the tokenizer");
  if (!dataset_open(&r->data, s->data.items[0], r->tokenizer, error)) return false;
  dataset_split(r->data, s->val ? 0 : s->val_frac, 1000000, &r->train, &r->tail);
  if (!s->val) return true;
  Split none;
  if (!dataset_open(&r->val_data, s->val, r->tokenizer, error)) return false;
  dataset_split(r->val_data, 0, 0, &r->tail, &none);
  return true;
}

/* A window is ctx tokens and the one after them. */
bool check_text_length(const Run *r, Error *error) {
  int64_t train = r->train.end - r->train.begin, tail = r->tail.end - r->tail.begin;
  if (train >= r->config.ctx + 1) return true;
  return fail(error, EXIT_INPUT,
              "%s: %" PRId64 " tokens to train on (and %" PRId64
              " to validate), but a window needs ctx + 1 = %d; give more text%s",
              r->settings.data.items[0], train, tail, r->config.ctx + 1, train < 9 ? "" : ", or a smaller --ctx");
}

void fill_batch(Run *r, int64_t step) {
  int ctx = r->config.ctx, sequences = r->settings.batch * r->settings.grad_accum;
  for (int i = 0; i < sequences; i++) {
    int64_t begin = split_window(&r->train, r->settings.seed, (uint32_t)step, (uint32_t)i, ctx);
    dataset_read(r->train.dataset, begin, ctx + 1, r->window);
    memcpy(r->tokens + (size_t)i * (size_t)ctx, r->window, (size_t)ctx * sizeof(int32_t));
    memcpy(r->targets + (size_t)i * (size_t)ctx, r->window + 1, (size_t)ctx * sizeof(int32_t));
  }
}

/* ---- machine ---- */

/* A resumed run works with the GEMM algorithms that it was tuned to, on a device that can compute its model. */
bool open_device(Run *r, Error *error) {
  const DeviceSettings *machine = &r->settings.machine;
  bool resumes = r->settings.resume;
  ModelConfig saved;
  SpecialTokens special;
  if (resumes && !run_read_config(r->dir, &saved, &special, error)) return false;
  char *tuning = resumes && machine->autotune ? read_tuning(r) : NULL;
  bool ok = device_open(machine, resumes ? &saved : NULL, tuning, &r->console, &r->backend, &r->context, error);
  ContextInfo info;
  if (ok && machine->autotune) {
    r->backend->info(r->context, &info);
    if (!info.accelerator) message_note(&r->console, "--autotune has nothing to choose on the CPU");
    else if (resumes && !tuning)
      message_warning(&r->console,
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
bool start_model(Run *r, Error *error) {
  size_t rows = (size_t)settings_tokens_per_step(&r->settings);
  ContextInfo before;
  r->backend->info(r->context, &before);
  r->available = before.free_bytes;
  if (!allocate_model(r, error)) return error->code == EXIT_MEMORY ? say_what_fits(r, error) : false;
  r->tokens = malloc(rows * sizeof(int32_t));
  r->targets = malloc(rows * sizeof(int32_t));
  r->window = malloc(((size_t)r->config.ctx + 1) * sizeof(int32_t));
  for (int i = 0; i < 3; i++) r->host[i] = calloc(model_table(r->model)->arena, sizeof(float));
  if (r->tokens && r->targets && r->window && r->host[0] && r->host[1] && r->host[2]) return true;
  return fail(error, EXIT_MEMORY, "out of memory for a batch of %zu tokens and a copy of the weights", rows);
}

void upload_state(Run *r) {
  const ArenaKind arenas[] = {ARENA_MASTER, ARENA_MOMENT1, ARENA_MOMENT2};
  for (int i = 0; i < 3; i++) model_upload(r->model, arenas[i], r->host[i]);
  model_set_step(r->model, r->step);
}

void initialise_weights(Run *r) {
  parameters_init(model_table(r->model), r->host[0], r->settings.seed);
  upload_state(r);
}

bool rehearse(Run *r, Error *error) {
  ContextInfo info;
  StepState reports[REPORT_RING];
  r->backend->info(r->context, &info);
  if (!info.accelerator) return true;
  fill_batch(r, r->step + 1);
  model_train_step(r->model, &(TokenBatch){r->tokens, r->targets, NULL});
  if (model_reports(r->model, reports, REPORT_RING, true, error) < 0)
    return error->code == EXIT_MEMORY ? say_what_fits(r, error) : false;
  upload_state(r);
  return true;
}

void stop_model(Run *r) {
  decoder_close(r->decoder);
  model_close(r->model);
  r->decoder = NULL;
  r->model = NULL;
  void *memory[] = {r->tokens, r->targets, r->window, r->host[0], r->host[1], r->host[2]};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) free(memory[i]);
  r->tokens = r->targets = r->window = NULL;
  r->host[0] = r->host[1] = r->host[2] = NULL;
}
