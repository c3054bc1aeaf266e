#pragma once

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_object.h"

namespace lyceum::hdf5 {

/// An array of numbers in a file.
class Dataset : public Object {
 public:
  Shape shape() const;
  DType dtype() const;
  /// `values` is row-major within the box; HDF5 converts when T is not the dtype in the file.
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
  void write(const Box& box, DType type, const void* values);
  void read(const Box& box, DType type, void* values) const;
  /// The box goes to `offset` of a row-major array of `shape`; the rest of the array stays as it is.
  void read_into(const Box& box, DType type, void* values, const Shape& shape, const Shape& offset) const;
  /// A new shape, larger or smaller along axis 0; the dataset must have been created `growing`.
  void resize(const Shape& shape);

  /// Makes this a dimension scale; see it as `dims[axis].label` and `dims[axis][0]` in h5py.
  void make_scale(const std::string& name);
  void attach_scale(int axis, const Dataset& scale);
  void label(int axis, const std::string& text);

 private:
  friend class File;
  using Object::Object;
  Shape chunk() const;  // of rank 0: not in chunks
  void write_slice(const Box& box, DType type, const void* values);
};

}  // namespace lyceum::hdf5
