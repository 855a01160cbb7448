/* Work shared by the threads of a team: pieces 0 .. count-1, of which every thread has a run of its own and, when that
 * is done, takes what others have not begun.
 *
 * The run of thread t is the t-th part of the pieces, in every operation. Pieces are cut along the rows of a
 * micro-batch, so a thread finds what it wrote in the operation before in its own cache. Pieces are taken in ever smaller
 * spans, so a thread that the machine holds up (shared machines do) delays the others by little. Which thread does a
 * piece must not change its result. */
#ifndef INKLING_KERNELS_CPU_SHARE_H
#define INKLING_KERNELS_CPU_SHARE_H

#include "kernels/cpu/cpu.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>

/* A thread's run, in a cache line of its own. */
struct Share {
  _Alignas(64) atomic_int next;
  int end;
};

/* One of SHARES in the context, an array of as many as there are threads. Set before the threads start, or by one of
 * them before a barrier. */
static inline void share_set(Context *c, int which, int count) {
  for (int t = 0; t < c->threads; t++) {
    Share *run = &c->shares[which][t];
    atomic_store_explicit(&run->next, (int)((int64_t)count * t / c->threads), memory_order_relaxed);
    run->end = (int)((int64_t)count * (t + 1) / c->threads);
  }
}

typedef struct Span {
  int begin, end;
} Span;

/* The next pieces for the calling thread: half of what its run has left, or else of another's, at least `least` and at
 * most `most`. False when everything is taken. */
static inline bool share_take(Context *c, int which, int least, int most, Span *out) {
  int t = omp_get_thread_num();
  for (int i = 0; i < c->threads; i++) {
    Share *run = &c->shares[which][t + i < c->threads ? t + i : t + i - c->threads];
    int left = run->end - atomic_load_explicit(&run->next, memory_order_relaxed);
    if (left <= 0) continue;
    int size = left / 2 < least ? least : left / 2 > most ? most : left / 2;
    out->begin = atomic_fetch_add_explicit(&run->next, size, memory_order_relaxed);
    out->end = out->begin + size < run->end ? out->begin + size : run->end;
    if (out->begin < out->end) return true;
  }
  return false;
}

/* The loop of a thread over pieces i of share 0, `most` at a time at most:
 *
 *   share_set(c, 0, rows);
 *   #pragma omp parallel num_threads(c->threads)
 *   EACH_SHARED(c, n, 16) { row n } */
#define EACH_SHARED(c, i, most)                                                                                        \
  for (Span span_; share_take(c, 0, 1, most, &span_);)                   \
    for (int i = span_.begin; i < span_.end; i++)

#endif
