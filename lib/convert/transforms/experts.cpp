#include "convert/transforms/experts.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "model/ffn/dense.h"
#include "model/routing/mixture.h"
#include "model/routing/router.h"
#include "model/sublayer_spec.h"

namespace lyceum {

namespace {

/// Builds the names of the tensors of a half of a block.
class HalfNames {
 public:
  HalfNames(const ModelConfig& model, const MixtureId& id)
      : prefix_(half_prefix(block_prefix(model, id.layer), id.site) + "/") {}
  std::string of(const SublayerTensor& tensor) const { return prefix_ + tensor.name; }
  std::string of_expert(std::int64_t expert, const SublayerTensor& tensor) const {
    return prefix_ + expert_tensor_name(expert, tensor.name);
  }

 private:
  std::string prefix_;
};

/// Returns the sources of the rows of a router's tensor. Consecutive old experts make one part, and consecutive new
/// ones.
std::vector<RowSource> rows_by_origin(const std::string& tensor, const std::vector<std::int64_t>& origins) {
  std::vector<RowSource> parts;
  for (std::size_t e = 0; e < origins.size(); ++e) {
    const bool fresh = origins[e] == new_expert;
    if (parts.empty() || parts.back().tensor.empty() != fresh) {
      parts.push_back({.tensor = fresh ? "" : tensor, .pick = Pick{}});
    }
    parts.back().pick->indices.push_back(fresh ? static_cast<std::int64_t>(e) : origins[e]);
  }
  return parts;
}

/// Returns the routed experts of every layer that has some at this site. Throws a usage Error if their number cannot be
/// changed.
std::map<std::int64_t, Mixture> changeable_experts(const Config& source, Site site) {
  require_usage(source.moe.router != RouterKind::hash,
                "moe.router = hash: with another number of experts every token would go to a different one");
  if (site == Site::ffn) {
    require_usage(source.moe.expert_sizes.empty(),
                  "moe.expert_sizes: experts of different widths can be neither inserted nor pruned");
    require_usage(source.moe.zero_experts == 0 && source.moe.copy_experts == 0,
                  "moe.zero_experts and moe.copy_experts: no experts can be inserted or pruned next to experts without "
                  "weights");
  }
  std::map<std::int64_t, Mixture> layers;
  for (std::int64_t layer = 0; layer < all_blocks(source); ++layer) {
    if (std::optional<Mixture> experts = experts_at(source, {layer, site})) layers.emplace(layer, std::move(*experts));
  }
  require_usage(!layers.empty(), "the model has no routed experts {}",
                site == Site::ffn ? "(moe.experts = 0)" : "in its attention (model.attention is not moa)");
  return layers;
}

/// Returns the counts [top_k, experts] of one layer, summed over the choices.
std::vector<std::int64_t> over_choices(const std::vector<std::int64_t>& counts, std::int64_t experts) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(experts));
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % sums.size()] += counts[i];
  return sums;
}

}  // namespace

std::optional<Mixture> experts_at(const Config& config, const MixtureId& id) {
  return id.site == Site::ffn ? routed_experts(config, id.layer) : attention_experts(config, id.layer);
}

void require_changeable(const Config& source, Site site) { changeable_experts(source, site); }

ExpertOrigins origins_with_insertions(const Config& source, Site site, std::int64_t count,
                                      const std::vector<std::int64_t>& layers) {
  const std::map<std::int64_t, Mixture> routed = changeable_experts(source, site);
  ExpertOrigins origins;
  for (const auto& [layer, experts] : routed) origins[layer] = numbers_from(0, experts.choices());
  for (const std::int64_t layer : layers) {
    const auto found = origins.find(layer);
    require_usage(found != origins.end(), "layer {} has no routed experts, so none can be inserted", layer);
    found->second.insert(found->second.end(), static_cast<std::size_t>(count), new_expert);
  }
  // The blocks of modules have as many experts as the last block.
  for (auto& [layer, experts] : origins) {
    if (layer >= source.model.layers) experts.resize(origins.at(source.model.layers - 1).size(), new_expert);
  }
  return origins;
}

ExpertOrigins origins_after_pruning(const Config& source, Site site, const ExpertTokens& tokens,
                                    const PruneRule& rule) {
  std::int64_t most_of_model = 0;
  for (const auto& [layer, counts] : tokens) most_of_model = std::max(most_of_model, std::ranges::max(counts));
  ExpertOrigins origins;
  for (const auto& [layer, experts] : changeable_experts(source, site)) {
    const std::vector<std::int64_t>& counts = tokens.at(layer);
    const auto most = static_cast<double>(rule.over_model ? most_of_model : std::ranges::max(counts));
    std::vector<std::int64_t> order = numbers_from(0, experts.choices());  // the most used expert first
    std::ranges::stable_sort(order, std::greater(), [&](auto e) { return counts[static_cast<std::size_t>(e)]; });
    std::vector<std::int64_t>& kept = origins[layer];
    for (const std::int64_t e : order) {
      const auto used = static_cast<double>(counts[static_cast<std::size_t>(e)]);
      if (std::ssize(kept) < rule.keep || used >= rule.threshold * most) kept.push_back(e);
    }
    std::ranges::sort(kept);
  }
  return origins;
}

