#include "core/cuda/clock.h"

#include <nvtx3/nvToolsExt.h>

#include <vector>

#include "core/cuda_event.h"

namespace lyceum {

namespace {

class CudaClock : public ProfileClock {
 public:
  explicit CudaClock(cudaStream_t stream) : stream_(stream) {}

  std::size_t stamp() override {
    if (used_ == events_.size()) events_.emplace_back(CudaEvent::Timing::on);
    events_[used_].record(stream_);
    return used_++;
  }

  std::vector<double> times() override {
    std::vector<double> times(used_);
    if (used_) events_[used_ - 1].wait();
    // From stamp to stamp: a float of milliseconds since the first one would lose what a kernel takes.
    for (std::size_t i = 1; i < used_; ++i) times[i] = times[i - 1] + events_[i].seconds_since(events_[i - 1]);
    used_ = 0;
    return times;
  }

  void open(const char* name) override { nvtxRangePushA(name); }
  void close() override { nvtxRangePop(); }

 private:
  cudaStream_t stream_;
  std::vector<CudaEvent> events_;
  std::size_t used_ = 0;
};

}  // namespace

std::shared_ptr<ProfileClock> make_cuda_clock(CUstream_st* stream) { return std::make_shared<CudaClock>(stream); }

}  // namespace lyceum
