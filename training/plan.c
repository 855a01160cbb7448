/* What a run will be, said before it starts; timings for --bench and --minutes. */
#include "util/text.h"
#include "cli/startup.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The part of the windows that holds no token. */
static double padding(const Packing *p) { return p->windows ? 1 - (double)p->used / ((double)p->windows * p->ctx) : 0; }

/* Of the text, in the run directory: its tokens, and what came from standard input. */
static size_t text_bytes_kept(const Run *r) {
  return r->tokens_file.file.size + r->val_file.file.size + r->text.stdin_bytes;
}

static void print_packing(Console *c, const Packing *p) {
  console_line(c, "packing  %s windows of whole documents; %.1f %% of them is padding",
               text_count((double)p->windows).text, 100 * padding(p));
  if (p->cut)
    console_line(c, "         %s of %s documents are longer than a window of %d tokens, and cut",
                 text_count((double)p->cut).text, text_count((double)p->documents).text, p->ctx);
  if (p->left_out)
    console_line(c, "         %s tokens of prompts fill windows alone, and are left out",
                 text_count((double)p->left_out).text);
}

static void print_text(Run *r) {
  const TextFacts *text = &r->text;
  const TokenFileInfo *tokens = &r->tokens_file.info;
  Console *c = &r->console;
  const int more = r->settings.data.count - 1;
  char files[96] = "";
  if (more > 0) snprintf(files, sizeof files, " and %d more", more);
  if (text->files > more + 1) snprintf(files + strlen(files), sizeof files - strlen(files), " (%d files)", text->files);
  console_line(c, "text     %s%s: %s, %s tokens to train on, %s to validate, %" PRId64 " document%s",
               text_one_line(run_text_name(r), 250).text, files, text_bytes((double)text->bytes).text,
               text_count((double)token_range_size(&r->train)).text, text_count((double)token_range_size(&r->val)).text,
               tokens->documents, tokens->documents == 1 ? "" : "s");
  if (text->skipped)
    console_line(
        c, "         %" PRId64 " name%s in directories skipped: read are .txt and .jsonl, not hidden ones and runs",
        text->skipped, text->skipped == 1 ? "" : "s");
  if (r->settings.pack == PACK_DOCS) print_packing(c, &r->train_packing);
}

void run_print_plan(Run *r) {
  const TrainSettings *s = &r->settings;
  Console *c = &r->console;
  if (c->quiet) return;
  TrainConfig train = settings_train_config(s);
  ContextInfo info;
  r->backend->info(r->context, &info);
  MemoryPlan memory = model_memory(&r->config, &train, &info);
  int64_t per_step = settings_tokens_per_step(s);
  double parameters = (double)memory.parameters, tokens = (double)per_step * (double)s->steps;
  double flops = model_step_flops(&r->config, per_step) * (double)s->steps;
  print_text(r);
  console_line(c, "model    %s parameters: %d layers x %d, %d heads%s, ffn %d, context %d, vocabulary %d (%s)%s",
               text_count(parameters).text, r->config.layers, r->config.dim, r->config.heads,
               r->config.kv_heads < r->config.heads ? " (grouped)" : "", r->config.ffn, r->config.ctx, r->config.vocab,
               tokenizer_name(r->tokenizer), r->config.tie ? ", tied" : "");
  console_line(c,
               "run      %" PRId64 " steps of %" PRId64 " tokens: %s tokens, %.2f epochs; lr %.2g, %" PRId64
               " steps of warm-up; dropout %g; seed %" PRIu64,
               s->steps, per_step, text_count(tokens).text, tokens / (double)run_epoch_tokens(r), (double)s->lr,
               s->warmup, (double)train.dropout, s->seed);
  console_line(
      c, "memory   %s: weights %s, gradients %s, moments %s, activations %s, logits %s; copies %s%s; on disk up to %s",
      text_bytes((double)memory.total).text, text_bytes((double)memory.weights).text,
      text_bytes((double)memory.gradients).text, text_bytes((double)memory.moments).text,
      text_bytes((double)memory.activations).text, text_bytes((double)memory.logits).text,
      text_bytes((double)memory.copies).text, info.accelerator ? " on the host" : "",
      text_bytes(10.0 * (double)memory.gradients + (double)text_bytes_kept(r)).text);
  if (r->choices.text[0]) console_line(c, "chosen   %s", r->choices.text);
  console_line(c, "device   %s, %s, %.0f GFLOP/s at best; about %s for the run", info.device, dtype_name(info.dtype),
               1e-9 * r->peak_flops, text_duration(2.0 * flops / r->peak_flops).text);
  if (!s->bench) console_line(c, "output   %s", r->dir);
  if (s->dry_run && memory.total > info.free_bytes)
    console_warning(c, "it needs %s, and %s are free", text_bytes((double)memory.total).text,
                    text_bytes((double)info.free_bytes).text);
}

