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

/// Extents of up to four dimensions, slowest first.
class Shape {
 public:
  static constexpr int max_rank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t size() const;
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  bool operator==(const Shape& other) const = default;
  /// "[2, 3]"
  std::string text() const;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

/// Rows of a row-major matrix in somebody's memory; `stride` elements from one row to the next.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;

  // constexpr, so that kernels on a device may call them.
  constexpr Matrix() = default;
  constexpr Matrix(T* data, std::int64_t rows, std::int64_t cols) : Matrix(data, rows, cols, cols) {}
  constexpr Matrix(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  constexpr operator Matrix<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: a view of constants
  constexpr T* row(std::int64_t r) const { return data + r * stride; }
  constexpr std::int64_t size() const { return rows * cols; }
  constexpr bool contiguous() const { return stride == cols; }
  constexpr Matrix rows_from(std::int64_t first, std::int64_t count) const { return {row(first), count, cols, stride}; }
  constexpr Matrix cols_from(std::int64_t first, std::int64_t count) const {
    return {rows > 0 ? data + first : data, rows, count, stride};  // without rows there may be no memory
  }
};

/// A contiguous block of numbers with a shape; copies share the memory. The default tensor is undefined.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised.
  static Tensor empty(const Stream& stream, DType type, const Shape& shape, MemoryKind kind = MemoryKind::activations);
  static Tensor zeros(const Stream& stream, DType type, const Shape& shape, MemoryKind kind = MemoryKind::activations);
  /// Uninitialised, where no stream computes: in pinned memory, say.
  static Tensor empty(Allocator& memory, DType type, const Shape& shape, MemoryKind kind);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  /// Elements; none in an undefined tensor.
  std::int64_t size() const { return defined() ? shape_.size() : 0; }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(type_); }
  /// Whether no other tensor shares this memory, so that it may be written in place.
  bool unique() const { return storage_.use_count() == 1; }

  /// Throws when T is not the dtype.
  template <class T>
  T* data() const {
    require(dtype_of<T> == type_, "a tensor of {} read as {}", name_of(type_), name_of(dtype_of<T>));
    return reinterpret_cast<T*>(begin());
  }
  void* raw() const { return begin(); }
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  /// All leading dimensions as rows, the last one as columns.
  template <class T>
  Matrix<T> matrix() const {
    const std::int64_t cols = shape_.rank() ? shape_[shape_.rank() - 1] : 1;
    return {data<T>(), cols ? size() / cols : 0, cols};
  }

  /// The same memory under another shape of equal size.
  Tensor reshaped(const Shape& shape) const;
  /// `count` slices of the first dimension from `first` on; shares memory.
  Tensor slice(std::int64_t first, std::int64_t count) const;
  /// Elements [first, first + shape.size()) of the flat memory, seen as `shape`; shares memory.
  Tensor view(std::int64_t first, const Shape& shape) const;

  /// Frees the memory that this whole tensor shares with its copies and views. None of them may be read until
  /// take_back().
  void give_up() const;
  /// Lets this tensor, given up, and all that share its memory have that of `other`, of the same type and shape.
  void take_back(const Tensor& other) const;

 private:
  struct Storage {
    std::shared_ptr<std::byte> memory;  // null while given up
    std::size_t bytes;
  };
  std::byte* begin() const {
    if (!storage_) return nullptr;
    require(storage_->memory != nullptr, "a tensor {} is read while its memory is given up", shape_);
    return storage_->memory.get() + offset_;
  }

  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType type_ = DType::f32;
};

}  // namespace lyceum
