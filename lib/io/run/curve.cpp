#include "io/run/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lyceum {

namespace {

constexpr double bin_ratio = 1.005;

}  // namespace

void RunCurve::add(const CurvePoint& point) {
  using Wide = __int128;  // differences of steps may exceed 64 bits
  const Wide steps = Wide{last_} - first_ + 1, position = Wide{point.step} - first_;
  const auto index =
      static_cast<std::int64_t>(std::clamp<Wide>(position * most_buckets / steps, 0, Wide{most_buckets} - 1));
  if (buckets_.empty() || buckets_.back().index < index)
    buckets_.push_back({.index = index, .first = point, .last = point});
  Bucket& bucket = buckets_.back();
  bucket.last = point;
  ++bucket.count;
  if (!std::isfinite(point.value)) {
    if (!bucket.not_finite) bucket.not_finite = point;
    return;
  }
  ++bucket.finite;
  bucket.sum += point.value;
  if (!bucket.lowest || point.value < bucket.lowest->value) bucket.lowest = point;
  if (!bucket.highest || point.value > bucket.highest->value) bucket.highest = point;
}

std::vector<CurvePoint> RunCurve::points() const {
  std::vector<CurvePoint> kept;
  for (const Bucket& bucket : buckets_) {
    std::vector<CurvePoint> of_bucket{bucket.first, bucket.last};
    for (const auto& point : {bucket.lowest, bucket.highest, bucket.not_finite}) {
      if (point) of_bucket.push_back(*point);
    }
    std::ranges::sort(of_bucket, {}, &CurvePoint::step);
    const auto repeated = std::ranges::unique(of_bucket, {}, &CurvePoint::step);
    kept.insert(kept.end(), of_bucket.begin(), repeated.begin());
  }
  return kept;
}

std::vector<CurvePoint> RunCurve::means() const {
  std::vector<CurvePoint> means;
  for (const Bucket& bucket : buckets_) {
    CurvePoint point = bucket.last;
    point.value =
        bucket.finite > 0 ? bucket.sum / static_cast<double>(bucket.finite) : std::numeric_limits<double>::quiet_NaN();
    means.push_back(point);
  }
  return means;
}

bool RunCurve::thinned() const {
  return std::ranges::any_of(buckets_, [](const Bucket& bucket) { return bucket.count > 1; });
}

void ApproximateMedian::add(double value) {
  if (!(value > 0) || !std::isfinite(value)) return;
  ++counts_[static_cast<int>(std::floor(std::log(value) / std::log(bin_ratio)))];
  ++count_;
}

std::optional<double> ApproximateMedian::value() const {
  std::int64_t below = 0;
  for (const auto& [bin, count] : counts_) {
    below += count;
    if (2 * below >= count_) return std::pow(bin_ratio, bin + 0.5);
  }
  return std::nullopt;
}

void FiniteMean::add(double value) {
  ++count_;
  if (!std::isfinite(value)) return;
  ++finite_;
  sum_ += value;
}

std::optional<double> FiniteMean::value() const {
  if (count_ == 0) return std::nullopt;
  return finite_ > 0 ? sum_ / static_cast<double>(finite_) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lyceum
