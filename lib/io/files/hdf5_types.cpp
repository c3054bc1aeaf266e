#include "io/files/hdf5_types.h"

#include "core/error.h"

namespace lyceum::hdf5 {

namespace {

/// Returns a type for bfloat16, which HDF5 does not predefine: sign in bit 15, exponent in bits 7–14, mantissa in bits
/// 0–6. h5dump and h5py read it as float.
Handle bfloat16_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.id(), 15, 7, 8, 0, 7);
  H5Tset_size(type.id(), 2);
  H5Tset_precision(type.id(), 16);
  H5Tset_ebias(type.id(), 127);
  return type;
}

}  // namespace

std::array<hsize_t, Shape::max_rank> sizes_of(const Shape& shape) {
  std::array<hsize_t, Shape::max_rank> sizes{};
  for (int axis = 0; axis < shape.rank(); ++axis)
    sizes[static_cast<std::size_t>(axis)] = static_cast<hsize_t>(shape[axis]);
  return sizes;
}

Handle space_of(const Shape& shape) {
  return {shape.rank() ? H5Screate_simple(shape.rank(), sizes_of(shape).data(), nullptr) : H5Screate(H5S_SCALAR),
          H5Sclose};
}

void select(std::int64_t space, const Box& box) {
  if (box.extent.rank()) {
    H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes_of(box.offset).data(), nullptr, sizes_of(box.extent).data(),
                        nullptr);
  }
}

Handle type_of(DType type) {
  switch (type) {
    case DType::f32: return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case DType::bf16: return bfloat16_type();
    case DType::f64: return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
    case DType::i32: return {H5Tcopy(H5T_STD_I32LE), H5Tclose};
    case DType::i64: return {H5Tcopy(H5T_STD_I64LE), H5Tclose};
    case DType::u8: return {H5Tcopy(H5T_STD_U8LE), H5Tclose};
  }
  fail(ExitCode::failed, "a dtype that HDF5 files cannot store");
}

}  // namespace lyceum::hdf5
