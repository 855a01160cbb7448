/* Blocks, warps and threads: one block at a time, a fiber a thread, in an order that the environment chooses. A thread
 * runs until it waits at a barrier or an operation of its warp; when nothing can run any more, that is a deadlock. */
#include "tests/cuda_on_cpu/internal.h"
#include "tests/cuda_on_cpu/fiber.h"

#include <chrono>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

enum State : uint8_t { READY, WAITS_FOR_WARP, WAITS_FOR_BLOCK, ENDED };

struct Thread {
  Fiber fiber;
  char *stack;      /* the lowest address; below it a page that may not be touched */
  void *fake_stack; /* of AddressSanitizer */
  uint3 index;      /* threadIdx */
  int number;       /* in the block */
  State state;
  const char *operation, *file; /* that it waits at, or waited at last; NULL before the first */
  int line;
  unsigned mask; /* WAITS_FOR_WARP: who takes part */
  void *payload;
  Finish finish;
  int predicate; /* WAITS_FOR_BLOCK: of __syncthreads_or() and the like */
  bool waited;   /* wait_for_previous(), or the launch began in order */
};

struct Warp { /* a bit a lane */
  unsigned ready, waiting, live;
};

Epochs epochs;

static std::vector<Thread> threads; /* as many as any block had; their stacks stay */
static std::vector<Warp> warps;
static Thread *current; /* NULL: the host */
static Fiber host;
static int thread_count, live_count, barrier_count; /* barrier_count: threads that wait for the block */
static Reduce barrier_reduce;
static int barrier_result;
static Order order;
static Invoke kernel_invoke;
static const void *kernel_tuple;
/* Dynamic shared memory: no more aligned than DYNAMIC_SHARED says. Its first address, behind what the system has. */
enum { SHARED_ALIGNMENT = 128, SHARED_START = 1024 + SHARED_ALIGNMENT };
static unsigned char *shared;
static size_t shared_bytes, shared_capacity;
static bool early, some_waited; /* the launch began early; a thread of it has called wait_for_previous() */
static unsigned long long switches;
static unsigned random_state;
#ifdef EMU_ASAN
static const void *host_stack;
static size_t host_stack_bytes;
static void *host_fake_stack;
#endif

bool in_kernel() { return current != nullptr; }
int current_thread() { return current->number; }
bool has_waited() { return current->waited; }
void wait_for_previous() { current->waited = some_waited = true; }
int lane() { return current->number % 32; }
const char *current_stack() { return current->stack; }
unsigned char *dyn_smem() { return shared; }

uint32_t shared_address(const void *p) {
  const ptrdiff_t offset = static_cast<const unsigned char *>(p) - shared;
  if (offset < 0 || size_t(offset) > shared_bytes)
    die("the shared address of %p, which is no dynamic shared memory", p);
  return uint32_t(offset) + SHARED_START;
}

const void *shared_memory_at(uint32_t address, size_t bytes) {
  if (address < SHARED_START || address - SHARED_START + bytes > shared_bytes) return nullptr;
  return shared + (address - SHARED_START);
}

