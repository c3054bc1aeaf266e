#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "io/files/box.h"

/// The part of HDF5 that Lyceum uses, with owned handles and errors of one line. Every failure is an Error that names
/// the file, what was being done and HDF5's reason: bad_input (3) for a file opened for reading, failed (4) otherwise.
/// Threads may use different objects at a time: their calls into HDF5 take turns, those that write much in slices.
namespace lyceum::hdf5 {

/// Owns one identifier of the library.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();
  std::int64_t id() const { return id_; }
  /// Closes now; negative when the library could not.
  int close();

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

struct FileState;  // path, mode and what went wrong while writing

/// What has attributes: a file's root, a group, a dataset.
class Object {
 public:
  /// Attributes appear to h5py as str, int, float and arrays of int or str. Replaced when there already.
  void set(const std::string& name, const std::string& text);
  void set(const std::string& name, const char* text) { set(name, std::string(text)); }
  void set(const std::string& name, std::int64_t number);
  void set(const std::string& name, int number) { set(name, static_cast<std::int64_t>(number)); }
  void set(const std::string& name, double number);
  void set(const std::string& name, std::span<const std::int64_t> numbers);
  void set(const std::string& name, std::span<const std::string> texts);
  bool has_attribute(const std::string& name) const;
  std::string text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;

 protected:
  friend class File;
  Object(std::shared_ptr<FileState> file, Handle handle) : file_(std::move(file)), handle_(std::move(handle)) {}
  std::shared_ptr<FileState> file_;
  Handle handle_;
};

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

/// How a dataset is stored in the file. Chunked with Fletcher32 checksums whenever it has elements.
struct Layout {
  Shape chunk = {};      // of rank 0: chosen, about 1 MiB (32 KiB when growing)
  bool growing = false;  // axis 0 without limit; may start with 0 rows
};

/// One source of a virtual dataset: all of `dataset` in `file` (relative names are looked up next to the file that
/// holds the virtual dataset) appears at `box`.
struct VirtualSource {
  std::string file, dataset;
  Box box;
};

/// A file of the 1.10 format. A disk that fills up is an Error of the call that noticed it, at the latest of close();
/// the process continues and can write other files. No file locks, so that a reader never stops a writer.
class File : public Object {
 public:
  /// Replaces what is there.
  static File create(const std::filesystem::path& path);
  static File open(const std::filesystem::path& path);
  /// For reading and writing.
  static File edit(const std::filesystem::path& path);
  File(File&&) noexcept = default;
  File& operator=(File&&) noexcept = default;
  /// Closes and swallows errors: call close() on files that were written.
  ~File();

  /// Every byte handed to the system, or an Error. Datasets of this file can no longer be used. Does not fsync.
  void close();

  bool has(const std::string& path) const;
  /// Groups on the way are made as needed.
  Dataset create_dataset(const std::string& path, DType type, const Shape& shape, const Layout& layout = {});
  /// Where no source is, or a source's file is missing, readers see NaN.
  Dataset create_virtual(const std::string& path, DType type, const Shape& shape,
                         std::span<const VirtualSource> sources);
  /// Refused where its numbers lie in files outside of this one's folder (external storage, links, virtual sources),
  /// and in a file open for reading where it claims to have far more of them than the file holds.
  Dataset dataset(const std::string& path) const;
  /// Any object at the path, for its attributes.
  Object object(const std::string& path) const;
  /// Names of the links in the group, sorted.
  std::vector<std::string> children(const std::string& group) const;
  const std::filesystem::path& path() const;

 private:
  enum class Mode { create, open, edit };
  static File start(const std::filesystem::path& path, Mode mode);
  using Object::Object;
};

}  // namespace lyceum::hdf5
