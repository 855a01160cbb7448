#include "generation/texts.h"

#include "util/array.h"

#include <stdlib.h>
#include <string.h>

Text *texts_add(Texts *t, Error *error) {
  Text *text = calloc(1, sizeof *text);
  if (!text) error_memory(error, "a text");
  if (!text) return NULL;
  if (t->last) t->last->next = text;
  else t->first = text;
  t->last = text;
  t->count++;
  return text;
}

static void remove_first(Texts *t) {
  Text *text = t->first;
  t->first = text->next;
  if (!t->first) t->last = NULL;
  t->count--;
  free(text->source.ids);
  free(text->prompt.ids);
  free(text->bytes);
  free(text);
}

bool texts_print(Texts *t, Error *error) {
  while (t->first && t->first->done) {
    if (!t->print(t->context, t->first, error)) return false;
    t->tokens += t->first->result.tokens;
    remove_first(t);
  }
  return true;
}

void texts_free(Texts *t) {
  while (t->first) remove_first(t);
}

GenerationRequest text_request(Text *text) {
  GenerationRequest request = text->request;
  request.source = text->source.count ? text->source.ids : NULL;
  request.source_tokens = (int)text->source.count;
  request.prompt = text->prompt.ids;
  request.prompt_tokens = (int)text->prompt.count;
  request.text = text;
  return request;
}

bool text_add(Text *text, const uint8_t *bytes, size_t size) {
  text->no_memory = !array_reserve(&text->bytes, &text->capacity, text->size + size, 1);
  if (text->no_memory) return false;
  memcpy(text->bytes + text->size, bytes, size);
  text->size += size;
  return true;
}

bool text_end(Text *text, const GenerationResult *result, Error *error) {
  text->result = *result;
  text->done = result->reason != STOP_CALLER;
  return !text->no_memory || error_memory(error, "a text");
}
