/* A line in, a line out (--lines). Above an encoder many lines are one batch; each gets what it would alone. */
#include "generation/program.h"

#include "cli/startup.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/path.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_LINES = 32, READ_BYTES = 1 << 16, LINE_LIMIT = 1 << 30 };

typedef struct Lines {
  Program *p;
  Sampling sampling;
  /* input */
  int fd;
  const char *name;
  uint8_t *bytes; /* read and not yet taken: [used, size) */
  size_t used, size, capacity;
  bool ended;
  int64_t taken; /* lines */
  /* a batch */
  int rows, count; /* of the decoder; lines that wait for an answer */
  BpeIds sources[BATCH_LINES], answers[BATCH_LINES];
  bool bad[BATCH_LINES];     /* lines that do not fit: answered by an empty one */
  int64_t bad_lines, tokens; /* of all batches; tokens: drawn */
} Lines;

/* ---- input ---- */

/* Whether reading would not wait. */
static bool is_ready(const Lines *l) {
  struct pollfd input = {.fd = l->fd, .events = POLLIN};
  return poll(&input, 1, 0) != 0;
}

static bool read_more(Lines *l, Error *error) {
  if (l->used > 0) memmove(l->bytes, l->bytes + l->used, l->size - l->used);
  l->size -= l->used;
  l->used = 0;
  if (l->size > LINE_LIMIT)
    return fail(error, EXIT_INPUT, "%s:%" PRId64 ": the line is longer than %d bytes", l->name, l->taken + 1,
                LINE_LIMIT);
  if (!array_reserve(&l->bytes, &l->capacity, l->size + READ_BYTES, 1)) return error_memory(error, "a line");
  const ssize_t got = read(l->fd, l->bytes + l->size, READ_BYTES);
  if (got < 0 && errno != EINTR) return fail(error, EXIT_INPUT, "cannot read %s: %s", l->name, strerror(errno));
  l->ended = got == 0;
  l->size += got > 0 ? (size_t)got : 0;
  return true;
}

/* The next line, without its end, or NULL at the end of the input and, unless `wait`, where that would take time. It is
 * valid until the next call. */
static bool next_line(Lines *l, bool wait, const uint8_t **line, size_t *size, Error *error) {
  for (size_t looked = 0;;) {
    const size_t waiting = l->size - l->used;
    const uint8_t *begin = l->bytes ? l->bytes + l->used : NULL;
    const uint8_t *end = waiting > looked ? memchr(begin + looked, '\n', waiting - looked) : NULL;
    *line = NULL;
    if (!end && !l->ended) {
      looked = waiting;
      if (!wait && !is_ready(l)) return true;
      if (!startup_go_on("reading lines", error) || !read_more(l, error)) return false;
      continue;
    }
    if (!end && waiting == 0) return true;
    *line = begin;
    *size = end ? (size_t)(end - begin) : waiting;
    l->used += *size + (end != NULL);
    l->taken++;
    if (*size && begin[*size - 1] == '\r') --*size;
    return true;
  }
}

/* What does not fit is said, and the others are done. */
static bool take_line(Lines *l, const uint8_t *line, size_t size, Error *error) {
  Program *p = l->p;
  BpeIds *ids = &l->sources[l->count];
  Error why = {0};
  ids->count = 0;
  const bool ok = p->config.encoder_layers ? program_encode_source(p, line, size, ids, &why)
                                           : program_encode_text(p, line, size, ids, &why);
  l->bad[l->count] = !ok;
  if (!ok && why.code != EXIT_INPUT) return fail(error, why.code, "%s", why.text);
  if (!ok) {
    console_warning(&p->console, "%s:%" PRId64 ": %s", l->name, l->taken, why.text);
    l->bad_lines++;
  }
  l->count++;
  return true;
}

/* As many lines as there are, one at least. */
static bool take_lines(Lines *l, Error *error) {
  for (l->count = 0; l->count < l->rows;) {
    const uint8_t *line;
    size_t size;
    if (!next_line(l, l->count == 0, &line, &size, error)) return false;
    if (!line) return true;
    if (!take_line(l, line, size, error)) return false;
  }
  return true;
}

/* ---- answers ---- */

/* Rows without a line answer an empty one. */
static bool begin_rows(Lines *l, Error *error) {
  Program *p = l->p;
  const BpeIds *prompt = p->config.encoder_layers ? &p->prompt : &l->sources[0];
  const int32_t end = tokenizer_end(p->tokenizer);
  for (int r = 0; p->config.encoder_layers && r < l->rows; r++) {
    const bool given = r < l->count && !l->bad[r];
    if (!decoder_source(p->decoder, r, given ? l->sources[r].ids : &end, given ? (int)l->sources[r].count : 1, error))
      return false;
  }
  return decoder_prompt(p->decoder, prompt->ids, (int)prompt->count, (uint32_t)(l->taken - l->count), error);
}

