#include "tests/backends.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(INKLING_SANITIZE)
/* Tests run out of memory: malloc must return NULL then, not end the program. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

enum { GUARD_BYTES = 256, MAX_TESTS = 64 };

/* A linked list of resources to check and free at the end of the test. */
struct Owned {
  Owned *next;
  void *host;        /* malloc */
  void *device;      /* backend->alloc; with the guard zones */
  size_t span_bytes; /* between the guard zones */
  void (*close)(void *what);
  void *what;
};

static Owned *own(Fixture *f) {
  Owned *owned = calloc(1, sizeof *owned);
  assert_non_null(owned);
  owned->next = f->owned;
  f->owned = owned;
  return owned;
}

/* ---- digests: with $INKLING_TEST_DIGEST a line for every test, its name and a hash of all its downloads, is appended
 * to that file, to compare runs bit by bit. ---- */

static struct {
  const Backend *backend; /* the one that is tested */
  uint64_t hash;          /* FNV-1a */
} digest;

static void digest_add(const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < count; i++) digest.hash = (digest.hash ^ at[i]) * 0x100000001B3u;
}

static void digest_download(Context *c, void *host, const void *device, size_t bytes) {
  if (bytes) memset(host, 0xEE, bytes); /* a context with an error downloads nothing */
  digest.backend->download(c, host, device, bytes);
  digest_add(host, bytes);
}

static int digest_poll(Context *c, StepReport *out, int capacity, bool wait, Error *error) {
  int count = digest.backend->poll(c, out, capacity, wait, error);
  const size_t bytes = offsetof(StepState, bias2) + sizeof out->state.bias2; /* without the padding and the times */
  for (int i = 0; i < count; i++) digest_add(&out[i].state, bytes);
  return count;
}

/* `backend`, or one in `wrapped` that goes through the functions above. */
static const Backend *digest_of(const Backend *backend, Backend *wrapped) {
  if (!getenv("INKLING_TEST_DIGEST")) return backend;
  digest.backend = backend;
  *wrapped = *backend;
  wrapped->download = digest_download;
  wrapped->poll = digest_poll;
  return wrapped;
}

static bool digest_write(const char *test) {
  const char *path = getenv("INKLING_TEST_DIGEST");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!path) return true;
  if (file) fprintf(file, "%s %016llx\n", test, (unsigned long long)digest.hash);
  if (file && fclose(file) == 0) return true;
  fprintf(stderr, "%s: cannot be written\n", path);
  return false;
}

/* ---- running ---- */

static int set_up(void **state) {
  Fixture *f = *state;
  Error error = {0};
  ContextOptions options = {.dtype = f->dtype, .threads = 0};
  f->expect_error = false;
  f->owned = NULL;
  digest.hash = 0xCBF29CE484222325u;
  if (f->backend->open(&f->context, &options, &error)) return 0;
  fprintf(stderr, "%s: %s\n", f->backend->name, error.text);
  return 1;
}

static bool guards_whole(const Fixture *f, const Owned *owned) {
  unsigned char guard[GUARD_BYTES];
  for (int side = 0; side < 2; side++) {
    const char *at = (const char *)owned->device + (side ? GUARD_BYTES + owned->span_bytes : 0);
    f->backend->download(f->context, guard, at, GUARD_BYTES);
    for (int i = 0; i < GUARD_BYTES; i++) {
      if (guard[i] == 0xFF) continue;
      fprintf(stderr, "an array of %zu bytes was written to %s\n", owned->span_bytes,
              side ? "behind its end" : "before its start");
      return false;
    }
  }
  return true;
}

bool fixture_is_cuda(const Fixture *f) { return strcmp(f->backend->name, "cuda") == 0; }

void fixture_free(Fixture *f) {
  for (Owned *owned = f->owned, *next; owned; owned = next) {
    next = owned->next;
    if (owned->device) f->backend->release(f->context, owned->device);
    if (owned->close) owned->close(owned->what);
    free(owned->host);
    free(owned);
  }
  f->owned = NULL;
  f->backend->close(f->context);
  f->context = NULL;
}

/* An MMX instruction without emms after it, in whatever way the compiler came to it, makes all later long doubles NaN. */
static bool long_doubles_work(void) {
  volatile long double one = 1;
  return one + one == 2;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  Error error = {0};
  StepReport reports[8];
  int failures = 0;
  if (!f->expect_error) {
    while (f->backend->poll(f->context, reports, 8, true, &error) > 0) {
    }
    if (error.code != EXIT_DONE) fprintf(stderr, "the context holds an error: %s\n", error.text), failures++;
  }
  for (Owned *owned = f->owned; owned; owned = owned->next)
    if (owned->device && !f->expect_error && !guards_whole(f, owned)) failures++;
  if (!long_doubles_work()) fprintf(stderr, "the registers of long doubles are in use\n"), failures++;
  if (!digest_write(f->test)) failures++;
  fixture_free(f);
  return failures ? -1 : 0;
}

