#include "io/files/hdf5_dataset.h"

#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>

#include "io/files/hdf5_library.h"
#include "io/files/hdf5_types.h"

namespace lyceum::hdf5 {

Shape Dataset::shape() const {
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "read a shape"), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 0 || rank > Shape::max_rank) fail_file(*file_, "read a shape", "too many dimensions");
  std::array<hsize_t, Shape::max_rank> sizes{};
  check(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr), *file_, "read a shape");
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::copy(sizes.begin(), sizes.end(), extents.begin());
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)));
}

DType Dataset::dtype() const {
  const auto lock = lock_library();
  const Handle type(check(H5Dget_type(handle_.id()), *file_, "read a type"), H5Tclose);
  for (const DType candidate : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    if (H5Tequal(type.id(), type_of(candidate).id()) > 0) return candidate;
  }
  fail_file(*file_, "read a dataset", "its type is not one that Lyceum writes");
}

Shape Dataset::chunk() const {
  const auto lock = lock_library();
  const Handle list(check(H5Dget_create_plist(handle_.id()), *file_, "read a layout"), H5Pclose);
  std::array<hsize_t, Shape::max_rank> sizes{};
  const int rank = H5Pget_layout(list.id()) == H5D_CHUNKED ? H5Pget_chunk(list.id(), Shape::max_rank, sizes.data()) : 0;
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::copy(sizes.begin(), sizes.end(), extents.begin());
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(std::max(rank, 0))));
}

namespace {

/// Divides a box into slices and calls f(slice, first) for each, in order. A slice is contiguous within the box in
/// row-major order and begins at element `first` of it. It has about `most` elements. If the dataset is chunked, slices
/// consist of whole chunks, provided that the box begins at the edge of a chunk.
template <class F>
void for_each_slice(const Box& box, const Shape& chunk, std::int64_t most, F&& f, int axis = 0,
                    std::int64_t first = 0) {
  if (axis >= chunk.rank() || box.extent.size() <= most) return f(box, first);
  const std::int64_t row = box.extent.size() / box.extent[axis];
  const std::int64_t rows = std::max(most / row / chunk[axis], std::int64_t{1}) * chunk[axis];
  for (std::int64_t at = 0; at < box.extent[axis]; at += rows) {
    Box slice = box;
    slice.offset[axis] += at;
    slice.extent[axis] = std::min(rows, box.extent[axis] - at);
    if (slice.extent[axis] == 1) {
      for_each_slice(slice, chunk, most, f, axis + 1, first + at * row);
    } else {
      f(slice, first + at * row);
    }
  }
}

}  // namespace

void Dataset::write(const Box& box, DType type, const void* values) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  // The library's lock is held for at most this many bytes at a time.
  constexpr std::int64_t slice_bytes = 4 << 20;
  if (box.extent.size() * size <= slice_bytes) return write_slice(box, type, values);
  for_each_slice(box, chunk(), slice_bytes / size, [&](const Box& slice, std::int64_t first) {
    write_slice(slice, type, static_cast<const std::byte*>(values) + first * size);
  });
}

void Dataset::write_slice(const Box& box, DType type, const void* values) {
  if (box.extent.size() == 0) return;
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "write a dataset"), H5Sclose);
  select(space.id(), box);
  check(H5Dwrite(handle_.id(), type_of(type).id(), space_of(box.extent).id(), space.id(), H5P_DEFAULT, values), *file_,
        "write a dataset");
}

void Dataset::read(const Box& box, DType type, void* values) const {
  read_into(box, type, values, box.extent, Box::whole(box.extent).offset);
}

void Dataset::read_into(const Box& box, DType type, void* values, const Shape& shape, const Shape& offset) const {
  if (box.extent.size() == 0) return;
  const auto lock = lock_library();
  const Handle space(check(H5Dget_space(handle_.id()), *file_, "read a dataset"), H5Sclose);
  select(space.id(), box);
  const Handle memory = space_of(shape);
  select(memory.id(), {offset, box.extent});
  check(H5Dread(handle_.id(), type_of(type).id(), memory.id(), space.id(), H5P_DEFAULT, values), *file_,
        "read a dataset");
}

void Dataset::resize(const Shape& shape) {
  const auto lock = lock_library();
  check(H5Dset_extent(handle_.id(), sizes_of(shape).data()), *file_, "resize a dataset");
}

void Dataset::make_scale(const std::string& name) {
  const auto lock = lock_library();
  check(H5DSset_scale(handle_.id(), name.c_str()), *file_, "make a dimension scale");
}

void Dataset::attach_scale(int axis, const Dataset& scale) {
  const auto lock = lock_library();
  check(H5DSattach_scale(handle_.id(), scale.handle_.id(), static_cast<unsigned>(axis)), *file_,
        "attach a dimension scale");
}

void Dataset::label(int axis, const std::string& text) {
  const auto lock = lock_library();
  check(H5DSset_label(handle_.id(), static_cast<unsigned>(axis), text.c_str()), *file_, "label a dimension");
}

}  // namespace lyceum::hdf5
