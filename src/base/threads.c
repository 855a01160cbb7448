#define _GNU_SOURCE /* sched_getaffinity() */
#include "base/threads.h"

#include "base/system.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the number of threads ---- */

void threads_mask(unsigned char out[THREADS_MASK_BYTES]) {
  memset(out, 0, THREADS_MASK_BYTES);
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  memcpy(out, &set, sizeof set < THREADS_MASK_BYTES ? sizeof set : THREADS_MASK_BYTES);
#endif
}

static int allowed_cpus(void) {
  unsigned char mask[THREADS_MASK_BYTES];
  int allowed = 0;
  threads_mask(mask);
  for (int i = 0; i < THREADS_MASK_BYTES; i++) allowed += __builtin_popcount(mask[i]);
  if (allowed > 0) return allowed;
  const long online = sysconf(_SC_NPROCESSORS_ONLN); /* macOS, or more CPUs than the set holds */
  return online > 0 ? (int)online : 1;
}

/* A group of version 1 without a quota has the number -1, one of version 2 the word "max". */
static void take_quota(const char *directory, int version, void *cpus) {
  const bool first = version == 1;
  const double quota = control_group_number(directory, first ? "cpu.cfs_quota_us" : "cpu.max", "%lf", -1);
  const double period =
      control_group_number(directory, first ? "cpu.cfs_period_us" : "cpu.max", first ? "%lf" : "%*s %lf", 0);
  if (quota > 0 && period > 0) *(double *)cpus = fmin(*(double *)cpus, quota / period);
}

double threads_quota(const char *root) {
  double cpus = INFINITY;
  control_groups_take(root, "cpu", take_quota, &cpus);
  return cpus;
}

int threads_count(int wanted) { return wanted > 0 ? wanted : (int)fmin(allowed_cpus(), ceil(threads_quota(""))); }

/* ---- the pool ---- */

enum { SPINS = 1000 };

/* A thread's run of pieces. The job and the next piece share one atomic number, so that a late thread cannot take
 * pieces of another job than the one it has read. */
typedef struct Run {
  _Alignas(64) _Atomic uint64_t next; /* job << 32 | piece */
} Run;

typedef struct Job {
  _Atomic(PoolWork) work;
  _Atomic(const void *) argument;
  atomic_int count, least, most;
} Job;

/* The members that waiting threads read and that working threads write are in separate cache lines. */
struct Pool {
  _Alignas(64) atomic_uint number; /* of the newest job */
  int threads;
  Run *runs;
  pthread_t *workers;
  pthread_mutex_t mutex;
  _Alignas(64) atomic_int left; /* pieces of the newest job that are not done */
  int started;                  /* threads other than the caller's */
  pthread_cond_t wake;
  Job jobs[2]; /* with even and odd numbers: the last job stays intact while the next is filled in */
  atomic_int joined, sleeping;
  atomic_bool closing;
};

static void spin(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int run_begin(int count, int threads, int t) { return (int)((int64_t)count * t / threads); }

/* Takes pieces of thread t's run. Returns false when none are left, or `number` is not the current job. */
static bool take(Pool *p, unsigned number, int t, int count, int least, int most, int *begin, int *end) {
  _Atomic uint64_t *next = &p->runs[t].next;
  uint64_t seen = atomic_load_explicit(next, memory_order_relaxed);
  const int last = run_begin(count, p->threads, t + 1);
  for (;;) {
    const int first = (int)(seen & 0xFFFFFFFFu), left = last - first;
    if ((unsigned)(seen >> 32) != number || left <= 0) return false;
    int size = left / 2 < least ? least : left / 2 > most ? most : left / 2;
    size = size < left ? size : left;
    if (!atomic_compare_exchange_weak_explicit(next, &seen, seen + (unsigned)size, memory_order_acquire,
                                               memory_order_relaxed))
      continue;
    *begin = first;
    *end = first + size;
    return true;
  }
}

static void work_on(Pool *p, unsigned number, int thread) {
  Job *job = &p->jobs[number % 2];
  const PoolWork work = atomic_load_explicit(&job->work, memory_order_relaxed);
  const void *argument = atomic_load_explicit(&job->argument, memory_order_relaxed);
  const int count = atomic_load_explicit(&job->count, memory_order_relaxed);
  const int least = atomic_load_explicit(&job->least, memory_order_relaxed);
  const int most = atomic_load_explicit(&job->most, memory_order_relaxed);
  for (int i = 0; i < p->threads;) {
    const int of = thread + i < p->threads ? thread + i : thread + i - p->threads;
    int begin, end;
    if (!take(p, number, of, count, least, most, &begin, &end)) {
      i++;
      continue;
    }
    work(argument, begin, end, thread);
    atomic_fetch_sub_explicit(&p->left, end - begin, memory_order_release);
  }
}

/* Waits for a job with another number than `done`, and returns its number. */
static unsigned wait_for_job(Pool *p, unsigned done) {
  for (int i = 0; i < SPINS; i++) {
    const unsigned number = atomic_load_explicit(&p->number, memory_order_acquire);
    if (number != done) return number;
    spin();
  }
  pthread_mutex_lock(&p->mutex);
  atomic_fetch_add(&p->sleeping, 1);
  while (atomic_load(&p->number) == done) pthread_cond_wait(&p->wake, &p->mutex);
  atomic_fetch_sub(&p->sleeping, 1);
  pthread_mutex_unlock(&p->mutex);
  return atomic_load(&p->number);
}

static void *worker_main(void *argument) {
  Pool *p = argument;
  const int thread = atomic_fetch_add(&p->joined, 1) + 1; /* 0 is the caller's */
  unsigned number = 0;
  for (;;) {
    number = wait_for_job(p, number);
    if (atomic_load(&p->closing)) return NULL;
    work_on(p, number, thread);
  }
}

static void publish(Pool *p) {
  atomic_fetch_add(&p->number, 1);
  if (atomic_load(&p->sleeping) == 0) return;
  pthread_mutex_lock(&p->mutex);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->mutex);
}

