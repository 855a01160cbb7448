/* Samples: text generated during training, on the console and in samples.txt; and how much of the last one the training
 * text contains. */
#include "train/run.h"

#include "cli/startup.h"
#include "inference/answers.h"
#include "inference/generation.h"
#include "inference/longest_match.h"
#include "text/tokenizer/chat.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/path.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the token that texts begin with: the tokenizer's, else that of the initial model, else the end of a document
 * if there are several documents or an encoder, else a newline or, where that is no token, the first token of the text:
 * the end token of a single document is never an input in training. */
int run_start_token(const Run *r) {
  if (r->model.config.encoder_layers) return tokenizer_end(r->text.tokenizer);
  if (tokenizer_begin(r->text.tokenizer) >= 0) return tokenizer_begin(r->text.tokenizer);
  if (run_base(r) && r->base.special.start >= 0) return r->base.special.start;
  if (r->text.train.file.info.documents > 1) return tokenizer_end(r->text.tokenizer);
  int32_t start = tokenizer_bpe(r->text.tokenizer)->byte_ids['\n'];
  Error ignored = {0};
  return start >= 0 || token_file_read(&r->text.train.file, 0, 1, &start, &ignored) ? start
                                                                                    : tokenizer_end(r->text.tokenizer);
}

/* Makes a text that keeps its tokens, which become those that the model has drawn, and writes it. */
static bool write_sample(RunModel *model, Tokenizer *tokenizer, Text *text, FILE *stream, Error *error) {
  Generation *generation;
  bool ok =
      generation_open(&generation, model->decoder, 1, tokenizer, error) && generation_add(generation, text, error);
  while (ok && !text->ended && !stop_signal) ok = generation_step(generation, error);
  generation_close(generation);
  fwrite(text->bytes.bytes, 1, text->ready, stream);
  model->drawn.count = 0;
  ok = ok && bpe_ids_sink(&model->drawn, text->ids.ids, text->ids.count, error);
  generation_free_text(text);
  return ok;
}

/* ---- of a text ---- */

/* Makes the ids before an answer: to the prompt, or to nothing. */
static bool ask(Run *r, const char *prompt, size_t length, BpeIds *out, Error *error) {
  Tokenizer *tokenizer = r->text.tokenizer;
  const ChatTurn turn = {CHAT_USER, (const uint8_t *)prompt, length};
  Chat *chat = NULL;
  if (!r->text.train.file.info.conversations)
    return generation_prompt(tokenizer, run_start_token(r), (const uint8_t *)prompt, length, out, error);
  const bool ok =
      chat_open(&chat, tokenizer, error) && chat_encode(chat, tokenizer, &turn, length > 0, true, out, error);
  chat_close(chat);
  return ok;
}

static bool sample_text(Run *r, FILE *stream, Error *error) {
  const char *prompt = r->settings.prompt ? r->settings.prompt : "";
  const size_t length = strlen(prompt);
  const size_t ctx = (size_t)r->model.config.ctx;
  BpeIds ids = {0};
  Text text = {.sampling = sampling_initial(),
               .max_tokens = r->settings.sample_tokens,
               .keep = ctx > 1 ? (int)ctx / 2 : 1,
               .keep_tokens = true,
               .alternatives = -1};
  fwrite(prompt, 1, length, stream);
  if (length && r->text.train.file.info.conversations) fputs(" -> ", stream);
  bool ok = ask(r, prompt, length, &ids, error);
  const size_t skipped = ids.count > ctx ? ids.count - ctx : 0; /* tokens that exceed the context */
  text.sampling.seed = r->settings.seed;
  text.prompt.decoder = (BpeIds){.ids = ids.ids + skipped, .count = ids.count - skipped};
  ok = ok && write_sample(&r->model, r->text.tokenizer, &text, stream, error);
  free(ids.ids);
  return ok;
}

/* ---- of pairs: the likeliest answers ---- */

static void write_tokens(const Tokenizer *tokenizer, const BpeIds *ids, FILE *stream) {
  for (size_t i = 0; i < ids->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(tokenizer, ids->ids[i], &size);
    fwrite(bytes, 1, size, stream);
  }
}

