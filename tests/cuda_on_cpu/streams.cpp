/* Streams, events, recordings. A stream is a queue of functions. They run at once, or with EMU_STREAMS=lazy not before
 * the host waits for them (or asks: every question that is answered by "not ready" lets one of them run), or with
 * EMU_STREAMS=random:SEED whenever chance has it, so that a wait that is missing shows. A stream that waits for an event
 * of one that is captured is captured with it, until that one waits for it in turn. A recording knows what each of its
 * functions waits for. A launch runs them in the order in which they were recorded; lazily, those of streams that joined
 * the capture as late as possible; or in a random order that the events allow. */
#include "tests/cuda_on_cpu/internal.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>

using Work = std::function<void()>;

struct Node {
  Work work;
  std::vector<size_t> after; /* the nodes that it waits for, which come earlier */
  const CUstream_st *stream; /* that recorded it */
  bool forked;
};

struct CUgraph_st {
  std::vector<Node> nodes;
  bool meets = false; /* other processes: run_at_once() */
};
struct CUgraphExec_st : CUgraph_st {};

struct CUstream_st {
  std::deque<Work> queue;
  CUgraph_st *recording;         /* NULL: not being captured */
  bool spoilt;                   /* ... and something forbidden was done */
  bool relaxed;                  /* captured in relaxed mode */
  bool blocking;                 /* waits for the legacy default stream, and that one for it */
  bool forked = false;           /* captured because of an event of another stream */
  std::vector<size_t> last = {}; /* captured: the nodes that the next one waits for */
};

/* One cudaEventRecord(). */
struct Mark {
  CUstream_st *stream; /* to run while not reached */
  bool reached;
  std::chrono::steady_clock::time_point time;
  double pretended_ms; /* more */
};

struct CUevent_st {
  bool timing;
  CUstream_st *captured;      /* last recorded in the capture of this stream: only captured streams can wait for it */
  std::vector<size_t> nodes;  /* ... and what it stands for there */
  std::shared_ptr<Mark> mark; /* the newest; NULL: never recorded */
};

namespace emu {

static std::vector<CUstream_st *> &streams() {
  static std::vector<CUstream_st *> all;
  return all;
}

static CUstream_st *legacy_stream() {
  static CUstream_st stream = {{}, nullptr, false, false, true};
  return &stream;
}

static void run_one(CUstream_st *s) {
  static int depth; /* waiting for an event runs another stream */
  Work work = std::move(s->queue.front());
  s->queue.pop_front();
  if (depth++ == 0) guard_device_memory(false);
  work();
  if (--depth == 0) guard_device_memory(true);
}

static unsigned random_number() {
  static std::minstd_rand numbers(options().stream_seed);
  return unsigned(numbers());
}

/* A stream with work: `s`, which has some, or with random streams any. */
static CUstream_st *next_stream(CUstream_st *s) {
  if (!options().stream_seed) return s;
  std::vector<CUstream_st *> ready = {s};
  for (CUstream_st *other : streams())
    if (other != s && !other->queue.empty()) ready.push_back(other);
  return ready[random_number() % ready.size()];
}

static void finish(CUstream_st *s) {
  while (!s->queue.empty()) run_one(next_stream(s));
}

static void finish(Mark *mark) {
  while (!mark->reached) run_one(mark->stream);
}

void finish_all_streams() {
  for (CUstream_st *s : streams()) finish(s);
}

static cudaError_t spoil(CUstream_st *s, cudaError_t status) {
  s->spoilt = true;
  return failure(status);
}

cudaError_t refuse_capture(cudaStream_t stream) { return spoil(stream, cudaErrorStreamCaptureUnsupported); }

cudaError_t unsafe_while_capturing() {
  for (CUstream_st *s : streams())
    if (s->recording && !s->relaxed) return spoil(s, cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

/* Work on the legacy default stream waits for all blocking streams; it runs at once. */
static cudaError_t enqueue_legacy(Work work) {
  for (CUstream_st *s : streams())
    if (s->recording && s->blocking) return spoil(s, cudaErrorStreamCaptureImplicit);
  for (CUstream_st *s : streams())
    if (s->blocking) finish(s);
  legacy_stream()->queue.push_back(std::move(work));
  finish(legacy_stream());
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (!stream) return enqueue_legacy(std::move(work));
  if (stream->spoilt) return failure(cudaErrorStreamCaptureInvalidated);
  if (stream->recording) {
    std::vector<Node> &nodes = stream->recording->nodes;
    nodes.push_back({std::move(work), stream->last, stream, stream->forked});
    stream->last = {nodes.size() - 1};
    return cudaSuccess;
  }
  stream->queue.push_back(std::move(work));
  if (options().stream_seed)
    while (!stream->queue.empty() && random_number() % 2) run_one(next_stream(stream));
  else if (!options().lazy_streams) finish(stream);
  return cudaSuccess;
}

/* The next node of a launch. `ready`: those that wait for nothing, ascending. A random order often stays with a stream,
 * so that one can be far ahead of another. */
static size_t next_node(const std::vector<Node> &nodes, const std::vector<size_t> &ready, size_t previous) {
  if (options().stream_seed) {
    for (size_t i : ready)
      if (nodes[i].stream == nodes[previous].stream && random_number() % 4) return i;
    return ready[random_number() % ready.size()];
  }
  if (options().lazy_streams)
    for (size_t i : ready)
      if (!nodes[i].forked) return i;
  return ready[0];
}

static std::vector<size_t> order_of(const std::vector<Node> &nodes) {
  std::vector<size_t> order;
  std::vector<bool> done(nodes.size());
  while (order.size() < nodes.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); i++)
      if (!done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](size_t j) { return done[j]; }))
        ready.push_back(i);
    order.push_back(next_node(nodes, ready, order.empty() ? 0 : order.back()));
    done[order.back()] = true;
  }
  return order;
}

