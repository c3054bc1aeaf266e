#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace lyceum {

/// Which source of a mixture each sample is taken from: sample n is of the source with the largest
/// weight · max(n, 1) − samples taken so far, the first one of equals. So every prefix of the order has the weights
/// up to a sample or two. The blending index of Megatron-LM (helpers.cpp, build_blending_indices).
class Blend {
 public:
  /// `weights`: positive; divided by their sum.
  explicit Blend(std::vector<double> weights);

  struct Place {
    std::size_t source;
    std::int64_t index;  // of the source's samples, counted from 0 on
    bool operator==(const Place&) const = default;
  };
  /// A pure function. Fast where calls are near each other; a first call at n makes all before it, about a nanosecond
  /// each. Any thread may call.
  Place at(std::int64_t sample) const;
  const std::vector<double>& weights() const { return weights_; }

 private:
  static constexpr std::int64_t block_samples = 1 << 16;
  std::vector<std::int64_t> take_block(std::int64_t block, std::vector<Place>* places) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<std::int64_t>> taken_;  // of each source, before each block of samples
  mutable std::int64_t block_ = -1;                       // whose samples are in places_
  mutable std::vector<Place> places_;
};

}  // namespace lyceum