void copy_arguments(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

bool is_fiber_stack(const void *p) {
  for (const Thread &t : threads)
    if (t.stack && p >= t.stack && p < t.stack + STACK_BYTES) return true;
  return false;
}

/* Of builds without race.cpp. */
void __attribute__((weak)) race_access(const void *, size_t, bool, bool) {}
void __attribute__((weak)) race_access_at(const void *, size_t, bool, bool, const void *) {}
void __attribute__((weak)) race_constant(const void *, size_t) {}
void __attribute__((weak)) race_proxy_read(const void *, size_t, const void *) {}
void __attribute__((weak)) race_fence() {}
void __attribute__((weak)) race_proxy_fence() {}
void __attribute__((weak)) race_block_begin(unsigned, const void *, size_t) {}

/* ---- reports ---- */

static void print_position() {
  if (!current) return;
  fprintf(stderr, "emu: in block (%u,%u,%u) thread (%u,%u,%u), warp %d lane %d, of grid (%u,%u,%u) block (%u,%u,%u)\n",
          blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, current->number / 32,
          current->number % 32, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z);
  if (current->operation)
    fprintf(stderr, "emu: that thread waited last at %s, %s:%d\n", current->operation, current->file, current->line);
}

static bool wait_alike(const Thread &a, const Thread &b) {
  if (a.state != b.state) return false;
  return a.state == ENDED || a.state == READY || (a.operation == b.operation && a.line == b.line && a.mask == b.mask);
}

/* Who waits where, neighbors in the same state on one line. */
static void print_threads() {
  static const char *const names[] = {"can run", "wait at", "wait at", "have ended"};
  for (int first = 0, last; first < thread_count; first = last + 1) {
    const Thread &t = threads[size_t(first)];
    last = first;
    while (last + 1 < thread_count && wait_alike(t, threads[size_t(last + 1)])) last++;
    fprintf(stderr, "  threads %d-%d %s", first, last, names[t.state]);
    if (t.state == WAITS_FOR_WARP) fprintf(stderr, " %s, mask 0x%08x, %s:%d", t.operation, t.mask, t.file, t.line);
    if (t.state == WAITS_FOR_BLOCK) fprintf(stderr, " %s, %s:%d", t.operation, t.file, t.line);
    fputc('\n', stderr);
  }
}

void die(const char *format, ...) {
  va_list arguments;
  fflush(stdout);
  fprintf(stderr, "\nemu: error: ");
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  print_position();
  abort();
}

#ifdef EMU_ASAN
extern "C" void __asan_on_error() { print_position(); }
extern "C" void __ubsan_on_report() { print_position(); }
#else
static void on_bad_address(int number) {
  fprintf(stderr, "\nemu: error: signal %d: a bad address, or the %d KiB of a thread's stack overflowed\n", number,
          STACK_BYTES >> 10);
  print_position();
  signal(number, SIG_DFL);
  raise(number);
}

/* On a stack of its own: the thread's may be what overflowed. */
static const struct SignalHandler {
  SignalHandler() {
    static char stack[64 << 10];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_handler = on_bad_address;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  }
} signal_handler;
#endif

/* ---- switching ---- */

static void switch_to(Thread *to) {
  Thread *from = current;
  switches++;
#ifdef EMU_ASAN
  const bool ends = from && from->state == ENDED; /* its fake stack is freed */
  void **keep = ends ? nullptr : from ? &from->fake_stack : &host_fake_stack;
  __sanitizer_start_switch_fiber(keep, to ? to->stack : host_stack, to ? size_t(STACK_BYTES) : host_stack_bytes);
#endif
  current = to;
  if (to) threadIdx = to->index;
  fiber_switch(from ? &from->fiber : &host, to ? &to->fiber : &host);
#ifdef EMU_ASAN /* later, in `from` again */
  __sanitizer_finish_switch_fiber(from ? from->fake_stack : host_fake_stack, nullptr, nullptr);
#endif
}

static unsigned random_number() { /* xorshift */
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

static int choose_lane(unsigned ready) {
  if (order == ORDER_FORWARD) return __builtin_ctz(ready);
  if (order == ORDER_REVERSE) return 31 - __builtin_clz(ready);
  for (unsigned skip = random_number() % unsigned(__builtin_popcount(ready)); skip; skip--) ready &= ready - 1;
  return __builtin_ctz(ready);
}

/* Leaves the current thread, which waits or has ended, for one that can run; for the host when all have ended. */
static void run_another() {
  const int count = int(warps.size()), step = order == ORDER_REVERSE ? -1 : 1;
  int w = order == ORDER_RANDOM ? int(random_number() % unsigned(count)) : current->number / 32;
  for (int i = 0; i < count; i++, w += step) {
    w = w < 0 ? count - 1 : w == count ? 0 : w;
    if (!warps[size_t(w)].ready) continue;
    Thread *to = &threads[size_t(w * 32 + choose_lane(warps[size_t(w)].ready))];
    if (to != current) switch_to(to);
    return;
  }
  if (!live_count) {
    switch_to(nullptr);
    abort(); /* nobody comes back */
  }
  fprintf(stderr,
          "\nemu: error: deadlock: no thread of block (%u,%u,%u) can run (a barrier that not all threads reach, or an "
          "operation of a warp that not all lanes of its mask reach)\n",
          blockIdx.x, blockIdx.y, blockIdx.z);
  print_threads();
  abort();
}

static void make_ready(Thread &t) {
  t.state = READY;
  warps[size_t(t.number / 32)].ready |= 1u << t.number % 32;
}

static void make_wait(State state) {
  current->state = state;
  warps[size_t(current->number / 32)].ready &= ~(1u << current->number % 32);
}

/* After a rendezvous that the current thread completed it may go on, but in random order need not. */
static void continue_or_switch() {
  if (current->state != READY || order == ORDER_RANDOM) run_another();
}

void yield() {
  if (!current) return;
  for (int i = 1; i < thread_count; i++) { /* in a circle, so that everybody gets a turn */
    Thread &t = threads[size_t((current->number + i) % thread_count)];
    if (t.state != READY) continue;
    switch_to(&t);
    return;
  }
}

/* ---- operations of a warp ---- */

/* Completes what lane `l` waits at, if all live lanes of its mask have come. */
static void try_rendezvous(Warp &warp, Thread *lanes, int l) {
  const unsigned mask = lanes[l].mask & warp.live;
  void *payloads[32] = {};
  if (mask & ~warp.waiting) return;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const Thread &t = lanes[__builtin_ctz(rest)];
    if (t.finish != lanes[l].finish || t.mask != lanes[l].mask || t.line != lanes[l].line ||
        t.operation != lanes[l].operation) {
      print_threads();
      die("lanes of one warp meet at different operations, one of them %s", lanes[l].operation);
    }
    payloads[__builtin_ctz(rest)] = t.payload;
  }
  lanes[l].finish(payloads);
  warp.waiting &= ~mask;
  for (unsigned rest = mask; rest; rest &= rest - 1) make_ready(lanes[__builtin_ctz(rest)]);
}

void finish_syncwarp(void **) { epochs.warp[current->number / 32]++; }

void warp_collective(const char *operation, unsigned mask, void *payload, Finish finish, const char *file, int line) {
  if (!current) die("%s outside of a kernel (%s:%d)", operation, file, line);
  Thread *t = current;
  const int l = t->number % 32;
  if (!(mask >> l & 1)) die("%s: lane %d is not in its own mask 0x%08x (%s:%d)", operation, l, mask, file, line);
  t->operation = operation, t->file = file, t->line = line;
  t->mask = mask, t->payload = payload, t->finish = finish;
  make_wait(WAITS_FOR_WARP);
  Warp &warp = warps[size_t(t->number / 32)];
  warp.waiting |= 1u << l;
  try_rendezvous(warp, t - l, l);
  continue_or_switch();
}

/* ---- barriers ---- */

/* Opens the barrier, if all live threads have come. */
static void try_barrier() {
  if (!barrier_count || barrier_count != live_count) return;
  const Thread *first = nullptr;
  int yes = 0;
  for (int i = 0; i < thread_count; i++) {
    const Thread &t = threads[size_t(i)];
    if (t.state != WAITS_FOR_BLOCK) continue;
    if (!first) first = &t;
    if (t.line != first->line || t.file != first->file) {
      print_threads();
      die("divergent barrier: threads of one block meet at different __syncthreads()");
    }
    yes += t.predicate != 0;
  }
  barrier_result = barrier_reduce == REDUCE_OR ? yes > 0 : barrier_reduce == REDUCE_AND ? yes == barrier_count : yes;
  epochs.block++;
  for (int i = 0; i < thread_count; i++)
    if (threads[size_t(i)].state == WAITS_FOR_BLOCK) make_ready(threads[size_t(i)]);
  barrier_count = 0;
}

int block_barrier(Reduce reduce, int predicate, const char *file, int line) {
  if (!current) die("__syncthreads outside of a kernel (%s:%d)", file, line);
  Thread *t = current;
  t->operation = "__syncthreads", t->file = file, t->line = line;
  t->mask = 0, t->predicate = predicate;
  make_wait(WAITS_FOR_BLOCK);
  barrier_reduce = reduce;
  barrier_count++;
  try_barrier();
  continue_or_switch();
  return barrier_result;
}

/* ---- running a grid ---- */

static void thread_main() {
#ifdef EMU_ASAN
  const void *stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (!host_stack) host_stack = stack, host_stack_bytes = bytes; /* the first thread comes from the host */
#endif
  kernel_invoke(kernel_tuple);
  Thread *t = current;
  if (async_copies_pending(t->number)) die("a thread ends without having waited for its cp.async copies");
  if (wgmma_pending(t->number)) die("a thread ends without having waited for its products by wgmma");
  make_wait(ENDED);
  live_count--;
  Warp &warp = warps[size_t(t->number / 32)];
  warp.live &= ~(1u << t->number % 32);
  for (int l = 0; l < 32; l++) /* others may have waited for this one only */
    if (warp.waiting >> l & 1) try_rendezvous(warp, t - t->number % 32, l);
  try_barrier();
  run_another();
  abort();
}

static void make_stacks() {
  const size_t page = 4096;
  if (threads.size() < size_t(thread_count)) threads.resize(size_t(thread_count));
  for (Thread &t : threads) {
    if (t.stack) continue;
    void *memory =
        mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) die("no memory for the stacks of %d threads", thread_count);
    mprotect(memory, page, PROT_NONE);
    t.stack = static_cast<char *>(memory) + page;
  }
}

