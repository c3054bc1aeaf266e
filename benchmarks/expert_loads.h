#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lyceum {

/// How often tokens choose the experts of some layers, as it changes from one micro-batch to the next. For benchmarks
/// of expert parallelism.
struct RoutingLoad {
  std::string name;
  std::int64_t top_k, layers;
  bool by_step;               // tokens() is the load of a whole step, the same for all of its micro-batches
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

/// The records of a routing log that are used.
struct LogWindow {
  std::int64_t first;        // the record that is step 0
  std::int64_t past, steps;  // steps before it, and from it on
};

/// Returns the load of a routing log (routing.h5), whose records are steps. At most `layers` routers of FFNs are used,
/// the first ones. Throws a usage Error if the log has not all records of `window`, and a bad_input Error if the file
/// cannot be read, or if its layers differ in experts or top_k.
RoutingLoad logged_load(const std::filesystem::path& file, const LogWindow& window, std::int64_t layers);

}  // namespace lyceum
