#include "plan/expert_flops.h"

#include <optional>

#include "model/counts.h"
#include "model/routing/expert_placements.h"
#include "model/stages.h"

namespace lyceum {

namespace {

/// Returns the tokens that a routed expert receives in a micro-batch from the expert groups of the ranks that share its
/// width, if all experts are chosen equally often.
double tokens_of_expert(const Config& config, const Mixture& mixture, const MeshRank& mesh_rank) {
  double tokens = 0;
  for (int sharer = 0; sharer < mesh_rank.size(Axis::expert_tensor); ++sharer) {
    MeshRank peer = mesh_rank;
    peer.index.expert_tensor = sharer;
    for (int e = 0; e < mesh_rank.size(Axis::expert); ++e) {
      tokens += number(tokens_of_tensor_rank(config, peer.tensor_index_of_expert_peer(e)));
    }
  }
  return tokens * number(mixture.k) / number(mixture.choices());
}

/// Returns the width of the experts of one rank of the expert group on this rank's part of their widths. With a load,
/// each expert counts as often as it is chosen, relative to an even load.
double width_on_rank(const Mixture& mixture, const MeshRank& mesh_rank, const Placement& placement, int rank,
                     const LayerLoad* load) {
  double width = 0;
  for (const std::int32_t e : placement.experts_of(rank)) {
    const auto expert = static_cast<std::size_t>(e);
    const std::int64_t own =
        part_of(mixture.widths[expert], mesh_rank.index.expert_tensor, mesh_rank.size(Axis::expert_tensor)).count;
    width += number(own) * (load ? load->share[expert] : 1);
  }
  return width;
}

/// Returns the FLOPs of this rank's experts for one micro-batch, relative to those of all experts for one sequence with
/// an even load. Experts may differ in width, and may not divide evenly among the ranks. With a load, returns those of
/// the busiest rank of the expert group.
double routed_share(const Config& config, const Mixture& mixture, const MeshRank& mesh_rank, const LayerLoad* load) {
  double all = 0, own = 0;
  for (const std::int64_t width : mixture.widths) all += number(width);
  if (load) {
    for (int rank = 0; rank < load->ranks.ranks(); ++rank) {
      own += width_on_rank(mixture, mesh_rank, load->ranks, rank, load) / load->ranks.ranks();
    }
    own *= load->imbalance;
  } else {
    const Placement placement = place_experts(config, mixture, mesh_rank.size(Axis::expert), {});
    own = width_on_rank(mixture, mesh_rank, placement, mesh_rank.index.expert, nullptr);
  }
  const double tokens = number(config.batch.seq_len * mixture.k) / number(mixture.choices());
  return tokens_of_expert(config, mixture, mesh_rank) * own / (tokens * all);
}

}  // namespace

double tensor_share(const Config& config, const MeshRank& mesh_rank) {
  return number(config.batch.micro) / mesh_rank.size(Axis::tensor);
}

ExpertFlops expert_flops(const Config& config, const MeshRank& mesh_rank, std::int64_t layer, const LayerLoad* load) {
  const std::optional<Mixture> experts = routed_experts(config, layer);
  if (!experts) return {};
  const BlockCounts counts = count_block(config, layer);
  const double share = tensor_share(config, mesh_rank), tokens = number(config.batch.seq_len);
  const double routed = 2 * number(counts.routed.activated) * tokens;
  const double shared = 2 * number(counts.shared.activated) * tokens;
  return {.shared = shared * share,
          .routed = routed * routed_share(config, *experts, mesh_rank, load),
          .around = (block_flops(config, layer) - shared - routed) * share};
}

double most_expert_rows(const Config& config, const MeshRank& mesh_rank, const Mixture& mixture,
                        const LayerLoad& load) {
  return tokens_of_expert(config, mixture, mesh_rank) * load.fullest;
}

}  // namespace lyceum
