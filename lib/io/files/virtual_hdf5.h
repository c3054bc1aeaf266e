#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "io/files/box.h"

/// HDF5 files that contain only virtual datasets, for a view of data in other files.
namespace lyceum::hdf5 {

/// A source of a virtual dataset. The dataset `dataset` of `file` appears at `box` of the virtual dataset: the whole
/// dataset, or if `first` is set, its elements [first, first + box.extent.size()); then it must be flat. A file name
/// without a path is that of a file in the folder of the file with the virtual dataset.
struct VirtualSource {
  std::string file, dataset;
  Box box;
  std::optional<std::int64_t> first{};
};

/// Writes an HDF5 file with virtual datasets and the groups of their paths, byte by byte according to the HDF5 File
/// Format Specification, version 3.0. The HDF5 library needs some 100 µs per dataset, which is far too much for a view
/// of a hundred thousand tensors; this class needs about 1 µs. The file can then be opened with File::edit(), for
/// example to add attributes. Memory grows only with the names of the groups that contain the last dataset.
///
/// Links are stored in the headers of groups ("compact"), so looking up a name takes time that is linear in the size of
/// its group.
class VirtualFile {
 public:
  /// Creates the file, and replaces an existing one. Throws a failed Error as all members do if the file cannot be
  /// written; it names the file and the system's reason.
  explicit VirtualFile(const std::filesystem::path& path);
  ~VirtualFile();
  VirtualFile(const VirtualFile&) = delete;
  VirtualFile& operator=(const VirtualFile&) = delete;

  /// Adds a dataset of type f32 or bf16. `path` must be greater than the paths before it in the order of bytes, and
  /// neither it nor a path before it may be a group of the other. The source files need not exist. Elements without a
  /// source, or whose source file is missing, are read as NaN. A dataset without elements is not virtual.
  void add(std::string_view path, DType type, const Shape& shape, std::span<const VirtualSource> sources);
  /// Writes the groups and the header of the file. To be called once, after the last dataset. Does not fsync.
  void close();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum::hdf5
