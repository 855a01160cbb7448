/* Hidden states (--dump): what the model computes while it reads a text, as a safetensors file. */
#include "cli/startup.h"
#include "files/formats/safetensors.h"
#include "generate/program.h"
#include "model/hidden_states.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32 }; /* bytes of the name of a tensor */

static const char *const kind_names[] = {[HIDDEN_RESIDUAL] = "residual",
                                         [HIDDEN_QUERIES] = "queries",
                                         [HIDDEN_KEYS] = "keys",
                                         [HIDDEN_VALUES] = "values",
                                         [HIDDEN_ATTENTION] = "attention_output",
                                         [HIDDEN_CONVOLUTION] = "convolution_output",
                                         [HIDDEN_MLP_INNER] = "mlp_hidden",
                                         [HIDDEN_MLP] = "mlp_output",
                                         [HIDDEN_HEAD] = "head_input"};

typedef struct Dump {
  const LoadedModel *model;
  BpeIds ids;          /* of the text */
  HiddenState *states; /* [count] */
  int count;
  SafeTensor *tensors; /* [1 + count]: the tokens, then the hidden states */
  char (*names)[NAME]; /* [count] */
  FileWriter file;
  bool interleaved; /* model_files_interleaved() */
  int64_t data;     /* where the tensors begin in the file */
  int64_t first;    /* the position where the window begins */
} Dump;

bool dump_check(const GenerateSettings *s, Error *error) {
  if (!s->dump) return true;
  if (!text_ends_with(s->dump, ".safetensors"))
    return fail(error, EXIT_USAGE, "--dump %s: its name must end in .safetensors", text_one_line(s->dump, 250).text);
  return program_check_file("--dump", s->dump, s, error);
}

/* ---- the file ---- */

static bool make_tensors(Dump *d, Error *error) {
  const int64_t positions = (int64_t)d->ids.count;
  const Model *m = d->model->model;
  d->count = model_hidden_states(m, NULL);
  d->states = malloc((size_t)d->count * sizeof *d->states);
  d->names = malloc((size_t)d->count * sizeof *d->names);
  d->tensors = calloc((size_t)d->count + 1, sizeof *d->tensors);
  if (!d->states || !d->names || !d->tensors) return error_memory(error, "the names of the hidden states");
  model_hidden_states(m, d->states);
  d->tensors[0] = (SafeTensor){.name = "tokens", .type = TENSOR_I64, .rank = 1, .shape = {positions}};
  for (int i = 0; i < d->count; i++) {
    const HiddenState *s = &d->states[i];
    const char *kind = kind_names[s->kind];
    if (s->kind == HIDDEN_HEAD) snprintf(d->names[i], NAME, "%s", kind);
    else snprintf(d->names[i], NAME, "%s.%d", kind, s->layer);
    d->tensors[i + 1] =
        (SafeTensor){.name = d->names[i], .type = TENSOR_F32, .rank = 2, .shape = {positions, s->width}};
  }
  return true;
}

static bool begin_file(Dump *d, const Program *p, Error *error) {
  const LoadedModel *m = d->model;
  char window[16];
  ContextInfo device;
  m->backend->info(m->context, &device);
  snprintf(window, sizeof window, "%d", m->config.ctx);
  const OneLine dir = text_one_line(m->dir, ONE_LINE_BYTES - 1);
  const MetadataEntry metadata[] = {
      {"model", dir.text}, {"inkling", p->version}, {"window", window}, {"compute_dtype", dtype_name(device.dtype)}};
  return safetensors_begin(&d->file, p->settings.dump, d->tensors, d->count + 1, metadata,
                           sizeof metadata / sizeof *metadata, &d->data, error);
}

static bool write_tokens(Dump *d, Error *error) {
  for (size_t i = 0; i < d->ids.count; i++) {
    const int64_t id = d->ids.ids[i];
    if (!file_writer_add(&d->file, &id, sizeof id, error)) return false;
  }
  return true;
}

/* Puts the numbers of each head into the order of a class that rotates neighboring ones. */
static void interleave(float *rows, int64_t numbers, int head) {
  float of_head[HEAD_DIM_LIMIT];
  for (float *at = rows; at < rows + numbers; at += head) {
    for (int i = 0; i < head; i++) of_head[i] = at[i % 2 * head / 2 + i / 2];
    memcpy(at, of_head, (size_t)head * sizeof *at);
  }
}

/* Writes the rows of a window to their place. */
static bool write_state(void *context, const HiddenState *state, float *rows, int count, Error *error) {
  Dump *d = context;
  const int64_t positions = (int64_t)d->ids.count;
  int64_t offset = d->data + positions * (int64_t)sizeof(int64_t);
  int i = 0;
  for (; i < d->count && (d->states[i].kind != state->kind || d->states[i].layer != state->layer); i++)
    offset += positions * d->states[i].width * (int64_t)sizeof *rows;
  if (i == d->count) return fail(error, EXIT_INTERNAL, "a hidden state that is not in the list");
  if (d->interleaved && (state->kind == HIDDEN_QUERIES || state->kind == HIDDEN_KEYS))
    interleave(rows, (int64_t)count * state->width, d->model->config.head_dim);
  offset += d->first * state->width * (int64_t)sizeof *rows;
  return file_writer_seek(&d->file, offset, error) &&
         file_writer_add(&d->file, rows, (size_t)count * (size_t)state->width * sizeof *rows, error);
}

/* ---- the text ---- */

/* Reads windows of at most ctx tokens, each by itself. */
static bool read_windows(Dump *d, Console *console, Error *error) {
  const int64_t count = (int64_t)d->ids.count, ctx = d->model->config.ctx;
  bool ok = true;
  for (; ok && d->first < count; d->first += ctx) {
    const int64_t length = count - d->first < ctx ? count - d->first : ctx;
    console_work(console, &(ConsoleWork){"reading the text", (double)d->first, (double)count, false});
    ok = startup_go_on("reading the text", error) &&
         model_read_hidden_states(d->model->model, d->ids.ids + d->first, (int)length, write_state, d, error);
  }
  console_work_end(console);
  return ok;
}

static bool write_file(Dump *d, Program *p, Error *error) {
  const int64_t count = (int64_t)d->ids.count, ctx = d->model->config.ctx;
  if (!begin_file(d, p, error)) return false;
  if (!write_tokens(d, error) || !read_windows(d, &p->console, error)) {
    file_writer_abort(&d->file);
    return false;
  }
  if (!file_writer_commit(&d->file, error)) return false;
  console_note(&p->console, "hidden states of %s are in %s (%s)", text_plural((double)count, "token").text,
               p->settings.dump, text_bytes((double)file_size(p->settings.dump)).text);
  if (count > ctx)
    console_note(&p->console, "the model read the text in windows of %d tokens, each without the tokens before it",
                 (int)ctx);
  return true;
}

bool program_dump(Program *p, Error *error) {
  const LoadedModel *m = &p->model;
  const ByteBuffer *text = &p->prompt.text;
  if (m->config.encoder_layers) return fail(error, EXIT_USAGE, "--dump is for models without an encoder");
  Dump d = {.model = m, .interleaved = model_files_interleaved(m->files)};
  const bool ok = generation_prompt(m->tokenizer, m->special.start >= 0 ? m->special.start : 0, text->bytes, text->size,
                                    &d.ids, error) &&
                  make_tensors(&d, error) && write_file(&d, p, error);
  free(d.ids.ids);
  free(d.states);
  free(d.names);
  free(d.tensors);
  return ok;
}
