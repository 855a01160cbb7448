/* cp.async. The bytes land as late as the program allows: at the wait that covers them, so that reading them earlier
 * gives what was there before. With EMU_CPASYNC=eager they land at once, so that filling a buffer that others still
 * read shows. */
#include "tests/cuda_on_cpu/internal.h"

namespace emu {

struct Copy {
  void *to;
  const void *from;
  size_t bytes, source_bytes; /* bytes 0: has landed */
  int group;
  const void *code; /* that asked for it */
};

struct ThreadCopies {
  std::vector<Copy> pending;
  int group; /* that is open */
};

static std::vector<ThreadCopies> copies; /* by thread of the block */

void async_copies_begin(int threads) {
  if (copies.size() < size_t(threads)) copies.resize(size_t(threads));
  for (ThreadCopies &c : copies) {
    c.pending.clear();
    c.group = 0;
  }
}

bool async_copies_pending(int thread) { return !copies[size_t(thread)].pending.empty(); }

static void land(Copy *c) {
  race_access_at(c->to, c->bytes, true, false, c->code);
  if (c->source_bytes) race_access_at(c->from, c->source_bytes, false, false, c->code);
  memcpy(c->to, c->from, c->source_bytes);
  memset(static_cast<char *>(c->to) + c->source_bytes, 0, c->bytes - c->source_bytes);
  c->bytes = 0;
}

/* memcpy and memset are checked by AddressSanitizer, but they may come late: here is the line that gave the address. */
static void check_addresses(void *to, const void *from, size_t bytes, size_t source_bytes) {
#ifdef EMU_ASAN
  char sink[16];
  if (__asan_region_is_poisoned(to, bytes)) memset(to, 0, bytes);
  if (source_bytes && __asan_region_is_poisoned(const_cast<void *>(from), source_bytes))
    memcpy(sink, from, source_bytes);
#else
  (void)to, (void)from, (void)bytes, (void)source_bytes;
#endif
}

void cp_async(void *shared, const void *global, int bytes, int source_bytes) {
  const uintptr_t address = uintptr_t(shared) | (source_bytes ? uintptr_t(global) : 0);
  if (address % uintptr_t(bytes)) die("cp.async: %d bytes from %p to %p are misaligned", bytes, global, shared);
  check_addresses(shared, global, size_t(bytes), size_t(source_bytes));
  const void *code = __builtin_return_address(0);
  race_access_at(shared, size_t(bytes), true, false, code); /* the hardware may write from now on */
  ThreadCopies &own = copies[size_t(current_thread())];
  own.pending.push_back({shared, global, size_t(bytes), size_t(source_bytes), own.group, code});
  if (options().eager_copies) land(&own.pending.back());
}

void cp_async_commit() { copies[size_t(current_thread())].group++; }

void cp_async_wait(int newest_groups) {
  ThreadCopies &own = copies[size_t(current_thread())];
  size_t kept = 0;
  for (Copy &c : own.pending)
    if (c.group >= own.group - newest_groups) own.pending[kept++] = c;
    else if (c.bytes) land(&c);
  own.pending.resize(kept);
}

} // namespace emu
