// race.cpp - kernels.cu is compiled with -fsanitize=thread but linked with these hooks instead of libtsan:
// every load and store of kernel code comes here. Detects, in shared and device memory,
//   * two accesses by different threads of a block, one a write, with no barrier (or, in one warp, __syncwarp) between;
//   * accesses by different blocks of one launch, one a plain write;
//   * reads of shared memory nothing has written in this block; * kernel accesses to host memory.
// Granularity: 2 bytes. Order is kept per barrier interval ("epoch"), not per instruction.
#include <dlfcn.h>
#include <unordered_map>
#include <unistd.h>
#include "emulator.h"
extern "C" char __executable_start[], _end[];
namespace emu {
extern unsigned race_launch, race_bepoch, race_wepoch[32];
extern int race_on;
int cur_thread(); bool is_device(const void *); bool is_fiber_stack(const void *); void *cur_stack_lo(); size_t stack_bytes();

struct Acc { uint32_t launch = 0, bepoch = 0, wepoch = 0; uint32_t block = 0; int16_t thread = -1; uint8_t atomic = 0; };
struct Cell { Acc w, r[2]; uint32_t wblock_gen = 0; };
struct Page { Cell c[2048]; };
static std::unordered_map<uintptr_t, Page *> pages;   // by 4 KiB page
static uintptr_t last_no; static Page *last_pg;
static unsigned char *sm_lo, *sm_hi; static uint32_t gen, reports, block_no;
static unsigned long long naccess;
void race_block_begin(void *p, size_t n) { sm_lo = static_cast<unsigned char *>(p), sm_hi = sm_lo + n; gen++; block_no = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }

static void say(const char *what, const void *p, bool write, const Acc *o, bool owrite, const void *pc) {
  if (reports++ >= 20) return;
  fprintf(stderr, "emu-race: %s: %s of %p (%s) by block %u thread %d", what, write ? "write" : "read", p,
          p >= sm_lo && p < sm_hi ? "dynamic shared" : is_device(p) ? "device" : "static/host", block_no, cur_thread());
  if (o) fprintf(stderr, " after %s by block %u thread %d", owrite ? o->atomic ? "atomic" : "write" : "read", o->block, o->thread);
  Dl_info di; if (dladdr(pc, &di) && di.dli_fbase) {
    char cmd[512]; fprintf(stderr, "\n    at "); fflush(stderr);
    snprintf(cmd, sizeof cmd, "addr2line -Cfpe /proc/%d/exe 0x%zx >&2", int(getpid()), size_t(static_cast<const char *>(pc) - static_cast<const char *>(di.dli_fbase)) - 1);
    if (reports > 3 || system(cmd)) fprintf(stderr, "pc %p\n", pc);
  } else fputc('\n', stderr);
}
static bool ordered(const Acc &o, int t) {
  if (o.launch != race_launch || o.thread < 0) return true;
  if (o.block != block_no) return false;
  if (o.thread == t || o.bepoch < race_bepoch) return true;
  return o.thread / 32 == t / 32 && o.wepoch < race_wepoch[t / 32];
}
static void touch(const void *p, size_t n, bool write, bool atomic, const void *pc) {
  if (!race_on) return;
  const char *lo = static_cast<const char *>(cur_stack_lo()), *q = static_cast<const char *>(p);
  if (q >= lo && q < lo + stack_bytes()) return;
  naccess++;
  int t = cur_thread();
  for (uintptr_t a = uintptr_t(p) & ~uintptr_t(1); a < uintptr_t(p) + n; a += 2) {
    if (a >> 12 != last_no || !last_pg) {
      Page *&pg = pages[a >> 12];
      if (!pg) pg = new Page();
      last_no = a >> 12, last_pg = pg;
    }
    Cell &c = last_pg->c[(a & 4095) >> 1];
    bool shared_dyn = reinterpret_cast<unsigned char *>(a) >= sm_lo && reinterpret_cast<unsigned char *>(a) < sm_hi;
    // shared memory: history of another block (serial reuse of the same storage) does not count
    bool dev = !shared_dyn && is_device(reinterpret_cast<void *>(a));
    if (!dev && !shared_dyn && !(a >= uintptr_t(__executable_start) && a < uintptr_t(_end)) && !is_fiber_stack(p)) { say("kernel access to host memory (or past a device buffer)", p, write, nullptr, false, pc); return; }
    if (!dev && c.wblock_gen != gen) { c = Cell(); c.wblock_gen = gen; }
    if (shared_dyn && !write && c.w.thread < 0) { say("read of uninitialised shared memory", p, false, nullptr, false, pc); return; }
    Acc me; me.launch = race_launch, me.bepoch = race_bepoch, me.wepoch = race_wepoch[t / 32], me.block = block_no, me.thread = int16_t(t), me.atomic = atomic;
    if (!ordered(c.w, t) && !(atomic && c.w.atomic)) { say(c.w.block == block_no ? "race" : "race between blocks", p, write, &c.w, true, pc); return; }
    if (write) {
      for (auto &r : c.r) if (!ordered(r, t)) { say(r.block == block_no ? "race" : "race between blocks", p, true, &r, false, pc); return; }
      c.w = me;
    } else {   // keep two readers, of different warps where possible
      int k = c.r[0].thread < 0 || c.r[0].launch != race_launch || (c.r[0].block == block_no && c.r[0].thread / 32 == t / 32) ? 0 : 1;
      c.r[k] = me;
    }
  }
}
void race_access(const void *p, size_t n, bool write, bool atomic) { touch(p, n, write, atomic, __builtin_return_address(0)); }
static struct AtEnd { ~AtEnd() { if (reports) { fprintf(stderr, "emu-race: %u reports\n", reports); _exit(66); } if (getenv("EMU_VERBOSE")) fprintf(stderr, "emu-race: clean, %llu accesses checked\n", naccess); } } at_end;
}  // namespace emu
using emu::touch;
#define PC __builtin_return_address(0)
extern "C" {
void __tsan_init() {} void __tsan_func_entry(void *) {} void __tsan_func_exit() {}
#define RW(n) void __tsan_read##n(void *p) { touch(p, n, false, false, PC); } void __tsan_write##n(void *p) { touch(p, n, true, false, PC); } \
  void __tsan_unaligned_read##n(void *p) { touch(p, n, false, false, PC); } void __tsan_unaligned_write##n(void *p) { touch(p, n, true, false, PC); } \
  void __tsan_volatile_read##n(void *p) { touch(p, n, false, true, PC); } void __tsan_volatile_write##n(void *p) { touch(p, n, true, true, PC); }
RW(1) RW(2) RW(4) RW(8) RW(16)
void __tsan_read_range(void *p, size_t n) { touch(p, n, false, false, PC); }
void __tsan_write_range(void *p, size_t n) { touch(p, n, true, false, PC); }
void __tsan_vptr_update(void **, void *) {} void __tsan_vptr_read(void **) {}
}
