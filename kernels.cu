/* The CUDA backend: its context, memory, graphs and reports, and the table of its operations. The kernels are in
 * src/kernels/cuda/, one file for each family; attention takes minutes to compile and has a file of its own. */
#include "kernels/cuda/convolution.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/decode_attention.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/heads.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/mlp.cuh"
#include "kernels/cuda/muon.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/optimizer.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/peers.cuh"
#include "kernels/cuda/sample.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#ifndef INKLING_CUDA_CODE
#define INKLING_CUDA_CODE "80 90" /* the architectures that this build has machine code for */
#endif

/* ---- errors ---- */

bool check(Context *c, cudaError_t status, const char *what) {
  if (status != cudaSuccess && !c->error.code) {
    if (status == cudaErrorMemoryAllocation) fail(&c->error, EXIT_MEMORY, "out of memory on %s: %s", c->name, what);
    else fail(&c->error, EXIT_INTERNAL, "%s failed on %s: %s", what, c->name, cudaGetErrorString(status));
  }
  return !c->error.code;
}

bool require_alignment(Context *c, const char *operation, std::initializer_list<int64_t> sizes,
                       std::initializer_list<const void *> pointers) {
  bool ok = true;
  for (int64_t size : sizes) ok = ok && size % WIDTH_MULTIPLE == 0;
  for (const void *pointer : pointers) ok = ok && (uintptr_t)pointer % 16 == 0;
  if (!ok && !c->error.code)
    fail(&c->error, EXIT_INTERNAL, "%s: row lengths and strides must be multiples of %d, addresses of 16 bytes, on %s",
         operation, WIDTH_MULTIPLE, c->name);
  return !c->error.code;
}

bool check_head_size(Context *c, int dim) {
  if ((dim < WIDTH_MULTIPLE || dim > HEAD_DIM_MAX || dim % WIDTH_MULTIPLE) && !c->error.code)
    fail(&c->error, EXIT_USAGE, "head size %d: CUDA has multiples of %d up to %d (choose other --heads)", dim,
         WIDTH_MULTIPLE, HEAD_DIM_MAX);
  return !c->error.code;
}

/* ---- streams, events, waiting ---- */

static bool make_stream(Context *c, cudaStream_t *out) {
  return check(c, cudaStreamCreateWithFlags(out, cudaStreamNonBlocking), "a stream");
}

static bool make_event(Context *c, Event *out) {
  return check(c, cudaEventCreateWithFlags(&out->event, cudaEventDisableTiming), "an event");
}

/* Waits for a stream or an event. The GPU of a process that has died never answers, so between GPUs errors are looked
 * for meanwhile; after one, the result is cudaErrorNotReady. */
template <class T>
static cudaError_t wait_for(Context *c, std::type_identity_t<T> what, cudaError_t (*query)(T),
                            cudaError_t (*synchronize)(T)) {
  if (!c->nccl) return synchronize(what);
  static const timespec nap = {0, 20000};
  cudaError_t status;
  while ((status = query(what)) == cudaErrorNotReady && nccl_works(c)) nanosleep(&nap, NULL);
  return status;
}

/* Waits for the work submitted so far, unless an error has occurred. */
static void settle(Context *c) {
  if (!c->error.code && c->stream)
    check(c, wait_for(c, c->stream, cudaStreamQuery, cudaStreamSynchronize), "the work submitted so far");
}

/* ---- memory ---- */

static cudaError_t free_block(void *memory, Block block) {
  return block.shared ? cudaFreeHost(memory) : cudaFree(memory);
}

static bool keep_block(Context *c, const char *name, void *memory, Block block) {
  try {
    c->allocations[memory] = block;
  } catch (const std::bad_alloc &) {
    free_block(memory, block);
    return check(c, cudaErrorMemoryAllocation, name);
  }
  return true;
}

