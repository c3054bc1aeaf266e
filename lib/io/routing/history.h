#pragma once

#include "io/routing/log.h"
#include "io/routing/mixture_id.h"

namespace lyceum {

/// The contents of a routing log (see RoutingLog), with S records.
struct RoutingHistory {
  std::vector<std::int64_t> steps;  // [S]: the last step of each record, ascending
  /// The records of one router.
  struct Layer {
    MixtureId id;
    std::int64_t top_k, experts;
    std::vector<std::int64_t> expert_sizes, expert_rank;
    std::vector<std::int64_t> counts;     // [S, top_k, experts]
    std::vector<float> mean_probability;  // [S, experts]
    std::vector<float> mean_entropy{};    // [S], nats; empty for an older file
    std::vector<StepBalance> steps{};     // [S]; empty for an older file
    bool drops = false;                   // capacity is limited, so `dropped` is recorded
    std::int64_t always_on = 0;
    std::vector<std::int64_t> dropped{};  // [S, top_k, experts] if `drops`, else empty
  };
  std::vector<Layer> layers;  // in forward order
};
/// Reads and checks a routing log. Throws a bad_input Error that names the file and the problem.
RoutingHistory read_routing(const std::filesystem::path& file);

}  // namespace lyceum
