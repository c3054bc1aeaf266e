#pragma once

#include <cstddef>
#include <cstring>
#include <string>

namespace lyceum {

/// A file mapped into memory for reading, as long as this lives.
class MappedFile {
 public:
  /// Throws a bad_input Error that names the file and the system's reason; `mend` ends its line.
  MappedFile(std::string path, const std::string& mend);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// The T at byte `at`, aligned or not; at + sizeof(T) must not pass the end.
  template <class T>
  T get(std::size_t at) const {
    T value;
    std::memcpy(&value, data_ + at, sizeof(T));
    return value;
  }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lyceum
