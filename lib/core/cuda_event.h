#pragma once

#include "core/cuda_check.h"
#include "core/cuda_stream.h"

namespace lyceum {

/// A position in a stream's queue of work, for which the host or other streams can wait.
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

  /// Records the event after all work submitted to `stream` so far, replacing an earlier recording.
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Makes all work submitted to `stream` from now on wait for the event. Does nothing if the event was never recorded.
  void hold(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  /// Blocks the host until the event is reached. Returns at once for an event that was never recorded.
  void wait() const { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  /// True if all work before the event is done, or if the event was never recorded. Throws an Error if the device has
  /// failed.
  bool reached() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery");
    return true;
  }
  /// Returns the seconds from `earlier` to this event. Both need Timing::on and must have been reached.
  double seconds_since(const CudaEvent& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace lyceum
