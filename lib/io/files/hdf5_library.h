#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>

#include "io/files/hdf5_driver.h"
#include "io/files/system_reason.h"

/// Serialised calls of the HDF5 library and their errors. To be included only by the files that implement
/// io/files/hdf5.h.
namespace lyceum::hdf5 {

/// The state that the objects of an open file share: its path, mode and the first error of its driver.
struct FileState {
  std::filesystem::path path;
  bool writable = false;
  std::shared_ptr<WriteError> error = std::make_shared<WriteError>();
};

/// A recursive mutex that threads acquire in the order in which they ask for it. A thread that locks it repeatedly thus
/// cannot starve the others.
class FairLock {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, served_ = 0;  // the next ticket to give out, and the ticket whose thread may lock
  std::thread::id owner_;
  int depth_ = 0;  // number of times that the owner has locked it
};

/// Locks the HDF5 library for this thread as long as the result exists: HDF5 is usually built without thread safety.
[[nodiscard]] std::unique_lock<FairLock> lock_library();

/// Initialises the library and disables its error output in the calling thread. Call it with the lock held before the
/// first use in each thread.
void prepare_library();

/// Returns and clears the library's last error: the outermost and the innermost line of its error stack, such as
/// "unable to open file: file signature not found".
std::string library_reason();
/// Throws the Error "PATH: cannot ACTION: REASON": failed if the file is writable, else bad_input.
[[noreturn]] void fail_file(const FileState& file, std::string_view action, std::string_view reason);

/// Returns `result`, the result of a call of the library. Throws if it is negative, or if the driver has recorded a
/// failed write of this file.
template <class Result>
Result check(Result result, const FileState& file, std::string_view action) {
  if (file.error->number != 0) fail_file(file, action, system_reason(file.error->number));
  if (result < 0) fail_file(file, action, library_reason());
  return result;
}

}  // namespace lyceum::hdf5
