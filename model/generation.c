#include "model/generation.h"

#include "tokenizer/bpe_encode.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/utf8.h"

#include <stdlib.h>
#include <string.h>

const char *generation_stop_name(StopReason reason) {
  static const char *const names[] = {"length", "end of text", "context full", "interrupted"};
  return names[reason];
}

Sampling generation_greedy(void) { return (Sampling){.repeat_penalty = 1, .top_p = 1}; }

Sampling generation_sampling(void) {
  return (Sampling){.repeat_penalty = 1 /* off */,
                    .repeat_last_n = 64,
                    .top_k = 40,
                    .top_p = 0.95f,
                    .min_p = 0.05f,
                    .temperature = 0.8f};
}

/* Bytes held back until they are whole characters. */
typedef struct Outlet {
  const GenerationRequest *request;
  uint8_t *held;
  size_t size, capacity;
} Outlet;

/* Emits what is complete, or all of it. False when the receiver stops. */
static bool outlet_flush(Outlet *o, bool all) {
  if (!o->held) return true;
  size_t ready = all ? o->size : utf8_complete(o->held, o->size);
  if (ready == 0) return true;
  bool wanted = o->request->emit(o->request->emit_context, o->held, ready);
  memmove(o->held, o->held + ready, o->size - ready);
  o->size -= ready;
  return wanted;
}

static bool outlet_add(Outlet *o, int32_t token, Error *error) {
  size_t size;
  const uint8_t *bytes = tokenizer_decode(o->request->tokenizer, token, &size);
  if (size == 0) return true;
  if (!array_reserve(&o->held, &o->capacity, o->size + size, 1)) return error_memory(error, "the text");
  memcpy(o->held + o->size, bytes, size);
  o->size += size;
  return true;
}

static bool stop(GenerationResult *result, StopReason reason) {
  result->reason = reason;
  return true;
}

static bool generate(Outlet *outlet, double start, GenerationResult *result, Error *error) {
  const GenerationRequest *r = outlet->request;
  const int ctx = decoder_context(r->decoder);
  for (;;) {
    if (!progress_report(r->progress, result->tokens, error)) return !error->code && stop(result, STOP_CALLER);
    if (r->max_tokens >= 0 && result->tokens >= r->max_tokens) return stop(result, STOP_LENGTH);
    if (decoder_room(r->decoder) < 1) {
      if (!r->slide) return stop(result, STOP_CONTEXT);
      if (!decoder_slide(r->decoder, ctx > 1 ? ctx / 2 : 1, error)) return false;
    }
    int32_t token;
    if (!decoder_next(r->decoder, &r->sampling, &token, error)) return false;
    if (result->tokens++ == 0) result->first_token_seconds = clock_seconds() - start;
    if (token == tokenizer_end(r->tokenizer)) {
      if (r->ignore_end) continue;
      return stop(result, STOP_END);
    }
    if (r->drawn && !bpe_ids_sink(r->drawn, &token, 1, error)) return false;
    if (!outlet_add(outlet, token, error)) return false;
    if (!outlet_flush(outlet, false)) return stop(result, STOP_CALLER);
  }
}

bool generation_prompt(const Tokenizer *tokenizer, int32_t start, const uint8_t *text, size_t size, BpeIds *ids,
                       Error *error) {
  const int32_t end = tokenizer_end(tokenizer);
  return (!tokenizer_begins_with_end(tokenizer) || bpe_ids_sink(ids, &end, 1, error)) &&
         tokenizer_encode(tokenizer, text, size, ids, error) && (ids->count > 0 || bpe_ids_sink(ids, &start, 1, error));
}

bool generation_run(const GenerationRequest *r, GenerationResult *result, Error *error) {
  *result = (GenerationResult){0};
  double start = clock_seconds();
  Outlet outlet = {.request = r};
  bool ok =
      decoder_prompt(r->decoder, r->prompt, r->prompt_tokens, 0, error) && generate(&outlet, start, result, error);
  if (ok && result->reason != STOP_CALLER) outlet_flush(&outlet, true);
  free(outlet.held);
  result->seconds = clock_seconds() - start;
  return ok;
}
