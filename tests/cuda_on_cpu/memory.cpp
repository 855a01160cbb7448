/* Device memory, pinned memory, copies. Blocks have exactly the size that was asked for, so that AddressSanitizer sees
 * the byte behind them, and are filled with 0xFF, a NaN in every type. */
#include "tests/cuda_on_cpu/internal.h"

#include <malloc.h>
#include <map>
#include <memory>

namespace emu {

static const size_t DEVICE_BYTES = size_t(emu::options().memory_kib) << 10;

struct Allocation {
  size_t bytes;
  MemoryKind kind;
};

static std::map<const char *, Allocation> &allocations() {
  static std::map<const char *, Allocation> all;
  return all;
}

/* Tests open hundreds of contexts, each with large buffers: freed pages are kept, not given back and asked for
 * again. */
static const int kept_pages = mallopt(M_MMAP_THRESHOLD, 32 << 20) + mallopt(M_TRIM_THRESHOLD, 1 << 30);

static size_t device_bytes;                   /* allocated */
static const char *recent_begin, *recent_end; /* what find_allocation() found last */
static MemoryKind recent_kind;

bool find_allocation(const void *p, const char **begin, const char **end, MemoryKind *kind) {
  const char *at = static_cast<const char *>(p);
  if (at < recent_begin || at >= recent_end) {
    auto found = allocations().upper_bound(at);
    if (found == allocations().begin()) return false;
    --found;
    if (at >= found->first + found->second.bytes) return false;
    recent_begin = found->first, recent_end = found->first + found->second.bytes, recent_kind = found->second.kind;
  }
  *begin = recent_begin, *end = recent_end, *kind = recent_kind;
  return true;
}

MemoryKind memory_kind(const void *p, size_t bytes) {
  const char *begin, *end;
  MemoryKind kind;
  if (!find_allocation(p, &begin, &end, &kind)) return MEMORY_PAGEABLE;
  return bytes <= size_t(end - static_cast<const char *>(p)) ? kind : MEMORY_PAGEABLE;
}

/* Only the beginning of large blocks: this happens before and after every operation of a stream. */
static size_t guarded_bytes(size_t bytes) { return bytes < 64 << 10 ? bytes : 64 << 10; }

void guard_device_memory(bool closed) {
  if (!options().host_guard) return;
  for (const auto &a : allocations()) {
    if (a.second.kind != MEMORY_DEVICE) continue;
    if (closed) poison(a.first, guarded_bytes(a.second.bytes));
    else unpoison(a.first, guarded_bytes(a.second.bytes));
  }
}

static cudaError_t allocate(void **out, size_t bytes, MemoryKind kind) {
  if (unsafe_while_capturing() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  if (!out) return failure(cudaErrorInvalidValue);
  *out = nullptr;
  if (!bytes) return cudaSuccess;
  if (kind == MEMORY_DEVICE && bytes > DEVICE_BYTES - device_bytes) return failure(cudaErrorMemoryAllocation);
  if (bytes > DEVICE_BYTES || posix_memalign(out, kind == MEMORY_DEVICE ? 256 : 4096, bytes) != 0)
    return failure(cudaErrorMemoryAllocation);
  memset(*out, 0xFF, bytes);
  allocations()[static_cast<const char *>(*out)] = {bytes, kind};
  if (kind == MEMORY_DEVICE) {
    device_bytes += bytes;
    if (options().host_guard) poison(*out, guarded_bytes(bytes));
  }
  return cudaSuccess;
}

/* CUDA waits for the device before it frees. */
static cudaError_t release(void *p, MemoryKind kind) {
  if (!p) return cudaSuccess;
  if (unsafe_while_capturing() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  finish_all_streams();
  const auto found = allocations().find(static_cast<const char *>(p));
  if (found == allocations().end() || found->second.kind != kind) return failure(cudaErrorInvalidValue);
  if (kind == MEMORY_DEVICE) device_bytes -= found->second.bytes;
  unpoison(p, found->second.bytes);
  allocations().erase(found);
  recent_begin = recent_end = nullptr;
  free(p);
  return cudaSuccess;
}

/* ---- copies ---- */

static const char *const kind_names[] = {"pageable host", "pinned host", "device"};

static cudaError_t check_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  const MemoryKind to_kind = memory_kind(to, bytes), from_kind = memory_kind(from, bytes);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault ||
      (to_device == (to_kind == MEMORY_DEVICE) && from_device == (from_kind == MEMORY_DEVICE)))
    return cudaSuccess;
  fprintf(stderr, "emu: copy of %zu bytes, kind %d, to %p (%s memory) from %p (%s memory): wrong kind or too long\n",
          bytes, int(kind), to, kind_names[to_kind], from, kind_names[from_kind]);
  return failure(cudaErrorInvalidValue);
}

/* The work was queued or recorded; what it uses may be gone. */
static void need_memory(const void *p, size_t bytes, MemoryKind kind) {
  if (kind != MEMORY_PAGEABLE && memory_kind(p, bytes) != kind)
    die("a queued or recorded copy uses %s memory at %p that was freed", kind_names[kind], p);
}

static cudaError_t enqueue_copy(void *to, const void *from, size_t bytes, cudaStream_t stream) {
  const MemoryKind to_kind = memory_kind(to, bytes), from_kind = memory_kind(from, bytes);
  cudaStreamCaptureStatus capturing;
  cudaStreamIsCapturing(stream, &capturing);
  const bool pageable = to_kind == MEMORY_PAGEABLE || from_kind == MEMORY_PAGEABLE;
  if (capturing != cudaStreamCaptureStatusNone && pageable) return refuse_capture(stream);
  if (from_kind == MEMORY_PAGEABLE) { /* CUDA has read it when the call returns */
    const char *begin = static_cast<const char *>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    return enqueue(stream, [=] {
      need_memory(to, bytes, to_kind);
      memcpy(to, staged->data(), bytes);
    });
  }
  const cudaError_t status = enqueue(stream, [=] {
    need_memory(to, bytes, to_kind);
    need_memory(from, bytes, from_kind);
    memmove(to, from, bytes);
  });
  if (status != cudaSuccess || to_kind != MEMORY_PAGEABLE) return status;
  return cudaStreamSynchronize(stream); /* ... and has written it */
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) { return allocate(p, bytes, MEMORY_DEVICE); }
cudaError_t cudaFree(void *p) { return release(p, MEMORY_DEVICE); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return allocate(p, bytes, MEMORY_PINNED); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) { return allocate(p, bytes, MEMORY_PINNED); }
cudaError_t cudaFreeHost(void *p) { return release(p, MEMORY_PINNED); }

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  *device = host;
  return memory_kind(host, 1) == MEMORY_PINNED ? cudaSuccess : failure(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  *available = DEVICE_BYTES - device_bytes;
  *total = DEVICE_BYTES;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!bytes) return cudaSuccess;
  const cudaError_t status = check_copy(to, from, bytes, kind);
  return status == cudaSuccess ? enqueue_copy(to, from, bytes, stream) : status;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  if (unsafe_while_capturing() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  if (!bytes) return cudaSuccess;
  if (memory_kind(to, bytes) != MEMORY_DEVICE) {
    fprintf(stderr, "emu: memset of %zu bytes at %p, which are not device memory\n", bytes, to);
    return failure(cudaErrorInvalidValue);
  }
  return enqueue(stream, [=] {
    need_memory(to, bytes, MEMORY_DEVICE);
    memset(to, value, bytes);
  });
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  if (unsafe_while_capturing() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
}