void pool_run(Pool *p, int count, int least, int most, PoolWork work, const void *argument) {
  if (count <= 0) return;
  if (p->threads == 1 || count <= least) {
    const int size = most > least ? most : least; /* the most pieces that `work` accepts */
    for (int i = 0; i < count;) {
      const int end = count - i < size ? count : i + size;
      work(argument, i, end, 0);
      i = end;
    }
    return;
  }
  const unsigned number = atomic_load_explicit(&p->number, memory_order_relaxed) + 1;
  Job *job = &p->jobs[number % 2];
  atomic_store_explicit(&job->work, work, memory_order_relaxed);
  atomic_store_explicit(&job->argument, argument, memory_order_relaxed);
  atomic_store_explicit(&job->count, count, memory_order_relaxed);
  atomic_store_explicit(&job->least, least, memory_order_relaxed);
  atomic_store_explicit(&job->most, most, memory_order_relaxed);
  atomic_store_explicit(&p->left, count, memory_order_relaxed);
  for (int t = 0; t < p->threads; t++)
    atomic_store_explicit(&p->runs[t].next, (uint64_t)number << 32 | (unsigned)run_begin(count, p->threads, t),
                          memory_order_release);
  publish(p);
  work_on(p, number, 0);
  for (int i = 0; atomic_load_explicit(&p->left, memory_order_acquire) > 0; i++)
    if (i < SPINS) spin();
    else sched_yield(); /* the thread with the last piece may need this processor */
}

/* The stack has room for blocks of matrices: musl's default is 128 KiB. */
bool thread_start(pthread_t *thread, void *(*body)(void *), void *argument) {
  enum { STACK_BYTES = 2 << 20 };
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool ok = pthread_create(thread, &attributes, body, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return ok;
}

bool pool_open(Pool **out, int threads, Error *error) {
  *out = NULL;
  Pool *p = memory_allocate(64, sizeof *p);
  if (!p) return error_memory(error, "threads");
  *p = (Pool){.threads = threads, .runs = memory_allocate(64, (size_t)threads * sizeof(Run))};
  p->workers = calloc((size_t)threads, sizeof *p->workers);
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, NULL);
  bool ok = (p->runs && p->workers) || error_memory(error, "threads");
  for (int t = 0; ok && t < threads; t++) atomic_init(&p->runs[t].next, 0);
  for (int t = 1; ok && t < threads; t++) {
    ok = thread_start(&p->workers[t - 1], worker_main, p) ||
         fail(error, EXIT_MEMORY, "the system granted only %d of %d threads; use a smaller --threads", t, threads);
    if (ok) p->started++;
  }
  if (ok) *out = p;
  else pool_close(p);
  return ok;
}

void pool_close(Pool *p) {
  if (!p) return;
  atomic_store(&p->closing, true);
  publish(p);
  for (int t = 0; t < p->started; t++) pthread_join(p->workers[t], NULL);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->mutex);
  memory_release(p->runs, (size_t)p->threads * sizeof(Run));
  free(p->workers);
  memory_release(p, sizeof *p);
}
