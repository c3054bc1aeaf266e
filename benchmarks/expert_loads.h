#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// How often tokens choose the experts of some layers, as it changes from one micro-batch to the next. For benchmarks
/// of expert parallelism.
struct RoutingLoad {
  std::string name;
  std::int64_t top_k, layers;
  std::vector<double> sizes;  // [experts]: width of each expert, in any unit
  /// Returns the relative number of tokens that choose each expert [experts] in one layer. Steps before 0 are the past
  /// of a measurement.
  std::function<std::vector<double>(std::int64_t layer, std::int64_t step, std::int64_t micro_batch)> tokens;

  std::int64_t experts() const { return static_cast<std::int64_t>(sizes.size()); }
  double mean_size() const;
};

/// The sizes of a load by a formula.
struct LoadShape {
  std::int64_t experts, top_k, layers, micro_batches;  // micro-batches per step
};

/// Returns a load with Zipf's law: the i-th most popular expert of a layer has i^-exponent times the tokens of the most
/// popular one. Each layer has its own order of popularity, which drifts: after `drift` micro-batches, every expert
/// rises one place, and the first one becomes the last. An exponent of 0 is an even load. `uneven`: the experts
/// have the widths of MoDSE's pairs of a wide and a narrow expert; `experts` must be a multiple of 8.
RoutingLoad zipf_load(const LoadShape& shape, double exponent, std::int64_t drift, bool uneven);

/// Returns the load of a routing log (routing.h5), whose records are steps: record `first` is step 0. The micro-batches
/// of a step have the counts of their step. At most `layers` routers of FFNs are used, the first ones. After the last
/// record, and before the first one, the load is that of the nearest record. Throws a bad_input Error if the file
/// cannot be read, or if its layers differ in experts or top_k.
RoutingLoad logged_load(const std::filesystem::path& file, std::int64_t first, std::int64_t layers);

/// Returns the numbers of tokens that choose each expert [experts], in proportion to `relative`, for `tokens` tokens
/// that choose `top_k` different experts each: they add up to tokens · top_k, and none exceeds `tokens`. Rounded by the
/// largest remainder. Throws an Error unless at least `top_k` experts have relative numbers above 0.
std::vector<std::int64_t> exact_counts(std::span<const double> relative, std::int64_t tokens, std::int64_t top_k);

/// Returns choices of experts with exactly these counts, which are as exact_counts() returns them: [tokens, top_k] for
/// the tokens [first, first + tokens) of all. Which tokens choose which experts is random, and determined by `purpose`.
std::vector<std::int32_t> choices_with(std::span<const std::int64_t> counts, std::int64_t top_k, std::int64_t first,
                                       std::int64_t tokens, const std::string& purpose);

}  // namespace lyceum
