/* What a run will be, printed before it starts. */
#include "training/run.h"

#include "training/architecture.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_packing(Console *c, const Packing *p) {
  const double places = (double)p->table.windows * p->ctx;
  console_line(c, "packing  %s windows of whole documents; %.1f %% of them is padding",
               text_count((double)p->table.windows).text, p->table.windows ? 100 * (1 - (double)p->used / places) : 0);
  if (p->cut)
    console_line(c, "         %s of %s documents are longer than the context of %d tokens and are split",
                 text_count((double)p->cut).text, text_count((double)p->documents).text, p->ctx);
  if (p->left_out)
    console_line(c, "         %s tokens are left out: windows with prompts only", text_count((double)p->left_out).text);
}

static void print_pairs(Console *c, const Pairs *p) {
  const double places = fmax(1, (double)p->table.windows * p->ctx);
  console_line(
      c, "packing  %s pairs in %s windows; %.1f %% of the prompts' places and %.1f %% of the responses' are padding",
      text_count((double)(p->pairs - p->left_out)).text, text_count((double)p->table.windows).text,
      100 * (1 - (double)p->used_source / places), 100 * (1 - (double)p->used_target / places));
  if (p->empty_sources)
    console_line(c, "         pairs with an empty prompt: %s; the first is number %" PRId64,
                 text_count((double)p->empty_sources).text, p->first_empty);
  if (p->left_out)
    console_line(
        c,
        "         pairs left out, because they are longer than the context of %d tokens: %s; the first is number "
        "%" PRId64 ", of %" PRId64 " and %" PRId64 " tokens",
        p->ctx, text_count((double)p->left_out).text, p->first_left_out.number, p->first_left_out.source,
        p->first_left_out.target);
}

static void print_text(Run *r) {
  const TextFacts *text = &r->text;
  const int64_t documents = r->tokens_file.info.documents;
  Console *c = &r->console;
  const int more = r->settings.data.count - 1;
  char files[96] = "";
  if (more > 0) snprintf(files, sizeof files, " and %d more", more);
  if (text->files > more + 1) snprintf(files + strlen(files), sizeof files - strlen(files), " (%d files)", text->files);
  console_line(c, "text     %s%s: %s, %s tokens to train on, %s to validate, %" PRId64 " document%s",
               text_one_line(run_text_name(r), 250).text, files, text_bytes((double)text->bytes).text,
               text_count((double)token_range_size(&r->train)).text, text_count((double)token_range_size(&r->val)).text,
               documents, documents == 1 ? "" : "s");
  if (text->skipped)
    console_line(c,
                 "         %" PRId64 " name%s in directories skipped: only .txt, .jsonl and .tsv files are read, no "
                 "hidden files, no runs",
                 text->skipped, text->skipped == 1 ? "" : "s");
  if (r->windows.pairs) print_pairs(c, r->windows.pairs);
  else if (r->windows.packing) print_packing(c, r->windows.packing);
}

static void print_model(Run *r) {
  const ModelConfig *m = &r->config;
  char encoder[48] = "", sources[64] = "";
  if (m->encoder_layers) snprintf(encoder, sizeof encoder, "encoder of %d and decoder of ", m->encoder_layers);
  if (r->source_tokenizer)
    snprintf(sources, sizeof sources, ", of sources %d (%s)", m->source_vocab, tokenizer_name(r->source_tokenizer));
  console_line(&r->console,
               "model    %s parameters: %s%d layers x %d, %d heads%s, ffn %d, context %d, vocabulary %d (%s)%s%s",
               text_count((double)model_parameters(m)).text, encoder, m->layers, m->dim, m->heads,
               m->kv_heads < m->heads ? " (grouped)" : "", m->ffn, m->ctx, m->vocab, tokenizer_name(r->tokenizer),
               sources, m->tie ? ", tied" : "");
  bool own;
  const char *class = checkpoint_class(m, &own);
  console_line(&r->console, "         %s; in transformers %s%s", architecture_words(m).text, class,
               own ? ", with trust_remote_code (no class has these parts)" : "");
}

