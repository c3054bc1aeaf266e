#include "core/tensor.h"

#include "core/allocator.h"

namespace lyceum {

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}

Shape::Shape(std::span<const std::int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  require(rank_ <= max_rank, "a shape of {} dimensions: at most {} are supported", rank_, max_rank);
  for (int axis = 0; axis < rank_; ++axis) {
    const std::int64_t extent = extents[static_cast<std::size_t>(axis)];
    require(extent >= 0, "dimension {} has the negative extent {}", axis, extent);
    extents_[static_cast<std::size_t>(axis)] = extent;
  }
}

std::int64_t Shape::size() const {
  constexpr std::int64_t most = std::int64_t{1} << 59;  // keeps sizes in bytes, and sums of two, below 2^63
  std::int64_t product = 1;
  for (const std::int64_t extent : extents()) {
    require(!__builtin_mul_overflow(product, extent, &product) && product <= most,
            "a tensor {} has more elements than any memory can hold", *this);
  }
  return product;
}

std::string Shape::text() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) text += (axis ? ", " : "") + std::to_string((*this)[axis]);
  return text + "]";
}

Tensor Tensor::empty(const Stream& stream, DType type, const Shape& shape, MemoryKind kind) {
  return empty(memory_of(stream), type, shape, kind);
}

Tensor Tensor::empty(Allocator& memory, DType type, const Shape& shape, MemoryKind kind) {
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = shape;
  const auto bytes = static_cast<std::size_t>(shape.size()) * size_of(type);
  tensor.storage_ = std::make_shared<Storage>(Storage{memory.allocate(bytes, kind), bytes});
  return tensor;
}

Tensor Tensor::zeros(const Stream& stream, DType type, const Shape& shape, MemoryKind kind) {
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = shape;
  const auto bytes = static_cast<std::size_t>(shape.size()) * size_of(type);
  tensor.storage_ = std::make_shared<Storage>(Storage{memory_of(stream).allocate_zeros(bytes, kind), bytes});
  return tensor;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  require(shape.size() == size(), "cannot reshape {} elements of {} to {}", size(), shape_, shape);
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

Tensor Tensor::slice(std::int64_t first, std::int64_t count) const {
  require(shape_.rank() > 0 && first >= 0 && count >= 0 && first <= shape_[0] - count,
          "cannot take {} slices, beginning with {}, of a tensor {}", count, first, shape_);
  Shape shape = shape_;
  shape[0] = count;
  return view(first * (shape_[0] ? size() / shape_[0] : 0), shape);
}

Tensor Tensor::view(std::int64_t first, const Shape& shape) const {
  require(first >= 0 && first <= size() - shape.size(), "cannot view {} elements, beginning with {}, of a tensor {}",
          shape.size(), first, shape_);
  Tensor tensor = *this;
  tensor.shape_ = shape;
  tensor.offset_ += static_cast<std::size_t>(first) * size_of(type_);
  return tensor;
}

void Tensor::free_memory() const {
  require(defined() && storage_->memory && bytes() == storage_->bytes,
          "cannot free the memory of a tensor {}: it is a view of another tensor, or has no memory", shape_);
  storage_->memory = nullptr;
}

void Tensor::adopt_memory(const Tensor& other) const {
  require(defined() && !storage_->memory, "a tensor {} cannot adopt memory: it has not freed its own", shape_);
  require(other.type_ == type_ && other.shape_ == shape_ && other.offset_ == 0,
          "a tensor {} {} cannot adopt the memory of a tensor {} {}", name_of(type_), shape_, name_of(other.type_),
          other.shape_);
  storage_->memory = other.storage_->memory;
}

}  // namespace lyceum
