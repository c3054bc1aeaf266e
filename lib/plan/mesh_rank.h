#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "config/config.h"
#include "core/range.h"
#include "parallel/comm/axis.h"
#include "parallel/comm/mesh.h"

namespace lyceum {

/// Converts a count to double, in which plans count; exact up to 2^53.
inline double number(std::int64_t value) { return static_cast<double>(value); }

/// Returns the shape of a configuration's mesh. Tokens travel to their experts in two steps, by hosts, if
/// parallel.dispatch permits it and the ranks of an expert group fill several hosts.
MeshShape mesh_shape(const ParallelConfig& parallel);

/// One rank of a planned mesh, by its coordinates. No process belongs to it.
struct MeshRank {
  MeshShape shape;
  int world;
  MeshCoordinates index;

  /// Returns rank `rank` of `world` in the mesh of parallel.*. Throws a usage Error if the sizes do not form a mesh.
  static MeshRank of(const ParallelConfig& parallel, int world, int rank);
  /// Returns the number of ranks in this rank's group on an axis.
  int size(Axis axis) const;
  /// Returns the distance, in ranks of the world, between two adjacent members of this rank's group on an axis. Members
  /// on `expert_copies` are not evenly spaced, and it returns 1.
  int stride(Axis axis) const;
  /// Returns the number of ranks per pipeline stage.
  int stage_ranks() const { return world / shape.pipeline; }
  /// Returns the tensor coordinate of the `e`-th member, from 0 on, of this rank's expert group.
  int tensor_index_of_expert_peer(int e) const;
};

/// Numbers of tokens of one micro-batch on a tensor rank, see TokenLayout.
struct TokenShare {
  std::int64_t sequences, tokens;  // sequences and tokens of the whole micro-batch
  std::int64_t own;                // tokens in this rank's range
  std::int64_t rows;  // tokens in the layout between matrices: this rank's range with sequence parallelism, else all
};
/// Returns the numbers of tokens of this rank.
TokenShare token_share(const Config& config, const MeshRank& mesh_rank);
/// Returns the number of tokens in the range of tensor rank `tensor`.
std::int64_t tokens_of_tensor_rank(const Config& config, int tensor);

/// Returns the bytes of the activations between two blocks for one micro-batch on this rank, which a pipeline stage
/// sends to the next one.
double boundary_bytes(const Config& config, const MeshRank& mesh_rank);
/// Returns the bytes of a micro-batch's tokens and targets.
double token_bytes(const Config& config);
/// Returns the bytes of TokenBatch::first_keys or TokenBatch::span_starts, which have one i32 per token of a
/// micro-batch; 0 if a batch has neither.
double document_bytes(const Config& config);

/// Returns the bytes per element of weights and activations. Accumulators have accumulator_bytes.
std::int64_t element_bytes(const Config& config);
inline constexpr std::int64_t accumulator_bytes = 4;

/// Returns the number of micro-batches that a rank runs in a step.
std::int64_t micro_batches(const Config& config, int world);

}  // namespace lyceum
