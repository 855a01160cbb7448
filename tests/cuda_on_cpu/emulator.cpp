// emu.cpp - the emulator's runtime: fibers, scheduler, rendezvous, and the slice of the CUDA runtime API we use.
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>
#define EMU_IMPL
#include "emulator.h"
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__) || defined(EMU_UCONTEXT)
#include <ucontext.h>
#define EMU_UCONTEXT 1
#endif

// Build this file without -fsanitize=...; -DEMU_ASAN adds ASan's fiber annotations. Its frames then never hold
// redzones, so the frames a dying fiber leaves behind cannot poison the stack for the next one.
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#undef ASAN_POISON_MEMORY_REGION   // the header makes these no-ops in a file built without -fsanitize=address
#undef ASAN_UNPOISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(p, n) __asan_poison_memory_region(p, n)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) __asan_unpoison_memory_region(p, n)
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {
// ---------------------------------------------------------------- fibers
#ifndef EMU_UCONTEXT
extern "C" void emu_swap(void **save, void *load);
asm(".text\n.p2align 4\n.globl emu_swap\n.type emu_swap,@function\nemu_swap:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size emu_swap,.-emu_swap\n");
struct Ctx { void *sp; };
static void ctx_swap(Ctx &from, Ctx &to) { emu_swap(&from.sp, to.sp); }
static void ctx_make(Ctx &c, char *lo, size_t n, void (*entry)()) {
  void **sp = reinterpret_cast<void **>(lo + n) - 1;   // entry sees rsp = 8 mod 16, as after a call
  *sp = nullptr; *--sp = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  c.sp = sp;
}
#else
struct Ctx { ucontext_t u; };
static void ctx_swap(Ctx &from, Ctx &to) { swapcontext(&from.u, &to.u); }
static void ctx_make(Ctx &c, char *lo, size_t n, void (*entry)()) {
  getcontext(&c.u); c.u.uc_stack.ss_sp = lo; c.u.uc_stack.ss_size = n; c.u.uc_link = nullptr; makecontext(&c.u, entry, 0);
}
#endif

enum State : uint8_t { READY, WARP, BLOCK, NAMED, DONE };
struct Thread {
  Ctx ctx; char *lo = nullptr; void *fake = nullptr;
  uint3 tid; int id; State st;
  const char *op, *file; int line;         // where it waits
  unsigned mask; void *pay; Finish fin;    // warp rendezvous
  int pred, bar_id, bar_n;
  struct Copy { void *d; const void *s; int n, sn, group; };
  std::vector<Copy> copies; int group;
};
static const size_t STACK = 256 << 10;
static std::vector<Thread> T;
static std::vector<unsigned> ready, waiting, live;   // per warp, a bit a lane: can run; waits at a warp op; has not exited
static Thread *cur;
static Ctx main_ctx;
#ifdef EMU_ASAN
static const void *main_lo; static size_t main_n; static void *main_fake;
#endif
static int nthreads, nlive, nwait_block, barrier_result;
static unsigned long long nswitch;
static Thunk body; static const void *body_params;
static Reduce barrier_kind;
static unsigned char *arena; static size_t arena_n;   // dynamic shared memory
static std::map<const void *, int> smem_opt;
static int opt_order, opt_cpasync_eager, opt_lazy, opt_hostguard, opt_verbose; static unsigned rng;
static int opt_sm = 90;
unsigned race_launch, race_bepoch, race_wepoch[32]; int race_on;   // read by race.cpp
void __attribute__((weak)) race_access(const void *, size_t, bool, bool) {}
void __attribute__((weak)) race_block_begin(void *, size_t) {}

static unsigned rnd() { rng ^= rng << 13; rng ^= rng >> 17; rng ^= rng << 5; return rng; }
bool in_kernel() { return cur != nullptr; }
int cur_thread() { return cur ? cur->id : -1; }
void *cur_stack_lo() { return cur ? cur->lo : nullptr; }
size_t stack_bytes() { return STACK; }
bool is_fiber_stack(const void *p) {
  for (auto &t : T) if (t.lo && static_cast<const char *>(p) >= t.lo && static_cast<const char *>(p) < t.lo + STACK) return true;
  return false;
}
static void where() {
  if (cur) fprintf(stderr, "emu: in block (%u,%u,%u) thread (%u,%u,%u) [linear %d, warp %d lane %d] of grid (%u,%u,%u) block (%u,%u,%u)\n",
    blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, cur->id, cur->id / 32, cur->id % 32,
    gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z);
  if (cur && cur->op) fprintf(stderr, "emu: last barrier or warp op of that thread: %s at %s:%d\n", cur->op, cur->file, cur->line);
}
static void table() {   // who waits where, runs of equal states folded
  static const char *sn[] = {"runnable", "waits at warp op", "waits at block barrier", "waits at named barrier", "exited"};
  for (int i = 0; i < nthreads;) {
    int j = i; Thread &a = T[i];
    while (j < nthreads && T[j].st == a.st && (a.st == DONE || a.st == READY || (T[j].op == a.op && T[j].line == a.line && T[j].mask == a.mask))) j++;
    fprintf(stderr, "  threads %d-%d: %s", i, j - 1, sn[a.st]);
    if (a.st != DONE && a.st != READY) {
      fprintf(stderr, " %s at %s:%d", a.op, a.file, a.line);
      if (a.st == WARP) fprintf(stderr, " mask 0x%08x", a.mask);
    }
    fputc('\n', stderr); i = j;
  }
}
void die(const char *fmt, ...) {
  fflush(stdout);
  fprintf(stderr, "\nemu: error: ");
  va_list ap; va_start(ap, fmt); vfprintf(stderr, fmt, ap); va_end(ap);
  fputc('\n', stderr); where(); abort();
}

static void swap_to(Thread *from, Thread *to, bool dying = false) {
  nswitch++;
#ifdef EMU_ASAN
  void **keep = dying ? nullptr : from ? &from->fake : &main_fake;
  __sanitizer_start_switch_fiber(keep, to ? to->lo : main_lo, to ? STACK : main_n);
#else
  (void)dying;
#endif
  cur = to;
  if (to) threadIdx = to->tid;
  ctx_swap(from ? from->ctx : main_ctx, to ? to->ctx : main_ctx);
#ifdef EMU_ASAN   // back again, in `from`
  __sanitizer_finish_switch_fiber(from ? from->fake : main_fake, nullptr, nullptr);
#endif
}
static void run_next() {   // leave `cur` (parked or done) for some thread that can run, or for main when all are done
  Thread *from = cur; int nw = int(ready.size()), w0 = from->id / 32;
  if (opt_order == 2) w0 = int(rnd() % unsigned(nw));
  for (int k = 0; k < nw; k++) {
    int w = opt_order == 1 ? (w0 - k + nw) % nw : (w0 + k) % nw;
    unsigned r = ready[size_t(w)];
    if (!r) continue;
    int l;
    if (opt_order == 0) l = __builtin_ctz(r);
    else if (opt_order == 1) l = 31 - __builtin_clz(r);
    else { int n = int(rnd() % unsigned(__builtin_popcount(r))); while (n--) r &= r - 1; l = __builtin_ctz(r); }
    Thread *to = &T[size_t(w * 32 + l)];
    if (to != from) swap_to(from, to, from->st == DONE);
    return;
  }
  if (!nlive) { swap_to(from, nullptr, true); abort(); }
  fprintf(stderr, "\nemu: error: deadlock: no thread of block (%u,%u,%u) can run (divergent barrier, or a warp op not reached by all lanes of its mask)\n", blockIdx.x, blockIdx.y, blockIdx.z);
  table(); abort();
}
static void set_ready(Thread &t) { t.st = READY; ready[size_t(t.id / 32)] |= 1u << (t.id % 32); }
static void park(State s) { cur->st = s; ready[size_t(cur->id / 32)] &= ~(1u << (cur->id % 32)); }

// lane l of warp w waits at a warp op: complete the op if every live lane of its mask has arrived
static bool warp_try(int w, int l) {
  Thread *L = &T[size_t(w * 32)];
  unsigned need = L[l].mask & live[size_t(w)];
  if (need & ~waiting[size_t(w)]) return false;
  void *pay[32] = {};
  for (unsigned m = need; m; m &= m - 1) {
    Thread &t = L[__builtin_ctz(m)];
    if (t.fin != L[l].fin || t.mask != L[l].mask || t.line != L[l].line || t.op != L[l].op) {
      fprintf(stderr, "\nemu: error: lanes of one warp meet at different warp ops:\n"); table(); die("warp divergence at %s", L[l].op);
    }
    pay[__builtin_ctz(m)] = t.pay;
  }
  L[l].fin(pay);
  waiting[size_t(w)] &= ~need;
  for (unsigned m = need; m; m &= m - 1) set_ready(L[__builtin_ctz(m)]);
  return true;
}
static void block_check() {
  if (!nwait_block || nwait_block != nlive) return;
  Thread *f = nullptr; int acc = 0, all = 1, cnt = 0;
  for (int i = 0; i < nthreads; i++) if (T[size_t(i)].st == BLOCK) {
    Thread &t = T[size_t(i)];
    if (!f) f = &t;
    else if (t.line != f->line || t.file != f->file) {
      fprintf(stderr, "\nemu: error: divergent barrier: threads of one block meet at different __syncthreads\n"); table(); die("divergent barrier");
    }
    acc |= t.pred != 0, all &= t.pred != 0, cnt += t.pred != 0;
  }
  barrier_result = barrier_kind == OR ? acc : barrier_kind == AND ? all : cnt;
  race_bepoch++;
  for (int i = 0; i < nthreads; i++) if (T[size_t(i)].st == BLOCK) set_ready(T[size_t(i)]);
  nwait_block = 0;
}
static void fiber_main() {
#ifdef EMU_ASAN
  { const void *lo; size_t n; __sanitizer_finish_switch_fiber(nullptr, &lo, &n); if (!main_lo) main_lo = lo, main_n = n; }
#endif
  body(body_params);
  Thread *t = cur;
  if (!t->copies.empty()) die("thread exits with cp.async copies it never waited for");
  park(DONE); nlive--; live[size_t(t->id / 32)] &= ~(1u << (t->id % 32));
  for (int l = 0; l < 32; l++) if (waiting[size_t(t->id / 32)] >> l & 1) warp_try(t->id / 32, l);
  block_check();
  run_next();
  abort();
}
int lane() { return cur->id & 31; }
unsigned char *dyn_smem() { return arena; }
void syncwarp_fin(void **) { race_wepoch[cur->id / 32]++; }
void warp_collective(const char *op, unsigned mask, void *pay, Finish fin, const char *file, int line) {
  if (!cur) die("%s called outside a kernel (%s:%d)", op, file, line);
  Thread *t = cur; int l = t->id & 31;
  if (!(mask >> l & 1)) die("%s: calling lane %d is not in its own mask 0x%08x (%s:%d)", op, l, mask, file, line);
  t->op = op, t->file = file, t->line = line, t->mask = mask, t->pay = pay, t->fin = fin;
  park(WARP); waiting[size_t(t->id / 32)] |= 1u << l; warp_try(t->id / 32, l);
  if (t->st != READY || opt_order == 2) run_next();
}
int block_barrier(Reduce r, int pred, const char *file, int line) {
  if (!cur) die("__syncthreads outside a kernel");
  Thread *t = cur;
  t->op = "__syncthreads", t->file = file, t->line = line, t->mask = 0, t->pred = pred;
  park(BLOCK); nwait_block++; barrier_kind = r; block_check();
  if (t->st != READY || opt_order == 2) run_next();
  return barrier_result;
}
void named_barrier(int id, int n, bool wait, const char *file, int line) {   // bar.sync / bar.arrive id, n
  (void)wait; Thread *t = cur;
  t->op = "bar.sync", t->file = file, t->line = line, t->bar_id = id, t->bar_n = n, t->mask = unsigned(id);
  park(NAMED);
  int c = 0; for (auto &q : T) if (q.st == NAMED && q.bar_id == id) c++;
  if (c == n) for (auto &q : T) if (q.st == NAMED && q.bar_id == id) set_ready(q);
  if (t->st != READY) run_next();
}
void yield() {   // for spin loops: hand over to the next thread in circular order, so that everybody gets a turn
  if (!cur) return;
  for (int k = 1; k < nthreads; k++) {
    int i = (cur->id + k) % nthreads;
    if (T[size_t(i)].st == READY) { swap_to(cur, &T[size_t(i)]); return; }
  }
}

// cp.async: by default the bytes land as late as the program allows (at the wait), so a missing wait reads garbage;
// EMU_CPASYNC=eager lands them at once, so overwriting a buffer still in use shows up instead.
static void land(Thread::Copy &c) {
  race_access(c.d, size_t(c.n), true, false);
  if (c.sn) race_access(c.s, size_t(c.sn), false, false);
  memcpy(c.d, c.s, size_t(c.sn)); memset(static_cast<char *>(c.d) + c.sn, 0, size_t(c.n - c.sn));
}
void cp_async(void *d, const void *s, int n, int sn) {
  if ((uintptr_t(d) | (sn ? uintptr_t(s) : 0)) & uintptr_t(n - 1)) die("cp.async: %d-byte copy %p <- %p is misaligned", n, d, s);
#ifdef EMU_ASAN   // report a bad address here, at the issuing line, not at the wait
  volatile char sink; if (sn) sink = *static_cast<const volatile char *>(s), sink = static_cast<const volatile char *>(s)[sn - 1];
  if (__asan_region_is_poisoned(d, size_t(n))) memset(d, 0, size_t(n));
  (void)sink;
#endif
  Thread::Copy c{d, s, n, sn, cur->group};
  race_access(d, size_t(n), true, false);   // the hardware may write at any time from now until the wait
  if (opt_cpasync_eager) land(c), c.n = 0; 
  cur->copies.push_back(c);
}
void cp_async_commit() { cur->group++; }
void cp_async_wait(int keep) {
  auto &v = cur->copies; size_t k = 0;
  for (auto &c : v) { if (c.group < cur->group - keep) { if (c.n) land(c); } else v[k++] = c; }
  v.resize(k);
}

// ---------------------------------------------------------------- tensor-core ops (fragment layouts: PTX ISA)
static float bf(uint32_t w, int hi) { uint32_t u = hi ? w & 0xffff0000u : w << 16; float f; memcpy(&f, &u, 4); return f; }
void mma_m16n8k16_bf16_fin(void **p) {
  float A[16][16], B[8][16];
  for (int l = 0; l < 32; l++) {
    if (!p[l]) die("mma.sync needs all 32 lanes");
    auto *q = static_cast<MmaPay *>(p[l]); int g = l >> 2, c = (l & 3) * 2;
    for (int h = 0; h < 2; h++) {
      A[g][c + h] = bf(q->a[0], h), A[g + 8][c + h] = bf(q->a[1], h), A[g][c + 8 + h] = bf(q->a[2], h), A[g + 8][c + 8 + h] = bf(q->a[3], h);
      B[g][c + h] = bf(q->b[0], h), B[g][c + 8 + h] = bf(q->b[1], h);
    }
  }
  for (int l = 0; l < 32; l++) {
    auto *q = static_cast<MmaPay *>(p[l]); int g = l >> 2, c = (l & 3) * 2;
    for (int i = 0; i < 4; i++) {
      const float *a = A[g + (i >> 1) * 8], *b = B[c + (i & 1)];
      float s = 0; for (int k = 0; k < 16; k++) s += a[k] * b[k];
      q->d[i] += s;
    }
  }
}
static void ldm(void **p, bool trans) {
  for (int l = 0; l < 32; l++) if (!p[l]) die("ldmatrix needs all 32 lanes");
  for (int l = 0; l < 32; l++) for (int m = 0; m < 4; m++) {
    auto el = [&](int r, int c) { return static_cast<LdmPay *>(p[m * 8 + r])->row[c >> 1] >> (c & 1) * 16 & 0xffff; };
    int r = l >> 2, c = (l & 3) * 2;
    static_cast<LdmPay *>(p[l])->out[m] = trans ? el(c, r) | el(c + 1, r) << 16 : el(r, c) | el(r, c + 1) << 16;
  }
}
void ldmatrix_fin(void **p) { ldm(p, false); }
void ldmatrix_trans_fin(void **p) { ldm(p, true); }

// ---------------------------------------------------------------- wgmma (sm_90a), K-major operands in 128-byte-swizzled shared memory
struct WgOp { uint64_t a, b; float *d[32]; int group, n; };
static std::map<int, std::vector<WgOp>> wgq; static std::map<int, int> wggroup;   // by warp
uint32_t smem_u32(const void *p) { return uint32_t(static_cast<const unsigned char *>(p) - arena) + 1024; }
static float desc_at(uint64_t desc, int row, int k) {   // element (row, k) of a K-major operand
  uint32_t start = uint32_t(desc & 0x3fff) << 4, sbo = uint32_t(desc >> 32 & 0x3fff) << 4;
  if (desc >> 62 != 1) die("wgmma: only 128-byte swizzle is emulated");
  uint32_t x = start + uint32_t(row / 8) * sbo + uint32_t(row % 8) * 128 + uint32_t(k) * 2;
  x ^= (x >> 7 & 7) << 4;
  const unsigned char *p = arena + x - 1024; race_access(p, 2, false, false);
  uint16_t h; memcpy(&h, p, 2); uint32_t u = uint32_t(h) << 16; float f; memcpy(&f, &u, 4); return f;
}
void wgmma_fin(void **p) {   // queue; nothing is computed before the wait, so a missing wait shows
  int w = cur->id / 32; WgOp o; auto *q0 = static_cast<WgmmaPay *>(p[0]); o.a = q0->a, o.b = q0->b, o.n = q0->n, o.group = wggroup[w];
  for (int l = 0; l < 32; l++) { auto *q = static_cast<WgmmaPay *>(p[l]); if (!q || q->a != o.a || q->b != o.b) die("wgmma: descriptors differ between lanes"); o.d[l] = q->d; }
  wgq[w].push_back(o);
}
void wgmma_commit_fin(void **) { wggroup[cur->id / 32]++; }
void wgmma_wait_fin(void **p) {
  int w = cur->id / 32, keep = *static_cast<int *>(p[0]); auto &v = wgq[w]; size_t kept = 0;
  for (auto &o : v) {
    if (o.group >= wggroup[w] - keep) { v[kept++] = o; continue; }
    static float A[16][16], B[256][16];
    for (int k = 0; k < 16; k++) { for (int r = 0; r < 16; r++) A[r][k] = desc_at(o.a, (w % 4) * 16 + r, k); for (int n = 0; n < o.n; n++) B[n][k] = desc_at(o.b, n, k); }
    for (int l = 0; l < 32; l++) for (int j = 0; j < o.n / 8; j++) for (int i = 0; i < 4; i++) {
      const float *a = A[(l >> 2) + (i >> 1) * 8], *b = B[j * 8 + (l & 3) * 2 + (i & 1)];
      float s = 0; for (int k = 0; k < 16; k++) s += a[k] * b[k];
      o.d[l][j * 4 + i] += s;
    }
  }
  v.resize(kept);
}

// ---------------------------------------------------------------- launch
static void options() {
  static bool done; if (done) return; done = true;
  auto env = [](const char *n) { const char *s = getenv(n); return std::string(s ? s : ""); };
  std::string o = env("EMU_ORDER");   // fwd | rev | rand[:seed]
  opt_order = o == "rev" ? 1 : o.substr(0, 4) == "rand" ? 2 : 0;
  rng = o.size() > 5 ? unsigned(atoi(o.c_str() + 5)) * 2654435761u | 1 : 12345;
  opt_cpasync_eager = env("EMU_CPASYNC") == "eager";
  opt_lazy = env("EMU_STREAMS") == "lazy";
  opt_hostguard = env("EMU_HOSTGUARD") == "1";
  opt_verbose = env("EMU_VERBOSE") == "1";
  if (!env("EMU_SM").empty()) opt_sm = atoi(env("EMU_SM").c_str());
}
static void guard(bool poison);
static void run_grid(const void *f, const cudaLaunchConfig_t &c, Thunk b, const void *params) {
  if (cur) die("kernel launched from a kernel");
  guard(false);
  gridDim = c.gridDim, blockDim = c.blockDim;
  nthreads = int(blockDim.x * blockDim.y * blockDim.z); body = b, body_params = params;
  size_t nw = size_t(nthreads + 31) / 32; ready.assign(nw, 0); waiting.assign(nw, 0); live.assign(nw, 0);
  if (T.size() < size_t(nthreads)) T.resize(size_t(nthreads));
  for (int i = 0; i < nthreads; i++) if (!T[size_t(i)].lo) {
    char *m = static_cast<char *>(mmap(nullptr, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (m == MAP_FAILED) die("no memory for fiber stacks");
    mprotect(m, 4096, PROT_NONE); T[size_t(i)].lo = m + 4096;
  }
  size_t smem = c.dynamicSmemBytes; const size_t RED = 65536;
  if (!arena || arena_n < smem) {
    if (arena) { ASAN_UNPOISON_MEMORY_REGION(arena, arena_n + RED); free(arena); }
    arena_n = (smem + 1023) & ~size_t(1023); arena = static_cast<unsigned char *>(aligned_alloc(1024, arena_n + RED));
  }
  ASAN_UNPOISON_MEMORY_REGION(arena, smem);
  ASAN_POISON_MEMORY_REGION(arena + smem, arena_n + RED - smem);
  unsigned long long s0 = nswitch; auto t0 = std::chrono::steady_clock::now();
  race_launch++;
  size_t nb = size_t(gridDim.x) * gridDim.y * gridDim.z;
  for (size_t k = 0; k < nb; k++) {
    size_t i = opt_order == 1 ? nb - 1 - k : k;
    blockIdx = {unsigned(i % gridDim.x), unsigned(i / gridDim.x % gridDim.y), unsigned(i / gridDim.x / gridDim.y)};
    memset(arena, 0xff, smem);   // shared memory starts as NaN
    race_block_begin(arena, smem); race_bepoch = 1; for (auto &w : race_wepoch) w = 1;
    nlive = nthreads; nwait_block = 0;
    for (int j = 0; j < nthreads; j++) {
      Thread &t = T[size_t(j)];
      t.id = j, t.tid = {unsigned(j) % blockDim.x, unsigned(j) / blockDim.x % blockDim.y, unsigned(j) / blockDim.x / blockDim.y};
      t.op = nullptr, t.group = 0, t.copies.clear(); set_ready(t); live[size_t(j / 32)] |= 1u << (j % 32); ctx_make(t.ctx, t.lo, STACK, fiber_main);
    }
    race_on = 1; swap_to(nullptr, &T[opt_order == 1 ? size_t(nthreads - 1) : 0]); race_on = 0;
    cur = nullptr;
  }
  if (opt_verbose) fprintf(stderr, "emu: kernel %p: %zu blocks x %d threads, %llu switches, %.2f ms\n", f, nb, nthreads, nswitch - s0,
    std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
  guard(true);
}
}  // namespace emu
using namespace emu;

// ---------------------------------------------------------------- streams, events, graphs
using Op = std::function<void()>;
struct CUgraph_st { std::vector<Op> ops; };
struct CUgraphExec_st { std::vector<Op> ops; };
struct CUstream_st { std::deque<Op> q; unsigned long long queued = 0, done = 0; CUgraph_st *cap = nullptr; };
struct CUevent_st { CUstream_st *s = nullptr; unsigned long long at = 0; std::chrono::steady_clock::time_point t; };
static std::vector<CUstream_st *> streams;
static cudaError_t sticky = cudaSuccess;
static cudaError_t err(cudaError_t e) { if (e != cudaSuccess) sticky = e; return e; }
static CUstream_st *def() { static CUstream_st *d = (streams.push_back(new CUstream_st), streams.back()); return d; }
static CUstream_st *st(cudaStream_t s) { return s ? s : def(); }
static void step(CUstream_st *s) { Op o = std::move(s->q.front()); s->q.pop_front(); o(); s->done++; }
static void drain(CUstream_st *s, unsigned long long upto = ~0ull) { while (!s->q.empty() && s->done < upto) step(s); }
static void drain_all() { for (size_t i = 0; i < streams.size(); i++) drain(streams[i]); }
static cudaError_t push(cudaStream_t h, Op o) {
  options(); CUstream_st *s = st(h);
  if (s->cap) { s->cap->ops.push_back(std::move(o)); return cudaSuccess; }
  if (!h) drain_all();                       // the legacy default stream waits for all
  s->queued++; s->q.push_back(std::move(o));
  if (!opt_lazy || !h) drain(s);             // lazy: nothing runs until somebody waits for it
  return cudaSuccess;
}
namespace emu {
void copy_params(void *d, const void *s, size_t n) { memcpy(d, s, n); }
cudaError_t enqueue_kernel(const void *f, const cudaLaunchConfig_t *c, Thunk b, const void *params, size_t pn) {
  size_t n = size_t(c->blockDim.x) * c->blockDim.y * c->blockDim.z;
  if (!n || n > 1024 || c->blockDim.z > 64 || !c->gridDim.x || !c->gridDim.y || !c->gridDim.z || c->gridDim.y > 65535 || c->gridDim.z > 65535)
    return err(cudaErrorInvalidConfiguration);
  if (c->dynamicSmemBytes > 48 * 1024 && (!smem_opt.count(f) || c->dynamicSmemBytes > size_t(smem_opt[f]))) return err(cudaErrorInvalidValue);
  cudaLaunchConfig_t k = *c; k.attrs = nullptr;
  std::string p(static_cast<const char *>(params), pn);
  return push(c->stream, [f, k, b, p] { run_grid(f, k, b, p.data()); });
}
cudaError_t enqueue_host(cudaStream_t h, std::function<void()> work) { return push(h, std::move(work)); }
// device memory: exact-size blocks (ASan redzones), filled with NaN bytes; optionally poisoned while host code runs
static std::map<char *, size_t> mem;
static void guard(bool poison) { if (opt_hostguard) for (auto &m : mem) { if (poison) ASAN_POISON_MEMORY_REGION(m.first, m.second); else ASAN_UNPOISON_MEMORY_REGION(m.first, m.second); } }
static bool dev(const void *p, size_t n) {
  auto i = mem.upper_bound(static_cast<char *>(const_cast<void *>(p))); if (i == mem.begin()) return false; --i;
  return static_cast<const char *>(p) + n <= i->first + i->second && static_cast<const char *>(p) < i->first + i->second + !i->second;
}
bool is_device(const void *p) { return dev(p, 1); }
static cudaError_t check_copy(void *d, const void *s, size_t n, cudaMemcpyKind k) {
  bool dd = k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice, sd = k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice;
  if (k == cudaMemcpyDefault || !n) return cudaSuccess;
  if (dev(d, n) != dd || dev(s, n) != sd) { fprintf(stderr, "emu: memcpy kind %d does not fit its pointers (dst %p, src %p, %zu bytes)\n", int(k), d, s, n); return err(cudaErrorInvalidValue); }
  return cudaSuccess;
}
}  // namespace emu
#ifdef EMU_ASAN
extern "C" void __asan_on_error() { where(); }
extern "C" void __ubsan_on_report() { where(); }
#else
#include <signal.h>
static void on_segv(int sig) { fprintf(stderr, "\nemu: error: signal %d (bad address, or a fiber stack of %zu KiB overflowed)\n", sig, STACK >> 10); where(); signal(sig, SIG_DFL); raise(sig); }
static struct Segv { Segv() {
  static char alt[32768]; stack_t ss{}; ss.ss_sp = alt, ss.ss_size = sizeof alt; sigaltstack(&ss, nullptr);
  struct sigaction a{}; a.sa_handler = on_segv, a.sa_flags = SA_ONSTACK; sigaction(SIGSEGV, &a, nullptr); sigaction(SIGBUS, &a, nullptr); } } segv;
#endif

extern "C" {
cudaError_t cudaMalloc(void **p, size_t n) {
  options(); void *q = nullptr; if (posix_memalign(&q, 256, n ? n : 1)) return err(cudaErrorMemoryAllocation);
  memset(q, 0xff, n); mem[static_cast<char *>(q)] = n; *p = q; if (opt_hostguard) ASAN_POISON_MEMORY_REGION(q, n); return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
  if (!p) return cudaSuccess;
  drain_all(); auto i = mem.find(static_cast<char *>(p)); if (i == mem.end()) return err(cudaErrorInvalidValue);
  ASAN_UNPOISON_MEMORY_REGION(p, i->second); mem.erase(i); free(p); return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return cudaFree(p); }
cudaError_t cudaMallocHost(void **p, size_t n) { *p = aligned_alloc(4096, (n + 4095) & ~size_t(4095)); return cudaSuccess; }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) { return cudaMallocHost(p, n); }
cudaError_t cudaFreeHost(void *p) { free(p); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t h) {
  if (check_copy(d, s, n, k) != cudaSuccess) return cudaErrorInvalidValue;
  return push(h, [=] { guard(false); memcpy(d, s, n); guard(true); });
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind k) { return cudaMemcpyAsync(d, s, n, k, nullptr); }
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t h) {
  if (n && !dev(d, n)) return err(cudaErrorInvalidValue);
  return push(h, [=] { guard(false); memset(d, v, n); guard(true); });
}
cudaError_t cudaMemset(void *d, int v, size_t n) { return cudaMemsetAsync(d, v, n, nullptr); }
cudaError_t cudaStreamCreate(cudaStream_t *s) { *s = new CUstream_st; streams.push_back(*s); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return cudaStreamCreate(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { drain(s); streams.erase(std::find(streams.begin(), streams.end(), s)); delete s; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { if (st(s)->cap) return err(cudaErrorStreamCaptureUnsupported); drain(st(s)); return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { drain_all(); return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) { return st(s)->q.empty() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { *e = new CUevent_st; return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t h) {
  CUstream_st *s = st(h); if (s->cap) return cudaSuccess;
  e->s = s; e->at = s->queued + 1; return push(h, [e] { e->t = std::chrono::steady_clock::now(); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { if (e->s) drain(e->s, e->at); return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t e) { return !e->s || e->s->done >= e->at ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamWaitEvent(cudaStream_t h, cudaEvent_t e, unsigned) {
  CUstream_st *s = e->s; auto at = e->at; return s ? push(h, [s, at] { drain(s, at); }) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = std::chrono::duration<float, std::milli>(b->t - a->t).count(); return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t h, cudaStreamCaptureMode) { if (!h) return err(cudaErrorStreamCaptureUnsupported); h->cap = new CUgraph_st; return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t h, cudaGraph_t *g) { *g = h->cap; h->cap = nullptr; return *g ? cudaSuccess : err(cudaErrorIllegalState); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) { *x = new CUgraphExec_st{g->ops}; return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t h) { for (auto &o : x->ops) push(h, o); return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete g; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { delete x; return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute a, int v) {
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) { if (v > (opt_sm >= 90 ? 227 : 163) * 1024) return err(cudaErrorInvalidValue); smem_opt[f] = v; }
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { cudaError_t e = sticky; sticky = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return sticky; }
const char *cudaGetErrorString(cudaError_t e) { static char b[32]; snprintf(b, sizeof b, "emu error %d", int(e)); return e ? b : "no error"; }
const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *n) { *n = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int n) { return n ? err(cudaErrorInvalidDevice) : cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) {
  options();
  *v = a == cudaDevAttrMultiProcessorCount ? 4 : a == cudaDevAttrComputeCapabilityMajor ? opt_sm / 10 : a == cudaDevAttrComputeCapabilityMinor ? opt_sm % 10
     : a == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (opt_sm >= 90 ? 227 : 163) * 1024 : a == cudaDevAttrWarpSize ? 32 : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  options(); memset(p, 0, sizeof *p); snprintf(p->name, sizeof p->name, "emu (CPU)"); p->major = opt_sm / 10; p->minor = opt_sm % 10; p->multiProcessorCount = 4;
  p->warpSize = 32; p->sharedMemPerBlock = 48 << 10; p->sharedMemPerBlockOptin = size_t(opt_sm >= 90 ? 227 : 163) << 10; p->totalGlobalMem = size_t(4) << 30; p->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *t = size_t(4) << 30; size_t u = 0; for (auto &m : mem) u += m.second; *f = *t - u; return cudaSuccess; }
}
