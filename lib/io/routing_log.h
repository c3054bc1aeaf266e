#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// One MoE layer's routing since the last record, over the whole global batch.
struct LayerRouting {
  std::int64_t layer = 0;                // index in the model
  std::int64_t top_k = 0, experts = 0;
  std::vector<std::int64_t> counts;      // [top_k, experts]: tokens whose k-th choice is that expert
  std::vector<float> mean_probability;   // [experts]
};

/// `routing.h5` as a run writes it: /step [S], /layers/LLL/counts [S, top_k, experts],
/// /layers/LLL/mean_probability [S, experts]; dimension scales, units, attributes expert_sizes, expert_rank.
/// The file is closed between records, so a killed run leaves a readable file. One rank owns it.
class RoutingLog {
 public:
  struct Layer {
    std::int64_t layer;
    std::int64_t top_k;
    std::vector<std::int64_t> expert_sizes;  // width of each routed expert
    std::vector<std::int64_t> expert_rank;   // expert-parallel rank that holds it
  };
  /// Opens or creates; records of steps after `resume_step` are cut off (a resumed run writes them again).
  RoutingLog(std::filesystem::path file, std::vector<Layer> layers, std::int64_t resume_step);
  void append(std::int64_t step, std::span<const LayerRouting> layers);

 private:
  std::filesystem::path file_;
  std::vector<Layer> layers_;
};

/// The whole file in memory.
struct RoutingHistory {
  std::vector<std::int64_t> steps;
  struct Layer {
    std::int64_t layer, top_k, experts;
    std::vector<std::int64_t> expert_sizes, expert_rank;
    std::vector<std::int64_t> counts;     // [S, top_k, experts]
    std::vector<float> mean_probability;  // [S, experts]
  };
  std::vector<Layer> layers;
};
/// Throws a bad_input Error that names the file and what is wrong with it.
RoutingHistory read_routing(const std::filesystem::path& file);

}  // namespace lyceum