static bool opens(const Backend *backend, DType dtype) {
  Context *context = NULL;
  Error error = {0};
  ContextOptions options = {.dtype = dtype, .threads = 0};
  if (backend->open(&context, &options, &error)) {
    backend->close(context);
    return true;
  }
  fprintf(stderr, "[ not run  ] %s %s: %s\n", backend->name, dtype_name(dtype), error.text);
  return false;
}

static int run_on(const Backend *backend, DType dtype, const char *group, const struct CMUnitTest *tests, int count) {
  char names[MAX_TESTS][128], title[128], machine[32];
  struct CMUnitTest copies[MAX_TESTS];
  Fixture fixtures[MAX_TESTS];
  Backend wrapped;
  snprintf(machine, sizeof machine, "%s%s%s %s", backend->name, backend->isa ? "-" : "",
           backend->isa ? backend->isa : "", dtype_name(dtype));
  snprintf(title, sizeof title, "%s %s", group, machine);
  for (int i = 0; i < count; i++) {
    snprintf(names[i], sizeof names[i], "%s %s", machine, tests[i].name);
    fixtures[i] = (Fixture){.backend = digest_of(backend, &wrapped), .dtype = dtype, .test = names[i]};
    copies[i] = tests[i];
    copies[i].name = names[i];
    copies[i].setup_func = set_up;
    copies[i].teardown_func = tear_down;
    copies[i].initial_state = &fixtures[i];
  }
  return _cmocka_run_group_tests(title, copies, (size_t)count, NULL, NULL);
}

static int run_in(unsigned dtypes, const char *group, const struct CMUnitTest *tests, int count) {
  int failures = 0, runs = 0;
  if (count > MAX_TESTS) {
    fprintf(stderr, "%s: %d tests, room for %d\n", group, count, MAX_TESTS);
    return 1;
  }
  const char *only = getenv("INKLING_TEST_BACKEND"); /* a device or an instruction set */
  for (const Backend *const *b = backend_list(); *b; b++) {
    if (only && strcmp((*b)->name, only) != 0 && (!(*b)->isa || strcmp((*b)->isa, only) != 0)) continue;
    for (DType dtype = DTYPE_F32; dtype < DTYPES; dtype++) {
      bool required = (*b)->isa || only;
      if (!((*b)->dtypes & dtypes & 1u << dtype)) continue;
      if (!opens(*b, dtype)) {
        failures += required;
        continue;
      }
      runs++;
      failures += run_on(*b, dtype, group, tests, count);
    }
  }
  return failures + (runs == 0);
}

int run_on_backends(const char *group, const struct CMUnitTest *tests, int count) {
  return run_in(~0u, group, tests, count);
}

int run_on_backends_in_f32(const char *group, const struct CMUnitTest *tests, int count) {
  return run_in(1u << DTYPE_F32, group, tests, count);
}

/* ---- memory ---- */

void *host_memory(Fixture *f, size_t bytes) {
  Owned *owned = own(f);
  owned->host = calloc(bytes ? bytes : 1, 1);
  assert_non_null(owned->host);
  return owned->host;
}

void fixture_close_later(Fixture *f, void (*close)(void *what), void *what) {
  Owned *owned = own(f);
  owned->close = close;
  owned->what = what;
}

void *guarded_memory(Fixture *f, const char *name, const void *bytes, size_t count) {
  size_t whole = count + 2 * GUARD_BYTES;
  unsigned char *pattern = host_memory(f, whole);
  memset(pattern, 0xFF, whole);
  if (bytes) memcpy(pattern + GUARD_BYTES, bytes, count);
  Owned *owned = own(f);
  owned->span_bytes = count;
  owned->device = f->backend->alloc(f->context, name, whole);
  assert_non_null(owned->device);
  f->backend->upload(f->context, owned->device, pattern, whole);
  return (char *)owned->device + GUARD_BYTES;
}

double *host_values(Fixture *f, size_t count) { return host_memory(f, count * sizeof(double)); }

double *random_values(Fixture *f, uint32_t seed, size_t count) {
  double *values = host_values(f, count);
  for (size_t i = 0; i < count; i++) {
    PhiloxWords r = philox(seed, (uint32_t)i, 0xFEu << 24, 0, 0);
    double sum = 0; /* of four uniform numbers on multiples of 1/16: about normal, and few enough bits for bf16 */
    for (int j = 0; j < 4; j++) sum += (double)(r.word[j] >> 28) / 16 - 0.46875;
    values[i] = round(sum * 1.75 * 16) / 16;
  }
  return values;
}