void *cuda_alloc(Context *c, const char *name, size_t bytes) {
  if (!c->error.code && c->capturing)
    fail(&c->error, EXIT_INTERNAL, "memory for %s is requested while a step is captured", name);
  if (c->error.code) return NULL;
  void *memory = NULL;
  size_t available = 0, total = 0;
  cudaMemGetInfo(&available, &total);
  if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
    cudaGetLastError(); /* a failed allocation is not an error of the context */
    fail(&c->error, EXIT_MEMORY,
         "out of memory for %s: needed %.1f %s, free %.1f of %.1f MiB on %s, in use %.1f MiB; use a smaller batch or "
         "model",
         name, (double)bytes / (bytes < 1 << 20 ? 1024.0 : 1048576.0), bytes < 1 << 20 ? "KiB" : "MiB",
         (double)available / 1048576.0, (double)total / 1048576.0, c->name, (double)c->bytes / 1048576.0);
    return NULL;
  }
  if (!keep_block(c, name, memory, {bytes, false})) return NULL;
  c->bytes += bytes;
  if (c->bytes > c->peak_bytes) c->peak_bytes = c->bytes;
  check(c, cudaMemsetAsync(memory, 0, bytes, c->stream), name);
  return memory;
}

void *cuda_alloc_shared(Context *c, const char *name, size_t bytes) {
  void *memory = NULL;
  if (c->error.code || !check(c, cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), name)) return NULL;
  memset(memory, 0, bytes);
  return keep_block(c, name, memory, {bytes, true}) ? memory : NULL;
}

void cuda_release(Context *c, void *memory) {
  const auto found = c->allocations.find(memory);
  if (found == c->allocations.end()) return;
  const Block block = found->second;
  if (!block.shared) c->bytes -= block.bytes;
  c->allocations.erase(found);
  settle(c); /* operations may still use it */
  check(c, free_block(memory, block), "release");
}

void *scratch(Context *c, size_t bytes) {
  if (bytes <= c->scratch_bytes || c->error.code) return c->error.code ? NULL : c->scratch;
  size_t available = 0, total = 0, twice = 2 * c->scratch_bytes;
  cudaMemGetInfo(&available, &total);
  if (bytes < twice && twice < available / 2) bytes = twice; /* keeps the sum of the old blocks smaller */
  c->scratch = cuda_alloc(c, "scratch space of the CUDA backend", bytes);
  c->scratch_bytes = c->scratch ? bytes : 0;
  return c->scratch;
}

/* ---- copies ---- */

static bool staging_open(Context *c) {
  Staging *s = &c->staging;
  for (char *&buffer : s->buffer) buffer = (char *)cuda_alloc_shared(c, "pinned buffers", Staging::BYTES);
  return make_event(c, &s->free[0]) && make_event(c, &s->free[1]);
}

void cuda_upload(Context *c, void *device, const void *host, size_t bytes) {
  Staging *s = &c->staging;
  for (size_t done = 0; done < bytes && !c->error.code;) {
    if (s->used == Staging::BYTES) {
      check(c, cudaEventRecord(s->free[s->current], c->stream), "upload");
      s->current ^= 1;
      s->used = 0;
      check(c, wait_for(c, s->free[s->current], cudaEventQuery, cudaEventSynchronize), "upload");
    }
    size_t count = bytes - done, left = Staging::BYTES - s->used;
    if (count > left) count = left;
    char *at = s->buffer[s->current] + s->used;
    memcpy(at, (const char *)host + done, count);
    check(c, cudaMemcpyAsync((char *)device + done, at, count, cudaMemcpyHostToDevice, c->stream), "upload");
    s->used += (count + 255) / 256 * 256;
    done += count;
  }
}

void cuda_download(Context *c, void *host, const void *device, size_t bytes) {
  cuda_join(c, 0);
  if (c->error.code || !bytes) return;
  check(c, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, c->stream), "download");
  check(c, wait_for(c, c->stream, cudaStreamQuery, cudaStreamSynchronize), "the work before a download");
}

void cuda_copy(Context *c, void *to, const void *from, size_t bytes) {
  if (c->error.code || !bytes) return;
  check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream), "copy");
}

/* ---- reports ---- */

namespace {
__global__ void write_report(StepReport *ring, unsigned *next, const int64_t *began, const StepState *state) {
  const unsigned n = *next;
  ring[n % REPORT_RING] = {*state, *began, nanoseconds()};
  *next = n + 1;
  __threadfence_system();
}
} // namespace

static bool reports_open(Context *c) {
  Reports *r = &c->reports;
  r->ring = (StepReport *)cuda_alloc_shared(c, "reports", REPORT_RING * sizeof(StepReport));
  r->next = (unsigned *)cuda_alloc(c, "reports", sizeof(unsigned));
  r->began = (int64_t *)cuda_alloc(c, "reports", sizeof(int64_t));
  for (Event &event : r->done) make_event(c, &event);
  return !c->error.code;
}

