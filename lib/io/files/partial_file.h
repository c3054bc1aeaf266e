#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace lyceum {

/// A file that is written under the temporary name `path`.partial and renamed to `path` by publish(). The destructor
/// removes the temporary file, unless save() has marked it to be kept, so that a later process can continue it.
/// Failures are failed Errors that name the path and the system's reason.
class PartialFile {
 public:
  /// Opens or creates the temporary file, truncates it to `bytes` bytes, and writes after them. Throws if another
  /// process has it open. If `bytes` > 0, the file is marked to be kept.
  explicit PartialFile(std::string path, std::int64_t bytes = 0);
  /// Opens an empty temporary file, as the constructor does. Returns null if another process has it open.
  static std::unique_ptr<PartialFile> open_unless_busy(const std::string& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// Append bytes or values to the file.
  void write(const void* data, std::size_t bytes);
  template <class T>
  void write_value(T value) {
    write(&value, sizeof(value));
  }
  template <class T>
  void write_values(std::span<const T> values) {
    write(values.data(), values.size_bytes());
  }
  /// Reads values from offset `at`. They must have been written before the last flush() or save().
  template <class T>
  void read_values(std::int64_t at, std::span<T> values) {
    read(at, values.data(), values.size_bytes());
  }

  /// Passes all written data to the system.
  void flush();
  /// Fsyncs the data and marks the file to be kept.
  void save();
  /// Undoes the mark of save(): the destructor removes the file.
  void drop() { kept_ = false; }
  /// Fsyncs the file. It must not be written afterwards, but stays locked against other processes.
  void close();
  /// Renames the closed file to `path`, replaces an existing one, and unlocks it. Does not fsync the folder.
  void publish();

  /// Returns the path that publish() renames the file to.
  const std::string& path() const { return path_; }
  /// Returns the temporary name of a file.
  static std::string name_of(const std::string& path) { return path + ".partial"; }

 private:
  struct Unopened {
    bool kept;
  };
  PartialFile(std::string path, Unopened state);
  /// Opens, locks and truncates the temporary file. Returns false if another process has locked it.
  bool open(std::int64_t bytes);
  void read(std::int64_t at, void* data, std::size_t bytes);
  void sync();
  void check(bool done) const;

  std::string path_, partial_;
  std::FILE* file_ = nullptr;
  bool kept_;
};

}  // namespace lyceum
