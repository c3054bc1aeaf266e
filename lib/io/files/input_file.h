#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// A regular file that is open for reading at any place, by any thread, as long as this lives. It is not mapped into
/// memory: a file that somebody cuts short, or a disk that fails, is then an Error and not a signal.
class InputFile {
 public:
  /// Throws a bad_input Error that names the file and the system's reason; `mend` ends its line.
  InputFile(std::string path, const std::string& mend);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes that it had when it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `out` from byte `at`; the range must lie within size(). Throws a bad_input Error that names the file and the
  /// place when the bytes are there no more, or cannot be read.
  void read(std::uint64_t at, std::span<std::byte> out) const;
  template <class T>
  void read_values(std::uint64_t at, std::span<T> out) const {
    read(at, std::as_writable_bytes(out));
  }
  /// The T at byte `at`, aligned or not.
  template <class T>
  T get(std::uint64_t at) const {
    T value;
    read_values(at, std::span(&value, 1));
    return value;
  }

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// `count` consecutive values from byte `begin` on; made for going over them in order.
template <class T>
class FileValues {
 public:
  FileValues(const InputFile& file, std::uint64_t begin, std::int64_t count)
      : file_(file), begin_(begin), count_(count) {}

  T operator[](std::int64_t i) {
    if (i < first_ || i - first_ >= std::ssize(block_)) load(i);
    return block_[static_cast<std::size_t>(i - first_)];
  }

 private:
  void load(std::int64_t first) {
    constexpr std::int64_t block_values = (std::int64_t{1} << 16) / static_cast<std::int64_t>(sizeof(T));
    block_.resize(static_cast<std::size_t>(std::min(block_values, count_ - first)));
    first_ = first;
    file_.read_values(begin_ + static_cast<std::uint64_t>(first) * sizeof(T), std::span(block_));
  }

  const InputFile& file_;
  std::uint64_t begin_;
  std::int64_t count_, first_ = 0;
  std::vector<T> block_;
};

}  // namespace lyceum
