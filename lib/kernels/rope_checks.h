#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/checks.h"
#include "kernels/rope.h"

namespace lyceum {

// Checks of operands, used by all devices: throw an Error unless their extents fit together.

template <class A>
void require_fitting(const RopeTable<A>& rope) {
  const std::int64_t cols = rope.table.cols;
  require(cols % 2 == 0, "RopeTable: {} columns: pairs are rotated, the number must be even", cols);
  require(rope.dim == 0 || rope.dim == cols || rope.dim == cols - 1,
          "RopeTable: frequencies over {} dimensions for {} columns", rope.dim, cols);
}

/// Returns the number of dimensions over which the frequencies of the table are spread.
template <class A>
std::int64_t frequency_dim(const RopeTable<A>& rope) {
  return rope.dim > 0 ? rope.dim : rope.table.cols;
}

/// Returns the number of columns of a head.
template <class T>
std::int64_t head_columns(const Rope<T>& rope) {
  return rope.head_dim > 0 ? rope.head_dim : rope.table.cols;
}

template <class T>
void require_fitting(const Rope<T>& rope) {
  const std::int64_t rows = rope.x.rows, cols = rope.x.cols, dim = rope.table.cols, head = head_columns(rope);
  require(dim > 0 && dim % 2 == 0 && rope.first_column >= 0 && rope.first_column + dim <= head,
          "Rope: {} rotated columns, from column {} on, of heads of {}", dim, rope.first_column, head);
  require(cols % head == 0, "Rope: rows of {} columns are not a whole number of heads of {}", cols, head);
  require(rope.seq_len > 0 && rope.first_position >= 0, "Rope: sequences of {} rows from position {}", rope.seq_len,
          rope.first_position);
  require(rope.first_position + std::min(rope.seq_len, rows) <= rope.table.rows,
          "Rope: positions up to {}, the table has {}", rope.first_position + std::min(rope.seq_len, rows),
          rope.table.rows);
  require(rope.first_keys.empty() || std::ssize(rope.first_keys) == rows, "Rope: {} first keys for {} rows",
          rope.first_keys.size(), rows);
}

}  // namespace lyceum
