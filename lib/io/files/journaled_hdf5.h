#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "io/files/hdf5.h"
#include "io/files/held_writes.h"

namespace lyceum {

/// An HDF5 file that is changed in place, where each change is atomic: a kill, a full disk or a loss of power at any
/// moment leaves either all of it or nothing. Only one process may change the file. A change is made in these steps:
/// 1. Append new data after the end of the file, where readers do not look. Hold changes of existing bytes in memory.
/// 2. Sync the file. Write the held changes to a journal, `.NAME.journal` in the same folder. From then on the change
/// is
///    made, and open_journaled() sees it.
/// 3. Sync the folder, write the held changes into the file, sync it, and remove the journal.
///
/// If step 3 was interrupted, the next JournaledHdf5 of the file does it again. Step 3 is postponed as long as a reader
/// holds an flock() on the file, as open_journaled() and HDF5 (unless HDF5_USE_FILE_LOCKING=FALSE) do. It holds an
/// exclusive flock() itself, for about a millisecond. On file systems without flock() it does not wait for readers.
class JournaledHdf5 {
 public:
  /// Continues an existing file. Completes a change that was interrupted. Throws a failed Error if that cannot be done.
  explicit JournaledHdf5(std::filesystem::path file);
  /// Writes a postponed change if no reader holds the file.
  ~JournaledHdf5();
  JournaledHdf5(const JournaledHdf5&) = delete;
  JournaledHdf5& operator=(const JournaledHdf5&) = delete;

  /// Steps 1 and 2 of a change: calls `change` to write to the file. If this throws, the file has not changed.
  void edit(const std::function<void(hdf5::File&)>& change);
  /// Step 3. Returns false if it is postponed because a reader holds the file: the next edit() or settle() includes it.
  /// Throws a failed Error if it cannot be done; the journal then stays.
  bool settle();

  /// Returns the path of the journal of a file.
  static std::filesystem::path journal_of(const std::filesystem::path& file);
  /// Removes the journal of a file that is going to be replaced, and syncs the folder.
  static void discard_journal(const std::filesystem::path& file);

 private:
  std::filesystem::path file_;
  std::shared_ptr<HeldWrites> postponed_;  // the changes in the journal; null if there is none
};

/// An HDF5 file that is open for reading, together with the flock() that keeps a JournaledHdf5 from changing it.
class SharedHdf5 {
 public:
  SharedHdf5(int lock, hdf5::File file) : lock_(lock), file_(std::move(file)) {}
  ~SharedHdf5();
  SharedHdf5(const SharedHdf5&) = delete;
  SharedHdf5& operator=(const SharedHdf5&) = delete;
  const hdf5::File& file() const { return file_; }

 private:
  int lock_;
  hdf5::File file_;
};
/// Opens a file that a JournaledHdf5 may be changing, with the change in its journal. It stays as it was at this moment
/// as long as the result exists. Throws a bad_input Error that names the file, or a failed one if another process has
/// it locked.
std::unique_ptr<SharedHdf5> open_journaled(const std::filesystem::path& file);

}  // namespace lyceum
