/* The plan of a run, printed before it starts: a table for people, or JSON. */
#include "cli/processes.h"
#include "train/run.h"

#include "files/formats/model_files.h"
#include "train/architecture.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_packing(Console *c, const Packing *p) {
  const double places = (double)p->table.windows * p->ctx;
  console_row(c, "packing", "%s of whole documents; %.1f %% is padding",
              text_plural_short((double)p->table.windows, "window").text,
              p->table.windows ? 100 * (1 - (double)p->used / places) : 0);
  if (p->cut)
    console_row(c, "", "longer than the context of %d tokens, and split: %s of %s", p->ctx,
                text_count((double)p->cut).text, text_plural_short((double)p->documents, "document").text);
  if (p->shortened)
    console_row(c, "", "longer than the context of %d tokens, and without their oldest turns: %s of %s", p->ctx,
                text_count((double)p->shortened).text, text_plural_short((double)p->documents, "conversation").text);
  if (p->dropped)
    console_row(c, "", "left out, because their last question and answer are longer than the context: %s",
                text_plural_short((double)p->dropped, "conversation").text);
  if (p->lost)
    console_row(c, "", "so the model never sees %s (%.1f %%); a longer --ctx and shorter conversations keep more",
                text_plural_short((double)p->lost, "token").text,
                100 * (double)p->lost / (double)(p->lost + p->used + p->left_out));
  if (p->left_out)
    console_row(c, "", "left out, in windows with prompts only: %s",
                text_plural_short((double)p->left_out, "token").text);
}

static void print_pairs(Console *c, const Pairs *p) {
  const double places = fmax(1, (double)p->table.windows * p->ctx);
  console_row(c, "packing",
              "%s in %s; %.1f %% of the prompt positions and %.1f %% of the response positions are padding",
              text_plural_short((double)(p->pairs - p->left_out), "pair").text,
              text_plural_short((double)p->table.windows, "window").text, 100 * (1 - (double)p->used_source / places),
              100 * (1 - (double)p->used_target / places));
  if (p->empty_sources)
    console_row(c, "", "pairs with an empty prompt: %s; the first is number %" PRId64,
                text_count((double)p->empty_sources).text, p->first_empty);
  if (p->left_out)
    console_row(c, "",
                "pairs left out because they are longer than the context of %d tokens: %s; the first is number "
                "%" PRId64 ", of %" PRId64 " and %s",
                p->ctx, text_count((double)p->left_out).text, p->first_left_out.number, p->first_left_out.source,
                text_plural((double)p->first_left_out.target, "token").text);
}

static void print_text(Console *c, const TrainSettings *s, const RunText *text) {
  const TextFacts *facts = &text->facts;
  const int more = s->data.count - 1;
  char files[96] = "";
  if (more > 0) snprintf(files, sizeof files, " and %d more", more);
  if (facts->files > more + 1) text_append(files, sizeof files, " (%d files)", facts->files);
  console_row(c, "text", "%s%s: %s, %s training tokens, %s validation tokens, %s", run_text_name(s).text, files,
              text_bytes((double)facts->bytes).text, text_count((double)token_range_size(&text->train.range)).text,
              text_count((double)token_range_size(&text->val.range)).text,
              text_plural((double)text->train.file.info.documents, "document").text);
  if (*facts->skipped.text)
    console_row(c, "", "skipped in directories: %s; only " TEXT_FILE_NAMES "s are read, no hidden files, no runs",
                facts->skipped.text);
  if (text->train.windows.pairs) print_pairs(c, text->train.windows.pairs);
  else if (text->train.windows.packing) print_packing(c, text->train.windows.packing);
}

