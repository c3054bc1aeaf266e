#pragma once

#include "core/cuda_check.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// A place in a stream's queue that others can wait for.
class CudaEvent {
 public:
  enum class Timing { off, on };
  explicit CudaEvent(Timing timing = Timing::off) {
    check(cudaEventCreateWithFlags(&event_, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreate");
  }
  ~CudaEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  CudaEvent& operator=(CudaEvent&&) = delete;

  /// Moves the event to the present end of the queue.
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Work that `stream` gets from now on starts after the event.
  void hold(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  /// The host waits. Returns at once for an event that was never recorded.
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  bool reached() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery");
    return true;
  }
  /// From `earlier` to this event; both recorded with timing, and reached.
  double seconds_since(const CudaEvent& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lyceum
