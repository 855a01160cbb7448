/* Streams, events, recordings, and what a capture refuses. */
#include "tests/cuda_on_cpu/test_emulator.h"

namespace {

struct Stream {
  cudaStream_t handle;
  Stream() : handle(nullptr) { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
};

__global__ void append(int *list, int value) { list[++list[0]] = value; }

bool test_recording() {
  Stream s;
  Device<int> list(8);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  int got[8] = {}, value = 10;
  list.set(got);
  EXPECT_CUDA(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeThreadLocal));
  EXPECT(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeThreadLocal) == cudaErrorIllegalState);
  EXPECT_CUDA(launch(s.handle, append, 1, 1, 0, list.data, value));
  value = 20; /* the recording keeps what it was given */
  EXPECT_CUDA(cudaMemcpyAsync(list.data + 7, list.data + 1, sizeof(int), cudaMemcpyDeviceToDevice, s.handle));
  EXPECT_CUDA(launch(s.handle, append, 1, 1, 0, list.data, value));
  value = 30;
  EXPECT_CUDA(cudaMemsetAsync(list.data + 1, 0, sizeof(int), s.handle));
  EXPECT_CUDA(cudaStreamEndCapture(s.handle, &graph));
  list.get(got);
  EXPECT(graph && got[0] == 0);
  EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaGraphLaunch(executable, s.handle));
  EXPECT_CUDA(cudaGraphLaunch(executable, s.handle));
  EXPECT_CUDA(cudaStreamSynchronize(s.handle));
  list.get(got);
  EXPECT(got[0] == 4 && got[1] == 0 && got[2] == 20 && got[3] == 10 && got[4] == 20 && got[7] == 0);
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  return true;
}

/* A second stream joins a capture by waiting for the first, which waits for it in turn: two rounds, the second of which
 * nobody waits for when `joined` is false. */
bool fork(bool joined) {
  Stream s, side;
  Device<int> list(8);
  cudaEvent_t forked = nullptr, done = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  int got[8] = {};
  list.set(got);
  EXPECT_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  EXPECT_CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  EXPECT_CUDA(cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeThreadLocal));
  for (int round = 0; round < 2; round++) {
    EXPECT_CUDA(launch(s.handle, append, 1, 1, 0, list.data, 10 * round + 1));
    EXPECT_CUDA(cudaEventRecord(forked, s.handle));
    EXPECT_CUDA(cudaStreamWaitEvent(side.handle, forked, 0));
    EXPECT_CUDA(launch(side.handle, append, 1, 1, 0, list.data, 10 * round + 2));
    EXPECT_CUDA(cudaEventRecord(done, side.handle));
    if (joined || round == 0) EXPECT_CUDA(cudaStreamWaitEvent(s.handle, done, 0));
    EXPECT_CUDA(launch(s.handle, append, 1, 1, 0, list.data, 10 * round + 3));
  }
  if (!joined) EXPECT_CUDA(launch(side.handle, append, 1, 1, 0, list.data, 99));
  const cudaError_t status = cudaStreamEndCapture(s.handle, &graph);
  EXPECT_CUDA(cudaEventDestroy(forked));
  EXPECT_CUDA(cudaEventDestroy(done));
  if (!joined) {
    EXPECT(status == cudaErrorStreamCaptureUnjoined && !graph);
    EXPECT_CUDA(launch(side.handle, append, 1, 1, 0, list.data, 7)); /* both are as before */
    return cudaStreamSynchronize(side.handle) == cudaSuccess;
  }
  EXPECT_CUDA(status);
  EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaGraphLaunch(executable, s.handle));
  EXPECT_CUDA(cudaStreamSynchronize(s.handle));
  list.get(got);
  EXPECT(got[0] == 6 && got[1] == 1 && got[2] == 2 && got[3] == 3 && got[4] == 11 && got[5] == 12 && got[6] == 13);
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  return true;
}

bool test_fork_and_join() { return fork(true) && fork(false); }

