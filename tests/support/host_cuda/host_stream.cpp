#include "host_stream.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "device_memory.h"

struct CUstream_st {
  std::deque<host_cuda::Work> queue;
  bool destroyed = false;
};

namespace host_cuda {

namespace {

struct Device {
  std::vector<std::unique_ptr<CUstream_st>> streams;
  CUstream_st legacy;
  bool running = false;                   // no work may ask for more
  std::chrono::nanoseconds pretended{0};  // that the clock is ahead
  const bool lazy = std::getenv("HOST_CUDA_LAZY") != nullptr;
};

Device& device() {
  static Device& only = *new Device;  // never destroyed: others may outlive it
  return only;
}

/// Whether it came further.
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
    // The newest first: what it forgets to wait for has not been done then.
    for (auto stream = own.streams.rbegin(); stream != own.streams.rend(); ++stream) moved |= advance(**stream);
  }
  std::erase_if(own.streams, [](const auto& stream) { return stream->destroyed && stream->queue.empty(); });
  own.running = false;
}

void enqueue(cudaStream_t stream, Work work) {
  (stream ? stream : &device().legacy)->queue.push_back(std::move(work));
  if (!device().lazy || !stream) advance();
}

void pretend_to_take(std::chrono::nanoseconds time) { device().pretended += time; }

void wait_for_device() {
  for (advance(); !idle(); advance()) sched_yield();
}

}  // namespace host_cuda

struct CUevent_st {
  struct Marks {
    long recorded = 0, reached = 0;
    std::chrono::steady_clock::time_point when;  // of the last one reached
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
  advance();
  return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (cudaStreamQuery(stream) == cudaErrorNotReady) sched_yield();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  enqueue(stream, [marks = event->marks, mark = event->marks->recorded] { return marks->reached >= mark; });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  enqueue(stream, [marks = event->marks, mark = ++event->marks->recorded] {
    marks->reached = mark;
    marks->when = std::chrono::steady_clock::now() + host_cuda::device().pretended;
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  advance();
  return event->marks->reached == event->marks->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  while (cudaEventQuery(event) == cudaErrorNotReady) sched_yield();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->marks->when - from->marks->when).count();
  return cudaSuccess;
}
