/* Detection of memorization: finds passages of the sample that appear in the training text, and compares with text that
 * the model was not trained on. */
#include "training/run.h"

#include "cli/startup.h"
#include "inference/longest_match.h"

#include <stdlib.h>
#include <string.h>

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
  const int64_t room = token_range_size(&text->val) - (int64_t)count;
  memcpy(ids, drawn->ids, count * sizeof *ids);
  for (int i = 0; i < EXCERPTS; i++) {
    int32_t *to = ids + (size_t)(i + 1) * (count + 1);
    to[-1] = -1;
    if (!token_file_read(text->val.file, text->val.begin + room * i / EXCERPTS, (int64_t)count, to, error))
      return false;
  }
  return true;
}

/* Computes the bytes of the sample that are copied, and the largest such number of an excerpt. */
static bool compare(const RunText *text, const BpeIds *drawn, int32_t *ids, int32_t *lengths, size_t count,
                    size_t *copied, size_t *usual, Error *error) {
  const size_t all = (EXCERPTS + 1) * (count + 1) - 1;
  if (!collect_texts(text, drawn, ids, count, error)) return false;
  if (!longest_match_lengths(&text->train, ids, all, lengths, (Progress){go_on, NULL}, error)) return !error->code;
  for (size_t i = 0; i <= EXCERPTS; i++) {
    const size_t at = i * (count + 1), bytes = copied_bytes(text->tokenizer, ids + at, lengths + at, count);
    if (i == 0) *copied = bytes;
    else if (bytes > *usual) *usual = bytes;
  }
  return true;
}

bool run_check_memorization(Run *r, Error *error) {
  size_t count = r->model.drawn.count < MOST_TOKENS ? r->model.drawn.count : MOST_TOKENS;
  size_t copied = 0, usual = 0;
  MetricsLine line;
  if (!run_leads(r->peers)) return true;
  if (history_has_diagnosis(&r->files.history, DIAGNOSIS_COPYING)) return true;
  if (r->model.config.encoder_layers || count < FEWEST_TOKENS || token_range_size(&r->text.val) < (int64_t)count)
    return true;
  const size_t all = (EXCERPTS + 1) * (count + 1);
  int32_t *ids = malloc(all * sizeof *ids), *lengths = calloc(all, sizeof *lengths);
  const bool ok = ((ids && lengths) || error_memory(error, "a comparison of texts")) &&
                  compare(&r->text, &r->model.drawn, ids, lengths, count, &copied, &usual, error);
  free(ids);
  free(lengths);
  if (!ok) return false;
  if (stop_signal || !diagnosis_of_sample(r->progress.step, r->progress.step * settings_tokens_per_step(&r->settings),
                                          copied, usual, &line))
    return true;
  return run_log_diagnosis(r, &line, error);
}
