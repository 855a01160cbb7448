/* Setup of the device and the model of a run. */
#include "train/run.h"

#include "cli/device.h"
#include "files/formats/model_files.h"
#include "inference/generation.h"
#include "model/decoder.h"
#include "model/parameters.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/user_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tuning: the GEMM algorithms that are the fastest on this device ---- */

/* The user's file for the device and library that the first line of `tuning` names. */
typedef struct TuningName {
  char text[32];
} TuningName;

static TuningName tuning_name(const char *tuning) {
  TuningName name;
  snprintf(name.text, sizeof name.text, "gemm-%016" PRIx64 ".txt", checksum_xxh64(tuning, strcspn(tuning, "\n"), 0));
  return name;
}

/* Returns whether both begin with the same line. */
static bool same_device(const char *a, const char *b) {
  const size_t line = strcspn(a, "\n");
  return strcspn(b, "\n") == line && memcmp(a, b, line) == 0;
}

/* Returns the choices of the run that is resumed or, as --verify does, repeated by its config.txt. NULL: it has none that
 * are valid here; a warning says so, unless --config is only a file without a run. */
static char *choices_of_run(Run *r, const char *tuning) {
  const bool resumes = r->settings.resume;
  if (!resumes && !r->options.config) return NULL;
  const PathText dir = resumes ? (PathText){""} : path_directory(r->options.config);
  const PathText path = path_in(resumes ? r->files.dir : dir.text, CHECKPOINT_TUNING);
  char *text = file_read_text(path.text, 1 << 20);
  if (text && same_device(text, tuning)) return text;
  if (text || resumes)
    console_warning(&r->console, "%s is %s: GEMM algorithms are chosen again, so sums may be in another order",
                    path.text, text ? "of another GPU or another version of cuBLAS" : "missing");
  free(text);
  return NULL;
}

/* Sends a text of rank 0 to all ranks; NULL becomes an empty one. */
static bool broadcast_choices(const Run *r, char **text, Error *error) {
  if (run_leads(r->peers) && !*text) *text = calloc(1, 1);
  if (run_leads(r->peers) && !*text) error_memory(error, "the choices of GEMM algorithms");
  size_t size = *text ? strlen(*text) : 0;
  return run_agree(r->peers, error) && collective_broadcast_text(r->peers, text, &size, error);
}

/* Rank 0 measures in the warm-up what its choices lack: those of the resumed or repeated run, or of the user's file. */
static bool begin_tuning(Run *r, Error *error) {
  RunDevice *d = &r->device;
  const bool leads = run_leads(r->peers);
  if (!r->settings.machine.autotune) return true;
  char *tuning = leads ? d->backend->tuning(d->context) : NULL, *text = NULL;
  if (tuning) d->tuning = choices_of_run(r, tuning);
  if (tuning) text = d->tuning ? strdup(d->tuning) : user_cache_read(tuning_name(tuning).text);
  const bool ok = broadcast_choices(r, &text, error);
  if (ok) d->backend->tune(d->context, text, leads);
  free(tuning);
  free(text);
  return ok;
}

/* Returns the lines of `old` and those of `text` that it lacks, for free(); NULL: out of memory. */
static char *join_lines(const char *old, const char *text) {
  char *all = calloc(strlen(old) + strlen(text) + 2, 1), *to = all;
  if (!all) return NULL;
  to += sprintf(to, "%s%s", old, *old && old[strlen(old) - 1] != '\n' ? "\n" : "");
  for (const char *line = text, *next; *line; line = next) {
    next = line + strcspn(line, "\n") + 1; /* tuning() ends each line */
    memcpy(to, line, (size_t)(next - line));
    to[next - line] = '\0';
    if (strstr(old, to)) *to = '\0';
    else to += next - line;
  }
  return all;
}

/* Adds choices to the user's file, which may have those of other models. */
static void keep_choices(const char *text) {
  const TuningName name = tuning_name(text);
  char *old = user_cache_read(name.text), *all = join_lines(old && same_device(old, text) ? old : "", text);
  if (all && (!old || strcmp(all, old) != 0)) user_cache_write(name.text, all);
  free(all);
  free(old);
}

/* From here on all ranks use the algorithms that rank 0 has used in the warm-up, and no others: what an earlier run has
 * measured besides changes nothing. */
