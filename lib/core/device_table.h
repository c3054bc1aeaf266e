#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "core/copy.h"

namespace lyceum {

/// Returns a tensor of bytes on the stream's device that contains a copy of `rows`, for kernels to read through
/// rows_of().
template <class Row>
Tensor table_of(const Stream& stream, const std::vector<Row>& rows, MemoryKind kind = MemoryKind::buffers) {
  static_assert(std::is_trivially_copyable_v<Row>);
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(Row));
  const Tensor table = Tensor::empty(stream, DType::u8, {bytes}, kind);
  copy_to_device(stream, table.raw(), rows.data(), rows.size() * sizeof(Row));
  return table;
}

/// Returns the rows of a tensor made by table_of<Row>(). The span is in device memory, so on a GPU only kernels may
/// read it, and it does not keep the tensor alive.
template <class Row>
std::span<const Row> rows_of(const Tensor& table) {
  return {reinterpret_cast<const Row*>(table.raw()), table.bytes() / sizeof(Row)};
}

/// Returns the same rows as rows_of(), for kernels that write to them.
template <class Row>
std::span<Row> writable_rows_of(const Tensor& table) {
  return {reinterpret_cast<Row*>(table.raw()), table.bytes() / sizeof(Row)};
}

}  // namespace lyceum
