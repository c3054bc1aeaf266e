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

/// From sums of squares of blocks of flat_block elements to Euclidean norms over the whole model, every logical
/// element once (twins do not count), where the model computes: the host waits for nothing, but for other ranks. The
/// same bits on every rank. NaN and infinity show.
///
/// Squares are summed in double in one order: within blocks of a unit's flat memory, over its blocks, over the ranks
/// that share out the kind's matrices or experts, in rank order, over the layers. Neither the ZeRO stage nor the number
/// of pipeline stages changes a bit.
class NormSums {
 public:
  /// For `columns` norms at once. `layers`: of the whole model, throws unless all ParameterUnit::layer() are below.
  /// `mesh`, and the units of the shares, must outlive this.
  NormSums(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers, int columns);

  /// Room for the sums of all blocks of all columns, zeros: what no share of this rank fills is another's.
  Tensor zeros() const;
  /// Where the share's sums lie in a column: its own blocks in their order from there on; negative for a twin, which
  /// has none. [shares], where the model computes.
  std::span<const std::int64_t> places(int column) const;
  /// Collective: the columns' norms, to where the model computes. `sums` is used up.
  void norms(const Tensor& sums, std::span<double> norms) const;

  /// What a rank has and shares out, as far as the sums depend on it: for plans.
  struct Counts {
    std::int64_t shares = 0, counted = 0;                          // all; those that are no twins
    std::map<ParameterUnit::Group, std::int64_t> shared_blocks{};  // blocks of counted units that copies share out
    int layers = 0;                                                // of the whole model
  };
  /// Bytes of buffers that are kept.
  static std::int64_t kept_bytes(const Counts& counts, int columns);
  /// The all-reduces of norms(): numbers in f64.
  struct Exchange {
    Axis axis;
    std::int64_t numbers;
  };
  static std::vector<Exchange> exchanges(const Counts& counts, int columns);

 private:
  /// Units of one kind that count: their sums are neighbours, column after column.
  struct Kind {
    std::int64_t first = 0, blocks = 0;    // blocks: of a column
    const ProcessGroup* copies = nullptr;  // that share the blocks out; null where every copy has all
  };
  static constexpr std::size_t kinds = 3;

  Stream stream_;
  const Mesh& mesh_;
  int layers_, columns_;
  std::array<Kind, kinds> kinds_;
  std::size_t shares_;
  std::int64_t size_ = 0;           // of all sums
  Tensor places_, ranges_, begin_;  // tables, see places() and SumRanges
};

/// The norm of all gradients, read as they lie in the shares.
class GradientNorm {
 public:
  /// As NormSums. The shares' gradients stay where they are.
  GradientNorm(Stream stream, const Mesh& mesh, std::span<const UnitShare> shares, int layers);
  /// Collective: to `norm` [1], where the model computes.
  void launch(std::span<double> norm) const;

  static std::int64_t kept_bytes(const NormSums::Counts& counts);

 private:
  Stream stream_;
  NormSums sums_;
  DType type_ = DType::f32;  // of gradients
  Tensor tensors_;           // table
  std::int64_t blocks_ = 0;
};

}  // namespace lyceum
