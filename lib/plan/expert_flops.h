#pragma once

#include <cstdint>

#include "plan/mesh_rank.h"
#include "plan/placed_load.h"

namespace lyceum {

/// FLOPs of one forward pass in the FFNs of sparse blocks: the parts of StageFlops::forward that differ in what the
/// transfers between experts can overlap.
struct ExpertFlops {
  double shared = 0, routed = 0;  // shared experts; routed experts
  double around = 0;              // the rest of these blocks: attention, routers, norms
  double all() const { return shared + routed + around; }
  ExpertFlops& operator+=(const ExpertFlops& other) {
    shared += other.shared;
    routed += other.routed;
    around += other.around;
    return *this;
  }
};

/// Returns the factor from the FLOPs of one sequence to those of one tensor rank for a micro-batch.
double tensor_share(const Config& config, const MeshRank& mesh_rank);

/// Returns the rank's share of the FLOPs of a sparse block: tensor ranks divide the block, all ranks of a stage its
/// routed experts. With a `load`, the routed experts are those of the busiest rank of the expert group; null: the load
/// is even. Zero for a dense block.
ExpertFlops expert_flops(const Config& config, const MeshRank& mesh_rank, std::int64_t layer, const LayerLoad* load);

/// Returns the number of rows (token, expert) that the rank of an expert group with most of them computes in a layer
/// for one micro-batch.
double most_expert_rows(const Config& config, const MeshRank& mesh_rank, const Mixture& mixture, const LayerLoad& load);

}  // namespace lyceum