ExpertTokens tokens_of_experts(const std::vector<RoutingSums>& routing, Site site) {
  ExpertTokens tokens;
  for (const RoutingSums& sums : routing) {
    if (sums.id.site == site) tokens[sums.id.layer] = over_choices(sums.counts, sums.experts);
  }
  return tokens;
}

ExpertTokens tokens_of_experts(const Config& source, Site site, std::int64_t blocks, const RoutingHistory& history,
                               const std::string& file) {
  ExpertTokens tokens;
  for (const auto& [layer, experts] : changeable_experts(source, site)) {
    const std::string label = label_of(experts.id);
    const auto log = std::ranges::find(history.layers, experts.id, &RoutingHistory::Layer::id);
    require_input(log != history.layers.end(), "{}: has no layer {}, where the checkpoint's model has experts", file,
                  label);
    require_input(log->experts == experts.choices(), "{}: has {} experts in layer {}, the checkpoint's model has {}",
                  file, log->experts, label, experts.choices());
    std::vector<std::int64_t>& counts = tokens[layer];
    counts = over_choices(log->counts, log->experts);
    require_input(std::ranges::max(counts) > 0, "{}: no token was routed in layer {}", file, label);
  }
  for (const RoutingHistory::Layer& layer : history.layers) {
    const bool left_out = layer.id.layer >= source.model.layers && layer.id.layer < blocks;
    require_input(layer.id.site != site || left_out || tokens.contains(layer.id.layer),
                  "{}: has experts in layer {}, the checkpoint's model has none", file, label_of(layer.id));
  }
  return tokens;
}

std::array<const char*, 2> keys_of_experts(Site site) {
  if (site == Site::ffn) return {"moe.experts", "moe.experts_of_layers"};
  return {"attention_experts.count", "attention_experts.count_of_layers"};
}

void set_experts(Config& config, Site site, const ExpertOrigins& origins) {
  std::vector<std::int64_t> numbers;
  for (const auto& [layer, experts] : origins) {
    if (layer < config.model.layers) numbers.push_back(std::ssize(experts));
  }
  const bool alike = std::ranges::adjacent_find(numbers, std::ranges::not_equal_to()) == numbers.end();
  const bool ffn = site == Site::ffn;
  (ffn ? config.moe.experts : config.attention_experts.count) = std::ranges::max(numbers);
  (ffn ? config.moe.experts_of_layers : config.attention_experts.count_of_layers) =
      alike ? std::vector<std::int64_t>{} : numbers;
}

SpecialParts rearranged_experts(const Config& target, Site site, const ExpertOrigins& origins) {
  SpecialParts special;
  for (const auto& [layer, experts] : origins) {
    const HalfNames names(target.model, {layer, site});
    const SublayerSpec half = site == Site::ffn ? ffn_spec(target, layer) : attention_spec(target, layer);
    for (const SublayerTensor& tensor : half.tensors) {
      if (tensor.rows_are_choices) special[names.of(tensor)] = rows_by_origin(names.of(tensor), experts);
      for (std::int64_t e = tensor.choices.first; e < tensor.choices.end(); ++e) {
        const std::int64_t origin = experts.at(static_cast<std::size_t>(e));
        special[names.of_expert(e, tensor)] = {{.tensor = origin == new_expert ? "" : names.of_expert(origin, tensor)}};
      }
    }
  }
  return special;
}

FfnParts copies_in_slices(std::int64_t width, std::int64_t copies, std::int64_t slices) {
  FfnParts parts;
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      parts.push_back(numbers_from(slice * (width / slices), width / slices));
    }
  }
  return parts;
}

SpecialParts experts_of_ffns(const Config& target, const FfnCut& cut) {
  const std::vector<std::int64_t> whole = numbers_from(0, target.model.ffn_hidden);
  SpecialParts special;
  for (const auto& [layer, parts] : cut.layers) {
    const HalfNames names(target.model, {layer, Site::ffn});
    for (const SublayerTensor& tensor : ffn_spec(target, layer).tensors) {
      // The columns of down_proj are the units of the FFN; in the other matrices the rows are.
      const bool down = tensor.cut == Cut::columns;
      for (std::int64_t e = tensor.choices.first; e < tensor.choices.end(); ++e) {
        const std::vector<std::int64_t>& units = parts.at(static_cast<std::size_t>(e));
        RowSource source{.tensor = names.of(tensor), .scale = down || tensor.name == down_bias ? cut.output_scale : 1};
        if (units != whole) source.pick = Pick{down ? 1 : 0, units};
        special[names.of_expert(e, tensor)] = {std::move(source)};
      }
    }
    const Mixture experts = routed_experts(target, layer).value();
    Pick first_slices;
    for (std::int64_t e = 0; e < experts.choices(); ++e) first_slices.indices.push_back(e / cut.slices * cut.slices);
    for (const SublayerTensor& tensor : router_tensors(target, experts)) {
      RowSource drawn;
      if (tensor.rows_are_choices && cut.slices > 1) drawn.pick = first_slices;
      special[names.of(tensor)] = {std::move(drawn)};
    }
  }
  return special;
}

}  // namespace lyceum
