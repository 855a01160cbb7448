#include "generate/outputs.h"

#include "cli/startup.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/array.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- one output ---- */

void output_free(Output *o) {
  free(o->text.bytes);
  free(o->ids.ids);
  free(o->tokens);
  free(o->top);
}

bool output_add_token(Output *o, const GeneratedToken *token, Error *error) {
  const size_t count = o->ids.count, top = o->request.alternatives > 0 ? (size_t)o->request.alternatives : 0;
  if (!o->keep_ids && o->request.alternatives < 0) return true;
  if (!array_reserve(&o->tokens, &o->tokens_capacity, count + 1, sizeof *o->tokens) ||
      (top && !array_reserve(&o->top, &o->top_capacity, (count + 1) * top, sizeof *o->top)))
    return error_memory(error, "a text");
  o->tokens[count] = (OutputToken){token->begin, token->logprob};
  if (top) memcpy(o->top + count * top, token->top, top * sizeof *o->top);
  return bpe_ids_sink(&o->ids, &token->id, 1, error);
}

static bool add_bytes(void *context, void *output, const uint8_t *bytes, size_t size, Error *error) {
  (void)context;
  return byte_buffer_add(&((Output *)output)->text, bytes, size, error);
}

static bool add_token(void *context, void *output, const GeneratedToken *token, Error *error) {
  (void)context;
  return output_add_token(output, token, error);
}

/* A signal stops the text, which is not an error yet. */
static bool until_signal(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens, (void)error;
  return !stop_signal;
}

bool output_generate(LoadedModel *m, Output *o, OutputEmit *emit, void *context, Error *error) {
  if (!m->decoder && !decoder_open(&m->decoder, m->model, 1, error)) return false;
  const Generation generation = {.decoder = m->decoder,
                                 .tokenizer = m->tokenizer,
                                 .context = context,
                                 .emit = emit ? emit : add_bytes,
                                 .token = add_token,
                                 .progress = {until_signal, NULL}};
  o->request.text = o;
  return generation_run_one(&generation, &o->request, &o->result, error);
}

/* ---- several outputs ---- */

Output *outputs_add(Outputs *outputs, Error *error) {
  Output *o = calloc(1, sizeof *o);
  if (!o) error_memory(error, "a text");
  if (!o) return NULL;
  if (outputs->last) outputs->last->next = o;
  else outputs->first = o;
  outputs->last = o;
  outputs->count++;
  return o;
}

static void remove_first(Outputs *outputs) {
  Output *o = outputs->first;
  outputs->first = o->next;
  if (!outputs->first) outputs->last = NULL;
  outputs->count--;
  outputs->release(o);
  output_free(o);
  free(o);
}

bool outputs_print(Outputs *outputs, Error *error) {
  while (outputs->first && outputs->first->done) {
    if (!outputs->print(outputs, outputs->first, error)) return false;
    outputs->tokens += outputs->first->result.tokens;
    remove_first(outputs);
  }
  return true;
}

void outputs_free(Outputs *outputs) {
  while (outputs->first) remove_first(outputs);
}

/* Outputs that the caller interrupted do not become done. */
static bool end_output(void *outputs, void *output, const GenerationResult *result, Error *error) {
  Output *o = output;
  o->result = *result;
  o->done = result->reason != STOP_CALLER;
  return outputs_print(outputs, error);
}

static bool can_write(void *outputs, int64_t tokens, Error *error) {
  (void)tokens;
  return !((const Outputs *)outputs)->out->error && startup_go_on("generating", error);
}

bool outputs_run(void *context, int most_rows, GenerationNext *next, Error *error) {
  LoadedModel *m = ((Outputs *)context)->model;
  const int rows = generation_rows(m->model, most_rows);
  if (!decoder_open(&m->decoder, m->model, rows, error)) return false;
  const Generation generation = {.decoder = m->decoder,
                                 .rows = rows,
                                 .tokenizer = m->tokenizer,
                                 .context = context,
                                 .next = next,
                                 .emit = add_bytes,
                                 .token = add_token,
                                 .done = end_output,
                                 .progress = {can_write, context}};
  return generation_run(&generation, error) && outputs_print(context, error);
}