/* ---- timings ---- */

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of `steps` training steps after a warm-up, ascending; the caller frees them. A device that works beside the
 * host is kept some steps behind it (Backend.poll), as in training: then the steps go by at the device's pace. */
static double *time_steps(Run *r, int64_t steps, Error *error) {
  double *seconds = malloc((size_t)steps * sizeof *seconds);
  if (!seconds) fail(error, EXIT_MEMORY, "out of memory for %" PRId64 " timings", steps);
  double start = clock_seconds();
  for (int64_t i = -BENCH_WARM_UP; seconds && i < steps && !stop_signal; i++) {
    StepState reports[REPORT_RING];
    bool filled = run_fill_batch(r, BENCH_WARM_UP + i + 1, error);
    const TokenBatch step = run_batch(r);
    if (filled) model_train_step(r->model, &step);
    if (!filled || model_reports(r->model, reports, REPORT_RING, false, error) < 0) {
      free(seconds);
      return NULL;
    }
    double end = clock_seconds();
    if (i >= 0) seconds[i] = end - start;
    start = end;
  }
  if (seconds && stop_signal) {
    free(seconds);
    fail(error, (ExitCode)(128 + stop_signal), "stopped while timing");
    return NULL;
  }
  if (seconds) qsort(seconds, (size_t)steps, sizeof *seconds, compare_doubles);
  return seconds;
}

/* For --minutes: what this machine does, leaving 7 % for evaluation and saving. */
bool run_measure_steps_per_minute(Run *r, double *out, Error *error) {
  enum { STEPS = 20 };
  TrainSettings kept = r->settings;
  r->settings.steps = STEPS + BENCH_WARM_UP;
  r->settings.warmup = 0;
  bool ok = run_start_model(r, error);
  if (ok) run_init_weights(r);
  double *seconds = ok ? time_steps(r, STEPS, error) : NULL;
  if (seconds) *out = 0.93 * 60.0 / seconds[STEPS / 2];
  ok = seconds;
  free(seconds);
  run_stop_model(r);
  r->settings = kept;
  return ok;
}

bool run_bench(Run *r, Error *error) {
  int64_t n = r->settings.bench;
  double *seconds = time_steps(r, n, error);
  if (!seconds) return false;
  ContextInfo info;
  r->backend->info(r->context, &info);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  double median = seconds[n / 2];
  printf("{\"tokens_per_s\": %.1f, \"step_ms\": %.4f, \"step_ms_p10\": %.4f, \"step_ms_p90\": %.4f, "
         "\"peak_memory_bytes\": %zu, "
         "\"device\": \"%s\", \"dtype\": \"%s\", \"params\": %" PRId64
         ", \"threads\": %d, \"batch\": %d, \"grad_accum\": %d, \"ctx\": %d, "
         "\"steps\": %" PRId64 ", \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g}\n",
         (double)settings_tokens_per_step(&r->settings) / median, 1e3 * median, 1e3 * seconds[n / 10],
         1e3 * seconds[n - 1 - n / 10], info.accelerator ? info.peak_bytes : (size_t)usage.ru_maxrss * 1024,
         info.device, dtype_name(info.dtype), model_table(r->model)->parameters, info.threads, r->settings.batch,
         r->settings.grad_accum, r->config.ctx, n,
         model_step_flops(&r->config, settings_tokens_per_step(&r->settings)) / median, r->peak_flops);
  free(seconds);
  if (fflush(stdout) != 0) return fail(error, EXIT_OUTPUT, "cannot write to stdout: %s", strerror(errno));
  return true;
}
