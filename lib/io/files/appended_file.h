#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lyceum {

/// A log file to which whole records are appended. Only one process may write it. Failures are failed Errors that name
/// the file.
class AppendedFile {
 public:
  /// Opens or creates the file and truncates it to `size` bytes, which must be the end of a record.
  AppendedFile(std::filesystem::path path, std::int64_t size);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  /// Writes one record to the file as given, without adding a newline and without syncing. If that fails, for example
  /// because the disk is full, removes the part of the record that was written, keeps the record in memory, and throws.
  /// The next successful append() or sync() writes kept records first.
  void append(std::string_view record);

  /// Writes the records that could not be written before, and fsyncs the file. Throws if that fails.
  void sync();

 private:
  void write_waiting();

  std::filesystem::path path_;
  std::int64_t size_;    // of the complete records in the file, in bytes
  std::string waiting_;  // records that are not written yet
  int descriptor_ = -1;
};

}  // namespace lyceum
