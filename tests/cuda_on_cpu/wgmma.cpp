/* wgmma.mma_async.m64nNk16 by the PTX ISA ("Asynchronous warpgroup level matrix instructions"). A warp computes its 16
 * rows of the product from its own registers, so a product is an operation of a warp; that all four warps of the
 * warpgroup issue the same ones in the same order is checked. From issue to wait the accumulators hold a NaN, and the
 * factors are read as late as the instruction may, at the wait that covers it, so that changing a tile or a register
 * meanwhile shows. With EMU_CPASYNC=eager they are read at once, so that a tile that is filled too late shows.
 *
 * Descriptors are decoded strictly: swizzle of 128 bytes, base offset 0, 1024 bytes from 8 rows to the next. */
#include "tests/cuda_on_cpu/internal.h"

#include <list>

namespace emu {

enum { LANES = 32, WARPS = 4, ROWS = 16, DEPTH = 16, ATOM_BYTES = 1024, ROW_BYTES = 128, CHUNK = 8 };
static const uint32_t PENDING_BITS = 0x7FFFDEADu; /* a NaN */

struct Accumulators { /* of products that are not done */
  float *lanes[LANES];
  int count;                 /* of a lane */
  std::vector<float> values; /* [lane][count] */
  int products;
};

struct Product {
  Wgmma lane[LANES];
  int group;
  bool read;
  std::vector<float> a, b; /* [ROWS][DEPTH], [columns][DEPTH], when `read` */
};

struct WarpProducts {
  std::list<Product> pending;
  std::list<Accumulators> accumulators;
  int group; /* that is open */
  bool fenced;
  size_t steps;
};

/* What a warp of a warpgroup did, for the others to do the same. */
struct Step {
  const char *operation, *file;
  int line, columns;
  uint64_t a, b;
  bool registers, add, mn_major;
};

static std::vector<WarpProducts> warps;      /* of the block */
static std::vector<std::vector<Step>> steps; /* by warpgroup */

void wgmma_block_begin(int threads) {
  warps.assign(size_t(threads + LANES - 1) / LANES, WarpProducts());
  steps.assign((warps.size() + WARPS - 1) / WARPS, {});
}

bool wgmma_pending(int thread) { return !warps[size_t(thread / LANES)].pending.empty(); }

void wgmma_block_end() {
  for (size_t w = 0; w < warps.size() || w % WARPS; w++) {
    const size_t done = w < warps.size() ? warps[w].steps : 0;
    if (done != steps[w / WARPS].size())
      die("wgmma: warp %zu ended after %zu operations of its warpgroup's %zu", w, done, steps[w / WARPS].size());
  }
}

static bool alike(const Step &x, const Step &y) {
  return x.operation == y.operation && x.file == y.file && x.line == y.line && x.columns == y.columns && x.a == y.a &&
         x.b == y.b && x.registers == y.registers && x.add == y.add && x.mn_major == y.mn_major;
}

/* The current warp does a step; the first warp that comes says what the others have to do. */
static WarpProducts &take_step(const Step &step) {
  const size_t number = size_t(current_thread() / LANES);
  WarpProducts &warp = warps[number];
  std::vector<Step> &all = steps[number / WARPS];
  if (warp.steps == all.size()) all.push_back(step);
  const Step &expected = all[warp.steps++];
  if (!alike(step, expected))
    die("wgmma: the warps of a warpgroup differ: %s at %s:%d, and %s at %s:%d, or their descriptors", step.operation,
        step.file, step.line, expected.operation, expected.file, expected.line);
  return warp;
}

/* ---- factors ---- */

static void check_tile(char name, uint64_t descriptor, bool mn_major, int columns) {
  const auto field = [&](int shift) { return unsigned(descriptor >> shift & 0x3FFF); };
  const unsigned start = field(0) * 16, leading = field(16), stride = field(32) * 16;
  const unsigned base = unsigned(descriptor >> 49 & 7), swizzle = unsigned(descriptor >> 62);
  const bool panels = mn_major && columns > ROW_BYTES / 2;
  const auto refuse = [&](const char *what, unsigned value, const char *wanted) {
    die("wgmma: the descriptor of %c (0x%016llx) has %s %u, not %s", name, (unsigned long long)descriptor, what, value,
        wanted);
  };
  if (swizzle != 1) refuse("swizzle", swizzle, "1 (128 bytes)");
  if (base) refuse("base offset", base, "0");
  if (stride != ATOM_BYTES) refuse("a stride (SBO) of", stride, "1024 bytes");
  if (panels ? leading * 16 % ATOM_BYTES != 0 || !leading : leading != 1)
    refuse("a leading dimension (LBO) of", leading, panels ? "a multiple of 1024 bytes" : "1 (unused)");
  if (descriptor & ~(0x3FFFull | 0x3FFFull << 16 | 0x3FFFull << 32 | 7ull << 49 | 3ull << 62))
    refuse("unknown bits in", 0, "0");
  if (start / ROW_BYTES % 8 || start % ROW_BYTES + (mn_major ? ROW_BYTES : 2 * DEPTH) > ROW_BYTES)
    refuse("address", start, "one in the first row of a tile at a multiple of 1024 bytes");
}

/* Eight numbers, at an address before the swizzle. */
static void read_chunk(float (&out)[CHUNK], uint32_t address, const void *code) {
  uint16_t words[CHUNK];
  address ^= (address / ROW_BYTES & 7) << 4;
  const void *p = shared_memory_at(address, sizeof words);
  if (!p) die("wgmma reads address %u, which is not in the block's dynamic shared memory", address);
  race_proxy_read(p, sizeof words, code);
  memcpy(words, p, sizeof words);
  for (int i = 0; i < CHUNK; i++) out[i] = bf16_half(words[i], 0);
}

/* to[row][DEPTH] = rows first .. first+count of a K-major tile. */
static void read_rows(std::vector<float> *to, uint64_t descriptor, int first, int count, const void *code) {
  to->resize(size_t(count * DEPTH));
  for (int row = 0; row < count; row++)
    for (int k = 0; k < DEPTH; k += CHUNK) {
      float chunk[CHUNK];
      const int r = first + row, offset = r / 8 * ATOM_BYTES + r % 8 * ROW_BYTES + k * 2;
      read_chunk(chunk, uint32_t(descriptor & 0x3FFF) * 16 + uint32_t(offset), code);
      for (int i = 0; i < CHUNK; i++) (*to)[size_t(row * DEPTH + k + i)] = chunk[i];
    }
}

/* to[column][DEPTH] = DEPTH rows of an MN-major tile, of several panels of 64 columns if there are more. */
static void read_columns(std::vector<float> *to, uint64_t descriptor, int count, const void *code) {
  const int panel_bytes = int(descriptor >> 16 & 0x3FFF) * 16, panel = ROW_BYTES / 2;
  to->resize(size_t(count * DEPTH));
  for (int k = 0; k < DEPTH; k++)
    for (int n = 0; n < count; n += CHUNK) {
      float chunk[CHUNK];
      const int offset = n / panel * panel_bytes + n % panel * 2 + k / 8 * ATOM_BYTES + k % 8 * ROW_BYTES;
      read_chunk(chunk, uint32_t(descriptor & 0x3FFF) * 16 + uint32_t(offset), code);
      for (int i = 0; i < CHUNK; i++) (*to)[size_t((n + i) * DEPTH + k)] = chunk[i];
    }
}

static void need_register(const void *p) {
#ifdef EMU_ASAN
  if (__asan_region_is_poisoned(const_cast<void *>(p), 4))
    die("wgmma: a register of a product went out of scope before the wait");
#else
  (void)p;
#endif
}

/* The left factor in registers, as mma.m16n8k16 has it. */
static void read_registers(std::vector<float> *to, const Product &product) {
  to->resize(ROWS * DEPTH);
  for (int l = 0; l < LANES; l++)
    for (int i = 0; i < 8; i++) {
      const uint32_t *own = product.lane[l].a + i / 2;
      need_register(own);
      const int row = l / 4 + i / 2 % 2 * 8, k = l % 4 * 2 + i % 2 + i / 4 * 8;
      (*to)[size_t(row * DEPTH + k)] = bf16_half(*own, i % 2);
    }
}

static void read_factors(Product *product) {
  const Wgmma &w = product->lane[0];
  const int warp = current_thread() / LANES % WARPS;
  if (w.a) read_registers(&product->a, *product);
  else read_rows(&product->a, w.a_tile, warp * ROWS, ROWS, w.code);
  if (w.mn_major) read_columns(&product->b, w.b_tile, w.columns, w.code);
  else read_rows(&product->b, w.b_tile, 0, w.columns, w.code);
}

/* ---- products ---- */

static void mark(float *values, int count) {
  for (int i = 0; i < count; i++) memcpy(values + i, &PENDING_BITS, sizeof PENDING_BITS);
}

static bool is_marked(const float *values, int count) {
  for (int i = 0; i < count; i++)
    if (memcmp(values + i, &PENDING_BITS, sizeof PENDING_BITS) != 0) return false;
  return true;
}

/* The accumulators of a product, from now on pending. */
static Accumulators *take_accumulators(WarpProducts *warp, void **payloads) {
  const Wgmma *first = static_cast<Wgmma *>(payloads[0]);
  const int count = first->columns / 2;
  for (Accumulators &acc : warp->accumulators) {
    if (acc.lanes[0] == first->d && acc.count == count) return &acc;
    if (acc.lanes[0] < first->d + count && first->d < acc.lanes[0] + acc.count)
      die("wgmma: accumulators overlap those of a product that is not done");
  }
  warp->accumulators.emplace_back();
  Accumulators &acc = warp->accumulators.back();
  acc.count = count;
  acc.products = 0;
  acc.values.resize(size_t(LANES * count));
  for (int l = 0; l < LANES; l++) {
    acc.lanes[l] = static_cast<Wgmma *>(payloads[l])->d;
    memcpy(&acc.values[size_t(l * count)], acc.lanes[l], size_t(count) * sizeof(float));
    mark(acc.lanes[l], count);
  }
  return &acc;
}

static void finish_wgmma(void **payloads) {
  need_all_lanes(payloads, "wgmma.mma_async");
  const Wgmma &w = *static_cast<Wgmma *>(payloads[0]);
  Product product = {};
  for (int l = 0; l < LANES; l++) {
    product.lane[l] = *static_cast<Wgmma *>(payloads[l]);
    const Wgmma &o = product.lane[l];
    if (o.a_tile != w.a_tile || o.b_tile != w.b_tile || o.add != w.add)
      die("wgmma: lanes of a warp have different descriptors");
  }
  WarpProducts &warp =
      take_step({"wgmma.mma_async", w.file, w.line, w.columns, w.a_tile, w.b_tile, w.a != nullptr, w.add, w.mn_major});
  if (!warp.fenced) die("wgmma.mma_async without a wgmma.fence since the last wait (%s:%d)", w.file, w.line);
  if (!w.a) check_tile('A', w.a_tile, false, ROWS);
  check_tile('B', w.b_tile, w.mn_major, w.columns);
  take_accumulators(&warp, payloads)->products++;
  product.group = warp.group;
  read_factors(&product); /* they must be there from now on */
  product.read = options().eager_copies;
  warp.pending.push_back(product);
}

static void complete(WarpProducts *warp, Product *product) {
  const Wgmma &w = product->lane[0];
  if (!product->read) read_factors(product);
  auto acc = warp->accumulators.begin();
  while (acc->lanes[0] != w.d) ++acc;
  for (int l = 0; l < LANES; l++)
    for (int i = 0; i < acc->count; i++) {
      const int row = l / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + l % 4 * 2 + i % 2;
      float &sum = acc->values[size_t(l * acc->count + i)];
      sum = sum_of_products(w.add ? sum : 0.0f, &product->a[size_t(row * DEPTH)], &product->b[size_t(column * DEPTH)]);
    }
  if (--acc->products) return;
  for (int l = 0; l < LANES; l++) {
    need_register(acc->lanes[l]);
    if (!is_marked(acc->lanes[l], acc->count)) die("wgmma: accumulators were written before the wait");
    memcpy(acc->lanes[l], &acc->values[size_t(l * acc->count)], size_t(acc->count) * sizeof(float));
  }
  warp->accumulators.erase(acc);
}

/* ---- what kernels call ---- */

void wgmma(Wgmma product, const char *file, int line) {
  if (product.columns % 8 || product.columns < 8 || product.columns > 256)
    die("wgmma: %d columns (%s:%d)", product.columns, file, line);
  product.code = __builtin_return_address(0);
  product.file = file, product.line = line;
  warp_collective("wgmma.mma_async", 0xFFFFFFFFu, &product, finish_wgmma, file, line);
}

struct Call { /* of a function without operands */
  const char *file;
  int line, newest_groups;
};

static WarpProducts &take_call(void **payloads, const char *operation) {
  need_all_lanes(payloads, operation);
  const Call &call = *static_cast<Call *>(payloads[0]);
  return take_step({operation, call.file, call.line, call.newest_groups, 0, 0, false, false, false});
}

static void finish_fence(void **payloads) { take_call(payloads, "wgmma.fence").fenced = true; }
static void finish_commit(void **payloads) { take_call(payloads, "wgmma.commit_group").group++; }

static void finish_wait(void **payloads) {
  WarpProducts &warp = take_call(payloads, "wgmma.wait_group");
  const int newest = static_cast<Call *>(payloads[0])->newest_groups;
  warp.fenced = false;
  while (!warp.pending.empty() && warp.pending.front().group < warp.group - newest) {
    complete(&warp, &warp.pending.front());
    warp.pending.pop_front();
  }
}

static void call(const char *operation, Finish finish, Call payload) {
  warp_collective(operation, 0xFFFFFFFFu, &payload, finish, payload.file, payload.line);
}
void wgmma_fence(const char *file, int line) { call("wgmma.fence", finish_fence, {file, line, 0}); }
void wgmma_commit(const char *file, int line) { call("wgmma.commit_group", finish_commit, {file, line, 0}); }
void wgmma_wait(int newest_groups, const char *file, int line) {
  call("wgmma.wait_group", finish_wait, {file, line, newest_groups});
}

} // namespace emu
