#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace lyceum {

/// A file under a temporary name, `path` and ".partial", until it is published; removed when it never is. Whatever
/// fails is an Error that names the path and the system's reason.
class PartialFile {
 public:
  explicit PartialFile(std::string path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(const void* data, std::size_t bytes);
  template <class T>
  void write_value(T value) {
    write(&value, sizeof(value));
  }
  template <class T>
  void write_values(const std::vector<T>& values) {
    write(values.data(), values.size() * sizeof(T));
  }

  /// On the disk from here on.
  void close();
  void publish() const;
  /// What has the path now goes.
  void remove_old() const;

 private:
  void check(bool done) const;

  std::string path_, partial_;
  std::FILE* file_ = nullptr;
};

}  // namespace lyceum