static bool end_tuning(Run *r, Error *error) {
  RunDevice *d = &r->device;
  if (!r->settings.machine.autotune) return true;
  char *used = run_leads(r->peers) ? d->backend->tuning(d->context) : NULL;
  char *all = used ? join_lines(d->tuning ? d->tuning : "", used) : NULL;
  if (used && !d->tuning) keep_choices(used); /* a resumed or repeated run leaves them as they are */
  free(used);
  free(d->tuning);
  d->tuning = all;
  if (!broadcast_choices(r, &d->tuning, error)) return false;
  d->backend->tune(d->context, d->tuning, false);
  return true;
}

bool run_save_tuning(const RunDevice *device, const char *dir, Error *error) {
  return !device->tuning || !*device->tuning ||
         file_write_in(dir, CHECKPOINT_TUNING, device->tuning, strlen(device->tuning), error);
}

/* ---- device ---- */

ContextInfo run_device_now(const RunDevice *device) {
  ContextInfo info;
  device->backend->info(device->context, &info);
  return info;
}

/* Returns the number of threads to compute with; 0: all available. Processes with the same processors share them. */
static int threads_for(const TrainSettings *s, Collective *peers) {
  const int wanted = s->machine.threads, all = threads_count(wanted);
  unsigned char cpus[THREADS_MASK_BYTES];
  if (wanted || peers->size == 1) return wanted;
  threads_mask(cpus);
  const int same = collective_same(peers, checksum_xxh64(cpus, sizeof cpus, (uint64_t)peers->node_first));
  return all > same ? all / same : 1;
}

bool run_open_device(Run *r, Error *error) {
  DeviceSettings machine = r->settings.machine;
  r->text.threads = machine.threads = threads_for(&r->settings, r->peers);
  machine.peers = r->peers->size > 1 ? r->peers : NULL;
  r->text.threads = threads_count(r->text.threads);
  if (!device_open(&machine, run_base(r), &r->console, &r->device.backend, &r->device.context, error)) return false;
  r->device.info = run_device_now(&r->device);
  return true;
}

bool run_compare_devices(Run *r, Error *error) {
  RunDevice *device = &r->device;
  const ContextInfo *mine = &device->info;
  ContextInfo first = *mine;
  double sums[] = {device->backend->peak_flops(device->context), r->peers->node_rank == 0};
  if (!begin_tuning(r, error)) return false; /* drops the plans of the speed test, whose shapes a model may have */
  device->backend->poll(device->context, NULL, 0, false, error);
  collective_broadcast(r->peers, &first, sizeof first);
  collective_sum(r->peers, sums, 2);
  device->peak_flops = sums[0];
  r->machines = (int)sums[1];
  return (mine->dtype == first.dtype && mine->accelerator == first.accelerator) ||
         fail(error, EXIT_USAGE, "computes on %s in %s, and rank 0 on a %s in %s; give --device and --dtype",
              mine->device, dtype_name(mine->dtype), first.accelerator ? "GPU" : "CPU", dtype_name(first.dtype));
}

/* ---- model ---- */

/* Appends to an out-of-memory error the largest micro-batch that should fit and gives the same steps. A thirty-second
 * of the memory is left for what the plan does not count. Returns false. */
static bool append_fitting_batch(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  const size_t available = r->device.available - r->device.available / 32;
  TrainConfig train = run_train_config(r);
  char more[40] = "";
  if (error->code != EXIT_MEMORY || r->peers->size > 1) return false;
  do train.batch--;
  while (train.batch > 0 && (s->batch % train.batch || run_memory_of(r, &train).total > available));
  if (train.batch <= 0) return false;
  if (!s->batch_tokens) snprintf(more, sizeof more, " --grad-accum %d", s->batch / train.batch * s->grad_accum);
  return error_append(error, "; --batch %d%s would fit", train.batch, more);
}

bool run_check_memory(Run *r, Error *error) {
  const ContextInfo now = run_device_now(&r->device);
  const size_t total = run_memory(r).total;
  r->device.available = now.free_bytes;
  if (total <= now.free_bytes) return true;
  fail(error, EXIT_MEMORY, "not enough memory: the run needs %s, and %s is free%s%s; use a smaller batch%s or model",
       text_bytes((double)total).text, text_bytes((double)now.free_bytes).text, now.limit[0] ? "; " : "", now.limit,
       settings_has_teacher(&r->settings) ? ", teacher" : "");
  return append_fitting_batch(r, error);
}

