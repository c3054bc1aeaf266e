#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "core/memory_kind.h"
#include "core/stream.h"

namespace lyceum {

/// The extents of a tensor of up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int max_rank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  /// Throws an Error if there are more than four extents or one is negative.
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return extents_[static_cast<std::size_t>(axis)]; }
  /// Returns the number of elements. Throws an Error if it exceeds 2^59.
  std::int64_t size() const;
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  bool operator==(const Shape& other) const = default;
  /// Returns the extents as text, for example "[2, 3]".
  std::string text() const;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// A view of a row-major matrix in memory that it does not own. `stride`: elements from the start of one row to the
/// next.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;

  // constexpr, so that kernels on a device may call them.
  constexpr Matrix() = default;
  constexpr Matrix(T* data, std::int64_t rows, std::int64_t cols) : Matrix(data, rows, cols, cols) {}
  constexpr Matrix(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  constexpr operator Matrix<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: as T* to const T*
  constexpr T* row(std::int64_t r) const { return data + r * stride; }
  constexpr std::int64_t size() const { return rows * cols; }
  constexpr bool contiguous() const { return stride == cols; }
  constexpr Matrix rows_from(std::int64_t first, std::int64_t count) const { return {row(first), count, cols, stride}; }
  constexpr Matrix cols_from(std::int64_t first, std::int64_t count) const {
    return {rows > 0 ? data + first : data, rows, count, stride};  // `data` may be null if there are no rows
  }
};

/// A contiguous, row-major array of numbers with a shape. A handle: copies and views share the memory and keep it
/// alive. A default-constructed tensor is undefined.
class Tensor {
 public:
  Tensor() = default;
  /// Returns an uninitialised (empty) or zero (zeros) tensor in the stream's memory. `kind`: the counter of MemoryUse.
  /// Throws an Error if memory is exhausted.
  static Tensor empty(const Stream& stream, DType type, const Shape& shape, MemoryKind kind = MemoryKind::activations);
  static Tensor zeros(const Stream& stream, DType type, const Shape& shape, MemoryKind kind = MemoryKind::activations);
  /// Returns an uninitialised tensor in memory of any allocator, for example of pinned host memory. Throws an Error if
  /// memory is exhausted.
  static Tensor empty(Allocator& memory, DType type, const Shape& shape, MemoryKind kind);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  /// Returns the number of elements; 0 for an undefined tensor.
  std::int64_t size() const { return defined() ? shape_.size() : 0; }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(type_); }
  /// True if no other tensor shares this memory, so that its owner may overwrite it.
  bool unique() const { return storage_.use_count() == 1; }

  /// Returns the address of the first element, in memory of the device. Throws an Error if T does not match the dtype,
  /// or if the memory is freed (free_memory()).
  template <class T>
  T* data() const {
    require(dtype_of<T> == type_, "a tensor of {} cannot be accessed as {}", name_of(type_), name_of(dtype_of<T>));
    return reinterpret_cast<T*>(begin());
  }
  void* raw() const { return begin(); }
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  /// Returns the elements as a matrix: its columns are the last dimension, its rows all other dimensions together.
  template <class T>
  Matrix<T> matrix() const {
    const std::int64_t cols = shape_.rank() ? shape_[shape_.rank() - 1] : 1;
    return {data<T>(), cols ? size() / cols : 0, cols};
  }

  /// Returns the same elements with another shape; shares memory. Throws an Error unless the sizes are equal.
  Tensor reshaped(const Shape& shape) const;
  /// Returns elements [first, first + count) of the first dimension; shares memory. Throws an Error if they are out of
  /// range.
  Tensor slice(std::int64_t first, std::int64_t count) const;
  /// Returns elements [first, first + shape.size()) of the flat memory with shape `shape`; shares memory. Throws an
  /// Error if they are out of range.
  Tensor view(std::int64_t first, const Shape& shape) const;

  /// Frees the memory of this tensor, and so of all its copies and views. None of them may be read until
  /// adopt_memory(). Throws an Error if this tensor is only a part of its memory.
  void free_memory() const;
  /// Gives this tensor, after free_memory(), the memory of `other`, of equal dtype and shape. All copies and views of
  /// this tensor then refer to that memory.
  void adopt_memory(const Tensor& other) const;

 private:
  struct Storage {
    std::shared_ptr<std::byte> memory;  // null between free_memory() and adopt_memory()
    std::size_t bytes;
  };
  std::byte* begin() const {
    if (!storage_) return nullptr;
    require(storage_->memory != nullptr, "a tensor {} is accessed after its memory was freed", shape_);
    return storage_->memory.get() + offset_;
  }

  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType type_ = DType::f32;
};

}  // namespace lyceum
