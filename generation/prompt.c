/* What the model reads before it writes. */
#include "generation/program.h"

#include "tokenizer/bpe_encode.h"
#include "util/array.h"
#include "util/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Everything from a stream, up to `limit` bytes. */
static bool read_all(FILE *stream, const char *name, size_t limit, uint8_t **out, size_t *size, Error *error) {
  for (size_t capacity = 0; *size < limit;) {
    if (!array_reserve(out, &capacity, *size + (1 << 16), 1)) return error_memory(error, "the prompt");
    *size += fread(*out + *size, 1, capacity - *size, stream);
    if (ferror(stream)) return fail(error, EXIT_INPUT, "cannot read the prompt from %s: %s", name, strerror(errno));
    if (feof(stream)) return true;
  }
  return fail(error, EXIT_INPUT, "the prompt in %s is longer than %zu bytes", name, limit);
}

bool program_prompt_bytes(const Program *p, uint8_t **out, size_t *size, Error *error) {
  const GenerateSettings *s = &p->settings;
  *out = NULL;
  *size = 0;
  if (s->prompt && s->prompt_file) return fail(error, EXIT_USAGE, "-p and -f both give a prompt; use one");
  if (s->prompt) {
    *out = (uint8_t *)strdup(s->prompt);
    *size = strlen(s->prompt);
    return *out || error_memory(error, "the prompt");
  }
  if (!s->prompt_file) return true;
  FILE *stream = path_is_stdin(s->prompt_file) ? stdin : fopen(s->prompt_file, "rb");
  if (!stream) return fail(error, EXIT_INPUT, "cannot read the prompt from %s: %s", s->prompt_file, strerror(errno));
  bool ok = read_all(stream, path_shown(s->prompt_file), (size_t)1 << 30, out, size, error);
  if (stream != stdin) fclose(stream);
  return ok;
}

/* Of `ids` those from `from` on must fit into the context; the first of them are dropped where that is allowed. */
static bool fit(const Program *p, const char *what, BpeIds *ids, size_t from, Error *error) {
  const size_t ctx = (size_t)p->config.ctx, count = ids->count - from;
  if (count <= ctx) return true;
  if (!p->settings.truncate_prompt)
    return fail(error, EXIT_INPUT,
                "the %s has %zu tokens, %zu more than the context of %zu holds; --truncate-prompt left drops its "
                "beginning",
                what, count, count - ctx, ctx);
  memmove(ids->ids + from, ids->ids + ids->count - ctx, ctx * sizeof *ids->ids);
  ids->count = from + ctx;
  return true;
}

bool program_encode_source(const Program *p, const uint8_t *text, size_t size, BpeIds *ids, Error *error) {
  const size_t from = ids->count;
  const Tokenizer *tokenizer = p->source_tokenizer ? p->source_tokenizer : p->tokenizer;
  const int32_t end = tokenizer_end(tokenizer);
  return tokenizer_encode(tokenizer, text, size, ids, error) && bpe_ids_sink(ids, &end, 1, error) &&
         fit(p, "source", ids, from, error);
}

bool program_encode_text(const Program *p, const char *what, const uint8_t *text, size_t size, BpeIds *ids,
                         Error *error) {
  const size_t from = ids->count;
  const int32_t start = p->special.start >= 0 ? p->special.start : 0;
  const bool ok = p->config.encoder_layers
                      ? bpe_ids_sink(ids, &start, 1, error) && tokenizer_encode(p->tokenizer, text, size, ids, error)
                      : generation_prompt(p->tokenizer, start, text, size, ids, error);
  return ok && fit(p, what, ids, from, error);
}

bool program_encode_prompt(Program *p, const uint8_t *text, size_t size, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (!p->config.encoder_layers) {
    if (s->answer) return fail(error, EXIT_USAGE, "--answer is for a model with an encoder; give the text with -p");
    return program_encode_text(p, "prompt", text, size, &p->prompt, error);
  }
  const char *answer = s->answer ? s->answer : "";
  return program_encode_source(p, text, size, &p->source, error) &&
         program_encode_text(p, "answer", (const uint8_t *)answer, strlen(answer), &p->prompt, error);
}
