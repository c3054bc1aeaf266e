#pragma once

#include <hdf5.h>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_object.h"

/// Shapes, boxes and number types as the library has them. Only the files that implement io/files/hdf5.h include it.
namespace lyceum::hdf5 {

std::array<hsize_t, Shape::max_rank> sizes_of(const Shape& shape);
Handle space_of(const Shape& shape);
/// Selects the box in a space.
void select(std::int64_t space, const Box& box);
/// The type in the file of each number type.
Handle type_of(DType type);

}  // namespace lyceum::hdf5
