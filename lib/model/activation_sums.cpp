#include "model/activation_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace lyceum {

namespace {

constexpr std::size_t window = longest_window, shared_counts = shared_window + 1;

/// Returns the number of windows of `tokens` consecutive tokens in a sequence.
double windows_in(std::int64_t seq_len, std::int64_t tokens) {
  return static_cast<double>(std::max<std::int64_t>(seq_len - tokens + 1, 0));
}

}  // namespace

ActivationSums::ActivationSums(std::int64_t hidden)
    : hidden_(hidden),
      numbers_(2 * static_cast<std::size_t>(hidden) + high_parts.size() * (window + shared_counts) + 1, 0.0),
      magnitude_(static_cast<std::size_t>(hidden)),
      sorted_(magnitude_.size()),
      high_length_(high_parts.size() * magnitude_.size()),
      recently_high_(high_length_.size()) {}

ActivationSums::Views ActivationSums::views() {
  std::span<double> left = numbers_;
  const auto next = [&](std::size_t count) {
    const std::span<double> part = left.first(count);
    left = left.subspan(count);
    return part;
  };
  const std::span<double> magnitude = next(magnitude_.size()), top_share = next(magnitude_.size());
  const std::span<double> lengths = next(high_parts.size() * window), shared = next(high_parts.size() * shared_counts);
  return {.magnitude = magnitude, .top_share = top_share, .lengths = lengths, .shared = shared, .median = left.front()};
}

void ActivationSums::add_token(std::span<const float> magnitude) {
  std::ranges::copy(magnitude, sorted_.begin());
  std::ranges::sort(sorted_, std::greater());
  const Views sums = views();
  const double all = std::accumulate(sorted_.begin(), sorted_.end(), 0.0);
  double held = 0;
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    held += double{sorted_[i]};
    sums.magnitude[i] += double{magnitude[i]};
    sums.top_share[i] += all > 0 ? held / all : static_cast<double>(i + 1) / static_cast<double>(hidden_);
  }
  const std::size_t middle = sorted_.size() / 2;
  sums.median += sorted_.size() % 2 ? double{sorted_[middle]} : (double{sorted_[middle - 1]} + sorted_[middle]) / 2;
}

void ActivationSums::add_high(std::span<const float> magnitude, std::int64_t position) {
  constexpr auto all_recent = static_cast<std::uint8_t>((1 << shared_window) - 1);
  const Views sums = views();
  for (std::size_t q = 0; q < high_parts.size(); ++q) {
    const float least = sorted_[static_cast<std::size_t>(dimensions_of(high_parts[q], hidden_)) - 1];
    for (std::size_t i = 0; i < magnitude.size(); ++i) {
      const bool high = magnitude[i] > 0 && magnitude[i] >= least;
      std::uint8_t& length = high_length_[q * magnitude.size() + i];
      std::uint8_t& recent = recently_high_[q * magnitude.size() + i];
      length = high ? static_cast<std::uint8_t>(std::min<std::size_t>(length + 1u, window)) : std::uint8_t{0};
      recent = static_cast<std::uint8_t>((recent << 1 | (high ? 1 : 0)) & all_recent);
      if (high) sums.lengths[q * window + length - 1] += 1;
      if (position + 1 >= shared_window) {
        sums.shared[q * shared_counts + static_cast<std::size_t>(std::popcount(recent))] += 1;
      }
    }
  }
}

void ActivationSums::add(std::span<const float> x, std::int64_t seq_len) {
  const std::size_t hidden = magnitude_.size();
  for (std::size_t first = 0; first + hidden <= x.size(); first += hidden) {
    const std::int64_t position = static_cast<std::int64_t>(first / hidden) % seq_len;
    if (position == 0) {
      std::ranges::fill(high_length_, std::uint8_t{0});
      std::ranges::fill(recently_high_, std::uint8_t{0});
    }
    std::ranges::transform(x.subspan(first, hidden), magnitude_.begin(), [](float value) { return value * value; });
    require(std::ranges::all_of(magnitude_, [](float value) { return std::isfinite(value); }),
            "an activation is not finite: check the loss of this checkpoint with lyceum eval");
    add_token(magnitude_);
    add_high(magnitude_, position);
  }
}

ActivationFlow::Values ActivationSums::means(const MixtureId& id, bool output, std::int64_t samples,
                                             std::int64_t seq_len) const {
  ActivationSums sums = *this;
  const Views all = sums.views();
  const auto sequences = static_cast<double>(samples);
  const auto over = [](std::span<const double> part, double count) {
    std::vector<double> means(part.begin(), part.end());
    for (double& mean : means) mean = count > 0 ? mean / count : std::numeric_limits<double>::quiet_NaN();
    return means;
  };
  const double tokens = sequences * static_cast<double>(seq_len);
  ActivationFlow::Values values{.id = id,
                                .output = output,
                                .magnitude = over(all.magnitude, tokens),
                                .median = all.median / tokens,
                                .top_share = over(all.top_share, tokens),
                                .common = {},
                                .shared = over(all.shared, sequences * windows_in(seq_len, shared_window)),
                                .run = {}};
  for (std::size_t q = 0; q < high_parts.size(); ++q) {
    const std::span<double> lengths = all.lengths.subspan(q * window, window);
    const double ranges = lengths[0];  // every range of high tokens has exactly one first token
    values.run.push_back(std::accumulate(lengths.begin(), lengths.end(), 0.0) / ranges);
    // A dimension is high in all tokens of a window of w if it is high for the w-th time or more in a row at the
    // window's last token. So the counts from w on are added up.
    std::partial_sum(lengths.rbegin(), lengths.rend(), lengths.rbegin());
    for (std::size_t w = 0; w < window; ++w) {
      const double count = sequences * windows_in(seq_len, static_cast<std::int64_t>(w) + 1);
      values.common.push_back(over(lengths.subspan(w, 1), count).front());
    }
  }
  return values;
}

}  // namespace lyceum