static void count_reports(Context *c, int count) {
  Reports *r = &c->reports;
  for (int i = 0; i < count; i++)
    check(c, cudaEventRecord(r->done[r->issued++ % REPORT_RING], c->stream), "report of a step");
}

int cuda_poll(Context *c, StepReport *out, int capacity, bool wait, Error *error) {
  Reports *r = &c->reports;
  if (wait) settle(c);
  if (nccl_works(c) && !c->error.code) {
    cudaError_t status = cudaStreamQuery(c->stream);
    if (status == cudaSuccess) r->finished = r->issued;
    else if (status != cudaErrorNotReady) check(c, status, "the work submitted so far");
  }
  while (!c->error.code && r->finished < r->issued) {
    cudaEvent_t done = r->done[r->finished % REPORT_RING];
    bool ahead = r->issued - r->finished > REPORT_RING / 8;
    cudaError_t status = ahead ? wait_for(c, done, cudaEventQuery, cudaEventSynchronize) : cudaEventQuery(done);
    if (status == cudaErrorNotReady) break;
    if (check(c, status, "a training step")) r->finished++;
  }
  if (c->error.code) {
    fail(error, c->error.code, "%s", c->error.text);
    return -1;
  }
  if (r->taken < r->issued - REPORT_RING) r->taken = r->issued - REPORT_RING; /* overwritten */
  int count = 0;
  for (; count < capacity && r->taken < r->finished; r->taken++) out[count++] = r->ring[r->taken % REPORT_RING];
  return count;
}

/* ---- a step as a CUDA graph ---- */

struct CapturedGraph {
  CapturedGraph *next;   /* in the list of the context */
  bool prepared;         /* the first run has been made */
  cudaGraphExec_t graph; /* NULL until the second run */
  int reports;           /* of one run */
};

void cuda_report(Context *c, const StepState *state) {
  const Reports *r = &c->reports;
  launch(c, "report of a step", write_report, 1, 1, 0, r->ring, r->next, r->began, state);
  if (!c->capturing) count_reports(c, 1);
}

static void run_step(Context *c, StepFunction step, void *argument) {
  step(c, argument);
  cuda_join(c, 0);
}

static void capture(Context *c, CapturedGraph *captured, StepFunction step, void *argument) {
  cudaGraph_t graph = NULL;
  if (!check(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "capture of a step")) return;
  c->capturing = true;
  run_step(c, step, argument);
  c->capturing = false;
  cudaError_t status = cudaStreamEndCapture(c->stream, &graph);
  if (check(c, status, "capture of a step"))
    check(c, cudaGraphInstantiate(&captured->graph, graph, 0), "capture of a step");
  if (graph) cudaGraphDestroy(graph);
}

/* The first run is not captured: it loads kernels, chooses GEMM algorithms and allocates scratch space. */
void cuda_submit(Context *c, CapturedGraph **slot, StepFunction step, void *argument) {
  if (c->error.code) return;
  if (c->peers && !c->nccl) { /* the step waits for the host */
    run_step(c, step, argument);
    return;
  }
  if (!*slot) {
    *slot = new (std::nothrow) CapturedGraph();
    if (!*slot) return run_step(c, step, argument);
    (*slot)->next = c->graphs;
    c->graphs = *slot;
  }
  CapturedGraph *const captured = *slot;
  if (!captured->prepared) {
    const int64_t before = c->reports.issued;
    run_step(c, step, argument);
    captured->reports = (int)(c->reports.issued - before);
    captured->prepared = true;
    return;
  }
  if (!captured->graph) capture(c, captured, step, argument);
  if (c->error.code) return;
  check(c, cudaGraphLaunch(captured->graph, c->stream), "a captured step");
  count_reports(c, captured->reports);
}

/* Graphs hold algorithms: they are captured again, after a first run that makes the plans. */
void cuda_tune(Context *c, const char *choices, bool measure) {
  settle(c);
  for (CapturedGraph *captured = c->graphs; captured; captured = captured->next) {
    if (captured->graph) cudaGraphExecDestroy(captured->graph);
    captured->graph = NULL;
    captured->prepared = false;
  }
  gemm_tune(c, choices, measure);
}

void cuda_mark(Context *c) {
  if (!c->error.code) check(c, cudaEventRecord(c->mark, c->stream), "a mark");
}

