#include "core/cuda/profile_clock.h"

#include <nvtx3/nvToolsExt.h>

#include <vector>

#include "core/cuda_event.h"

namespace lyceum {

namespace {

class CudaClock : public ProfileClock {
 public:
  CudaClock(cudaStream_t stream, std::function<void(const std::function<bool()>&)> wait)
      : stream_(stream), wait_(std::move(wait)) {}

  std::size_t stamp() override {
    if (used_ == events_.size()) events_.emplace_back(CudaEvent::Timing::on);
    events_[used_].record(stream_);
    return used_++;
  }

  std::vector<double> times() override {
    std::vector<double> times(used_);
    if (used_) wait_([this] { return events_[used_ - 1].reached(); });
    // Sums intervals between neighbouring stamps: CUDA returns milliseconds as a float, which over a longer interval
    // could not resolve the time of a kernel.
    for (std::size_t i = 1; i < used_; ++i) times[i] = times[i - 1] + events_[i].seconds_since(events_[i - 1]);
    used_ = 0;
    return times;
  }

  void open(const char* name) override { nvtxRangePushA(name); }
  void close() override { nvtxRangePop(); }

 private:
  cudaStream_t stream_;
  std::function<void(const std::function<bool()>&)> wait_;
  std::vector<CudaEvent> events_;
  std::size_t used_ = 0;
};

}  // namespace

std::shared_ptr<ProfileClock> make_cuda_clock(CUstream_st* stream,
                                              std::function<void(const std::function<bool()>&)> wait) {
  return std::make_shared<CudaClock>(stream, std::move(wait));
}

}  // namespace lyceum