/* Whether the nodes `last` wait, directly or not, for all others. */
static bool joined(const std::vector<Node> &nodes, const std::vector<size_t> &last) {
  std::vector<bool> reached(nodes.size());
  for (size_t i : last) reached[i] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!reached[i]) return false;
    for (size_t j : nodes[i].after) reached[j] = true;
  }
  return true;
}

void run_at_once(cudaStream_t stream) {
  if (stream->recording) stream->recording->meets = true;
  else finish(stream);
}

static bool valid_grid(const cudaLaunchConfig_t *c) {
  const dim3 &grid = c->gridDim, &block = c->blockDim;
  const uint64_t threads = uint64_t(block.x) * block.y * block.z, blocks = uint64_t(grid.x) * grid.y * grid.z;
  return threads >= 1 && threads <= 1024 && block.z <= 64 && blocks >= 1 && blocks <= 0x7FFFFFFF && grid.y <= 65535 &&
         grid.z <= 65535;
}

cudaError_t enqueue_kernel(const void *kernel, const cudaLaunchConfig_t *config, Invoke invoke, const void *tuple,
                           size_t bytes) {
  if (!valid_grid(config)) return failure(cudaErrorInvalidConfiguration);
  if (config->dynamicSmemBytes > shared_limit(kernel)) return failure(cudaErrorInvalidValue);
  const bool early = config->numAttrs;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization || card().capability < 90)
      return failure(cudaErrorNotSupported);
  cudaLaunchConfig_t own = *config;
  own.attrs = nullptr, own.numAttrs = 0;
  std::string arguments(static_cast<const char *>(tuple), bytes);
  return enqueue(config->stream, [=] { run_grid(kernel, own, early, invoke, arguments.data()); });
}

} // namespace emu

using namespace emu;