void cuda_wait(Context *c) {
  if (!c->error.code) check(c, wait_for(c, c->mark, cudaEventQuery, cudaEventSynchronize), "the work before a mark");
}

void cuda_drop(Context *c, CapturedGraph **slot) {
  CapturedGraph *const graph = *slot;
  if (!graph) return;
  if (graph->graph) settle(c);
  if (graph->graph) cudaGraphExecDestroy(graph->graph); /* it may be running after an error */
  CapturedGraph **link = &c->graphs;
  while (*link != graph) link = &(*link)->next;
  *link = graph->next;
  delete graph;
  *slot = NULL;
}

/* ---- the context ---- */

static bool peers_open(Context *c) {
  if (!c->peers) return true;
  c->sums = (double *)cuda_alloc(c, "sums of all processes", PEER_SUMS * sizeof(double));
  return !c->error.code && nccl_open(c) && make_stream(c, &c->side) && make_event(c, &c->ready) &&
         make_event(c, &c->added);
}

static bool branch_open(Context *c) {
  Branch *b = &c->branch;
  return make_stream(c, &b->stream) && make_event(c, &b->begin) && make_event(c, &b->done[0]) &&
         make_event(c, &b->done[1]);
}

/* Whether this build has machine code for the device; otherwise the driver compiles the kernels when a program starts.
 * Machine code runs on later devices of the same major capability. */
static bool has_machine_code(int capability) {
  static const char built[] = INKLING_CUDA_CODE; /* "80 90" */
  char *end = NULL;
  for (const char *at = built; *at; at = end) {
    const long code = strtol(at, &end, 10);
    if (end == at) break;
    if (code / 10 == capability / 10 && code <= capability) return true;
  }
  return false;
}

/* Reports why the kernels cannot run on the device. Returns false. */
static bool no_code(Context *c, cudaError_t status) {
  const int capability = c->capability;
  cudaGetLastError();
  switch (status) {
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorInvalidDeviceFunction:
    return fail(&c->error, EXIT_USAGE, "no CUDA: this build has no code for %s (sm_%d); make CUDA_ARCH=%d adds it",
                c->name, capability, capability);
  case cudaErrorUnsupportedPtxVersion:
    return fail(
        &c->error, EXIT_USAGE,
        "no CUDA: the NVIDIA driver is too old to compile this build's kernels for %s (sm_%d); install a driver for "
        "CUDA %d.%d or later, or build on this machine",
        c->name, capability, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
  case cudaErrorJitCompilerNotFound:
  case cudaErrorJitCompilationDisabled:
    return fail(&c->error, EXIT_USAGE,
                "no CUDA: this build has no code for %s (sm_%d), and the driver's compiler is missing or disabled "
                "(libnvidia-ptxjitcompiler, CUDA_DISABLE_PTX_JIT); make CUDA_ARCH=%d adds code",
                c->name, capability, capability);
  default: return check(c, status, "query of the device");
  }
}

/* A fifth of the memory of a GPU that serves a display or Windows is left to it: beyond that, the driver of WSL moves
 * memory to the host instead of failing, and a desktop stops. */
static size_t reserved_bytes(int device, size_t total) {
  int display = 0;
  struct utsname system;
  if (cudaDeviceGetAttribute(&display, cudaDevAttrKernelExecTimeout, device) != cudaSuccess) cudaGetLastError();
  const bool wsl = uname(&system) == 0 && strstr(system.release, "icrosoft");
  return display || wsl ? total / 5 : 0;
}

static bool describe_device(Context *c) {
  cudaDeviceProp properties;
  cudaFuncAttributes attributes;
  int device = 0;
  snprintf(c->name, sizeof c->name, "the GPU");
  if (!check(c, cudaGetDevice(&device), "query of the device") ||
      !check(c, cudaGetDeviceProperties(&properties, device), "query of the device"))
    return false;
  snprintf(c->name, sizeof c->name, "%.*s", (int)sizeof c->name - 1, properties.name);
  c->processors = properties.multiProcessorCount;
  c->capability = 10 * properties.major + properties.minor;
  c->shared_bytes = (int)properties.sharedMemPerBlockOptin;
  c->l2_bytes = properties.l2CacheSize;
  c->reserved_bytes = reserved_bytes(device, properties.totalGlobalMem);
  if (c->capability < 80)
    return fail(&c->error, EXIT_USAGE, "no CUDA: %s has compute capability %d.%d, and 8.0 or later is needed", c->name,
                properties.major, properties.minor);
  const cudaError_t status = cudaFuncGetAttributes(&attributes, write_report);
  if (status != cudaSuccess) return no_code(c, status);
  c->early = attributes.ptxVersion >= 90 && asked_for("INKLING_PDL"); /* code for 8.0 does not wait */
  return true;
}

void cuda_close(Context *c) {
  if (!c) return;
  settle(c);
  while (c->graphs) { /* before the communicator, which waits for what was captured with it */
    CapturedGraph *graph = c->graphs;
    cuda_drop(c, &graph);
  }
  nccl_close(c);
  for (cudaStream_t stream : {c->stream, c->branch.stream, c->side})
    if (stream) {
      cudaStreamSynchronize(stream); /* after an error, what ends now */
      cudaStreamDestroy(stream);
    }
  gemm_close(c->gemm);
  for (const auto &[memory, block] : c->allocations) free_block(memory, block);
  delete c;
}

static bool no_gpu(Error *error, cudaError_t status, int count) {
  if (status == cudaErrorInsufficientDriver)
    return fail(error, EXIT_USAGE, "no CUDA: the NVIDIA driver is missing or older than this build needs (CUDA %d.%d)",
                CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
  if (status == cudaSuccess && count == 0) status = cudaErrorNoDevice;
  return fail(error, EXIT_USAGE, "no CUDA: %s", cudaGetErrorString(status));
}

extern "C" int cuda_count(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) != cudaSuccess ? 0 : count < 255 ? count : 255;
}

bool cuda_open(Context **out, const ContextOptions *options, Error *error) {
  *out = NULL;
  if (options->weights != DTYPE_F32 && options->weights != options->dtype)
    return fail(error, EXIT_USAGE, "weights in %s are for the CPU; a GPU computes in bf16 or f32",
                dtype_name(options->weights));
  int count = 0;
  const int wanted = options->peers ? options->peers->node_rank : 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    return no_gpu(error, status, count);
  }
  Context *c = new (std::nothrow) Context();
  if (!c) return fail(error, EXIT_MEMORY, "out of memory opening the CUDA backend");
  if (wanted) cudaSetDevice(wanted % count); /* some launchers make only one GPU visible to a process */
  c->dtype = options->dtype;
  c->peers = options->peers;
  if (describe_device(c) && make_stream(c, &c->stream) && make_event(c, &c->mark) && branch_open(c) &&
      staging_open(c) && reports_open(c) && peers_open(c) && gemm_open(c)) {
    *out = c;
    return true;
  }
  fail(error, c->error.code, "%s", c->error.text);
  cuda_close(c);
  return false;
}

