#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>

#include "io/files/hdf5_driver.h"
#include "io/files/system_reason.h"

/// Calls of the library and their errors. Only the files that implement io/files/hdf5.h include it.
namespace lyceum::hdf5 {

/// A file that is open, and the first error of its driver.
struct FileState {
  std::filesystem::path path;
  bool writable = false;
  std::shared_ptr<WriteError> error = std::make_shared<WriteError>();
};

/// A lock that threads get in the order in which they ask, so that one which takes it again and again does not keep the
/// others out. The thread that has it may take it once more.
class FairLock {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0, served_ = 0;  // tickets
  std::thread::id owner_;
  int depth_ = 0;  // of the owner's locks
};

/// Excludes other threads from the library as long as it is held: HDF5 is mostly built without support for threads.
[[nodiscard]] std::unique_lock<FairLock> lock_library();

/// Must come before every first use of the library in a thread.
void prepare_library();

/// "unable to open file: file signature not found": the outermost and the innermost line of the library's error stack.
std::string library_reason();
[[noreturn]] void fail_file(const FileState& file, std::string_view action, std::string_view reason);

/// Throws when the call failed, or a write before it did.
template <class Result>
Result check(Result result, const FileState& file, std::string_view action) {
  if (file.error->number != 0) fail_file(file, action, system_reason(file.error->number));
  if (result < 0) fail_file(file, action, library_reason());
  return result;
}

}  // namespace lyceum::hdf5
