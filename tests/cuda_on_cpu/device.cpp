/* The emulated card, errors, and what the environment asks for. */
#include "tests/cuda_on_cpu/internal.h"

#include <map>

namespace emu {

static const char *environment(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

[[noreturn]] static void refuse_option(const char *name, const char *allowed) {
  fprintf(stderr, "emu: error: %s=%s is none of %s\n", name, environment(name), allowed);
  exit(2);
}

static bool flag(const char *name, const char *on, const char *off) {
  const char *value = environment(name);
  if (*value && strcmp(value, on) != 0 && strcmp(value, off) != 0) refuse_option(name, on);
  return strcmp(value, on) == 0;
}

static Options read_options() {
  Options o = {};
  const char *order = environment("EMU_ORDER"), *streams = environment("EMU_STREAMS");
  o.seed = 1;
  if (strcmp(order, "rev") == 0) o.order = ORDER_REVERSE;
  else if (strncmp(order, "rand:", 5) == 0) {
    o.order = ORDER_RANDOM;
    o.seed = unsigned(atoi(order + 5)) * 2654435761u | 1;
  } else if (*order && strcmp(order, "fwd") != 0) refuse_option("EMU_ORDER", "fwd, rev, rand:SEED");
  o.eager_copies = flag("EMU_CPASYNC", "eager", "late");
  if (strncmp(streams, "random:", 7) == 0) o.stream_seed = unsigned(atoi(streams + 7)) * 2654435761u | 1;
  else o.lazy_streams = flag("EMU_STREAMS", "lazy", "eager");
  o.host_guard = flag("EMU_HOSTGUARD", "1", "0");
  o.memory_kib = *environment("EMU_MEMORY_KIB") ? unsigned(atoi(environment("EMU_MEMORY_KIB"))) : 4u << 20;
  o.unequal = flag("EMU_UNEQUAL", "1", "0");
  float *const ms = o.gemm_ms;
  if (*environment("EMU_GEMM_MS") && sscanf(environment("EMU_GEMM_MS"), "%f,%f,%f", ms, ms + 1, ms + 2) != 3)
    refuse_option("EMU_GEMM_MS", "three numbers, as 9,8,7");
  o.verbose = flag("EMU_VERBOSE", "1", "0");
  return o;
}

int rank = 0;
double pretended_ms = 0;

const Options &options() {
  static const Options the_options = read_options();
  return the_options;
}

/* CUDA C++ Programming Guide, "Technical specifications per compute capability". */
static const Card cards[] = {
    {80, 163 << 10, 164 << 10, 2048}, {86, 99 << 10, 100 << 10, 1536},  {89, 99 << 10, 100 << 10, 1536},
    {90, 227 << 10, 228 << 10, 2048}, {120, 99 << 10, 100 << 10, 1536},
};

const Card &card() {
  const char *wanted = environment("EMU_SM");
  if (!*wanted) return cards[3];
  for (const Card &c : cards)
    if (atoi(wanted) == c.capability) return c;
  refuse_option("EMU_SM", "80, 86, 89, 90, 120");
}

static cudaError_t last_error = cudaSuccess;

cudaError_t failure(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

/* ---- what kernels may use ---- */

/* SHARED_DEFAULT: less what the kernel declares itself, which is not known here and taken for 1 KiB. */
enum { SHARED_PER_BLOCK = 48 << 10, SHARED_DEFAULT = SHARED_PER_BLOCK - (1 << 10), PROCESSORS = 4, MAX_THREADS = 1024 };

static std::map<const void *, size_t> &shared_limits() {
  static std::map<const void *, size_t> limits;
  return limits;
}

size_t shared_limit(const void *kernel) {
  const auto found = shared_limits().find(kernel);
  return found == shared_limits().end() ? size_t(SHARED_DEFAULT) : found->second;
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > card().shared_per_block)
    return failure(cudaErrorInvalidValue);
  shared_limits()[kernel] = value > SHARED_DEFAULT ? size_t(value) : size_t(SHARED_DEFAULT);
  return cudaSuccess;
}

/* That there is code for the card; the other attributes are not known here. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  const char *error = getenv("EMU_CODE_ERROR");
  if (error) return failure(cudaError_t(atoi(error)));
  memset(attributes, 0, sizeof *attributes);
  attributes->ptxVersion = attributes->binaryVersion = card().capability;
  return cudaSuccess;
}

/* By threads and dynamic shared memory; registers and static shared memory are not known here. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared) {
  if (threads < 1 || threads > MAX_THREADS || shared > shared_limit(kernel)) return failure(cudaErrorInvalidValue);
  const int by_threads = card().threads_per_processor / threads;
  const int by_shared = card().shared_per_processor / (int(shared) + 1024); /* one KiB of each block is the system's */
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  if (*blocks > 32) *blocks = 32;
  return cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void) {
  const cudaError_t status = last_error;
  last_error = cudaSuccess;
  return status;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct {
  cudaError_t status;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(cudaError_t status) {
  for (const auto &error : errors)
    if (error.status == status) return error.text;
  return "unrecognized error code";
}
const char *cudaGetErrorName(cudaError_t status) {
  for (const auto &error : errors)
    if (error.status == status) return error.name;
  return "unrecognized error code";
}

/* ---- the device ---- */

/* Each process has those of EMU_DEVICES to choose from, 1 unless it says more, and its own memory on them. */
static int chosen_device;
cudaError_t cudaGetDeviceCount(int *count) {
  const char *devices = getenv("EMU_DEVICES");
  *count = devices ? atoi(devices) : 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = chosen_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  int count;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return failure(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  size_t available;
  if (device != chosen_device) return failure(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  p->pciBusID = device + 1;
  snprintf(p->name, sizeof p->name, "CUDA on CPU");
  cudaMemGetInfo(&available, &p->totalGlobalMem);
  p->major = card().capability / 10;
  p->minor = card().capability % 10;
  p->multiProcessorCount = PROCESSORS;
  p->l2CacheSize = 1 << 20;
  p->warpSize = 32;
  p->maxThreadsPerBlock = MAX_THREADS;
  p->maxThreadsPerMultiProcessor = card().threads_per_processor;
  p->sharedMemPerBlock = SHARED_PER_BLOCK;
  p->sharedMemPerBlockOptin = size_t(card().shared_per_block);
  p->sharedMemPerMultiprocessor = size_t(card().shared_per_processor);
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7FFFFFFF;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->canMapHostMemory = p->unifiedAddressing = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
  case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
  case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
  case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
  case cudaDevAttrWarpSize: *value = p.warpSize; break;
  case cudaDevAttrKernelExecTimeout: *value = *environment("EMU_DISPLAY") == '1'; break;
  default: die("cudaDeviceGetAttribute: attribute %d is not known here (tests/cuda_on_cpu/device.cpp)", int(attribute));
  }
  return cudaSuccess;
}
}
