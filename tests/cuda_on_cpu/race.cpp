/* The race detector. Kernels are compiled with -fsanitize=thread and linked with this file instead of the library:
 * every load and store of theirs calls a function here. Reported are
 *   - two accesses to one place by threads of a block, one of them a write, with no barrier between them (nor, within
 *     a warp, a __syncwarp; nor are both atomic);
 *   - the same by two blocks of one launch, unless the later one has learned of the earlier one's end by an atomic
 *     operation that the earlier one did after a fence ("the last block adds it up");
 *   - reads of shared memory that nothing in the block has written;
 *   - in a launch that begins early, a thread's reads before wait_for_previous() of what the launches wrote that may
 *     still run, and its writes there; and reads by ld.global.nc of what they wrote, even after it;
 *   - reads by wgmma of what its writer has not made visible by fence.proxy.async before a barrier;
 *   - accesses to pageable host memory and to another thread's local memory.
 * What counts is what the kernel promises, not what the order of this run happens to make of it. Accesses are told
 * apart by 2 bytes. The program ends with status 66 when anything was reported. */
#include "tests/cuda_on_cpu/internal.h"

#include <dlfcn.h>
#include <unistd.h>
#include <unordered_map>

extern "C" char __bss_start[], _end[]; /* of the program: static variables, that is static shared memory */

