#pragma once

#include <cstdint>
#include <optional>

#include "config/feature.h"

namespace lyceum {

struct ParallelConfig;

/// Returns the ranks that see different sequences; 0 if `world` ranks do not form the mesh.
std::int64_t data_ranks(const ParallelConfig& parallel, int world);

/// Sequences of a rank in a step, and in one micro-batch of it.
struct RankBatch {
  std::int64_t share, micro;
};
/// Returns nothing if the ranks, or the batch among them, do not divide.
std::optional<RankBatch> rank_batch(const Config& config, int world);

/// Checks that `world` ranks form the mesh and share the batch, that the pipeline's schedule and the overlap of
/// micro-batches are possible, and that each tensor rank gets a share of every width.
void check_mesh(Findings& findings, const Config& config, int world);
/// Returns true if `world` ranks form the mesh and share the batch, and every rank has experts and heads.
bool fits_ranks(const Config& config, int world);
void derive_micro_batch(Config& config, int world);

}  // namespace lyceum
