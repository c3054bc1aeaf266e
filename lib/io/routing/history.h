#pragma once

#include "io/routing/log.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// A whole routing log in memory.
struct RoutingHistory {
  std::vector<std::int64_t> steps;
  struct Layer {
    MixtureId id;
    std::int64_t top_k, experts;
    std::vector<std::int64_t> expert_sizes, expert_rank;
    std::vector<std::int64_t> counts;     // [S, top_k, experts]
    std::vector<float> mean_probability;  // [S, experts]
    std::vector<float> mean_entropy{};    // [S]; none in an older file
    std::vector<StepBalance> steps{};     // [S]; none in an older file
    bool drops = false;
    std::int64_t always_on = 0;
    std::vector<std::int64_t> dropped{};  // [S, top_k, experts] if it drops, else empty
  };
  std::vector<Layer> layers;  // in the order of forward
};
/// Throws a bad_input Error that names the file and what is wrong with it.
RoutingHistory read_routing(const std::filesystem::path& file);

}  // namespace lyceum
