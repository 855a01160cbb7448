#include "inference/batch.h"

#include <stdlib.h>

enum { ARRAYS = 9 };

/* Lists the addresses of all array pointers of a window. */
static void arrays_of(Window *window, int32_t **out[ARRAYS]) {
  int32_t **all[ARRAYS] = {&window->tokens,        &window->targets,          &window->positions,
                           &window->source_tokens, &window->source_positions, &window->source_begin,
                           &window->source_end,    &window->cross_begin,      &window->cross_end};
  for (int i = 0; i < ARRAYS; i++) out[i] = all[i];
}

static int array_count(const Windows *windows) { return windows->pairs ? ARRAYS : windows->packing ? 3 : 2; }

bool batch_make(Batch *out, const Windows *windows, int sequences, Error *error) {
  *out = (Batch){.ctx = windows->ctx};
  const size_t tokens = (size_t)sequences * (size_t)windows->ctx;
  const int count = array_count(windows);
  out->memory = malloc((size_t)count * tokens * sizeof *out->memory);
  if (!out->memory)
    return fail(error, EXIT_MEMORY, "out of memory for a batch of %d windows of %d tokens", sequences, windows->ctx);
  int32_t **arrays[ARRAYS];
  arrays_of(&out->first, arrays);
  for (int i = 0; i < count; i++) *arrays[i] = out->memory + (size_t)i * tokens;
  return true;
}

void batch_free(Batch *batch) {
  free(batch->memory);
  *batch = (Batch){0};
}

Window batch_window(const Batch *batch, int sequence) {
  Window window = batch->first;
  int32_t **arrays[ARRAYS];
  arrays_of(&window, arrays);
  for (int i = 0; i < ARRAYS; i++)
    if (*arrays[i]) *arrays[i] += (size_t)sequence * (size_t)batch->ctx;
  return window;
}

TokenBatch batch_tokens(const Batch *batch) {
  const Window *w = &batch->first;
  return (TokenBatch){w->tokens,       w->targets,    w->positions,   w->source_tokens, w->source_positions,
                      w->source_begin, w->source_end, w->cross_begin, w->cross_end};
}
