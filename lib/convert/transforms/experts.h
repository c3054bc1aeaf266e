#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convert/transforms/recipe.h"
#include "io/checkpoint/checkpoint.h"
#include "io/routing/history.h"
#include "model/routing/routing_statistics.h"

/// Changes of the routed experts of FFNs. Configurations are resolved.
namespace lyceum {

/// Which of a layer's old experts each of its new ones is; new_expert: none, it begins with initial values.
using ExpertOrigins = std::map<std::int64_t, std::vector<std::int64_t>>;
constexpr std::int64_t new_expert = -1;

/// Throws a usage Error for a model without routed experts, and for one whose experts cannot change in number.
void require_changeable(const Config& source);
/// Those where each layer of `layers` that routes gets `count` experts behind its own. Throws a usage Error where a
/// layer of them does not route, and unless require_changeable() lets them.
ExpertOrigins with_inserted(const Config& source, std::int64_t count, const std::vector<std::int64_t>& layers);

/// What pruning goes by: an expert goes where its tokens are fewer than `threshold` times those of the most used one.
struct PruneRule {
  double threshold = 0;
  bool over_model = false;  // the most used one of all layers, else of its own
  std::int64_t keep = 1;    // most used experts that stay in each layer in any case
};
/// Tokens that each expert took, of each layer that routes.
using ExpertTokens = std::map<std::int64_t, std::vector<std::int64_t>>;
/// Those that stay. Throws likewise.
ExpertOrigins with_pruned(const Config& source, const ExpertTokens& tokens, const PruneRule& rule);
/// Over all records and choices of a log. Throws a bad_input Error where it is not of this model.
ExpertTokens tokens_of_experts(const Config& source, const RoutingHistory& history, const std::string& file);
/// Over the choices of a measurement of this model.
ExpertTokens tokens_of_experts(const std::vector<RoutingSums>& routing);

/// The configuration with as many experts, and what is special about their tensors and their routers'.
void set_experts(Config& config, const ExpertOrigins& origins);
SpecialParts rearranged_experts(const Config& target, const ExpertOrigins& origins);

/// Units of a dense FFN's width that each expert has, in their order.
using FfnParts = std::vector<std::vector<std::int64_t>>;
/// `copies` times all of a width in `slices` runs: the slices of the first copy, those of the second …
FfnParts copies_in_slices(std::int64_t width, std::int64_t copies, std::int64_t slices);

/// Dense FFNs that become experts.
struct FfnCut {
  std::map<std::int64_t, FfnParts> layers;
  float down_scale = 1;     // of the matrix behind the activation
  std::int64_t slices = 1;  // so many neighbours begin with one row of the router: a token's choices are whole copies
};
/// What is special about the experts and their routers, whose values are drawn.
SpecialParts experts_of_ffns(const Config& target, const FfnCut& cut);

}  // namespace lyceum
