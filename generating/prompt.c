/* Prompts: reading, escapes and encoding. */
#include "generating/program.h"

#include "tokenizer/bpe_encode.h"
#include "util/array.h"
#include "util/path.h"
#include "util/text.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_all(FILE *stream, const char *name, size_t limit, uint8_t **out, size_t *size, Error *error) {
  for (size_t capacity = 0; *size < limit;) {
    if (!array_reserve(out, &capacity, *size + (1 << 16), 1)) return error_memory(error, "the prompt");
    *size += fread(*out + *size, 1, capacity - *size, stream);
    if (ferror(stream)) return fail(error, EXIT_INPUT, "cannot read %s: %s", name, strerror(errno));
    if (feof(stream)) return true;
  }
  return fail(error, EXIT_INPUT, "%s is longer than %zu bytes", name, limit);
}

static int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* One escape behind its backslash at text[0]; its bytes are skipped. -1: there is no such escape. */
static int read_escape(const uint8_t *text, size_t *skipped) {
  static const char names[] = "nrt0\\\"'", values[] = "\n\r\t\0\\\"'";
  const char *name = *text ? strchr(names, *text) : NULL;
  *skipped = 1;
  if (name) return (uint8_t)values[name - names];
  const int high = *text == 'x' ? digit_of((char)text[1]) : -1, low = high < 0 ? -1 : digit_of((char)text[2]);
  *skipped = 3;
  return low < 0 ? -1 : 16 * high + low;
}

bool program_replace_escapes(uint8_t *text, size_t *size, Error *error) {
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

bool program_has_escapes(const uint8_t *text, size_t size) {
  for (size_t i = 0; i + 1 < size; i++)
    if (text[i] == '\\' && memchr("nt\\", text[i + 1], 3)) return true;
  return false;
}

bool program_given_text(const Program *p, const char *given, uint8_t **out, size_t *size, Error *error) {
  *out = (uint8_t *)strdup(given);
  *size = strlen(given);
  if (!*out) return error_memory(error, "a text of the command line");
  return !p->settings.escapes || program_replace_escapes(*out, size, error);
}

/* Whether one of the texts looks as if -e was meant. */
static bool any_has_escapes(const TextList *texts) {
  for (int i = 0; i < texts->count; i++)
    if (program_has_escapes((const uint8_t *)texts->items[i], strlen(texts->items[i]))) return true;
  return false;
}

void program_note_escapes(Program *p) {
  const GenerateSettings *s = &p->settings;
  const TextList prompt = {.items = (const char *[]){s->prompt}, .count = s->prompt != NULL};
  const TextList answer = {.items = (const char *[]){s->answer}, .count = s->answer != NULL};
  const struct {
    const char *name;
    const TextList *texts;
  } given[] = {
      {"-p", &prompt}, {"--answer", &answer}, {"--stop", &s->stops}, {"--ban", &s->bans}, {"--bias", &s->biases}};
  for (size_t i = 0; !s->escapes && i < sizeof given / sizeof *given; i++) {
    if (!any_has_escapes(given[i].texts)) continue;
    console_note(&p->console, "the backslash in %s is taken as it is; with -e, \\n is a line break and \\t a tab",
                 given[i].name);
    return;
  }
}

ShownToken program_token(const Tokenizer *tokenizer, int32_t id) {
  enum { LONGEST = 4 }; /* of what a character becomes */
  ShownToken out;
  size_t size, used = 1;
  const uint8_t *bytes = tokenizer_decode(tokenizer, id, &size);
  const char *special = tokenizer_special(tokenizer, id);
  if (special) snprintf(out.text, sizeof out.text, "%.60s", text_one_line(special, 60).text);
  else if (!size) snprintf(out.text, sizeof out.text, "<token %d>", (int)id);
  if (!size) return out;
  out.text[0] = '\'';
  for (size_t i = 0, length; i < size && used + LONGEST + 5 < sizeof out.text; i += length ? length : 1) {
    char *to = out.text + used;
    const size_t room = sizeof out.text - used;
    length = utf8_read_visible(bytes + i, size - i);
    if (bytes[i] == '\n' || bytes[i] == '\t') used += (size_t)snprintf(to, room, bytes[i] == '\n' ? "\\n" : "\\t");
    else if (!length) used += (size_t)snprintf(to, room, "\\x%02X", bytes[i]);
    else used += (size_t)snprintf(to, room, "%s%.*s", strchr("'\\", bytes[i]) ? "\\" : "", (int)length, bytes + i);
    if (used + LONGEST + 5 >= sizeof out.text && i + length + 1 < size)
      used += (size_t)snprintf(out.text + used, sizeof out.text - used, "...");
  }
  snprintf(out.text + used, sizeof out.text - used, "'");
  return out;
}

bool program_read(const char *path, size_t limit, uint8_t **out, size_t *size, Error *error) {
  FILE *stream = path_is_stdin(path) ? stdin : fopen(path, "rb");
  *out = NULL;
  *size = 0;
  if (!stream) return fail(error, EXIT_INPUT, "cannot read %s: %s", path, strerror(errno));
  const bool ok = read_all(stream, path_shown(path), limit, out, size, error);
  if (stream != stdin) fclose(stream);
  return ok;
}

bool program_read_prompt(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (s->prompt && s->prompt_file) return fail(error, EXIT_USAGE, "-p and -f both give a prompt; use one");
  if (s->prompt) return program_given_text(p, s->prompt, &p->given, &p->given_size, error);
  return !s->prompt_file || program_read(s->prompt_file, (size_t)1 << 30, &p->given, &p->given_size, error);
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

static bool encode_source(const Program *p, const uint8_t *text, size_t size, BpeIds *ids, Error *error) {
  const size_t from = ids->count;
  Tokenizer *tokenizer = program_source_tokenizer(p);
  const int32_t end = tokenizer_end(tokenizer);
  return tokenizer_encode(tokenizer, text, size, ids, error) && bpe_ids_sink(ids, &end, 1, error) &&
         fit(p, "source", ids, from, error);
}

static bool encode_text(const Program *p, const char *what, const uint8_t *text, size_t size, BpeIds *ids,
                        Error *error) {
  const size_t from = ids->count;
  const int32_t start = p->special.start >= 0 ? p->special.start : 0;
  const bool ok = p->config.encoder_layers
                      ? bpe_ids_sink(ids, &start, 1, error) && tokenizer_encode(p->tokenizer, text, size, ids, error)
                      : generation_prompt(p->tokenizer, start, text, size, ids, error);
  return ok && fit(p, what, ids, from, error);
}

static bool encode_answer(const Program *p, BpeIds *ids, Error *error) {
  const char *given = p->settings.answer ? p->settings.answer : "";
  uint8_t *text;
  size_t size;
  const bool ok = program_given_text(p, given, &text, &size, error) && encode_text(p, "answer", text, size, ids, error);
  free(text);
  return ok;
}

bool program_encode(const Program *p, const uint8_t *text, size_t size, BpeIds *source, BpeIds *prompt, Error *error) {
  if (p->config.encoder_layers) return encode_source(p, text, size, source, error) && encode_answer(p, prompt, error);
  if (p->settings.answer)
    return fail(error, EXIT_USAGE, "--answer is for a model with an encoder; give the text with -p");
  return encode_text(p, "prompt", text, size, prompt, error);
}

bool program_encode_prompt(Program *p, Error *error) {
  if (!program_encode(p, p->given, p->given_size, &p->source, &p->prompt, error)) return false;
  program_note_unseen(p);
  return true;
}