namespace emu {

struct Access {
  uint32_t launch, block;
  uint32_t block_epoch, warp_epoch;
  int16_t thread; /* -1: none */
  bool atomic;
  uint32_t fences; /* of the thread so far: race_proxy_fence() */
};

struct Cell { /* of 2 bytes */
  Access write;
  Access reads[2]; /* of different warps where possible */
  uint32_t block_run;
};

enum { PAGE_BYTES = 4096, CELL_BYTES = 2, MAX_REPORTS = 20, MAX_LINES_FOUND = 3 };
enum Space { SPACE_SHARED, SPACE_GLOBAL };

static std::unordered_map<uintptr_t, std::vector<Cell>> pages;
static uintptr_t recent_number;
static std::vector<Cell> *recent_page;

static const char *shared_begin, *shared_end; /* dynamic */
static uint32_t block_run;                    /* counts blocks over all launches: shared memory forgets */
static uint32_t block_number;                 /* in the grid */
static unsigned report_count;
static unsigned long long access_count;

/* Which blocks of a launch have announced themselves by an atomic operation on an address, see race_fence(). */
struct Announcement {
  uint32_t launch;
  std::vector<bool> blocks;
};
static std::unordered_map<const void *, Announcement> announcements;
static std::vector<bool> known_blocks; /* whose writes the current block may read */
static bool fenced;                    /* the current block has executed a fence */
/* By thread of the block: the barriers that came before each of its fence.proxy.async. */
static std::vector<std::vector<unsigned>> proxy_fences;

void race_block_begin(unsigned number, const void *dynamic_shared, size_t bytes) {
  shared_begin = static_cast<const char *>(dynamic_shared), shared_end = shared_begin + bytes;
  block_run++;
  block_number = number;
  known_blocks.clear();
  fenced = false;
  proxy_fences.clear();
}

void race_fence() { fenced = true; }

void race_proxy_fence() {
  const size_t thread = size_t(current_thread());
  if (proxy_fences.size() <= thread) proxy_fences.resize(thread + 1);
  proxy_fences[thread].push_back(epochs.block);
}

static uint32_t fences_of(int thread) {
  return size_t(thread) < proxy_fences.size() ? uint32_t(proxy_fences[size_t(thread)].size()) : 0;
}

/* Whether the async proxy sees the write: its thread has executed a fence, and then a barrier. */
static bool proxy_sees(const Access &write) {
  return fences_of(write.thread) > write.fences && proxy_fences[size_t(write.thread)][write.fences] < epochs.block;
}

static void announce(const void *p) {
  Announcement &a = announcements[p];
  if (a.launch != epochs.launch) a = {epochs.launch, {}};
  if (known_blocks.size() < a.blocks.size()) known_blocks.resize(a.blocks.size());
  for (size_t i = 0; i < a.blocks.size(); i++)
    if (a.blocks[i]) known_blocks[i] = true;
  if (!fenced) return;
  if (a.blocks.size() <= block_number) a.blocks.resize(block_number + 1);
  a.blocks[block_number] = true;
}

/* ---- reports ---- */

static void print_line(const void *code) {
  Dl_info info;
  char command[256];
  if (report_count > MAX_LINES_FOUND || !dladdr(code, &info) || !info.dli_fbase) return;
  const size_t offset = size_t(static_cast<const char *>(code) - static_cast<const char *>(info.dli_fbase)) - 1;
  snprintf(command, sizeof command, "addr2line -Cfpe /proc/%d/exe 0x%zx >&2", int(getpid()), offset);
  fprintf(stderr, "    at ");
  fflush(stderr);
  if (system(command) != 0) fprintf(stderr, "%p\n", code);
}

static void report(const char *what, const void *p, bool write, const Access *other, bool other_write,
                   const void *code) {
  if (report_count++ >= MAX_REPORTS) return;
  const char *at = static_cast<const char *>(p), *begin, *end;
  MemoryKind kind;
  fprintf(stderr, "emu-race: %s: %s of ", what, write ? "write" : "read");
  if (at >= shared_begin && at < shared_end) fprintf(stderr, "dynamic shared memory, byte %td,", at - shared_begin);
  else if (find_allocation(p, &begin, &end, &kind))
    fprintf(stderr, "byte %td of %td at %p", at - begin, end - begin, p);
  else fprintf(stderr, "%s %p", at >= __bss_start && at < _end ? "static shared memory" : "address", p);
  fprintf(stderr, " by block %u thread %d", block_number, current_thread());
  if (other)
    fprintf(stderr, " after a%s by block %u thread %d",
            other->atomic ? "n atomic operation"
            : other_write ? " write"
                          : " read",
            other->block, other->thread);
  fputc('\n', stderr);
  print_line(code);
}

static const struct Summary {
  ~Summary() {
    if (options().verbose) fprintf(stderr, "emu-race: %llu accesses checked\n", access_count);
    if (!report_count) return;
    fprintf(stderr, "emu-race: %u reports\n", report_count);
    fflush(nullptr);
    _exit(66);
  }
} summary;

/* ---- accesses ---- */

static Cell *cell_at(uintptr_t address) {
  const uintptr_t number = address / PAGE_BYTES;
  if (number != recent_number || !recent_page) {
    static const Cell empty = {{0, 0, 0, 0, -1, false, 0}, {{0, 0, 0, 0, -1, false, 0}, {0, 0, 0, 0, -1, false, 0}}, 0};
    recent_page = &pages[number];
    if (recent_page->empty()) recent_page->assign(PAGE_BYTES / CELL_BYTES, empty);
    recent_number = number;
  }
  return &(*recent_page)[address % PAGE_BYTES / CELL_BYTES];
}

/* Whether `earlier` is over, for thread `thread` of the current block. */
static bool ordered(const Access &earlier, int thread) {
  if (earlier.thread < 0 || earlier.launch != epochs.launch) return true;
  if (earlier.block != block_number) return earlier.block < known_blocks.size() && known_blocks[earlier.block];
  if (earlier.thread == thread || earlier.block_epoch < epochs.block) return true;
  return earlier.thread / 32 == thread / 32 && earlier.warp_epoch < epochs.warp[thread / 32];
}

/* Whether this launch wrote it, or one that may run beside its first threads. */
static bool still_written(const Access &write) { return write.thread >= 0 && write.launch >= epochs.first; }

static const char *race_name(const Access &other) {
  return other.block == block_number ? "race" : "race between blocks";
}

/* False when something was reported. */
static bool check_cell(uintptr_t address, Space space, const Access &own, bool write, bool proxy, const void *p,
                       const void *code) {
  Cell &cell = *cell_at(address);
  if (space == SPACE_SHARED && cell.block_run != block_run) { /* what another block did in its own memory */
    cell.write.thread = cell.reads[0].thread = cell.reads[1].thread = -1;
    cell.block_run = block_run;
  }
  if (space == SPACE_SHARED && !write && cell.write.thread < 0) {
    report("read of uninitialised shared memory", p, false, nullptr, false, code);
    return false;
  }
  if (space == SPACE_GLOBAL && !has_waited() && (write || still_written(cell.write))) {
    report("before wait_for_previous()", p, write, write ? nullptr : &cell.write, true, code);
    return false;
  }
  if (!ordered(cell.write, own.thread) && !(own.atomic && cell.write.atomic)) {
    report(race_name(cell.write), p, write, &cell.write, true, code);
    return false;
  }
  if (proxy && !proxy_sees(cell.write)) {
    report("no fence.proxy.async between the write and wgmma", p, write, &cell.write, true, code);
    return false;
  }
  if (!write) {
    const Access &first = cell.reads[0];
    const bool replaces = first.thread < 0 || first.launch != epochs.launch ||
                          (first.block == block_number && first.thread / 32 == own.thread / 32);
    cell.reads[replaces ? 0 : 1] = own;
    return true;
  }
  for (const Access &read : cell.reads)
    if (!ordered(read, own.thread) && !(own.atomic && read.atomic)) {
      report(race_name(read), p, true, &read, false, code);
      return false;
    }
  cell.write = own;
  return true;
}

/* Of the program itself, where kernels have their tables. */
static bool is_constant(const void *p) {
  Dl_info info;
  return dladdr(p, &info) != 0 && p < static_cast<const void *>(__bss_start);
}

static void access(const void *p, size_t bytes, bool write, bool atomic, const void *code, bool proxy = false) {
  if (!epochs.running) return;
  const char *at = static_cast<const char *>(p), *begin, *end;
  if (at >= current_stack() && at < current_stack() + STACK_BYTES) return;
  access_count++;
  Space space = SPACE_GLOBAL;
  MemoryKind kind;
  if ((at >= shared_begin && at < shared_end) || (at >= __bss_start && at < _end)) space = SPACE_SHARED;
  else if (!find_allocation(p, &begin, &end, &kind)) {
    if (is_fiber_stack(p)) report("another thread's local memory", p, write, nullptr, false, code);
    else if (!is_constant(p)) report("host memory, or past the end of device memory", p, write, nullptr, false, code);
    return;
  }
  const int thread = current_thread();
  const Access own = {epochs.launch,   block_number, epochs.block,     epochs.warp[thread / 32],
                      int16_t(thread), atomic,       fences_of(thread)};
  if (atomic && space == SPACE_GLOBAL) announce(p);
  for (uintptr_t a = uintptr_t(p) / CELL_BYTES * CELL_BYTES; a < uintptr_t(p) + bytes; a += CELL_BYTES)
    if (!check_cell(a, space, own, write, proxy, p, code)) return;
}

void race_access(const void *p, size_t bytes, bool write, bool atomic) {
  access(p, bytes, write, atomic, __builtin_return_address(0));
}

void race_access_at(const void *p, size_t bytes, bool write, bool atomic, const void *code) {
  access(p, bytes, write, atomic, code);
}

void race_constant(const void *p, size_t bytes) {
  for (uintptr_t a = uintptr_t(p); a < uintptr_t(p) + bytes; a += CELL_BYTES) {
    const Access &write = cell_at(a)->write;
    if (still_written(write))
      return report("ld.global.nc while it may be written", p, false, &write, true, __builtin_return_address(0));
  }
}

void race_proxy_read(const void *p, size_t bytes, const void *code) { access(p, bytes, false, false, code, true); }

} // namespace emu

/* ---- what -fsanitize=thread calls ---- */

#define ACCESS(name, bytes, write, atomic)                                                                             \
  void name(void *p) { emu::access(p, bytes, write, atomic, __builtin_return_address(0)); }
#define ACCESSES(bytes)                                                                                                \
  ACCESS(__tsan_read##bytes, bytes, false, false)                                                                      \
  ACCESS(__tsan_write##bytes, bytes, true, false)                                                                      \
  ACCESS(__tsan_unaligned_read##bytes, bytes, false, false)                                                            \
  ACCESS(__tsan_unaligned_write##bytes, bytes, true, false)                                                            \
  ACCESS(__tsan_volatile_read##bytes, bytes, false, true)                                                              \
  ACCESS(__tsan_volatile_write##bytes, bytes, true, true)

extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void *p, size_t bytes) { emu::access(p, bytes, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t bytes) { emu::access(p, bytes, true, false, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
}
