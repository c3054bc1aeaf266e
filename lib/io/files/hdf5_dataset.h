#pragma once

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_object.h"

namespace lyceum::hdf5 {

/// A dataset: an n-dimensional array of numbers in a file. Must not be used after its file is closed. Errors: see
/// hdf5.h.
class Dataset : public Object {
 public:
  Shape shape() const;
  /// Returns the number type in the file. Throws if DType has no such type.
  DType dtype() const;
  /// Writes or reads a box, or the whole dataset. `values` has the box's elements in row-major order. HDF5 converts
  /// them if T differs from the number type in the file.
  template <class T>
  void write(const Box& box, const T* values) {
    write(box, dtype_of<T>, values);
  }
  template <class T>
  void write(const T* values) {
    write(Box::whole(shape()), dtype_of<T>, values);
  }
  template <class T>
  void read(const Box& box, T* values) const {
    read(box, dtype_of<T>, values);
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(shape().size()));
    read(Box::whole(shape()), dtype_of<T>, values.data());
    return values;
  }
  /// Write or read a box; `type` is the number type of `values`.
  void write(const Box& box, DType type, const void* values);
  void read(const Box& box, DType type, void* values) const;
  /// Reads a box into the part of a row-major array of shape `shape` that begins at `offset`. The other elements of the
  /// array are unchanged.
  void read_into(const Box& box, DType type, void* values, const Shape& shape, const Shape& offset) const;
  /// Changes the extent of axis 0 to shape[0]; the other extents must be unchanged. The dataset must have been created
  /// with Layout::growing.
  void resize(const Shape& shape);

  /// Makes this dataset a dimension scale with a name. attach_scale() then attaches it to an axis of another dataset,
  /// and label() labels an axis. h5py shows these as `dims[axis][0]` and `dims[axis].label`.
  void make_scale(const std::string& name);
  void attach_scale(int axis, const Dataset& scale);
  void label(int axis, const std::string& text);

 private:
  friend class File;
  using Object::Object;
  Shape chunk() const;  // rank 0 if the dataset is not chunked
  void write_slice(const Box& box, DType type, const void* values);
};

}  // namespace lyceum::hdf5