/* Writes "PROMPT -> ANSWER", and the right answer if `target` is not NULL. End tokens have no text. */
static bool write_answer(Run *r, const PairReader *reader, const BpeIds *prompt, const BpeIds *target, FILE *stream,
                         Error *error) {
  Text answer = answer_text(reader, prompt, r->settings.sample_tokens);
  write_tokens(run_source_tokenizer(&r->text), prompt, stream);
  fputs(" -> ", stream);
  if (!write_sample(&r->model, r->text.tokenizer, &answer, stream, error)) return false;
  if (!target) return true;
  fputs("   (right: ", stream);
  write_tokens(r->text.tokenizer, target, stream);
  fputs(")", stream);
  return true;
}

static bool answer_prompt(Run *r, const PairReader *reader, FILE *stream, Error *error) {
  const char *text = r->settings.prompt;
  Tokenizer *tokenizer = run_source_tokenizer(&r->text);
  const int32_t end = tokenizer_end(tokenizer);
  const size_t ctx = (size_t)r->model.config.ctx;
  BpeIds ids = {0};
  bool ok = tokenizer_encode(tokenizer, (const uint8_t *)text, strlen(text), &ids, error) &&
            bpe_ids_sink(&ids, &end, 1, error);
  if (ok && ids.count > ctx) {
    memmove(ids.ids, ids.ids + ids.count - ctx, ctx * sizeof *ids.ids);
    ids.count = ctx;
  }
  ok = ok && write_answer(r, reader, &ids, NULL, stream, error);
  free(ids.ids);
  return ok;
}

static bool answer_pairs(Run *r, PairReader *reader, FILE *stream, Error *error) {
  enum { SHOWN_PAIRS = 5 };
  BpeIds prompt = {0}, target = {0};
  bool given, ok = true;
  for (int i = 0; ok && i < SHOWN_PAIRS && !stop_signal; i++) {
    ok = pair_reader_next(reader, &prompt, &target, &given, error);
    if (!ok || !given) break;
    if (i > 0) fputc('\n', stream);
    ok = write_answer(r, reader, &prompt, &target, stream, error);
  }
  free(prompt.ids);
  free(target.ids);
  return ok;
}

/* Answers --prompt, or else the first validation pairs, or training pairs if there is no validation text. */
static bool sample_answers(Run *r, FILE *stream, Error *error) {
  const Windows *windows = windows_count(&r->text.val.windows, 1) > 0 ? &r->text.val.windows : &r->text.train.windows;
  PairReader reader;
  bool ok = pair_reader_open(&reader, windows, r->model.on_device, r->text.tokenizer, error) &&
            (r->settings.prompt ? answer_prompt(r, &reader, stream, error) : answer_pairs(r, &reader, stream, error));
  pair_reader_close(&reader);
  return ok;
}

/* ---- all of them ---- */

static bool append_sample(const char *dir, int64_t step, const char *text, size_t size, Error *error) {
  const PathText path = path_in(dir, CHECKPOINT_SAMPLES);
  FILE *file = fopen(path.text, "a");
  bool ok = file && fprintf(file, "=== step %" PRId64 "\n", step) > 0 && fwrite(text, 1, size, file) == size &&
            fputc('\n', file) != EOF;
  if (file) ok = fclose(file) == 0 && ok;
  return ok || file_fail_write(path.text, error);
}

/* Replaces control characters, which would confuse the terminal. */
static void show_sample(Console *console, int64_t step, char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)text[i] < 32 && text[i] != '\n' && text[i] != '\t') text[i] = '?';
  console_line(console, "--- sample after %s\n%s\n---", text_plural((double)step, "step").text, text);
}

static bool sample(Run *r, Error *error) {
  if (!r->settings.sample_tokens || stop_signal) return true;
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return error_memory(error, "a sample");
  bool ok = r->model.config.encoder_layers ? sample_answers(r, stream, error) : sample_text(r, stream, error);
  const bool written = !ferror(stream);
  if ((fclose(stream) != 0 || !written) && ok) ok = error_memory(error, "a sample");
  const int64_t step = r->session.holds_kept ? r->progress.best_step : r->progress.step; /* of the weights */
  ok = ok && append_sample(r->files.dir, step, text, size, error);
  if (ok) r->progress.sampled_step = r->progress.step;
  if (ok) show_sample(&r->console, step, text, size);
  free(text);
  return ok;
}

