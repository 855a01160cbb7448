#include "text/tokenizer/internal.h"

#include "base/array.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 4 << 20, WORD_BYTES = 32 };

static bool cannot_write(Error *error) {
  return fail(error, EXIT_OUTPUT, "cannot write to stdout: %s", strerror(errno));
}

static bool cannot_read(const char *name, Error *error) {
  return fail(error, EXIT_INPUT, "cannot read %s: %s", name, strerror(errno));
}

/* ---- to ids ---- */

static bool print_ids(void *out, const int32_t *ids, size_t count, Error *error) {
  for (size_t i = 0; i < count; i++)
    if (fprintf(out, "%d\n", ids[i]) < 0) return cannot_write(error);
  return true;
}

/* Returns how many of the bytes can be encoded before more are read: up to a possible cut in the second half, or all at
 * the end of the input; 0 when there is no such cut. */
static size_t encodable(const ByteBuffer *p, const Pipeline *pipeline, bool ended) {
  if (ended) return p->size;
  const size_t cut = pipeline_cut(pipeline, p->bytes, p->size, p->size / 2);
  return cut < p->size ? cut : 0;
}

static bool encode_stream(BpeEncoder *encoder, const Pipeline *pipeline, ByteBuffer *p, FILE *in, const char *name,
                          FILE *out, Error *error) {
  for (bool ended = false; !ended;) {
    if (p->size == p->capacity && !array_reserve(&p->bytes, &p->capacity, p->size + BUFFER_BYTES, 1))
      return fail(error, EXIT_MEMORY, "out of memory for a text of more than %zu bytes", p->size);
    p->size += fread(p->bytes + p->size, 1, p->capacity - p->size, in);
    if (ferror(in)) return cannot_read(name, error);
    ended = feof(in);
    const PipelineText text = {p->bytes, encodable(p, pipeline, ended)};
    if (!bpe_encode(encoder, &text, 1, -1, print_ids, out, error)) return false;
    p->size -= text.size;
    memmove(p->bytes, p->bytes + text.size, p->size);
  }
  return fflush(out) == 0 || cannot_write(error);
}

bool convert_to_ids(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error) {
  const Pipeline *pipeline = tokenizer_pipeline(tokenizer);
  BpeEncoder *encoder = NULL;
  ByteBuffer pending = {0};
  bool ok = bpe_encoder_create(&encoder, pipeline, tokenizer->takes_special, 1, NULL, error) &&
            encode_stream(encoder, pipeline, &pending, in, name, out, error);
  bpe_encoder_free(encoder);
  free(pending.bytes);
  return ok;
}

/* ---- to text ---- */

static bool is_separator(int c) { return c == ',' || text_is_space(c); }

/* Reads the next word, cut to WORD_BYTES - 1 bytes; false at the end. */
static bool next_word(FILE *in, char word[WORD_BYTES]) {
  int c;
  size_t size = 0;
  while ((c = getc(in)) != EOF && is_separator(c)) {
  }
  for (; c != EOF && !is_separator(c); c = getc(in))
    if (size < WORD_BYTES - 1) word[size++] = c >= ' ' && c <= '~' ? (char)c : '?';
  word[size] = '\0';
  return size > 0;
}

static bool read_id(const Tokenizer *tokenizer, const char *word, const char *name, int64_t number, int32_t *out,
                    Error *error) {
  char *end;
  errno = 0;
  const long long id = strtoll(word, &end, 10);
  if (*end || errno || id < 0 || id >= tokenizer_vocab(tokenizer))
    return fail(error, EXIT_INPUT, "%s: word %lld is \"%s\", not a token of this vocabulary: 0 to %d", name,
                (long long)number, word, tokenizer_vocab(tokenizer) - 1);
  *out = (int32_t)id;
  return true;
}

/* Reads all ids before any text is written, so that an invalid file produces no output. */
static bool read_ids(const Tokenizer *tokenizer, FILE *in, const char *name, BpeIds *ids, Error *error) {
  char word[WORD_BYTES];
  int32_t id;
  for (int64_t number = 1; next_word(in, word); number++)
    if (!read_id(tokenizer, word, name, number, &id, error) || !bpe_ids_sink(ids, &id, 1, error)) return false;
  return !ferror(in) || cannot_read(name, error);
}

static bool write_ids(const Tokenizer *tokenizer, const BpeIds *ids, FILE *out, Error *error) {
  bool at_start = true;
  for (size_t i = 0, size; i < ids->count; i++) {
    const uint8_t *bytes = tokenizer_decode_next(tokenizer, ids->ids[i], &at_start, &size);
    if (fwrite(bytes, 1, size, out) != size) return cannot_write(error);
  }
  return fflush(out) == 0 || cannot_write(error);
}

bool convert_to_text(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error) {
  BpeIds ids = {0};
  const bool ok = read_ids(tokenizer, in, name, &ids, error) && write_ids(tokenizer, &ids, out, error);
  free(ids.ids);
  return ok;
}
