#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "core/copy.h"

namespace lyceum {

/// A table of plain rows where the stream computes, for kernels to read: bytes.
template <class Row>
Tensor table_of(const Stream& stream, const std::vector<Row>& rows, MemoryKind kind = MemoryKind::buffers) {
  static_assert(std::is_trivially_copyable_v<Row>);
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(Row));
  const Tensor table = Tensor::empty(stream, DType::u8, {bytes}, kind);
  copy_to_device(stream, table.raw(), rows.data(), rows.size() * sizeof(Row));
  return table;
}

/// The rows of a table that table_of() made.
template <class Row>
std::span<const Row> rows_of(const Tensor& table) {
  return {reinterpret_cast<const Row*>(table.raw()), table.bytes() / sizeof(Row)};
}

/// The rows of a table as rows_of() gives them, for kernels that write to them.
template <class Row>
std::span<Row> writable_rows_of(const Tensor& table) {
  return {reinterpret_cast<Row*>(table.raw()), table.bytes() / sizeof(Row)};
}

}  // namespace lyceum
