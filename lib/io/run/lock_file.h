#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace lyceum {

/// A lock file. Opening it makes an NFS client ask the server for the current state. Failures are failed Errors that
/// name the file. All functions except is_open() and is_gone() require that the file is open.
class LockFile {
 public:
  /// Opens the file. If `create`, creates it if it is missing, and throws if it cannot be opened for a reason other
  /// than a missing folder. Otherwise does not throw: see is_open() and is_gone().
  LockFile(const std::filesystem::path& path, bool create);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  /// True if the file or its folder did not exist when it was to be opened.
  bool is_gone() const;

  /// Locks the file (fcntl) until the object is destroyed, if the file system supports locks, so that no other process
  /// can decide about the holder at the same time. Returns false if the path no longer refers to this file. Throws if
  /// another process keeps the file locked for 10 s.
  bool guard() const;

  /// Returns the contents, at most 4096 bytes.
  std::string text() const;
  /// Replaces the contents and fsyncs the file.
  void write(const std::string& text) const;
  /// Sets the time stamp to the current time, by the clock of the file server. Ignores errors.
  void touch() const;
  /// Returns the time stamp: seconds and nanoseconds.
  std::pair<std::int64_t, std::int64_t> time_stamp() const;

 private:
  template <class Call>
  std::int64_t persist(const char* action, const Call& call) const;

  std::filesystem::path path_;
  int descriptor_ = -1, error_ = 0;
};

}  // namespace lyceum
