/* Samples: what the model writes, on the console and in samples.txt. */
#include "training/run.h"

#include "cli/startup.h"
#include "model/generation.h"
#include "tokenizer/bpe_encode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The end of a document where the text has several, or all of them are seen to begin with it, as all targets of sources
 * are; else a newline. */
int run_start_token(const Run *r) {
  if (r->tokens_file.info.documents > 1 || r->settings.pack == PACK_DOCS || r->config.encoder_layers)
    return tokenizer_end(r->tokenizer);
  return tokenizer_bpe(r->tokenizer)->byte_ids['\n'];
}

static bool collect(void *stream, const uint8_t *bytes, size_t size) {
  return fwrite(bytes, 1, size, stream) == size && !stop_signal;
}

/* Appends what the model writes after `ids`, or what of their end the context holds. */
static bool write_sample(Run *r, const BpeIds *ids, int64_t tokens, Sampling sampling, FILE *stream, Error *error) {
  const size_t ctx = (size_t)r->config.ctx, skipped = ids->count > ctx ? ids->count - ctx : 0;
  GenerationResult result;
  r->drawn.count = 0;
  const GenerationRequest request = {.decoder = r->decoder,
                                     .tokenizer = r->tokenizer,
                                     .prompt = ids->ids + skipped,
                                     .prompt_tokens = (int)(ids->count - skipped),
                                     .max_tokens = tokens,
                                     .slide = true,
                                     .emit = collect,
                                     .emit_context = stream,
                                     .drawn = &r->drawn,
                                     .sampling = sampling};
  return generation_run(&request, &result, error);
}

/* ---- of a text ---- */

static bool sample_text(Run *r, FILE *stream, Error *error) {
  const char *prompt = r->settings.prompt ? r->settings.prompt : "";
  const size_t length = strlen(prompt);
  Sampling sampling = generation_sampling();
  sampling.seed = r->settings.seed;
  BpeIds ids = {0};
  bool ok = fwrite(prompt, 1, length, stream) == length || error_memory(error, "a sample");
  ok = ok && generation_prompt(r->tokenizer, run_start_token(r), (const uint8_t *)prompt, length, &ids, error) &&
       write_sample(r, &ids, r->settings.sample_tokens, sampling, stream, error);
  free(ids.ids);
  return ok;
}

/* ---- of pairs: the likeliest answers ---- */

static bool write_tokens(const Tokenizer *tokenizer, const BpeIds *ids, size_t count, FILE *stream) {
  for (size_t i = 0; i < count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(tokenizer, ids->ids[i], &size);
    if (fwrite(bytes, 1, size, stream) != size) return false;
  }
  return true;
}

/* A line "SOURCE -> ANSWER" for each prompt of the batch; `targets` NULL, or what is right. */
static bool write_answers(Run *r, const BpeIds *targets, FILE *stream, Error *error) {
  Answers *a = &r->answers;
  const AnswerRequest likeliest = {.sampling = generation_greedy(), .limit = r->settings.sample_tokens};
  if (!answers_write(a, &likeliest, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < a->count; i++) {
    ok = fputs(i ? "\n" : "", stream) != EOF &&
         write_tokens(run_source_tokenizer(r), &a->prompts[i], a->prompts[i].count - 1, stream) &&
         fputs(" -> ", stream) != EOF && write_tokens(r->tokenizer, &a->answers[i], a->answers[i].count, stream);
    if (ok && targets)
      ok = fputs("   (right: ", stream) != EOF && write_tokens(r->tokenizer, &targets[i], targets[i].count, stream) &&
           fputs(")", stream) != EOF;
  }
  return ok || error_memory(error, "a sample");
}

static bool answer_prompt(Run *r, FILE *stream, Error *error) {
  const char *prompt = r->settings.prompt;
  Answers *a = &r->answers;
  BpeIds *ids = &a->prompts[0];
  const size_t ctx = (size_t)r->config.ctx;
  ids->count = 0;
  if (!tokenizer_encode(run_source_tokenizer(r), (const uint8_t *)prompt, strlen(prompt), ids, error) ||
      !bpe_ids_sink(ids, &a->source_end, 1, error))
    return false;
  if (ids->count > ctx) {
    memmove(ids->ids, ids->ids + ids->count - ctx, ctx * sizeof *ids->ids);
    ids->count = ctx;
  }
  a->count = 1;
  a->skipped[0] = false;
  return write_answers(r, NULL, stream, error);
}

/* The first pairs to validate on, or to train on where there are none. */
static bool answer_pairs(Run *r, FILE *stream, Error *error) {
  enum { SHOWN_PAIRS = 5 };
  const Windows *windows = windows_count(&r->val_windows, 1) > 0 ? &r->val_windows : &r->windows;
  BpeIds targets[ANSWER_ROWS] = {{0}};
  PairReader reader;
  bool ok = answers_pairs_begin(&reader, windows, error) && answers_pairs_next(&reader, &r->answers, targets, error);
  if (r->answers.count > SHOWN_PAIRS) r->answers.count = SHOWN_PAIRS;
  ok = ok && write_answers(r, targets, stream, error);
  for (int i = 0; i < ANSWER_ROWS; i++) free(targets[i].ids);
  answers_pairs_end(&reader);
  return ok;
}

/* ---- all of them ---- */

static bool append_sample(const Run *r, const char *text, size_t size, Error *error) {
  const CheckpointPath path = checkpoint_path(r->dir, CHECKPOINT_SAMPLES);
  FILE *file = fopen(path.text, "a");
  bool ok = file && fprintf(file, "=== step %" PRId64 "\n", r->step) > 0 && fwrite(text, 1, size, file) == size &&
            fputc('\n', file) != EOF;
  if (file) ok = fclose(file) == 0 && ok;
  return ok || file_fail_write(path.text, error);
}

/* Control characters of an untrained model would confuse the terminal. */
static void show_sample(Run *r, char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)text[i] < 32 && text[i] != '\n' && text[i] != '\t') text[i] = '?';
  console_line(&r->console, "--- sample after %" PRId64 " steps\n%s\n---", r->step, text);
}

bool run_sample(Run *r, Error *error) {
  if (!r->settings.sample_tokens || stop_signal) return true;
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return error_memory(error, "a sample");
  bool ok = !r->config.encoder_layers ? sample_text(r, stream, error)
            : r->settings.prompt      ? answer_prompt(r, stream, error)
                                      : answer_pairs(r, stream, error);
  if (fclose(stream) != 0 && ok) ok = error_memory(error, "a sample");
  ok = ok && append_sample(r, text, size, error);
  if (ok) r->sampled_step = r->step;
  if (ok) show_sample(r, text, size);
  free(text);
  return ok;
}
