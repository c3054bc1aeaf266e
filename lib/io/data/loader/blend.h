#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace lyceum {

/// The order in which the samples of a mixture are taken from its sources. Sample n is taken from the source with the
/// largest weight · max(n, 1) − samples taken so far, and from the first of equal ones. So in every prefix of the
/// order, the number of samples of each source is within one or two of its share. The same as the blending index of
/// Megatron-LM (helpers.cpp, build_blending_indices).
class Blend {
 public:
  /// `weights`: one per source, positive. They are divided by their sum.
  explicit Blend(std::vector<double> weights);

  /// A sample of the mixture: the index-th sample of a source.
  struct Sample {
    std::size_t source;
    std::int64_t index;  // among the samples of the source, from 0
    bool operator==(const Sample&) const = default;
  };
  /// Returns the source of a sample. The result depends only on the weights and `sample`. Fast if successive calls are
  /// close to each other: the first call at n computes all samples before it, each in a time that is proportional to
  /// the number of sources (some nanoseconds for ten sources, a microsecond for a thousand). Any thread may call.
  Sample at(std::int64_t sample) const;
  /// Returns the number of samples that are taken from each source before sample `sample`.
  std::vector<std::int64_t> taken(std::int64_t sample) const;
  const std::vector<double>& weights() const { return weights_; }

 private:
  static constexpr std::int64_t block_samples = 1 << 16;
  std::vector<std::int64_t> take_block(std::int64_t block, std::vector<Sample>* samples) const;
  void load_block(std::int64_t block) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<std::int64_t>> taken_;  // samples of each source before each block of samples
  mutable std::int64_t block_ = -1;                       // the block whose samples are in samples_
  mutable std::vector<Sample> samples_;
};

}  // namespace lyceum