static void print_shares(Run *r) {
  const Mixture *m = &r->text.mixture;
  const double whole = (double)MIXTURE_WHOLE;
  const double windows = (double)settings_tokens_per_step(&r->settings) * (double)r->settings.steps / whole;
  for (int i = 0; i < m->count; i++) {
    const double passes = windows * (double)m->shares[i] / (double)run_pass_tokens(r, &r->text.weighted[i]);
    console_row(&r->console, i ? "" : "shares", "%g %% of the windows are from %s: %s, read %s",
                100 * (double)m->shares[i] / whole,
                text_one_line(settings_text(r->settings.data.items[m->items[i]]).path.text, 250).text,
                text_plural_short((double)token_range_size(&r->text.weighted[i].range), "token").text,
                text_plural(round(100 * passes) / 100, "time").text);
  }
}

static void print_model(Console *c, const TrainSettings *s, const RunText *text, const ModelConfig *m) {
  char encoder[48] = "", sources[64] = "";
  if (m->encoder_layers) snprintf(encoder, sizeof encoder, "encoder of %d and decoder of ", m->encoder_layers);
  if (text->source_tokenizer)
    snprintf(sources, sizeof sources, ", source vocabulary %d (%s)", m->source_vocab,
             tokenizer_name(text->source_tokenizer));
  console_row(c, "model", "%s: %s%s x %d, %s%s, ffn %d, context %d, vocabulary %d (%s)%s%s",
              text_plural_short((double)model_parameters(m), "parameter").text, encoder,
              text_plural(m->layers, "layer").text, m->dim, text_plural(m->heads, "head").text,
              m->kv_heads < m->heads ? " (grouped)" : "", m->ffn, m->ctx, m->vocab, tokenizer_name(text->tokenizer),
              sources, m->tie ? ", tied" : "");
  bool own;
  const char *class = model_files_class(m, &own);
  console_row(c, "", "%s; transformers class %s%s", architecture_words(m).text, class,
              own ? ", with trust_remote_code (no class has this architecture)" : "");
  if (settings_start_from_model(s))
    console_row(c, "", "starts from the weights in %s", text_one_line(s->init, 250).text);
}

/* "dropout 0.1, in the MLP 0.2" */
static void write_dropout(const DropoutRates *d, char *out, size_t size) {
  const struct {
    const char *place;
    float rate, usual;
  } places[] = {{"embedding", d->embedding, d->branch}, {"attention", d->attention, d->branch}, {"MLP", d->hidden, 0}};
  snprintf(out, size, "dropout %g", (double)d->branch);
  for (int i = 0; i < 3; i++)
    if (places[i].rate != places[i].usual)
      text_append(out, size, ", in %s %g", places[i].place, (double)places[i].rate);
}

static void print_processes(Run *r) {
  const Collective *peers = r->peers;
  const SequenceShare share = run_sequence_share(r);
  if (peers->size == 1) return;
  console_row(&r->console, "ranks", "%d on %s, %s%s%s; each takes %d of a step's %s%s%s", peers->size,
              text_plural(r->machines, "machine").text, r->device.info.direct ? "by NCCL and " : "by ", peers->engine,
              r->device.info.direct || !r->device.info.accelerator ? ""
              : r->device.info.crowded                             ? " through their hosts (some share a GPU)"
                                       : " through their hosts (there is no NCCL that all can load)",
              share.count, text_plural(r->settings.batch * r->settings.grad_accum, "sequence").text,
              r->settings.batch * r->settings.grad_accum % peers->size ? " or one more" : "",
              r->settings.no_shard ? "" : " and updates its part of the parameters");
}

static void print_teacher(Run *r) {
  const TrainSettings *s = &r->settings;
  if (s->teacher)
    console_row(&r->console, "teacher", "%s: %s parameters; %g of the targets are its probabilities",
                text_one_line(s->teacher, 250).text, text_count((double)model_parameters(&r->teacher.config)).text,
                (double)s->teacher_weight);
  else if (s->teacher_steps > 0)
    console_row(&r->console, "teacher",
                "trained first, %s with seed %" PRIu64 "; %g of the targets are its probabilities",
                text_plural((double)s->teacher_steps, "step").text, s->seed + 1, (double)s->teacher_weight);
}