extern "C" {

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  *stream = new CUstream_st{{}, nullptr, false, false, !(flags & cudaStreamNonBlocking)};
  streams().push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto found = std::find(streams().begin(), streams().end(), stream);
  if (found == streams().end()) return failure(cudaErrorInvalidResourceHandle);
  finish(stream);
  streams().erase(found);
  delete stream->recording;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream && stream->recording) return spoil(stream, cudaErrorStreamCaptureUnsupported);
  finish(stream ? stream : legacy_stream());
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream && stream->recording) return spoil(stream, cudaErrorStreamCaptureUnsupported);
  if (!stream || stream->queue.empty()) return cudaSuccess;
  run_one(stream);
  return failure(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void) {
  for (CUstream_st *s : streams())
    if (s->recording) return spoil(s, cudaErrorStreamCaptureUnsupported);
  finish_all_streams();
  return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = new CUevent_st{!(flags & cudaEventDisableTiming), nullptr, {}, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return failure(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!event) return failure(cudaErrorInvalidResourceHandle);
  event->captured = stream && stream->recording ? stream : nullptr;
  if (event->captured) { /* edges of the graph */
    event->nodes = stream->last;
    return cudaSuccess;
  }
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  event->mark = mark;
  return enqueue(stream, [mark] {
    mark->reached = true;
    mark->time = std::chrono::steady_clock::now();
    mark->pretended_ms = emu::pretended_ms;
  });
}

/* cudaSuccess when the host may wait for the event, or ask. */
static cudaError_t may_wait(cudaEvent_t event) {
  if (!event) return failure(cudaErrorInvalidResourceHandle);
  const cudaError_t status = unsafe_while_capturing();
  return event->captured ? failure(cudaErrorCapturedEvent) : status;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const cudaError_t status = may_wait(event);
  if (status == cudaSuccess && event->mark) finish(event->mark.get());
  return status;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const cudaError_t status = may_wait(event);
  if (status != cudaSuccess || !event->mark || event->mark->reached) return status;
  run_one(event->mark->stream);
  return failure(cudaErrorNotReady);
}

/* Forks where the stream was not captured, and joins where the event's stream had been forked. */
static cudaError_t wait_captured(CUstream_st *stream, const CUevent_st &event) {
  CUstream_st *other = event.captured;
  if (!other->recording) return failure(cudaErrorCapturedEvent);
  if (!stream->recording) {
    if (!stream->queue.empty()) finish(stream); /* before the capture */
    stream->recording = other->recording;
    stream->forked = true;
    stream->spoilt = false;
    stream->last.clear();
  }
  if (stream->recording != other->recording) return spoil(stream, cudaErrorStreamCaptureMerge);
  stream->last.insert(stream->last.end(), event.nodes.begin(), event.nodes.end());
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event) return failure(cudaErrorInvalidResourceHandle);
  if (event->captured) return stream ? wait_captured(stream, *event) : failure(cudaErrorStreamCaptureImplicit);
  if (stream && stream->recording) return spoil(stream, cudaErrorStreamCaptureIsolation);
  const std::shared_ptr<Mark> mark = event->mark;
  return mark ? enqueue(stream, [mark] { finish(mark.get()); }) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from || !to || !from->timing || !to->timing || !from->mark || !to->mark)
    return failure(cudaErrorInvalidResourceHandle);
  if (!from->mark->reached || !to->mark->reached) return failure(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(to->mark->time - from->mark->time).count() +
                  float(to->mark->pretended_ms - from->mark->pretended_ms);
  return cudaSuccess;
}

/* ---- recordings ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (!stream) return failure(cudaErrorStreamCaptureUnsupported);
  if (stream->recording) return failure(cudaErrorIllegalState);
  stream->recording = new CUgraph_st;
  stream->spoilt = false;
  stream->last.clear();
  stream->relaxed = mode == cudaStreamCaptureModeRelaxed;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = nullptr;
  if (!stream || !stream->recording || stream->forked) return failure(cudaErrorIllegalState);
  CUgraph_st *recording = stream->recording;
  const bool unjoined = !joined(recording->nodes, stream->last);
  bool spoilt = stream->spoilt;
  for (CUstream_st *s : streams()) {
    if (s == stream || s->recording != recording) continue;
    spoilt = spoilt || s->spoilt;
    s->recording = nullptr;
    s->forked = s->spoilt = false;
  }
  stream->recording = nullptr;
  stream->spoilt = false;
  if (spoilt) {
    delete recording;
    return failure(cudaErrorStreamCaptureInvalidated);
  }
  if (unjoined) {
    delete recording;
    return failure(cudaErrorStreamCaptureUnjoined);
  }
  *graph = recording;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  *status = !stream || !stream->recording ? cudaStreamCaptureStatusNone
            : stream->spoilt              ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
  *executable = nullptr;
  if (!graph) return failure(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!executable) return failure(cudaErrorInvalidValue);
  cudaError_t status = cudaSuccess;
  for (size_t i : order_of(executable->nodes))
    if (status == cudaSuccess) status = enqueue(stream, executable->nodes[i].work);
  if (executable->meets && status == cudaSuccess) run_at_once(stream);
  return status;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
}