/* "dropout 0.1, in the MLP 0.2" */
typedef struct DropoutWords {
  char text[128];
} DropoutWords;
static DropoutWords dropout_words(const DropoutRates *d) {
  const struct {
    const char *place;
    float rate, usual;
  } places[] = {{"embedding", d->embedding, d->branch}, {"attention", d->attention, d->branch}, {"MLP", d->hidden, 0}};
  DropoutWords words;
  int used = snprintf(words.text, sizeof words.text, "dropout %g", (double)d->branch);
  for (int i = 0; i < 3; i++)
    if (places[i].rate != places[i].usual)
      used += snprintf(words.text + used, sizeof words.text - (size_t)used, ", in %s %g", places[i].place,
                       (double)places[i].rate);
  return words;
}

/* "Muon with lr 0.01, AdamW with 0.003" */
typedef struct OptimizerWords {
  char text[64];
} OptimizerWords;
static OptimizerWords optimizer_words(const TrainSettings *s) {
  OptimizerWords words;
  if (s->optimizer == OPTIMIZER_MUON)
    snprintf(words.text, sizeof words.text, "Muon with lr %.3g, AdamW with %.3g", (double)s->muon_lr, (double)s->lr);
  else snprintf(words.text, sizeof words.text, "AdamW with lr %.3g", (double)s->lr);
  return words;
}

static void print_length(Run *r, const TrainConfig *train) {
  const TrainSettings *s = &r->settings;
  const int64_t per_step = settings_tokens_per_step(s);
  const double tokens = (double)per_step * (double)s->steps;
  console_line(&r->console,
               "run      %" PRId64 " steps of %" PRId64 " tokens: %s tokens, %.2f epochs; %s, %" PRId64
               " steps of warm-up; %s; seed %" PRIu64,
               s->steps, per_step, text_count(tokens).text, tokens / (double)run_epoch_tokens(r),
               optimizer_words(s).text, s->warmup, dropout_words(&train->dropout).text, s->seed);
}

static void print_memory(Run *r, const MemoryPlan *m) {
  const size_t text = r->tokens_file.file.size + r->val_file.file.size + r->text.stdin_bytes; /* kept with the run */
  console_line(
      &r->console,
      "memory   %s: weights %s, gradients %s, moments %s%s%s, activations %s, logits %s; copies %s%s; on disk up to %s",
      text_bytes((double)m->total).text, text_bytes((double)m->weights).text, text_bytes((double)m->gradients).text,
      text_bytes((double)m->moments).text, m->iteration ? ", Muon's iteration " : "",
      m->iteration ? text_bytes((double)m->iteration).text : "", text_bytes((double)m->activations).text,
      text_bytes((double)m->logits).text, text_bytes((double)m->copies).text,
      r->device.accelerator ? " on the host" : "",
      text_bytes((double)m->gradients + 3.0 * (double)m->copies + (double)text).text);
}

void run_print_plan(Run *r) {
  const TrainSettings *s = &r->settings;
  Console *c = &r->console;
  if (c->quiet) return;
  const TrainConfig train = choices_train_config(s);
  const MemoryPlan memory = model_memory(&r->config, &train, &r->device);
  const double flops = run_step_flops(r) * (double)(s->steps - r->step); /* that a resumed run has left */
  print_text(r);
  print_model(r);
  print_length(r, &train);
  print_memory(r, &memory);
  if (r->choices.text[0]) console_line(c, "chosen   %s", r->choices.text);
  const double estimate = isnan(r->pace.minutes) ? choices_step_seconds(flops, &r->device, r->peak_flops)
                                                 : r->pace.deadline - clock_seconds();
  console_line(c, "device   %s, %s, peak %.0f GFLOP/s; about %s for the run", r->device.device,
               dtype_name(r->device.dtype), 1e-9 * r->peak_flops, text_duration(estimate).text);
  if (!s->bench) console_line(c, "output   %s", r->dir);
  const size_t available = s->dry_run ? run_device_now(r).free_bytes : SIZE_MAX;
  if (memory.total > available)
    console_warning(c, "needs %s, but only %s is free", text_bytes((double)memory.total).text,
                    text_bytes((double)available).text);
}
