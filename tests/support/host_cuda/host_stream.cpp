#include "host_stream.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "device_memory.h"

struct CUgraph_st {
  std::vector<host_cuda::Work> works;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<host_cuda::Work>> works;  // shared, since pending launches may outlive this
};

struct CUstream_st {
  std::deque<host_cuda::Work> queue;
  bool destroyed = false;
  std::unique_ptr<CUgraph_st> recording;
  bool invalidated = false;  // true if something that cannot be captured has been requested
  /// Returns true if the stream is being captured. The request of the caller is then rejected, and the capture becomes
  /// invalid.
  bool reject_if_capturing() {
    invalidated = invalidated || recording;
    return recording != nullptr;
  }
};

namespace host_cuda {

namespace {

struct Device {
  std::vector<std::unique_ptr<CUstream_st>> streams;
  CUstream_st legacy;
  bool running = false;                   // guards against recursion: work must not advance streams
  std::chrono::nanoseconds pretended{0};  // how far the clock of events is ahead
  const bool lazy = std::getenv("HOST_CUDA_LAZY") != nullptr;
};

Device& device() {
  static Device& only = *new Device;  // never destroyed: other static objects may outlive it
  return only;
}

/// Runs work of the stream as far as possible. Returns true if any was completed.
bool advance(CUstream_st& stream) {
  if (stream.queue.empty()) return false;
  const DeviceAccess access;
  bool moved = false;
  while (!stream.queue.empty() && stream.queue.front()()) {
    stream.queue.pop_front();
    moved = true;
  }
  return moved;
}

bool idle() {
  return std::ranges::all_of(device().streams, [](const auto& stream) { return stream->queue.empty(); });
}

}  // namespace

void advance() {
  Device& own = device();
  if (own.running) return;
  own.running = true;
  for (bool moved = true; moved;) {
    moved = advance(own.legacy);
    // Runs the newest stream first: if it fails to wait for older streams, their work has not been done yet.
    for (auto stream = own.streams.rbegin(); stream != own.streams.rend(); ++stream) moved |= advance(**stream);
  }
  std::erase_if(own.streams, [](const auto& stream) { return stream->destroyed && stream->queue.empty(); });
  own.running = false;
}

void enqueue(cudaStream_t stream, Work work) {
  if (stream && stream->recording) return stream->recording->works.push_back(std::move(work));
  (stream ? stream : &device().legacy)->queue.push_back(std::move(work));
  if (!device().lazy || !stream) advance();
}

bool loads_eagerly() {
  static const bool eager = [] {
    const char* loading = std::getenv("CUDA_MODULE_LOADING");
    return loading && std::string_view(loading) == "EAGER";
  }();
  return eager;
}

namespace {
std::atomic<int> awaiting_others = 0;
}

void await_others(int works) { awaiting_others += works; }

bool load(const void* kernel) {
  static std::mutex mutex;
  static auto* const loaded = new std::unordered_set<const void*>;
  if (loads_eagerly()) return true;
  const std::lock_guard lock(mutex);
  if (loaded->contains(kernel)) return true;
  if (awaiting_others > 0) {
    std::fputs("host_cuda: a kernel is loaded while the device waits for other ranks\n", stderr);
    return false;
  }
  loaded->insert(kernel);
  return true;
}

void pretend_to_take(std::chrono::nanoseconds time) { device().pretended += time; }

void wait_for_device() {
  for (const auto& stream : device().streams) stream->reject_if_capturing();
  for (advance(); !idle(); advance()) sched_yield();
}

}  // namespace host_cuda

struct CUevent_st {
  struct Marks {
    long recorded = 0, reached = 0;
    bool captured = false;  // true if it was last recorded in a stream that is being captured: it has no time
    std::chrono::steady_clock::time_point when;  // time of the last recording reached
  };
  std::shared_ptr<Marks> marks = std::make_shared<Marks>();
};

using host_cuda::advance;
using host_cuda::enqueue;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = host_cuda::device().streams.emplace_back(std::make_unique<CUstream_st>()).get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->destroyed = true;
  advance();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->reject_if_capturing()) return cudaErrorStreamCaptureUnsupported;
  advance();
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t state = cudaStreamQuery(stream);
  for (; state == cudaErrorNotReady; state = cudaStreamQuery(stream)) sched_yield();
  return state;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream->reject_if_capturing() || event->marks->captured) return cudaErrorStreamCaptureUnsupported;
  enqueue(stream, [marks = event->marks, mark = event->marks->recorded] { return marks->reached >= mark; });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->marks->captured = stream && stream->recording;
  if (event->marks->captured) return cudaSuccess;
  enqueue(stream, [marks = event->marks, mark = ++event->marks->recorded] {
    marks->reached = mark;
    marks->when = std::chrono::steady_clock::now() + host_cuda::device().pretended;
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->marks->captured) return cudaErrorInvalidValue;
  advance();
  return event->marks->reached == event->marks->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  cudaError_t state = cudaEventQuery(event);
  for (; state == cudaErrorNotReady; state = cudaEventQuery(event)) sched_yield();
  return state;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (from->marks->captured || to->marks->captured) return cudaErrorInvalidValue;
  *milliseconds = std::chrono::duration<float, std::milli>(to->marks->when - from->marks->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recording) return cudaErrorInvalidValue;
  stream->recording = std::make_unique<CUgraph_st>();
  stream->invalidated = false;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto recording = std::exchange(stream->recording, nullptr);
  *graph = nullptr;
  if (!recording) return cudaErrorInvalidValue;
  if (stream->invalidated) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st(std::move(*recording));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{std::make_shared<const std::vector<host_cuda::Work>>(graph->works)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  enqueue(stream, [works = executable->works, next = std::size_t{0}]() mutable {
    while (next < works->size() && (*works)[next]()) ++next;
    return next == works->size();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete executable, cudaSuccess; }