bool run_sample(Run *r, Error *error) { return run_in_phase(r, PHASE_SAMPLES, sample, error); }

/* ---- novelty: finds passages of the sample that appear in the training text, and compares with text
 * that the model was not trained on ---- */

enum { FEWEST_TOKENS = 64, MOST_TOKENS = 4096, EXCERPTS = 4 };

static bool go_on(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens, (void)error;
  return !stop_signal;
}

/* Returns the bytes of the longest passage of the tokens that occurs in the training text. `lengths` [count]: see
 * longest_match_lengths(). */
static size_t copied_bytes(const Tokenizer *tokenizer, const int32_t *ids, const int32_t *lengths, size_t count) {
  size_t end = 0, length = 0, bytes = 0, size;
  for (size_t i = 0; i < count; i++) {
    if ((size_t)lengths[i] <= length) continue;
    length = (size_t)lengths[i];
    end = i + 1;
  }
  for (size_t i = end - length; i < end; i++) {
    tokenizer_decode(tokenizer, ids[i], &size);
    bytes += size;
  }
  return bytes;
}

/* Collects the sample and equally long excerpts of the validation text, each after a -1. */
static bool collect_texts(const RunText *text, const BpeIds *drawn, int32_t *ids, size_t count, Error *error) {
  const int64_t room = token_range_size(&text->val.range) - (int64_t)count;
  memcpy(ids, drawn->ids, count * sizeof *ids);
  for (int i = 0; i < EXCERPTS; i++) {
    int32_t *to = ids + (size_t)(i + 1) * (count + 1);
    to[-1] = -1;
    if (!token_file_read(text->val.range.file, text->val.range.begin + room * i / EXCERPTS, (int64_t)count, to, error))
      return false;
  }
  return true;
}

/* Computes the bytes that the sample and each excerpt have in common with the training text. */
static bool compare(const Run *r, size_t count, size_t copied[EXCERPTS + 1], Error *error) {
  const size_t all = (EXCERPTS + 1) * (count + 1) - 1;
  const TextPart *train = &r->text.train;
  const TokenRange trained = {&train->file, 0, r->text.mixture.count ? train->file.info.tokens : train->range.end};
  int32_t *ids = malloc(all * sizeof *ids), *lengths = calloc(all, sizeof *lengths);
  const bool ok = ((ids && lengths) || error_memory(error, "a comparison of texts")) &&
                  collect_texts(&r->text, &r->model.drawn, ids, count, error) &&
                  longest_match_lengths(&trained, ids, all, lengths, (Progress){go_on, NULL}, error);
  for (size_t i = 0; ok && i <= EXCERPTS; i++)
    copied[i] = copied_bytes(r->text.tokenizer, ids + i * (count + 1), lengths + i * (count + 1), count);
  free(ids);
  free(lengths);
  return ok || !error->code; /* stopped */
}

static bool check_novelty(Run *r, Error *error) {
  const size_t count = r->model.drawn.count < MOST_TOKENS ? r->model.drawn.count : MOST_TOKENS;
  size_t copied[EXCERPTS + 1] = {0}, usual = 0;
  MetricsLine line;
  if (history_has_diagnosis(&r->files.history, DIAGNOSIS_COPYING) || r->model.config.encoder_layers ||
      count < FEWEST_TOKENS || token_range_size(&r->text.val.range) < (int64_t)count)
    return true;
  if (!compare(r, count, copied, error)) return false;
  for (int i = 1; i <= EXCERPTS; i++)
    if (copied[i] > usual) usual = copied[i];
  return stop_signal ||
         !diagnosis_of_sample(r->progress.step, r->progress.step * settings_tokens_per_step(&r->settings), copied[0],
                              usual, &line) ||
         run_log_diagnosis(r, &line, error);
}

bool run_check_novelty(Run *r, Error *error) { return run_in_phase(r, PHASE_SAMPLES, check_novelty, error); }