void cuda_info(Context *c, ContextInfo *out) {
  *out = {};
  size_t available = 0, total = 0;
  cudaMemGetInfo(&available, &total);
  out->free_bytes = available > c->reserved_bytes ? available - c->reserved_bytes : 0;
  out->own_bytes = (c->branch.workspace ? 0 : GEMM_WORKSPACE) + (c->partial.memory ? 0 : PartialSums::LEAST);
  out->total_bytes = total > c->reserved_bytes ? total - c->reserved_bytes : 0;
  snprintf(out->device, sizeof out->device, "%.60s, sm_%d, CUDA %d.%d%s", c->name, c->capability, CUDART_VERSION / 1000,
           CUDART_VERSION / 10 % 100, has_machine_code(c->capability) ? "" : ", kernels compiled by its driver");
  out->dtype = c->dtype;
  out->accelerator = true;
  out->direct = c->nccl;
  out->crowded = c->crowded;
  out->copies = c->dtype != DTYPE_F32;
  out->bytes = c->bytes;
  out->peak_bytes = c->peak_bytes;
  out->head_dim_multiple = WIDTH_MULTIPLE;
  out->head_dim_max = HEAD_DIM_MAX;
  out->width_multiple = WIDTH_MULTIPLE;
  out->dim_max = NORM_DIM_MAX;
}

#define ROW(function) .function = cuda_##function,
/* clang-format off */
extern "C" const Backend cuda_backend = {
    .name = "cuda", .isa = NULL, .dtypes = 1u << DTYPE_F32 | 1u << DTYPE_BF16, BACKEND_FUNCTIONS(ROW)
    .image_bytes = NULL, .write_image = NULL, .use_image = NULL};
/* clang-format on */
