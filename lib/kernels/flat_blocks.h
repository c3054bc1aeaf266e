#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lyceum {

/// A launch over many flat tensors walks them in blocks of this many elements, the last one of each perhaps shorter.
/// Sums are of a block, so they do not depend on how the blocks are shared out.
constexpr std::int64_t flat_block = 1024;
constexpr std::int64_t flat_blocks_of(std::int64_t elements) { return (elements + flat_block - 1) / flat_block; }

/// Walks the blocks of a table of tensors, in order. A row says where its tensor's blocks begin among all of them:
/// `first_block`, ascending from 0.
template <class Row>
class BlockWalk {
 public:
  /// At `block`, which exists.
  constexpr BlockWalk(std::span<const Row> rows, std::int64_t block) : rows_(rows), block_(block) {
    std::size_t end = rows.size();  // rows[row_] begins at the block or before it, rows[end] behind it
    while (end - row_ > 1) {
      const std::size_t middle = row_ + (end - row_) / 2;
      (rows[middle].first_block <= block ? row_ : end) = middle;
    }
  }
  constexpr void next() {
    ++block_;
    while (row_ + 1 < rows_.size() && rows_[row_ + 1].first_block <= block_) ++row_;
  }

  constexpr std::size_t row() const { return row_; }
  constexpr const Row& tensor() const { return rows_[row_]; }
  /// Of the tensor's own blocks.
  constexpr std::int64_t block() const { return block_ - tensor().first_block; }

 private:
  std::span<const Row> rows_;
  std::int64_t block_;
  std::size_t row_ = 0;
};

}  // namespace lyceum
