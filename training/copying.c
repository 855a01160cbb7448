/* Whether the model writes down what it has read: passages of its sample that stand in the training text, beside those
 * of text that it has not read. */
#include "training/run.h"

#include "cli/startup.h"
#include "dataset/longest_match.h"

#include <stdlib.h>

enum { FEWEST_TOKENS = 64, MOST_TOKENS = 4096, EXCERPTS = 4 };

static bool go_on(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens, (void)error;
  return !stop_signal;
}

/* Bytes of the longest passage of the ids that stands in the training text. */
static bool copied_bytes(const Run *r, const int32_t *ids, size_t count, size_t *bytes, Error *error) {
  size_t begin, length, size;
  *bytes = 0;
  if (!longest_match(&r->train, ids, count, &begin, &length, (Progress){go_on, NULL}, error)) return !error->code;
  for (size_t i = begin; i < begin + length; i++) {
    tokenizer_decode(r->tokenizer, ids[i], &size);
    *bytes += size;
  }
  return true;
}

/* The most of some passages, each of `count` tokens, of the text to validate on. */
static bool usual_bytes(const Run *r, size_t count, size_t *most, Error *error) {
  const int64_t room = token_range_size(&r->val) - (int64_t)count;
  int32_t *ids = malloc(count * sizeof *ids);
  bool ok = ids || error_memory(error, "a comparison of texts");
  *most = 0;
  for (int i = 0; ok && i < EXCERPTS; i++) {
    size_t bytes = 0;
    ok = token_file_read(r->val.file, r->val.begin + room * i / EXCERPTS, (int64_t)count, ids, error) &&
         copied_bytes(r, ids, count, &bytes, error);
    if (ok && bytes > *most) *most = bytes;
  }
  free(ids);
  return ok;
}

bool run_judge_sample(Run *r, Error *error) {
  size_t count = r->drawn.count < MOST_TOKENS ? r->drawn.count : MOST_TOKENS;
  size_t copied = 0, usual = 0;
  MetricsLine line;
  if (history_has_verdict(&r->history, VERDICT_COPYING)) return true;
  if (r->config.encoder_layers || count < FEWEST_TOKENS || token_range_size(&r->val) < (int64_t)count) return true;
  if (!copied_bytes(r, r->drawn.ids, count, &copied, error) || !usual_bytes(r, count, &usual, error)) return false;
  if (stop_signal ||
      !verdict_of_sample(r->step, r->step * settings_tokens_per_step(&r->settings), copied, usual, &line))
    return true;
  console_note(&r->console, "%s", line.text);
  return run_log(r, &line, error);
}
