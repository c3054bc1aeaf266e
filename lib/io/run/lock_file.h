#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace lyceum {

/// The lock file, open. Opening it makes NFS ask the server for its current state. Errors of the file system are failed
/// Errors that name the file.
class LockFile {
 public:
  /// `create`: makes the file if it is not there; its folder must be.
  LockFile(const std::filesystem::path& path, bool create);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  /// True if the file, or its folder, was not there.
  bool is_gone() const;

  /// Keeps others from reading and deciding meanwhile, where the file system has locks; false when the file was removed
  /// before that.
  bool guard() const;

  std::string text() const;
  void write(const std::string& text) const;
  /// Moves the time stamp, by the clock of the file server.
  void touch() const;
  /// Seconds and nanoseconds.
  std::pair<std::int64_t, std::int64_t> time_stamp() const;

 private:
  template <class Call>
  std::int64_t persist(const char* action, const Call& call) const;

  std::filesystem::path path_;
  int descriptor_ = -1, error_ = 0;
};

}  // namespace lyceum
