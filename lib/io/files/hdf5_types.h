#pragma once

#include <hdf5.h>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_object.h"

/// Conversions of shapes, boxes and number types to those of HDF5. To be included only by the files that implement
/// io/files/hdf5.h.
namespace lyceum::hdf5 {

/// Returns the extents of a shape; entries beyond its rank are 0.
std::array<hsize_t, Shape::max_rank> sizes_of(const Shape& shape);
/// Returns a new dataspace of this shape.
Handle space_of(const Shape& shape);
/// Selects the box in a dataspace.
void select(std::int64_t space, const Box& box);
/// Returns a new HDF5 datatype for a number type as it is stored in files (little-endian).
Handle type_of(DType type);

}  // namespace lyceum::hdf5
