#include "report/xz.h"

#include "base/thread.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Three functions of liblzma 5 (lzma/base.h, lzma/container.h) and the structure of their stream. */
typedef struct Stream {
  const uint8_t *in;
  size_t in_size;
  uint64_t in_total;
  uint8_t *out;
  size_t out_size;
  uint64_t out_total;
  const void *allocator;
  void *state, *reserved[4];
  uint64_t reserved_numbers[2];
  size_t reserved_sizes[2];
  int reserved_choices[2];
} Stream;
typedef int BeginStream(Stream *stream, uint32_t preset, int check);
typedef int RunStream(Stream *stream, int action);
typedef void EndStream(Stream *stream);
/* Up to XZ_BYTES of text the presets 6 to 9 differ only in the memory they use. */
enum { PRESET = 6, NO_CHECK = 0, RUN = 0, FLUSH = 1, MORE = 0, DONE = 1 };

static BeginStream *begin_stream;
static RunStream *run_stream;
static EndStream *end_stream;

/* memcpy(): ISO C cannot convert the pointer that dlsym() returns into a function pointer. */
static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

static bool load(void) {
  static const char *const names[] = {"liblzma.so.5", "liblzma.5.dylib"};
  void *library = NULL;
  for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* never closed */
  if (!library) return false;
  find(library, "lzma_easy_encoder", &begin_stream);
  find(library, "lzma_code", &run_stream);
  find(library, "lzma_end", &end_stream);
  return begin_stream && run_stream && end_stream;
}

struct XzMeasurement {
  pthread_t thread;
  bool threaded;
  uint8_t *bytes;
  size_t before, size;
  double bits_per_byte;
  atomic_bool finished, unwanted;
};

/* Compresses bytes[begin..end), and flushes the output. Returns its size so far; 0: failed or unwanted. */
static uint64_t compress(XzMeasurement *m, Stream *stream, size_t begin, size_t end) {
  enum { PIECE = 1 << 16 };
  uint8_t out[1 << 12]; /* is not read */
  int status = MORE;
  for (size_t at = begin; status == MORE && !atomic_load(&m->unwanted);) {
    if (!stream->in_size) {
      stream->in = m->bytes + at;
      stream->in_size = end - at < PIECE ? end - at : PIECE;
      at += stream->in_size;
    }
    stream->out = out;
    stream->out_size = sizeof out;
    status = run_stream(stream, at < end ? RUN : FLUSH);
  }
  return status == DONE ? stream->out_total : 0;
}

static double bits_per_byte(XzMeasurement *m) {
  Stream stream = {0};
  if (m->before >= m->size || m->size > XZ_BYTES || !load() || begin_stream(&stream, PRESET, NO_CHECK) != 0) return NAN;
  const uint64_t first = compress(m, &stream, 0, m->before);
  const uint64_t both = first ? compress(m, &stream, m->before, m->size) : 0;
  end_stream(&stream);
  return both ? 8.0 * (double)(both - first) / (double)(m->size - m->before) : (double)NAN;
}

static void *measure(void *argument) {
  XzMeasurement *m = argument;
  m->bits_per_byte = bits_per_byte(m);
  atomic_store(&m->finished, true);
  return NULL;
}

XzMeasurement *xz_begin(uint8_t *bytes, size_t before, size_t size, Error *error) {
  XzMeasurement *m = malloc(sizeof *m);
  if (!m) {
    free(bytes);
    error_memory(error, "a comparison with xz");
    return NULL;
  }
  *m = (XzMeasurement){.bytes = bytes, .before = before, .size = size};
  m->threaded = thread_start(&m->thread, measure, m);
  if (!m->threaded) measure(m);
  return m;
}

bool xz_has_finished(const XzMeasurement *m) { return atomic_load(&m->finished); }

double xz_end(XzMeasurement *m) {
  if (m->threaded) pthread_join(m->thread, NULL);
  const double bits = m->bits_per_byte;
  free(m->bytes);
  free(m);
  return bits;
}

void xz_stop(XzMeasurement *m) {
  if (!m) return;
  atomic_store(&m->unwanted, true);
  xz_end(m);
}