/* Each in a capture of its own, which it must spoil. */
bool spoils(cudaStreamCaptureMode mode, cudaError_t status, cudaError_t (*call)(cudaStream_t)) {
  Stream s;
  Device<int> list(8);
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamBeginCapture(s.handle, mode));
  EXPECT(call(s.handle) == status);
  if (status == cudaSuccess) {
    EXPECT_CUDA(cudaStreamEndCapture(s.handle, &graph));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return true;
  }
  EXPECT(launch(s.handle, append, 1, 1, 0, list.data, 1) == cudaErrorStreamCaptureInvalidated);
  EXPECT(cudaStreamEndCapture(s.handle, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
  EXPECT_CUDA(cudaStreamSynchronize(s.handle));
  return true;
}

cudaError_t allocate_and_free(cudaStream_t) {
  void *p = nullptr;
  const cudaError_t status = cudaMalloc(&p, 16);
  return status == cudaSuccess ? cudaFree(p) : status;
}

cudaError_t copy_pageable(cudaStream_t stream) {
  static int *device; /* from before the capture */
  int host = 0;
  if (!stream) return cudaMalloc(reinterpret_cast<void **>(&device), sizeof host);
  return cudaMemcpyAsync(device, &host, sizeof host, cudaMemcpyHostToDevice, stream);
}

cudaError_t copy_now(cudaStream_t) {
  int a = 0, b = 0;
  return cudaMemcpy(&a, &b, sizeof a, cudaMemcpyHostToHost);
}

cudaError_t wait_for_event(cudaStream_t stream) {
  cudaEvent_t event;
  cudaEventCreate(&event);
  cudaError_t status = cudaEventSynchronize(event);
  if (cudaEventRecord(event, stream) == cudaSuccess && cudaEventQuery(event) != cudaErrorCapturedEvent)
    status = cudaErrorUnknown;
  cudaEventDestroy(event);
  return status;
}

bool test_what_captures_refuse() {
  const cudaStreamCaptureMode local = cudaStreamCaptureModeThreadLocal, relaxed = cudaStreamCaptureModeRelaxed;
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  EXPECT_CUDA(copy_pageable(nullptr));
  EXPECT(spoils(local, unsupported, cudaStreamSynchronize) && spoils(local, unsupported, cudaStreamQuery));
  EXPECT(spoils(relaxed, unsupported, cudaStreamSynchronize));
  EXPECT(spoils(local, unsupported, [](cudaStream_t) { return cudaDeviceSynchronize(); }));
  EXPECT(spoils(local, unsupported, allocate_and_free) && spoils(relaxed, cudaSuccess, allocate_and_free));
  EXPECT(spoils(local, unsupported, copy_pageable) && spoils(relaxed, unsupported, copy_pageable));
  EXPECT(spoils(local, unsupported, copy_now) && spoils(local, unsupported, wait_for_event));
  EXPECT(cudaStreamBeginCapture(nullptr, local) == unsupported);
  return true;
}

bool test_events() {
  Stream s;
  cudaEvent_t from, to, untimed;
  float ms = -1;
  EXPECT_CUDA(cudaEventCreate(&from));
  EXPECT_CUDA(cudaEventCreate(&to));
  EXPECT_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  EXPECT(cudaEventElapsedTime(&ms, from, to) == cudaErrorInvalidResourceHandle); /* not recorded */
  EXPECT_CUDA(cudaEventQuery(from));
  EXPECT_CUDA(cudaEventRecord(from, s.handle));
  EXPECT_CUDA(cudaEventRecord(to, s.handle));
  EXPECT_CUDA(cudaEventRecord(untimed, s.handle));
  EXPECT_CUDA(cudaEventSynchronize(untimed));
  EXPECT_CUDA(cudaEventElapsedTime(&ms, from, to));
  EXPECT(ms >= 0 && cudaEventElapsedTime(&ms, from, untimed) == cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventRecord(to, s.handle));
  EXPECT_CUDA(cudaEventDestroy(to)); /* allowed before it is reached */
  EXPECT_CUDA(cudaStreamSynchronize(s.handle));
  EXPECT_CUDA(cudaEventDestroy(from));
  EXPECT_CUDA(cudaEventDestroy(untimed));
  return true;
}

__global__ void put(int *to, int value) { *to = value; }

/* Nothing runs before somebody waits or asks; pageable memory may be changed at once, pinned memory not. */
bool test_lazy_streams() {
  Stream s, other;
  Device<int> a(1), b(1), c(1);
  void *memory = nullptr;
  cudaEvent_t event;
  int pageable = 1, got = 0;
  EXPECT_CUDA(cudaMallocHost(&memory, sizeof(int)));
  EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int *pinned = static_cast<int *>(memory);
  *pinned = 1;
  EXPECT_CUDA(cudaMemcpyAsync(a.data, pinned, sizeof(int), cudaMemcpyHostToDevice, s.handle));
  EXPECT_CUDA(cudaMemcpyAsync(b.data, &pageable, sizeof(int), cudaMemcpyHostToDevice, s.handle));
  EXPECT_CUDA(cudaEventRecord(event, s.handle));
  EXPECT_CUDA(cudaStreamWaitEvent(other.handle, event, 0));
  EXPECT_CUDA(cudaMemcpyAsync(c.data, b.data, sizeof(int), cudaMemcpyDeviceToDevice, other.handle));
  *pinned = pageable = 2;
  EXPECT(cudaEventQuery(event) == cudaErrorNotReady && cudaStreamQuery(s.handle) == cudaErrorNotReady);
  EXPECT_CUDA(cudaStreamSynchronize(other.handle)); /* needs the event */
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaMemcpyAsync(&got, a.data, sizeof got, cudaMemcpyDeviceToHost, s.handle)); /* waits: pageable */
  EXPECT(got == 2);
  c.get(&got);
  EXPECT(got == 1);
  EXPECT_CUDA(launch(s.handle, put, 1, 1, 0, pinned, 9));
  EXPECT(*pinned == 2);
  EXPECT_CUDA(cudaStreamSynchronize(s.handle));
  EXPECT(*pinned == 9);
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA(cudaFreeHost(memory));
  return true;
}

