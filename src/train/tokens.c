/* The tokens of a run: corpora -> token files -> ranges for training and validation -> windows -> batches. */
#include "cli/startup.h"
#include "text/dataset/tokenization.h"
#include "train/architecture.h"
#include "train/run.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { VALIDATION_TOKENS = AUTO_VAL_MTOKENS * 1000000 /* at most */ };

/* ---- token files and ranges ---- */

/* Says how much of a validation text is left out. `name`: the option that names the tokenizer. */
static void note_missing(Run *r, const char *name, const Tokenizer *tokenizer, const EncodedPieces *counts) {
  if (!counts->missing) return;
  const WordLevel level = tokenizer_bpe(tokenizer)->level;
  const bool made = !run_base(r) && !settings_tokenizer_is_path(name), unknown = made && level != WORD_LEVEL_IDS;
  console_note(&r->console, "left out of the validation text: %" PRId64 " of %s, which the %s does not have%s",
               counts->missing, text_plural((double)counts->pieces, word_level_kinds[level].piece).text,
               made ? "training text" : "vocabulary", unknown ? "; --unk counts them" : "");
}

/* Opens the tokens of the training or validation text in the directory if they are those of the text, else encodes it.
 * The tokens of an older run there stay until this one begins: it may still be refused. */
static bool encode(Run *r, TextPart *part, Corpus *corpus, Error *error) {
  const RunText *text = &r->text;
  const bool val = part == &text->val;
  const PathText path = run_data_path(r, val ? CHECKPOINT_VAL_TOKENS : CHECKPOINT_TOKENS);
  const PathText replacing = run_data_path(r, val ? CHECKPOINT_NEW_VAL_TOKENS : CHECKPOINT_NEW_TOKENS);
  EncodedPieces counts[2] = {{0}};
  Console *console = &r->console;
  StartupWork encoding = {
      .console = console, .name = "encoding", .total = corpus ? (double)corpus_bytes(corpus) : 0, .bytes = true};
  StartupWork checking = {.console = console, .name = "checking tokens", .later_total = &part->file.info.tokens};
  const Tokenization options = {.source_tokenizer = text->source_tokenizer,
                                .threads = text->threads,
                                .encoding = startup_progress(&encoding),
                                .checking = startup_progress(&checking),
                                .stop = &stop_signal,
                                .special = r->settings.special,
                                .all_turns = r->settings.train_on == TRAIN_ON_ALL,
                                .written = r->files.lock.had_run ? replacing.text : path.text,
                                .counts = val ? counts : NULL};
  const double start = clock_seconds();
  bool ok = tokenization_open(&part->file, path.text, corpus, text->tokenizer, &options, error);
  const double seconds = clock_seconds() - start;
  console_work_end(console);
  if (ok && encoding.began && seconds > 2)
    console_line(console, "encoded  %s in %s, %s/s", text_bytes(encoding.total).text, text_duration(seconds).text,
                 text_bytes(encoding.total / seconds).text);
  if (ok) note_missing(r, r->settings.tokenizer, text->tokenizer, &counts[0]);
  if (ok) note_missing(r, r->settings.source_tokenizer, text->source_tokenizer, &counts[1]);
  return ok;
}

/* The ranges of a run whose tokens were cut: the last ones are held out. */
static void cut_tokens(Run *r) {
  RunText *text = &r->text;
  const double held_out = checkpoint_find_number(r->files.dir, "val_tokens");
  const double begin = fmax(0, (double)text->train.range.end - (isnan(held_out) ? 0 : held_out));
  text->val.range = (TokenRange){&text->train.file, (int64_t)begin, text->train.range.end};
  text->train.range.end = text->val.range.begin;
}

/* Returns whether the run has a file of validation tokens; without its text, a resumed run has what it had. */
static bool has_val_file(const Run *r, const Corpus *train, const Corpus *val) {
  return r->settings.val || val ||
         (!train && !r->text.cut_by_tokens && checkpoint_find_number(r->files.dir, "val_bytes") > 0);
}

