#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lyceum {

/// A file that grows by whole records: a log. One process owns it. Failures are Errors with ExitCode::failed that name
/// the file.
class AppendedFile {
 public:
  /// Opens or creates, and truncates to `size` bytes.
  AppendedFile(std::filesystem::path path, std::int64_t size);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  /// Hands one record to the system. When the disk is full it throws and leaves no part of the record behind; the
  /// record waits, and the next append or sync that finds space writes it first.
  void append(std::string_view record);

  /// Writes records that wait, and returns when all are on the disk. Throws when they do not get there.
  void sync();

 private:
  void write_waiting();

  std::filesystem::path path_;
  std::int64_t size_;    // bytes of whole records
  std::string waiting_;  // records that could not be written yet
  int descriptor_ = -1;
};

}  // namespace lyceum
