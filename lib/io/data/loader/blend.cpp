#include "io/data/loader/blend.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace lyceum {

Blend::Blend(std::vector<double> weights) : weights_(std::move(weights)) {
  require(!weights_.empty() && std::ranges::all_of(weights_, [](double w) { return w > 0; }),
          "a mixture of {} sources must have at least one source and only positive weights", weights_.size());
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& weight : weights_) weight /= sum;
  taken_.emplace_back(weights_.size(), 0);
}

/// Returns how many samples of each source are taken up to the end of a block. Appends the samples of the block to
/// `samples` unless it is null.
std::vector<std::int64_t> Blend::take_block(std::int64_t block, std::vector<Sample>* samples) const {
  std::vector<std::int64_t> taken = taken_[static_cast<std::size_t>(block)];
  for (std::int64_t sample = block * block_samples; sample < (block + 1) * block_samples; ++sample) {
    std::size_t source = 0;
    double largest = 0;
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      // Volatile prevents the compiler from fusing the product with the subtraction, which would round differently on
      // other processors.
      const volatile double wanted = weights_[s] * static_cast<double>(std::max<std::int64_t>(sample, 1));
      const double lacking = wanted - static_cast<double>(taken[s]);
      if (s == 0 || lacking > largest) {
        source = s;
        largest = lacking;
      }
    }
    if (samples) samples->push_back({source, taken[source]});
    ++taken[source];
  }
  return taken;
}

/// Makes samples_ those of a block. The caller holds the lock.
void Blend::load_block(std::int64_t block) const {
  if (block == block_) return;
  while (std::ssize(taken_) <= block) taken_.push_back(take_block(std::ssize(taken_) - 1, nullptr));
  samples_.clear();
  take_block(block, &samples_);
  block_ = block;
}

Blend::Sample Blend::at(std::int64_t sample) const {
  require(sample >= 0, "a mixture has no sample {}", sample);
  const std::lock_guard lock(mutex_);
  load_block(sample / block_samples);
  return samples_[static_cast<std::size_t>(sample % block_samples)];
}

std::vector<std::int64_t> Blend::taken(std::int64_t sample) const {
  require(sample >= 0, "a mixture has no sample {}", sample);
  const std::lock_guard lock(mutex_);
  load_block(sample / block_samples);
  std::vector<std::int64_t> taken = taken_[static_cast<std::size_t>(sample / block_samples)];
  for (std::int64_t each = 0; each < sample % block_samples; ++each) {
    ++taken[samples_[static_cast<std::size_t>(each)].source];
  }
  return taken;
}

}  // namespace lyceum
