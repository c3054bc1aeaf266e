#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lyceum {

/// Kernels over many flat tensors process each tensor in blocks of this many elements; the last block of a tensor may
/// be shorter. Sums are computed per block, so they do not depend on the distribution of blocks to threads.
constexpr std::int64_t flat_block = 1024;
/// Returns the number of blocks of a tensor.
constexpr std::int64_t flat_blocks_of(std::int64_t elements) { return (elements + flat_block - 1) / flat_block; }

/// An iterator over the blocks of a table of tensors, in order. Blocks of all tensors are numbered consecutively; each
/// row of the table has a member `first_block`, the number of its tensor's first block (0 in the first row).
template <class Row>
class BlockWalk {
 public:
  /// Starts at block number `block`, which must exist. `rows` must outlive the walk.
  constexpr BlockWalk(std::span<const Row> rows, std::int64_t block) : rows_(rows), block_(block) {
    std::size_t end = rows.size();  // binary search: rows[row_].first_block <= block < rows[end].first_block
    while (end - row_ > 1) {
      const std::size_t middle = row_ + (end - row_) / 2;
      (rows[middle].first_block <= block ? row_ : end) = middle;
    }
  }
  /// Moves on by `blocks` blocks. After the last block, only next() may be called.
  constexpr void next(std::int64_t blocks = 1) {
    block_ += blocks;
    while (row_ + 1 < rows_.size() && rows_[row_ + 1].first_block <= block_) ++row_;
  }

  /// Returns the index of the block's tensor in the table.
  constexpr std::size_t row() const { return row_; }
  constexpr const Row& tensor() const { return rows_[row_]; }
  /// Returns the number of the block within its tensor.
  constexpr std::int64_t block() const { return block_ - tensor().first_block; }

 private:
  std::span<const Row> rows_;
  std::int64_t block_;
  std::size_t row_ = 0;
};

}  // namespace lyceum
