#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/files/box.h"
#include "io/files/hdf5_dataset.h"
#include "io/files/hdf5_object.h"
#include "io/files/held_writes.h"

/// The part of HDF5 that Lyceum uses, with handles that are closed automatically. Every failure is an Error that names
/// the file, the action and HDF5's reason in one line: bad_input (3) for a file that is open for reading only, failed
/// (4) otherwise. Threads may use different objects at the same time: a lock serialises their calls of HDF5, and large
/// writes are split to release it in between.
namespace lyceum::hdf5 {

/// How a dataset is stored in the file. A dataset with elements is always chunked, with Fletcher32 checksums.
struct Layout {
  Shape chunk = {};      // default (rank 0): chosen, about 1 MiB, or 32 KiB if `growing`
  bool growing = false;  // axis 0 is unlimited and may begin with extent 0
  /// Chunks are compressed: bytes of equal significance are grouped (shuffle), then deflated. Lossless. Ignored if the
  /// HDF5 library was built without deflate.
  bool compressed = false;
};

/// An HDF5 file in the format of HDF5 1.10. If the disk becomes full, the call that notices it throws, at the latest
/// close(); the process can then continue and write other files. Files are not locked, so a reader never blocks a
/// writer.
class File : public Object {
 public:
  /// Creates a file for writing, and replaces an existing one.
  static File create(const std::filesystem::path& path);
  /// Opens a file for reading, with the changes in `held` if given.
  static File open(const std::filesystem::path& path, std::shared_ptr<HeldWrites> held = nullptr);
  /// Opens an existing file for reading and writing. If `held` is given, its changes count, changes of the first
  /// held->limit() bytes are added to it instead of being written, and close() sets held->end.
  static File edit(const std::filesystem::path& path, std::shared_ptr<HeldWrites> held = nullptr);
  File(File&&) noexcept = default;
  File& operator=(File&&) noexcept = default;
  /// Closes the file and ignores errors. Call close() first if the file was written.
  ~File();

  /// Writes all data to the file and closes it. Datasets of the file must not be used afterwards. Throws if any write
  /// failed. Does not fsync.
  void close();

  /// True if the path names an object, link or group of this file.
  bool has(const std::string& path) const;
  /// Creates a dataset and the missing groups of its path.
  Dataset create_dataset(const std::string& path, DType type, const Shape& shape, const Layout& layout = {});
  /// Opens a dataset. Throws if its data is in files outside this file's folder (external storage, links, virtual
  /// sources), or if the file is open for reading and too small for the size that the dataset claims.
  Dataset dataset(const std::string& path) const;
  /// Opens the object of any kind at the path, for access to its attributes.
  Object object(const std::string& path) const;
  /// Returns the names of the links in a group, in alphabetical order.
  std::vector<std::string> children(const std::string& group) const;
  const std::filesystem::path& path() const;

 private:
  enum class Mode { create, open, edit };
  static File start(const std::filesystem::path& path, Mode mode, std::shared_ptr<HeldWrites> held);
  using Object::Object;
};

}  // namespace lyceum::hdf5
