#include "generating/prompt.h"

#include "inference/generation.h"
#include "tokenizer/bpe_encode.h"
#include "util/array.h"
#include "util/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prompt_tokens_free(PromptTokens *tokens) {
  free(tokens->source.ids);
  free(tokens->decoder.ids);
}

void prompt_free(Prompt *prompt) {
  free(prompt->bytes);
  prompt_tokens_free(&prompt->tokens);
}

/* ---- files ---- */

static bool read_all(FILE *stream, const char *name, size_t limit, uint8_t **out, size_t *size, Error *error) {
  for (size_t capacity = 0; *size < limit;) {
    if (!array_reserve(out, &capacity, *size + (1 << 16), 1)) return error_memory(error, "the prompt");
    *size += fread(*out + *size, 1, capacity - *size, stream);
    if (ferror(stream)) return fail(error, EXIT_INPUT, "cannot read %s: %s", name, strerror(errno));
    if (feof(stream)) return true;
  }
  return fail(error, EXIT_INPUT, "%s is longer than %zu bytes", name, limit);
}

bool prompt_read_file(const char *path, size_t limit, uint8_t **out, size_t *size, Error *error) {
  FILE *stream = path_is_stdin(path) ? stdin : fopen(path, "rb");
  *out = NULL;
  *size = 0;
  if (!stream) return fail(error, EXIT_INPUT, "cannot read %s: %s", path, strerror(errno));
  const bool ok = read_all(stream, path_shown(path), limit, out, size, error);
  if (stream != stdin) fclose(stream);
  return ok;
}

bool prompt_read(Prompt *prompt, const GenerateSettings *s, Error *error) {
  if (s->prompt && s->prompt_file) return fail(error, EXIT_USAGE, "-p and -f both give a prompt; use one");
  if (s->prompt) return prompt_copy_text(s, s->prompt, &prompt->bytes, &prompt->size, error);
  return !s->prompt_file || prompt_read_file(s->prompt_file, (size_t)1 << 30, &prompt->bytes, &prompt->size, error);
}

/* ---- escapes ---- */

static int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* Returns the byte of an escape; `text` starts after its backslash. Sets *skipped to its size there. -1: unknown. */
static int read_escape(const uint8_t *text, size_t *skipped) {
  static const char names[] = "nrt0\\\"'", values[] = "\n\r\t\0\\\"'";
  const char *name = *text ? strchr(names, *text) : NULL;
  *skipped = 1;
  if (name) return (uint8_t)values[name - names];
  const int high = *text == 'x' ? digit_of((char)text[1]) : -1, low = high < 0 ? -1 : digit_of((char)text[2]);
  *skipped = 3;
  return low < 0 ? -1 : 16 * high + low;
}

bool prompt_replace_escapes(uint8_t *text, size_t *size, Error *error) {
  size_t used = 0;
  for (size_t i = 0, skipped = 0; i < *size; i += 1 + skipped) {
    const int byte = text[i] == '\\' ? read_escape(text + i + 1, &skipped) : text[i];
    if (byte < 0)
      return fail(error, EXIT_USAGE, "there is no escape \\%.1s; known are \\n \\r \\t \\0 \\\\ \\\" \\' \\x41",
                  (const char *)text + i + 1);
    if (text[i] != '\\') skipped = 0;
    text[used++] = (uint8_t)byte;
  }
  text[used] = '\0';
  *size = used;
  return true;
}

bool prompt_has_escapes(const uint8_t *text, size_t size) {
  for (size_t i = 0; i + 1 < size; i++)
    if (text[i] == '\\' && memchr("nt\\", text[i + 1], 3)) return true;
  return false;
}

bool prompt_copy_text(const GenerateSettings *s, const char *given, uint8_t **out, size_t *size, Error *error) {
  *out = (uint8_t *)strdup(given);
  *size = strlen(given);
  if (!*out) return error_memory(error, "a text of the command line");
  return !s->escapes || prompt_replace_escapes(*out, size, error);
}

static bool has_escapes(const char *text) { return text && prompt_has_escapes((const uint8_t *)text, strlen(text)); }

static bool any_has_escapes(const TextList *texts) {
  for (int i = 0; i < texts->count; i++)
    if (has_escapes(texts->items[i])) return true;
  return false;
}

void prompt_note_escapes(const GenerateSettings *s, Console *console) {
  const char *option = has_escapes(s->prompt)        ? "-p"
                       : has_escapes(s->answer)      ? "--answer"
                       : any_has_escapes(&s->stops)  ? "--stop"
                       : any_has_escapes(&s->bans)   ? "--ban"
                       : any_has_escapes(&s->biases) ? "--bias"
                                                     : NULL;
  if (option && !s->escapes)
    console_note(console, "the backslash in %s is taken as it is; with -e, \\n is a line break and \\t a tab", option);
}

/* ---- tokens ---- */

/* Makes the tokens fit into the context: drops the first ones where that is allowed. */
static bool fit(const LoadedModel *m, const GenerateSettings *s, const char *what, BpeIds *ids, Error *error) {
  const size_t ctx = (size_t)m->config.ctx;
  if (ids->count <= ctx) return true;
  if (!s->truncate_prompt)
    return fail(error, EXIT_INPUT,
                "the %s has %zu tokens, %zu more than the context of %zu holds; --truncate-prompt left drops its "
                "beginning",
                what, ids->count, ids->count - ctx, ctx);
  memmove(ids->ids, ids->ids + ids->count - ctx, ctx * sizeof *ids->ids);
  ids->count = ctx;
  return true;
}

static bool encode_source(const LoadedModel *m, const GenerateSettings *s, const uint8_t *text, size_t size,
                          BpeIds *ids, Error *error) {
  Tokenizer *tokenizer = loaded_source_tokenizer(m);
  const int32_t end = tokenizer_end(tokenizer);
  return tokenizer_encode(tokenizer, text, size, ids, error) && bpe_ids_sink(ids, &end, 1, error) &&
         fit(m, s, "source", ids, error);
}

static bool encode_answer(const LoadedModel *m, const GenerateSettings *s, int32_t start, BpeIds *ids, Error *error) {
  uint8_t *text;
  size_t size;
  const bool ok = prompt_copy_text(s, s->answer ? s->answer : "", &text, &size, error) &&
                  bpe_ids_sink(ids, &start, 1, error) && tokenizer_encode(m->tokenizer, text, size, ids, error) &&
                  fit(m, s, "answer", ids, error);
  free(text);
  return ok;
}

bool prompt_encode(const LoadedModel *m, const GenerateSettings *s, const uint8_t *text, size_t size, PromptTokens *out,
                   Error *error) {
  const int32_t start = m->special.start >= 0 ? m->special.start : 0;
  out->source.count = out->decoder.count = 0;
  if (m->config.encoder_layers)
    return encode_source(m, s, text, size, &out->source, error) && encode_answer(m, s, start, &out->decoder, error);
  if (s->answer) return fail(error, EXIT_USAGE, "--answer is for a model with an encoder; give the text with -p");
  return generation_prompt(m->tokenizer, start, text, size, &out->decoder, error) &&
         fit(m, s, "prompt", &out->decoder, error);
}
