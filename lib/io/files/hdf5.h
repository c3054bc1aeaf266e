#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_dataset.h"
#include "io/files/hdf5_object.h"

/// The part of HDF5 that Lyceum uses, with owned handles and errors of one line. Every failure is an Error that names
/// the file, what was being done and HDF5's reason: bad_input (3) for a file opened for reading, failed (4) otherwise.
/// Threads may use different objects at a time: their calls into HDF5 take turns, those that write much in slices.
namespace lyceum::hdf5 {

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
