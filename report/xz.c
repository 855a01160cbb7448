#include "report/xz.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Two functions of liblzma 5 (lzma/container.h) that use none of its structures. */
typedef int EncodeBuffer(uint32_t preset, int check, const void *allocator, const uint8_t *in, size_t in_size,
                         uint8_t *out, size_t *out_pos, size_t out_size);
typedef size_t BufferBound(size_t size);
/* Up to XZ_BYTES of text the presets 6 to 9 differ only in the memory they use. */
enum { PRESET = 6, NO_CHECK = 0, DONE = 0 };

static EncodeBuffer *encode;
static BufferBound *bound;

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
  find(library, "lzma_easy_buffer_encode", &encode);
  find(library, "lzma_stream_buffer_bound", &bound);
  return encode && bound;
}

/* Returns the size of the output; 0: failed. */
static size_t compressed(const uint8_t *bytes, size_t size) {
  const size_t capacity = bound(size);
  uint8_t *out = malloc(capacity);
  size_t used = 0;
  const bool ok = out && encode(PRESET, NO_CHECK, NULL, bytes, size, out, &used, capacity) == DONE;
  free(out);
  return ok ? used : 0;
}

double xz_bits_per_byte(const uint8_t *bytes, size_t before, size_t size) {
  if (before >= size || size > XZ_BYTES || !load()) return NAN;
  const size_t first = compressed(bytes, before), both = compressed(bytes, size);
  return first && both > first ? 8.0 * (double)(both - first) / (double)(size - before) : (double)NAN;
}