bool run_open_tokens(Run *r, Corpus *train, Corpus *val, Error *error) {
  const TrainSettings *s = &r->settings;
  RunText *text = &r->text;
  if (!encode(r, &text->train, train, error)) return false;
  const TokenFileInfo *info = &text->train.file.info;
  if (info->tokens == 0)
    return fail(error, EXIT_INPUT, "%s holds no text: there is nothing to train on", run_text_name(s).text);
  text->train.range = token_file_group(&text->train.file, 0);
  text->val.range = (TokenRange){&text->train.file, 0, 0};
  if (text->cut_by_tokens) cut_tokens(r);
  if (has_val_file(r, train, val)) {
    if (!encode(r, &text->val, val, error)) return false;
    const int64_t tokens = text->val.file.info.tokens;
    text->val.range = (TokenRange){&text->val.file, 0, tokens < VALIDATION_TOKENS ? tokens : VALIDATION_TOKENS};
  }
  if (!train)
    text->facts = (TextFacts){.files = s->data.count, .bytes = info->bytes + (s->val ? 0 : text->val.file.info.bytes)};
  if (s->val && !run_has_validation(text))
    return fail(error, EXIT_INPUT, "--val %s: %s, too few for validation", text_one_line(s->val, 250).text,
                text_plural((double)text->val.file.info.tokens, "token").text);
  return tokenization_text_sum(&text->val.range, text->tokenizer, text->source_tokenizer, &text->val_text, error);
}

/* ---- windows ---- */

bool run_measure_documents(Run *r, DocumentLengths *out, Error *error) {
  *out = (DocumentLengths){0};
  if (r->settings.pack == PACK_STREAM || r->settings.model.ctx) return true;
  StartupWork work = {
      .console = &r->console, .name = "measuring documents", .total = (double)token_range_size(&r->text.train.range)};
  const int32_t end = tokenizer_end(r->text.tokenizer);
  const Progress progress = startup_progress(&work);
  const bool encoder = architecture_has_encoder(&r->settings, run_has_pairs(&r->text));
  bool ok = encoder ? pairs_measure(&r->text.train.range, end, out, progress, error)
                    : packing_measure(&r->text.train.range, end, out, progress, error);
  console_work_end(&r->console);
  return ok;
}

/* Packs whole documents into windows, or pairs for an encoder. */
static bool pack(Run *r, TextPart *part, Error *error) {
  const RunText *text = &r->text;
  StartupWork work = {
      .console = &r->console, .name = "packing documents", .total = (double)token_range_size(&part->range)};
  const Progress progress = startup_progress(&work);
  const bool encoder = r->model.config.encoder_layers > 0;
  const int ctx = r->model.config.ctx;
  const bool ok = encoder
                      ? pairs_make(&part->pairs, &part->range, ctx,
                                   pair_tokens(text->tokenizer, text->source_tokenizer), progress, error)
                      : packing_make(&part->packing, &part->range, ctx, pack_tokens(text->tokenizer), progress, error);
  console_work_end(&r->console);
  if (!ok && part == &text->val) error_append(error, " (validation text)");
  if (encoder) part->windows.pairs = &part->pairs;
  else part->windows.packing = &part->packing;
  return ok;
}

/* A window of a stream is ctx tokens and the token after them. */
static bool check_text_length(const Run *r, Error *error) {
  const int64_t train = token_range_size(&r->text.train.range);
  const int least = r->model.config.ctx + 1;
  char shorter[48] = "";
  if (r->settings.pack == PACK_DOCS || train >= least) return true;
  if (train > 1) snprintf(shorter, sizeof shorter, ", or --ctx %" PRId64 " or less", train - 1);
  return fail(error, EXIT_INPUT,
              "%s: %s for training (and %" PRId64 " for validation), but a window needs ctx + 1 = %d; give more text%s",
              run_text_name(&r->settings).text, text_plural((double)train, "token").text,
              token_range_size(&r->text.val.range), least, shorter);
}

/* Notes that validation was asked for but there is too little text for it. */
static void note_little_validation(Run *r) {
  const int64_t tokens = token_range_size(&r->text.val.range);
  const int ctx = r->model.config.ctx;
  if (r->settings.val_frac <= 0 && !r->settings.val) return;
  if (!run_has_validation(&r->text))
    console_note(&r->console, "the text is too short to hold out a part of it: there is no validation, and the newest "
                              "model is kept");
  else if (tokens <= ctx)
    console_note(&r->console,
                 "only %s for validation, less than a context of %d: the validation loss says little; --val-frac 0 "
                 "learns all of the text and keeps the newest model",
                 text_plural((double)tokens, "token").text, ctx);
}

