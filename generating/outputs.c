#include "generating/outputs.h"

#include "tokenizer/bpe_encode.h"
#include "util/array.h"

#include <stdlib.h>
#include <string.h>

Output *outputs_add(Outputs *t, Error *error) {
  Output *text = calloc(1, sizeof *text);
  if (!text) error_memory(error, "a text");
  if (!text) return NULL;
  if (t->last) t->last->next = text;
  else t->first = text;
  t->last = text;
  t->count++;
  return text;
}

void output_free(Output *text) {
  free(text->source.ids);
  free(text->prompt.ids);
  free(text->bytes);
  free(text->ids.ids);
  free(text->begins);
  free(text->logprobs);
  free(text->top);
}

static void remove_first(Outputs *t) {
  Output *text = t->first;
  t->first = text->next;
  if (!t->first) t->last = NULL;
  t->count--;
  if (t->release) t->release(text);
  output_free(text);
  free(text);
}

bool outputs_print(Outputs *t, Error *error) {
  while (t->first && t->first->done) {
    if (!t->print(t->context, t->first, error)) return false;
    t->tokens += t->first->result.tokens;
    remove_first(t);
  }
  return true;
}

void outputs_free(Outputs *t) {
  while (t->first) remove_first(t);
}

GenerationRequest output_request(Output *text) {
  GenerationRequest request = text->request;
  request.source = text->source.count ? text->source.ids : NULL;
  request.source_tokens = (int)text->source.count;
  request.prompt = text->prompt.ids;
  request.prompt_tokens = (int)text->prompt.count;
  request.text = text;
  return request;
}

bool output_add(Output *text, const uint8_t *bytes, size_t size) {
  text->no_memory = !array_reserve(&text->bytes, &text->capacity, text->size + size, 1);
  if (text->no_memory) return false;
  memcpy(text->bytes + text->size, bytes, size);
  text->size += size;
  return true;
}

bool output_add_token(Output *text, const GeneratedToken *token, Error *error) {
  const size_t count = text->ids.count, top = text->request.alternatives > 0 ? (size_t)text->request.alternatives : 0;
  if (!text->keep_ids && text->request.alternatives < 0) return true;
  if (!array_reserve(&text->begins, &text->begins_room, count + 1, sizeof *text->begins) ||
      !array_reserve(&text->logprobs, &text->logprobs_room, count + 1, sizeof *text->logprobs) ||
      (top && !array_reserve(&text->top, &text->top_room, (count + 1) * top, sizeof *text->top)))
    return error_memory(error, "a text");
  text->begins[count] = token->begin;
  text->logprobs[count] = token->logprob;
  if (top) memcpy(text->top + count * top, token->top, top * sizeof *text->top);
  return bpe_ids_sink(&text->ids, &token->id, 1, error);
}

bool output_end(Output *text, const GenerationResult *result, Error *error) {
  text->result = *result;
  text->done = result->reason != STOP_CALLER;
  return !text->no_memory || error_memory(error, "a text");
}
