#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lyceum {

/// A regular file that is open for reading at any offset, by several threads at once. It is not mapped into memory, so
/// a file that another process truncates, or a failing disk, causes an Error rather than a signal.
class InputFile {
 public:
  /// Opens the file. Throws a bad_input Error that names the file and the system's reason; its message ends with
  /// `advice` for the user.
  InputFile(std::string path, const std::string& advice);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// The size of the file when it was opened, in bytes.
  std::uint64_t size() const { return size_; }
  /// Reads out.size() bytes from offset `at`. Throws an Error that names the file and the bytes: bad_input if the file
  /// has become shorter, failed if the range is not within size() or the system cannot read.
  void read(std::uint64_t at, std::span<std::byte> out) const;
  template <class T>
  void read_values(std::uint64_t at, std::span<T> out) const {
    read(at, std::as_writable_bytes(out));
  }
  /// Returns the T at byte `at`, which need not be aligned.
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

/// An array of `count` values of a file, from byte `begin` on, that is read in blocks of 64 KiB. Efficient for
/// sequential access. `file` must outlive it. Not thread-safe.
template <class T>
class FileValues {
 public:
  FileValues(const InputFile& file, std::uint64_t begin, std::int64_t count)
      : file_(file), begin_(begin), count_(count) {}

  /// Returns value i, 0 ≤ i < count. Throws as InputFile::read() does.
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