/* Room for `bytes`, and behind them what AddressSanitizer reports. */
static void make_shared_memory(size_t bytes) {
  const size_t redzone = 64 << 10;
  if (!shared || shared_capacity < bytes) {
    if (shared) {
      unpoison(shared, shared_capacity + redzone);
      free(shared - SHARED_ALIGNMENT);
    }
    shared_capacity = (bytes + 1023) / 1024 * 1024;
    void *memory = aligned_alloc(1024, shared_capacity + redzone + 1024);
    shared = static_cast<unsigned char *>(memory) + SHARED_ALIGNMENT;
    if (!memory) die("no memory for %zu bytes of shared memory", bytes);
  }
  shared_bytes = bytes;
  unpoison(shared, bytes);
  poison(shared + bytes, shared_capacity + redzone - bytes);
}

static void run_block(unsigned number) {
  blockIdx = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
  memset(shared, 0xFF, shared_bytes); /* NaN in every type */
  race_block_begin(number, shared, shared_bytes);
  epochs.block = 1;
  for (unsigned &epoch : epochs.warp) epoch = 1;
  async_copies_begin(thread_count);
  wgmma_block_begin(thread_count);
  warps.assign(size_t(thread_count + 31) / 32, Warp());
  live_count = thread_count, barrier_count = 0;
  for (int i = 0; i < thread_count; i++) {
    Thread &t = threads[size_t(i)];
    const unsigned n = unsigned(i);
    t.number = i;
    t.index = {n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y};
    t.operation = nullptr;
    t.waited = !early;
    make_ready(t);
    warps[size_t(i / 32)].live |= 1u << i % 32;
    fiber_make(&t.fiber, t.stack, STACK_BYTES, thread_main);
  }
  epochs.running = true;
  switch_to(&threads[order == ORDER_REVERSE ? size_t(thread_count - 1) : 0]);
  epochs.running = false;
  wgmma_block_end();
}

void run_grid(const void *kernel, const cudaLaunchConfig_t &config, bool begins_early, Invoke invoke,
              const void *tuple) {
  if (current) die("a kernel is launched by a kernel");
  if (!random_state) random_state = options().seed;
  order = options().order;
  gridDim = config.gridDim, blockDim = config.blockDim;
  thread_count = int(blockDim.x * blockDim.y * blockDim.z);
  kernel_invoke = invoke, kernel_tuple = tuple;
  make_stacks();
  make_shared_memory(config.dynamicSmemBytes);
  const auto start = std::chrono::steady_clock::now();
  const unsigned long long switches_before = switches;
  const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
  early = begins_early, some_waited = false;
  epochs.launch++;
  if (!early) epochs.first = epochs.launch;
  for (unsigned i = 0; i < blocks; i++) run_block(order == ORDER_REVERSE ? blocks - 1 - i : i);
  if (early && !some_waited) die("a kernel that begins early never waits for the kernels before it");
  if (options().verbose)
    fprintf(stderr, "emu: kernel %p%s: %u blocks of %d threads, %llu switches, %.2f ms\n", kernel,
            early ? ", early" : "", blocks, thread_count, switches - switches_before,
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
}

} // namespace emu
