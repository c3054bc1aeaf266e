#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace lyceum {

/// A file under a temporary name, `path` and ".partial", until it is published; removed when it never is, unless it is
/// kept to be gone on with. Whatever fails is an Error that names the path and the system's reason.
class PartialFile {
 public:
  /// Goes on behind the first `bytes` of one that was kept. Throws when another process has it open.
  explicit PartialFile(std::string path, std::int64_t bytes = 0);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(const void* data, std::size_t bytes);
  template <class T>
  void write_value(T value) {
    write(&value, sizeof(value));
  }
  template <class T>
  void write_values(std::span<const T> values) {
    write(values.data(), values.size_bytes());
  }
  /// Of what save() has put there, from byte `at` on.
  template <class T>
  void read_values(std::int64_t at, std::span<T> values) {
    read(at, values.data(), values.size_bytes());
  }

  /// Puts what was written on the disk, to be kept.
  void save();
  /// No longer to be kept.
  void drop() { kept_ = false; }
  /// On the disk from here on.
  void close();
  void publish() const;

  static std::string name_of(const std::string& path) { return path + ".partial"; }

 private:
  void read(std::int64_t at, void* data, std::size_t bytes);
  void sync();
  void check(bool done) const;

  std::string path_, partial_;
  std::FILE* file_ = nullptr;
  bool kept_;
};

}  // namespace lyceum