const Windows *run_windows(const RunText *text, int64_t number, int64_t *index) {
  const int from = mixture_text(&text->mixture, number, index);
  return from ? &text->weighted[from - 1].windows : &text->train.windows;
}

/* Opens the windows of a text with a share. */
static bool open_weighted(Run *r, int index, Error *error) {
  TextPart *part = &r->text.weighted[index];
  const int ctx = r->model.config.ctx;
  const bool docs = r->settings.pack == PACK_DOCS;
  part->range = token_file_group(&r->text.train.file, index + 1);
  part->windows = (Windows){.range = part->range, .ctx = ctx};
  if (docs && !pack(r, part, error)) return false;
  if (docs ? windows_count(&part->windows, 1) > 0 : token_range_size(&part->range) > ctx) return true;
  return fail(error, EXIT_INPUT, "%s: %s for training, too few for a window of the context of %d",
              text_one_line(r->settings.data.items[r->text.mixture.items[index]], 250).text,
              text_plural((double)token_range_size(&part->range), "token").text, ctx);
}

bool run_open_windows(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  RunText *text = &r->text;
  const int ctx = r->model.config.ctx;
  const bool docs = s->pack == PACK_DOCS;
  text->train.windows = (Windows){.range = text->train.range, .ctx = ctx};
  text->val.windows = (Windows){.range = text->val.range, .ctx = ctx};
  if (!check_text_length(r, error)) return false;
  if (docs) {
    if (!pack(r, &text->train, error) || !pack(r, &text->val, error)) return false;
    if (windows_count(&text->train.windows, 1) == 0)
      return text->train.windows.packing && text->train.windows.packing->dropped
                 ? fail(error, EXIT_INPUT,
                        "%s: no conversation's last question and answer fit into the context of %d tokens; give a "
                        "longer --ctx",
                        run_text_name(s).text, ctx)
                 : fail(error, EXIT_INPUT, "%s: the training text holds only prompts: there is nothing to train on",
                        run_text_name(s).text);
  }
  for (int i = 0; i < text->mixture.count; i++)
    if (!open_weighted(r, i, error)) return false;
  token_file_read_randomly(&text->train.file);
  note_little_validation(r);
  return true;
}

bool run_fill_batch(Run *r, int64_t step, TokenBatch *out, Error *error) {
  const TrainSettings *s = &r->settings;
  const SequenceShare share = run_sequence_share(r);
  const int ctx = r->model.config.ctx;
  const int64_t per_step = (int64_t)s->batch * s->grad_accum;
  if (!token_file_check(&r->text.train.file, error)) return false;
  for (int i = 0; i < share.batch * share.micro_batches; i++) {
    const Window window = batch_window(&r->model.batch, i);
    const int64_t number = (step - 1) * per_step + share.first + i;
    const bool empty = i >= share.count;
    int64_t index;
    const Windows *windows = run_windows(&r->text, number, &index);
    if (empty ? !windows_read(windows, ctx, INT64_MAX / ctx, &window, error)
              : !windows_draw(windows, s->seed, index, &window, error))
      return false;
    windows = run_windows(&r->text, number + per_step, &index);
    if (!empty) windows_prefetch(windows, s->seed, index);
  }
  *out = batch_tokens(&r->model.batch);
  return true;
}

/* ---- closing ---- */

/* Files stay readable while they are mapped. */
void run_remove_scratch(RunText *text) {
  static const char *const names[] = {CHECKPOINT_STDIN_COPY, CHECKPOINT_TOKENS, CHECKPOINT_VAL_TOKENS};
  if (!text->scratch) return;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) file_remove_in(text->scratch, names[i]);
  rmdir(text->scratch);
  free(text->scratch);
  text->scratch = NULL;
}

static void close_part(TextPart *part) {
  packing_free(&part->packing);
  pairs_free(&part->pairs);
  token_file_close(&part->file);
}

void run_close_data(RunText *text) {
  run_remove_scratch(text);
  close_part(&text->train);
  for (int i = 0; i < text->mixture.count; i++) close_part(&text->weighted[i]);
  close_part(&text->val);
  choices_free(&text->choices);
  tokenizer_free(text->tokenizer);
  tokenizer_free(text->source_tokenizer);
}
