#pragma once

#include <filesystem>
#include <functional>

#include "io/files/hdf5.h"
#include "io/files/partial_file.h"

namespace lyceum {

/// Reserves the name of an HDF5 file that is written under a temporary name. As long as the object exists, the empty
/// file `file`.partial is locked, so that no other process writes a file of this name.
class NewHdf5 {
 public:
  /// Throws a failed Error if the folder cannot be written, or if another process has reserved the name. Removes what a
  /// process that was killed left under the temporary name.
  explicit NewHdf5(std::filesystem::path file);
  /// Removes the temporary file unless publish() has renamed it.
  ~NewHdf5();
  NewHdf5(const NewHdf5&) = delete;
  NewHdf5& operator=(const NewHdf5&) = delete;

  /// Returns the temporary name under which the caller writes the file.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Returns the temporary name of a file: `.NAME.partial` in the same folder.
  static std::filesystem::path temporary_of(const std::filesystem::path& file);
  /// Syncs the file to the disk and renames it; replaces an existing one. It must not be open. Throws a failed Error
  /// that names the path and the system's reason.
  void publish();

 private:
  std::filesystem::path file_, temporary_;
  PartialFile reservation_;
};

/// Creates or replaces an HDF5 file atomically: calls `fill` to write it as a NewHdf5, and publishes that. If any of
/// this fails, removes the temporary file and rethrows.
void write_hdf5(const std::filesystem::path& file, const std::function<void(hdf5::File&)>& fill);

}  // namespace lyceum
