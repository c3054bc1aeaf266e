#pragma once

#include <cstdint>
#include <optional>

#include "config/feature.h"

namespace lyceum {

struct ParallelConfig;

/// Returns the number of data ranks, which see different sequences: world / (pipeline · tensor); 0 if that is not an
/// integer. The expert groups are not checked.
std::int64_t data_ranks(const ParallelConfig& parallel, int world);

/// Numbers of sequences that a data rank processes: `share` in a step, `micro` in one micro-batch.
struct RankBatch {
  std::int64_t share, micro;
};
/// Returns the batch of a rank, with batch.micro = 0 replaced by `share`. Returns nothing if data_ranks() is 0 or does
/// not divide batch.global. `micro` need not divide `share`.
std::optional<RankBatch> rank_batch(const Config& config, int world);

/// Checks that `world` ranks form the mesh and can divide the batch, that the schedule of the pipeline and the overlap
/// of micro-batches are possible, that tensor ranks get equal shares of the heads, and that every rank of a tensor or
/// expert-tensor group gets a part of every other width (parts may differ in size).
void check_mesh(Findings& findings, const Config& config, int world);
/// True if `world` ranks form the mesh and can divide the batch, the schedule and the overlap are possible, every
/// expert rank has experts, and tensor ranks have equal shares of the heads. Unlike check_mesh(), ignores other widths.
bool fits_ranks(const Config& config, int world);
/// Replaces batch.micro = 0 by the sequences of a data rank in a step; leaves it 0 if rank_batch() returns nothing.
void derive_micro_batch(Config& config, int world);

}  // namespace lyceum
