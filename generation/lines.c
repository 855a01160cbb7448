/* A line in, a line out (--lines). */
#include "generation/program.h"

#include "cli/startup.h"
#include "model/answers.h"
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

enum { READ_BYTES = 1 << 16, LINE_LIMIT = 1 << 30 };

typedef struct Lines {
  Program *p;
  int fd;
  const char *name;
  uint8_t *bytes; /* read and not yet taken: [used, size) */
  size_t used, size, capacity;
  bool ended;
  int64_t taken; /* lines */
  Answers batch;
  int64_t bad; /* lines that did not fit: they have empty answers */
} Lines;

/* ---- input ---- */

/* Whether reading would not wait. */
static bool is_ready(const Lines *l) {
  struct pollfd input = {.fd = l->fd, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

static bool read_more(Lines *l, Error *error) {
  if (l->bytes && l->used > 0) memmove(l->bytes, l->bytes + l->used, l->size - l->used);
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
    const size_t waiting = l->bytes ? l->size - l->used : 0;
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
  Answers *a = &l->batch;
  BpeIds *ids = &a->prompts[a->count];
  Error why = {0};
  ids->count = 0;
  const bool ok = p->config.encoder_layers ? program_encode_source(p, line, size, ids, &why)
                                           : program_encode_text(p, "prompt", line, size, ids, &why);
  a->skipped[a->count++] = !ok;
  if (ok) return true;
  if (why.code != EXIT_INPUT) return fail(error, why.code, "%s", why.text);
  console_warning(&p->console, "%s:%" PRId64 ": %s", l->name, l->taken, why.text);
  l->bad++;
  return true;
}

/* As many lines as there are, one at least. */
static bool take_lines(Lines *l, Error *error) {
  for (l->batch.count = 0; l->batch.count < l->batch.rows;) {
    const uint8_t *line;
    size_t size;
    if (!next_line(l, l->batch.count == 0, &line, &size, error)) return false;
    if (!line) return true;
    if (!take_line(l, line, size, error)) return false;
  }
  return true;
}

/* ---- answers ---- */

/* A line for each, with a newline in it as \n. */
static void put(Program *p, int byte) {
  if (putchar(byte) == EOF) p->write_error = errno ? errno : EIO;
}

static bool print_rows(const Lines *l, Error *error) {
  Program *p = l->p;
  for (int r = 0; r < l->batch.count; r++) {
    const BpeIds *answer = &l->batch.answers[r];
    for (size_t i = 0; i < answer->count; i++) {
      size_t size;
      const uint8_t *bytes = tokenizer_decode(p->tokenizer, answer->ids[i], &size);
      for (size_t b = 0; b < size; b++) {
        if (bytes[b] == '\n' || bytes[b] == '\\') put(p, '\\');
        put(p, bytes[b] == '\n' ? 'n' : bytes[b]);
      }
    }
    put(p, '\n');
  }
  if (fflush(stdout) != 0) p->write_error = errno ? errno : EIO;
  return program_report_output(p, error);
}

/* ---- all of it ---- */

static bool open_input(Lines *l, Error *error) {
  const GenerateSettings *s = &l->p->settings;
  l->name = path_shown(s->prompt_file ? s->prompt_file : "-");
  if (s->prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  l->fd = !s->prompt_file || path_is_stdin(s->prompt_file) ? STDIN_FILENO : open(s->prompt_file, O_RDONLY);
  return l->fd >= 0 || fail(error, EXIT_INPUT, "cannot read %s: %s", s->prompt_file, strerror(errno));
}

static bool keep_answering(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens;
  return startup_go_on("generating", error);
}

/* What every answer begins with. */
static bool open_answers(Lines *l, Error *error) {
  Program *p = l->p;
  const char *answer = p->settings.answer;
  if (!answers_open(&l->batch, p->model, p->tokenizer, p->source_tokenizer, error)) return false;
  if (!l->batch.encoder) return !answer || fail(error, EXIT_USAGE, "--answer is for a model with an encoder");
  if (!answer) answer = "";
  l->batch.begin.count = 0;
  return program_encode_text(p, "answer", (const uint8_t *)answer, strlen(answer), &l->batch.begin, error);
}

static bool answer_all(Lines *l, Error *error) {
  Program *p = l->p;
  AnswerRequest request = {.sampling = program_request(p).sampling,
                           .limit = p->settings.tokens,
                           .ignore_end = p->settings.ignore_end,
                           .progress = {keep_answering, NULL}};
  const double start = clock_seconds();
  while (!p->write_error) {
    if (!take_lines(l, error)) return false;
    if (l->batch.count == 0) break;
    request.first_stream = (uint32_t)(l->taken - l->batch.count);
    if (!answers_write(&l->batch, &request, error) || !print_rows(l, error)) return false;
  }
  console_note(&p->console, "%" PRId64 " lines, %" PRId64 " tokens in %s; seed %" PRIu64, l->taken, l->batch.tokens,
               text_duration(clock_seconds() - start).text, request.sampling.seed);
  if (l->bad)
    return fail(error, EXIT_INPUT, "%" PRId64 " of %" PRId64 " lines did not fit, and have empty answers", l->bad,
                l->taken);
  return true;
}

bool program_lines(Program *p, Error *error) {
  Lines l = {.p = p, .fd = -1};
  bool ok = open_input(&l, error) && open_answers(&l, error) && answer_all(&l, error);
  if (l.fd > STDIN_FILENO) close(l.fd);
  answers_close(&l.batch);
  free(l.bytes);
  return ok;
}