static void print_length(Run *r) {
  const TrainSettings *s = &r->settings;
  const int64_t per_step = settings_tokens_per_step(s);
  const double tokens = (double)per_step * (double)s->steps, epochs = tokens / (double)run_epoch_tokens(r);
  const TrainConfig train = settings_train_config(s);
  char dropout[128], muon[40] = "";
  if (s->optimizer == OPTIMIZER_MUON) snprintf(muon, sizeof muon, "Muon with lr %.3g, ", (double)s->muon_lr);
  write_dropout(&train.dropout, dropout, sizeof dropout);
  console_row(&r->console, "run", "%s of %s: %s, %s; %sAdamW with %s%.3g, %s of warm-up; %s; seed %" PRIu64,
              text_plural((double)s->steps, "step").text, text_plural((double)per_step, "token").text,
              text_plural_short(tokens, "token").text, text_plural(round(100 * epochs) / 100, "epoch").text, muon,
              *muon ? "" : "lr ", (double)s->lr, text_plural((double)s->warmup, "step").text, dropout, s->seed);
}

/* Compares the plans of several budgets. */
static void print_outlooks(Run *r) {
  const Outlooks *all = &r->outlooks;
  for (int i = 0; i < all->count; i++) {
    const Outlook *o = &all->items[i];
    char loss[24] = "-";
    if (!i) console_row(&r->console, "budgets", "%s", "minutes  model   parameters  epochs  teacher    loss");
    else snprintf(loss, sizeof loss, "%+.1f %%", 100 * (o->loss / all->items[0].loss - 1));
    console_row(&r->console, "", "%7g  %-6s  %10s  %6.1f  %7s  %6s", o->minutes, preset_names[o->preset],
                text_count(o->parameters).text, o->epochs, o->taught ? "yes" : "no", loss);
  }
}

/* Returns the seconds that the rest of the run will take. */
static double estimated_seconds(const Run *r) {
  const double left = (double)(r->settings.steps - r->progress.step);
  const double first = auto_teacher_flops(&r->settings, &r->model.config, r->device.info.accelerator);
  const double flops = run_step_flops(r) * left + (r->progress.step ? 0 : first);
  if (!isnan(r->budget.minutes))
    return fmin(r->budget.deadline - clock_seconds(),
                flops / run_step_flops(r) * r->budget.recent_seconds / r->budget.recent_steps);
  return auto_step_seconds(flops, &r->device.info, r->device.peak_flops);
}

/* Returns the bytes on disk: the model (as large as its gradients), three states and the text; with a teacher that is
 * trained first twice as many. */
static size_t disk_bytes(const Run *r, const MemoryPlan *m) {
  const RunText *text = &r->text;
  const size_t kept = text->train.file.file.size + text->val.file.file.size + text->facts.stdin_bytes;
  return (m->gradients + 3 * m->copies + kept) * (r->settings.teacher_steps > 0 ? 2 : 1);
}

static void print_memory(Run *r, const MemoryPlan *m) {
  console_row(
      &r->console, "memory",
      "%s: weights %s, gradients %s, moments %s%s%s%s%s, activations %s, logits %s; copies %s%s; on disk up to %s",
      text_bytes((double)m->total).text, text_bytes((double)m->weights).text, text_bytes((double)m->gradients).text,
      text_bytes((double)m->moments).text, m->iteration ? ", Muon's iteration " : "",
      m->iteration ? text_bytes((double)m->iteration).text : "", m->backend ? ", workspaces " : "",
      m->backend ? text_bytes((double)m->backend).text : "", text_bytes((double)m->activations).text,
      text_bytes((double)m->logits).text, text_bytes((double)m->copies).text,
      r->device.info.accelerator ? " on the host" : "", text_bytes((double)disk_bytes(r, m)).text);
}

