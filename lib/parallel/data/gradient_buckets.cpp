#include "parallel/data/gradient_buckets.h"

#include <algorithm>

namespace lyceum {
namespace {

/// Sums that run at the same time: enough that one is always moving data, and their scratch memory stays small.
constexpr std::size_t most_under_way = 4;

}  // namespace

GradientBuckets::GradientBuckets(std::vector<Tensor> gradients, const ProcessGroup& group, std::size_t bucket_bytes)
    : gradients_(std::move(gradients)),
      ready_(gradients_.size(), false),
      group_(group.split(0, group.rank(), group.name() + " gradients")) {
  for (std::size_t unit = gradients_.size(); unit-- > 0;) {
    const Tensor& values = gradients_[unit];
    require(values.defined() && (values.dtype() == DType::f32 || values.dtype() == DType::f64),
            "gradients of unit {} are {}: only f32 and f64 are summed", unit,
            values.defined() ? name_of(values.dtype()) : "undefined");
    const std::size_t width = size_of(values.dtype());
    require(bucket_bytes >= width, "a bucket of {} B holds no {}", bucket_bytes, name_of(values.dtype()));
    const auto most = static_cast<std::int64_t>(bucket_bytes / width);
    for (std::int64_t first = 0; first < values.size(); first += most) {
      buckets_.push_back({unit, values.view(first, {std::min(most, values.size() - first)})});
    }
  }
}

void GradientBuckets::ready(std::size_t unit) {
  require(unit < units(), "gradients of unit {} are ready: there are {} units", unit, units());
  require(!ready_[unit], "gradients of unit {} became ready a second time in one step", unit);
  ready_[unit] = true;
  progress();
}

void GradientBuckets::progress() {
  while (!under_way_.empty() && under_way_.front().test()) under_way_.pop_front();
  start_what_may();
}

void GradientBuckets::start_what_may() {
  if (group_.size() == 1) return;
  while (started_ < buckets_.size() && under_way_.size() < most_under_way && ready_[buckets_[started_].unit]) {
    under_way_.push_back(group_.all_reduce_async(buckets_[started_++].values));
  }
}

void GradientBuckets::finish() {
  for (std::size_t unit = 0; unit < units(); ++unit) {
    require(ready_[unit], "gradients of unit {} of {} never became ready in this step", unit, units());
  }
  start_what_may();
  while (!under_way_.empty()) {
    under_way_.front().wait();
    under_way_.pop_front();
    start_what_may();
  }
  started_ = 0;
  ready_.assign(units(), false);
}

}  // namespace lyceum
