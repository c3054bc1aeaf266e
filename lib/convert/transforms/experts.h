#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/transforms/recipe.h"
#include "io/checkpoint/checkpoint.h"
#include "io/routing/history.h"
#include "model/routing/mixture.h"
#include "model/routing/routing_statistics.h"

/// Changes of the routed experts of FFNs and of attention experts. All configurations are resolved. `site` names the
/// half of the blocks whose experts are changed.
namespace lyceum {

/// For each layer with experts of a site, one of all_blocks(): the old expert that each new one is a copy of, or
/// new_expert if it begins with initial values.
using ExpertOrigins = std::map<std::int64_t, std::vector<std::int64_t>>;
constexpr std::int64_t new_expert = -1;  // in ExpertOrigins: not a copy of an old expert

/// Throws a usage Error if the model has no routed experts at this site, or if their number cannot be changed:
/// moe.router = hash rules that out, and for FFNs moe.expert_sizes, moe.zero_experts and moe.copy_experts.
void require_changeable(const Config& source, Site site);
/// Returns origins with `count` new experts after the old ones in each layer of `layers`, and in the modules of
/// multi-token prediction if the last block of the model is one of these. Throws a usage Error if one of these layers
/// has no routed experts, and as require_changeable() does.
ExpertOrigins origins_with_insertions(const Config& source, Site site, std::int64_t count,
                                      const std::vector<std::int64_t>& layers);

/// Determines which experts are pruned: those with fewer tokens than `threshold` times those of the most used expert.
struct PruneRule {
  double threshold = 0;
  bool over_model = false;  // compare with the most used expert of all layers, not of the same layer
  std::int64_t keep = 1;    // number of most used experts that are kept in each layer in any case
};
/// For each layer with experts of a site: the number of tokens of each expert.
using ExpertTokens = std::map<std::int64_t, std::vector<std::int64_t>>;
/// Returns origins with the experts that remain. `tokens` must have all layers with experts of the site. Throws as
/// require_changeable() does.
ExpertOrigins origins_after_pruning(const Config& source, Site site, const ExpertTokens& tokens, const PruneRule& rule);
/// Returns the sums over all records and choices of a log. `file` is its name for messages. `blocks`: all_blocks() of
/// the checkpoint; the log may also have those that `source` leaves out, modules of multi-token prediction. Throws a
/// bad_input Error if the log is of another model or a layer has no tokens, and as require_changeable() does.
ExpertTokens tokens_of_experts(const Config& source, Site site, std::int64_t blocks, const RoutingHistory& history,
                               const std::string& file);
/// Returns the sums over all choices of an evaluation, of the experts of one site. `routing` must be summed over all
/// ranks. Does not throw if a layer has no tokens or the routing is of another model.
ExpertTokens tokens_of_experts(const std::vector<RoutingSums>& routing, Site site);

/// Sets moe.experts and moe.experts_of_layers, or attention_experts.count and attention_experts.count_of_layers, to the
/// numbers of experts in `origins`. If layers differ, the first key of these has the largest number.
void set_experts(Config& config, Site site, const ExpertOrigins& origins);
/// Returns the keys that set_experts() sets.
std::array<const char*, 2> keys_of_experts(Site site);
/// Returns the experts of this site in a layer; nothing if it has none.
std::optional<Mixture> experts_at(const Config& config, const MixtureId& id);
/// Returns the sources of the tensors of all experts of the new model, and of their routers. `target` is the new
/// configuration.
SpecialParts rearranged_experts(const Config& target, Site site, const ExpertOrigins& origins);

/// For each expert, the units (of the width of a dense FFN) that it has, in order.
using FfnParts = std::vector<std::vector<std::int64_t>>;
/// Returns the units of experts that are slices of copies of an FFN: the `slices` equal, contiguous slices of the first
/// copy, then those of the second, and so on. `width` is the width of the FFN, a multiple of `slices`.
FfnParts copies_in_slices(std::int64_t width, std::int64_t copies, std::int64_t slices);

/// How dense FFNs are cut into experts.
struct FfnCut {
  std::map<std::int64_t, FfnParts> layers;  // by layer
  float output_scale = 1;                   // factor of what an expert computes: of down_proj and its bias
  /// Number of consecutive experts that begin with the same row of the router, so that a token chooses all or none of
  /// them.
  std::int64_t slices = 1;
};
/// Returns the sources of the tensors of the experts and of their routers, which begin with initial values. `target` is
/// the new configuration.
SpecialParts experts_of_ffns(const Config& target, const FfnCut& cut);

}  // namespace lyceum