static bool allocate_model(Run *r, Error *error) {
  enum { ANSWERS = 32 };
  TrainConfig train = run_train_config(r);
  const ModelConfig *teacher = run_teacher(r) ? run_teacher(r) : &r->model.config;
  if (settings_has_teacher(&r->settings) &&
      !model_open(&r->model.teacher, r->device.backend, r->device.context, teacher, error))
    return false;
  train.teacher = r->model.teacher;
  if (!model_open(&r->model.on_device, r->device.backend, r->device.context, &r->model.config, error) ||
      !model_train_begin(r->model.on_device, &train, error))
    return false;
  if (!run_leads(r->peers)) return true;
  r->model.decoder_rows = r->model.config.encoder_layers ? generation_rows(r->model.on_device, ANSWERS) : 1;
  return decoder_open(&r->model.decoder, r->model.on_device, r->model.decoder_rows, error);
}

/* Those arenas of a state that are on the device. */
static const ArenaKind arenas[CHECKPOINT_MEAN] = {ARENA_MASTER, ARENA_MOMENT1, ARENA_MOMENT2};

/* Allocates everything that the run will need, so that nothing can run out later. The weights are zero. */
bool run_start_model(Run *r, Error *error) {
  if (!run_check_memory(r, error)) return false;
  if (!allocate_model(r, error)) return append_fitting_batch(r, error);
  const SequenceShare share = run_sequence_share(r);
  if (!batch_make(&r->model.batch, &r->text.train.windows, share.batch * share.micro_batches, error)) return false;
  for (int i = 0; run_leads(r->peers) && i < CHECKPOINT_ARENAS; i++) {
    const ArenaKind like = i < CHECKPOINT_MEAN ? arenas[i] : ARENA_MASTER;
    r->model.host[i] = calloc(model_arena_size(r->model.on_device, like), sizeof(float));
    if (!r->model.host[i]) return error_memory(error, "a copy of the weights");
  }
  return true;
}

bool run_download_state(RunModel *model, Error *error) {
  for (int i = 0; i < CHECKPOINT_MEAN; i++)
    if (!model_download(model->on_device, arenas[i], model->host[i], error)) return false;
  return true;
}

void run_upload_state(const RunModel *model, int64_t step) {
  for (int i = 0; i < CHECKPOINT_MEAN; i++) model_upload(model->on_device, arenas[i], model->host[i]);
  model_set_step(model->on_device, step);
}

/* Fills RunModel.host[0]. */
static bool make_weights(Run *r, Error *error) {
  const ParameterTable *table = model_table(r->model.on_device);
  const Initialization how = {(InitKind)r->settings.init_like, r->settings.init_std};
  if (settings_start_from_model(&r->settings))
    return model_files_read_weights(r->base.files, &r->model.config, table, r->model.host[0], r->text.threads, error);
  parameter_table_init(table, how, r->model.host[0], r->settings.seed);
  return true;
}

bool run_init_weights(Run *r, Error *error) {
  if (!run_alone(r, make_weights, error) || !run_load_teacher(r, error)) return false;
  run_upload_state(&r->model, r->progress.step);
  return true;
}

bool run_warm_up(Run *r, Error *error) {
  StepReport reports[REPORT_RING];
  if (!r->device.info.accelerator) return true;
  TokenBatch batch;
  run_fill_batch(r, r->progress.step + 1, &batch, error);
  if (!run_agree(r->peers, error)) return false;
  model_train_step(r->model.on_device, &batch);
  if (model_reports(r->model.on_device, reports, REPORT_RING, true, error) < 0) append_fitting_batch(r, error);
  if (!run_agree(r->peers, error) || !end_tuning(r, error)) return false;
  run_upload_state(&r->model, r->progress.step);
  return true;
}

void run_stop_model(RunModel *model) {
  decoder_close(model->decoder);
  model_close(model->on_device);
  model_close(model->teacher);
  batch_free(&model->batch);
  free(model->drawn.ids);
  for (int i = 0; i < CHECKPOINT_ARENAS; i++) free(model->host[i]);
  *model = (RunModel){.config = model->config};
}