/* Draws a token for every row; *busy: whether any answer goes on. */
static bool draw(Lines *l, bool *done, bool *busy, Error *error) {
  const GenerateSettings *s = &l->p->settings;
  int32_t next[BATCH_LINES];
  if (!startup_go_on("generating", error) || !decoder_next(l->p->decoder, &l->sampling, next, error)) return false;
  *busy = false;
  for (int r = 0; r < l->count; r++) {
    if (done[r]) continue;
    const bool end = next[r] == tokenizer_end(l->p->tokenizer);
    done[r] = end && !s->ignore_end;
    l->tokens++;
    if (!end && !bpe_ids_sink(&l->answers[r], &next[r], 1, error)) return false;
    *busy = *busy || !done[r];
  }
  return true;
}

static bool answer_rows(Lines *l, Error *error) {
  const int64_t limit = l->p->settings.tokens;
  bool done[BATCH_LINES], busy = false;
  for (int r = 0; r < l->count; r++) {
    l->answers[r].count = 0;
    done[r] = l->bad[r];
    busy = busy || !done[r];
  }
  if (!busy) return true;
  if (!begin_rows(l, error)) return false;
  for (int64_t n = 0; busy && (limit < 0 || n < limit) && decoder_room(l->p->decoder) > 0; n++)
    if (!draw(l, done, &busy, error)) return false;
  return true;
}

/* A line for each, with a newline in it as \n. */
static bool print_rows(Lines *l, Error *error) {
  for (int r = 0; r < l->count; r++) {
    for (size_t i = 0; i < l->answers[r].count; i++) {
      size_t size;
      const uint8_t *bytes = tokenizer_decode(l->p->tokenizer, l->answers[r].ids[i], &size);
      for (size_t b = 0; b < size; b++)
        if (fputs(bytes[b] == '\n' ? "\\n" : "", stdout) == EOF || (bytes[b] != '\n' && putchar(bytes[b]) == EOF))
          l->p->write_error = errno ? errno : EIO;
    }
    if (putchar('\n') == EOF) l->p->write_error = errno ? errno : EIO;
  }
  if (fflush(stdout) != 0) l->p->write_error = errno ? errno : EIO;
  return program_report_output(l->p, error);
}

/* ---- all of it ---- */

static bool open_input(Lines *l, Error *error) {
  const GenerateSettings *s = &l->p->settings;
  l->name = path_shown(s->prompt_file ? s->prompt_file : "-");
  if (s->prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  l->fd = !s->prompt_file || path_is_stdin(s->prompt_file) ? STDIN_FILENO : open(s->prompt_file, O_RDONLY);
  return l->fd >= 0 || fail(error, EXIT_INPUT, "cannot read %s: %s", s->prompt_file, strerror(errno));
}

static bool prepare(Lines *l, Error *error) {
  Program *p = l->p;
  const char *answer = p->settings.answer ? p->settings.answer : "";
  if (p->settings.answer && !p->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--answer is for a model with an encoder");
  l->rows = p->config.encoder_layers ? BATCH_LINES : 1;
  l->sampling = program_request(p).sampling;
  return program_encode_text(p, (const uint8_t *)answer, strlen(answer), &p->prompt, error) &&
         decoder_open(&p->decoder, p->model, l->rows, error);
}

static bool answer_all(Lines *l, Error *error) {
  const double start = clock_seconds();
  while (!l->p->write_error) {
    if (!take_lines(l, error)) return false;
    if (l->count == 0) break;
    if (!answer_rows(l, error) || !print_rows(l, error)) return false;
  }
  console_note(&l->p->console, "%" PRId64 " lines, %" PRId64 " tokens in %s; seed %" PRIu64, l->taken, l->tokens,
               text_duration(clock_seconds() - start).text, l->sampling.seed);
  if (l->bad_lines)
    return fail(error, EXIT_INPUT, "%" PRId64 " of %" PRId64 " lines did not fit, and have empty answers", l->bad_lines,
                l->taken);
  return true;
}

bool program_lines(Program *p, Error *error) {
  Lines *l = calloc(1, sizeof *l);
  if (!l) return error_memory(error, "lines");
  l->p = p;
  l->fd = -1;
  bool ok = open_input(l, error) && prepare(l, error) && answer_all(l, error);
  if (l->fd > STDIN_FILENO) close(l->fd);
  for (int r = 0; r < BATCH_LINES; r++) {
    free(l->sources[r].ids);
    free(l->answers[r].ids);
  }
  free(l->bytes);
  free(l);
  return ok;
}
