#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "config/config.h"
#include "core/range.h"
#include "parallel/comm/axis.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Plans count in double: exact up to 2^53.
inline double number(std::int64_t value) { return static_cast<double>(value); }

/// Tokens go to their experts by way of hosts where parallel.dispatch lets them and the ranks of an expert group fill
/// several hosts.
MeshShape mesh_shape(const ParallelConfig& parallel);

/// One rank of a mesh that is only thought of.
struct Place {
  MeshShape shape;
  int world;
  MeshIndex index;

  /// `rank` of `world` under a configuration's parallel.*. Throws a usage Error where that is no mesh.
  static Place of(const ParallelConfig& parallel, int world, int rank);
  int size(Axis axis) const;
  /// Ranks from one member of the group to the next.
  int stride(Axis axis) const;
  int stage_ranks() const { return world / shape.pipeline; }
  /// The tensor index of the `e`-th member of this rank's expert group.
  int tensor_index_of_expert_peer(int e) const;
};

/// Tokens of one micro-batch as a rank of a tensor group sees them, see TokenLayout.
struct TokenShare {
  std::int64_t sequences, tokens;  // all
  std::int64_t run;                // this rank's run
  std::int64_t rows;               // between matrices: the run with sequence parallelism, else all
};
TokenShare token_share(const Config& config, const Place& place);
/// The run of rank `tensor` of the group.
std::int64_t run_of(const Config& config, int tensor);

/// Bytes of what passes between two pieces of the model.
double boundary_bytes(const Config& config, const Place& place);
/// Bytes of a micro-batch's tokens and targets.
double token_bytes(const Config& config);
/// And of where its documents begin, where these do not see each other.
double document_bytes(const Config& config);

/// Bytes of an element of weights and activations; accumulators have four.
std::int64_t element_bytes(const Config& config);
inline constexpr std::int64_t accumulator_bytes = 4;

/// Micro-batches that a rank runs in a step.
std::int64_t micro_batches(const Config& config, int world);

}  // namespace lyceum
