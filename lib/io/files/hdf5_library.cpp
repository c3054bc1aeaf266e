#include "io/files/hdf5_library.h"

#include <hdf5.h>

#include <algorithm>

#include "core/error.h"

namespace lyceum::hdf5 {

void FairLock::lock() {
  std::unique_lock guard(mutex_);
  if (owner_ != std::this_thread::get_id()) {
    const std::uint64_t ticket = next_++;
    changed_.wait(guard, [&] { return served_ == ticket; });
    owner_ = std::this_thread::get_id();
  }
  ++depth_;
}

void FairLock::unlock() {
  const std::scoped_lock guard(mutex_);
  if (--depth_ > 0) return;
  owner_ = {};
  ++served_;
  changed_.notify_all();
}

std::unique_lock<FairLock> lock_library() {
  static auto* const lock = new FairLock;  // never destroyed, since files may be closed at exit
  return std::unique_lock(*lock);
}

std::string library_reason() {
  struct Reason {
    std::string outer, inner;
  } reason;
  const auto visit = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    auto& lines = *static_cast<Reason*>(out);
    (n == 0 ? lines.outer : lines.inner) = error->desc ? error->desc : "";
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, visit, &reason);
  H5Eclear2(H5E_DEFAULT);
  std::string text = reason.outer.empty() ? "HDF5 gives no reason" : reason.outer;
  if (!reason.inner.empty() && reason.inner != reason.outer) text += ": " + reason.inner;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void fail_file(const FileState& file, std::string_view action, std::string_view reason) {
  fail(file.writable ? ExitCode::failed : ExitCode::bad_input, "{}: cannot {}: {}", file.path.string(), action, reason);
}

void prepare_library() {
  static std::once_flag once;
  // Without this, the library closes open files at exit, and crashes if the disk was full when one was written.
  std::call_once(once, [] { H5dont_atexit(); });
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // for this thread; check() reports the errors
}

}  // namespace lyceum::hdf5