void run_print_plan(Run *r) {
  const TrainSettings *s = &r->settings;
  Console *c = &r->console;
  Error refused = {0};
  if (c->quiet || (processes_have_parent() && !s->dry_run)) return;
  const MemoryPlan memory = run_memory(r);
  print_text(&r->console, &r->settings, &r->text);
  print_shares(r);
  print_model(&r->console, &r->settings, &r->text, &r->model.config);
  print_teacher(r);
  print_length(r);
  print_processes(r);
  print_memory(r, &memory);
  if (r->reasons.text[0]) console_row(c, "chosen", "%s", r->reasons.text);
  console_row(c, "device", "%s, %s, peak %s; about %s for the run", r->device.info.device,
              dtype_name(r->device.info.dtype), text_flops(r->device.peak_flops).text,
              text_duration(estimated_seconds(r)).text);
  if (s->dry_run) print_outlooks(r);
  const bool taken = s->dry_run && !s->resume && !s->overwrite && checkpoint_is_run(r->files.dir);
  if (!s->bench)
    console_row(c, "output", "%s%s", r->files.dir, taken ? ", which holds a run: it needs --overwrite" : "");
  if (s->dry_run && !run_check_memory(r, &refused)) console_warning(c, "%s", refused.text);
}

/* ---- for programs ---- */

static json_t *memory_json(const MemoryPlan *m, size_t free_bytes) {
  return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "total", (json_int_t)m->total, "weights",
                   (json_int_t)m->weights, "gradients", (json_int_t)m->gradients, "moments", (json_int_t)m->moments,
                   "iteration", (json_int_t)m->iteration, "backend", (json_int_t)m->backend, "activations",
                   (json_int_t)m->activations, "logits", (json_int_t)m->logits, "copies", (json_int_t)m->copies, "free",
                   (json_int_t)free_bytes);
}

static json_t *text_json(const RunText *text) {
  return json_pack("{s:I,s:I,s:I,s:I,s:I}", "files", (json_int_t)text->facts.files, "bytes",
                   (json_int_t)text->facts.bytes, "documents", (json_int_t)text->train.file.info.documents,
                   "train_tokens", (json_int_t)token_range_size(&text->train.range), "val_tokens",
                   (json_int_t)token_range_size(&text->val.range));
}

static json_t *plan_json(const Run *r, char *settings, Error *error) {
  const TrainSettings *s = &r->settings;
  bool own;
  const int64_t per_step = settings_tokens_per_step(s), tokens = per_step * s->steps;
  const MemoryPlan memory = run_memory(r);
  const int64_t params = model_parameters(&r->model.config);
  const int64_t params_without_embeddings = model_parameters_without_embeddings(&r->model.config);
  return json_pack(
      "{s:o,s:s,s:I,s:I,s:i,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:o,s:I,s:s,s:s,s:s,s:o,s:o}", "text", text_json(&r->text),
      "run", text_one_line(r->files.dir, ONE_LINE_BYTES - 1).text, "params", (json_int_t)params,
      "params_without_embeddings", (json_int_t)params_without_embeddings, "processes", r->peers->size, "class",
      model_files_class(&r->model.config, &own), "steps", (json_int_t)s->steps, "tokens_per_step", (json_int_t)per_step,
      "tokens", (json_int_t)tokens, "epochs", (double)tokens / (double)run_epoch_tokens(r), "flops_per_step",
      run_step_flops(r), "peak_flops_per_s", r->device.peak_flops, "seconds", estimated_seconds(r), "memory_bytes",
      memory_json(&memory, r->device.info.free_bytes), "disk_bytes", (json_int_t)disk_bytes(r, &memory), "device",
      r->device.info.device, "dtype", dtype_name(r->device.info.dtype), "chosen", r->reasons.text, "budgets",
      outlooks_json(&r->outlooks, NAN), "settings", result_settings_text(settings, error));
}

bool run_print_plan_json(Run *r, Error *error) {
  char *settings = NULL;
  size_t size = 0;
  if (!run_settings_text(&r->options, &r->settings, &settings, &size, error)) return false;
  json_t *plan = plan_json(r, settings, error);
  char *text =
      model_counts_ok(error) ? json_text(plan, JSON_INDENT(2) | JSON_REAL_PRECISION(10), "the plan", error) : NULL;
  if (text) puts(text);
  const bool ok = text && file_flush(stdout, "stdout", error);
  json_decref(plan);
  free(settings);
  free(text);
  return ok;
}
