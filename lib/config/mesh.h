#pragma once

#include <cstdint>
#include <optional>

#include "config/feature.h"

namespace lyceum {

struct ParallelConfig;

/// Returns the number of data ranks, which see different sequences; 0 if `world` ranks do not form the mesh.
std::int64_t data_ranks(const ParallelConfig& parallel, int world);

/// Sequences that a data rank processes in a step, and in one micro-batch.
struct RankBatch {
  std::int64_t share, micro;
};
/// Returns the batch of a rank; nothing if the ranks do not form the mesh or the batch does not divide among them.
std::optional<RankBatch> rank_batch(const Config& config, int world);

/// Checks that `world` ranks form the mesh and can divide the batch, that the schedule of the pipeline and the overlap
/// of micro-batches are possible, and that each tensor rank gets a share of every width.
void check_mesh(Findings& findings, const Config& config, int world);
/// True if `world` ranks form the mesh and can divide the batch, and every rank has experts and heads.
bool fits_ranks(const Config& config, int world);
/// Replaces batch.micro = 0 by the sequences of a data rank; leaves it if they do not divide.
void derive_micro_batch(Config& config, int world);

}  // namespace lyceum