/* Two streams without an event between them: each is in order, and both may be first. */
bool test_random_streams() {
  Stream s, other;
  Device<int> list(8);
  bool first[2] = {false, false};
  for (int i = 0; i < 50; i++) {
    int got[8] = {}, last[2] = {0, 0};
    list.set(got);
    for (int value : {1, 2, 3})
      for (int stream = 0; stream < 2; stream++)
        EXPECT_CUDA(launch(stream ? other.handle : s.handle, append, 1, 1, 0, list.data, 10 * stream + value));
    EXPECT_CUDA(cudaStreamSynchronize(s.handle));
    EXPECT_CUDA(cudaStreamSynchronize(other.handle));
    list.get(got);
    EXPECT(got[0] == 6);
    for (int k = 1; k <= 6; k++) EXPECT(got[k] % 10 == ++last[got[k] / 10]);
    first[got[1] / 10] = true;
  }
  EXPECT(first[0] && first[1]);
  return true;
}

} // namespace

const Test stream_tests[] = {
    {"recording", test_recording, NULL},
    {"recording, lazy", test_recording, "EMU_STREAMS=lazy"},
    {"fork and join", test_fork_and_join, NULL},
    {"fork and join, lazy", test_fork_and_join, "EMU_STREAMS=lazy"},
    {"fork and join, random", test_fork_and_join, "EMU_STREAMS=random:1"},
    {"what captures refuse", test_what_captures_refuse, NULL},
    {"events", test_events, NULL},
    {"events, lazy", test_events, "EMU_STREAMS=lazy"},
    {"lazy streams", test_lazy_streams, "EMU_STREAMS=lazy"},
    {"random streams", test_random_streams, "EMU_STREAMS=random:1"},
    {NULL, NULL, NULL},
};
