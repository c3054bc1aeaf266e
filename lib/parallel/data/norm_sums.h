#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/stream.h"
#include "parallel/comm/mesh.h"
#include "parallel/data/sharded_unit.h"

namespace lyceum {

/// Computes Euclidean norms over the whole model from sums of squares of blocks of flat_block elements. Every logical
/// element counts once: units that duplicate those of another pipeline stage (ParameterUnit::twin()) do not count. All
/// computation is on the device; the host waits only for other ranks. The result has the same bits on every rank; NaN
/// and infinity propagate.
///
/// Squares are summed in double, in a fixed order: within a block; over the blocks of a unit; over the ranks among
/// which matrices or experts are divided (in that of ProcessGroup::all_reduce_async() over MPI; NCCL has its own
/// order); over the layers. The result does not depend on the ZeRO stage or the number of pipeline stages.
class NormSums {
 public:
  /// Prepares `columns` norms that are computed together. `shares`: this rank's shares of the trained units. `layers`:
  /// number of layers of the whole model; throws unless ParameterUnit::layer() of every unit is less. `mesh` and the
  /// units of the shares must outlive the object.
  NormSums(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers, int columns);

  /// Returns a zeroed buffer for the sums of all blocks and columns, f64, to be filled at the indices of offsets().
  /// Sums that no share of this rank writes must stay 0, since other ranks provide them.
  Tensor zeros() const;
  /// Returns, for each share, the index in the buffer of the sum of its first block in a column; the other blocks of
  /// the share follow. Negative for a twin, which has no sums. [shares], in device memory.
  std::span<const std::int64_t> offsets(int column) const;
  /// Collective over the mesh. Writes the norm of each column, the square root of the total of its sums, to `norms`
  /// [columns], and the norms of each layer to `by_layer` [columns, layers] if it is not empty, in device memory.
  /// `sums` is a buffer of zeros() that has been filled; it is overwritten.
  void norms(const Tensor& sums, std::span<double> norms, std::span<double> by_layer = {}) const;

  /// The sizes on which the buffers and all-reduces of a rank depend, for cost estimates without the units.
  struct Counts {
    std::int64_t shares = 0, counted = 0;  // number of shares, and of those that are not twins
    /// Number of blocks, per group, of the units whose sums are divided among the ranks that hold copies (ZeRO stages 1
    /// to 3).
    std::map<ParameterUnit::Group, std::int64_t> shared_blocks{};
    int layers = 0;  // of the whole model
  };
  /// Returns the bytes of the tables that the object keeps.
  static std::int64_t table_bytes(const Counts& counts, int columns);
  /// An all-reduce in norms(): its axis and the number of f64 values.
  struct Exchange {
    Axis axis;
    std::int64_t numbers;
  };
  /// Returns the all-reduces of norms(), in order.
  static std::vector<Exchange> exchanges(const Counts& counts, int columns);

 private:
  /// The sums of all units of one group that are not twins; contiguous, one column after another.
  struct Kind {
    std::int64_t first = 0, blocks = 0;  // `first`: index of the first sum; `blocks`: per column
    /// The ranks among which the blocks are divided; null if every copy has all blocks.
    const ProcessGroup* copies = nullptr;
  };
  static constexpr std::size_t kinds = 4;

  Stream stream_;
  const Mesh& mesh_;
  int layers_, columns_;
  std::array<Kind, kinds> kinds_;
  std::size_t shares_;
  std::int64_t size_ = 0;            // number of sums in the buffer
  Tensor offsets_, ranges_, begin_;  // device tables, see offsets() and SumRanges
};

/// Computes the norm of all gradients from the gradients of the shares.
class GradientNorm {
 public:
  /// See NormSums. The shares' gradient tensors must keep their memory.
  GradientNorm(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers);
  /// Collective over the mesh. Writes the norm to `norm` [1], and that of each layer to `by_layer` [layers] if it is
  /// not empty, in device memory. Does not wait for the result.
  void launch(std::span<double> norm, std::span<double> by_layer = {}) const;

  /// Returns the bytes of the tables that the object keeps.
  static std::int64_t table_bytes(const NormSums::Counts& counts);

 private:
  Stream stream_;
  NormSums sums_;
  DType type_ = DType::f32;  // type of the gradients
  Tensor tensors_;           // device table of the shares' gradients
  std::int64_t blocks_ = 0;
};

}  // namespace lyceum
