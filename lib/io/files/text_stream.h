#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lyceum {

/// A regular file that is read sequentially and decompressed on the fly, a buffer at a time, if its first bytes are
/// those of gzip or zstd. Supports several members in a gzip file, with zero bytes between and after them; and several
/// frames in a zstd file, including skippable ones, with windows of up to 2 GiB, which take that much memory.
class TextStream {
 public:
  /// Opens the file. Throws a bad_input Error that names the file and the system's reason.
  explicit TextStream(const std::string& path);
  ~TextStream();
  TextStream(TextStream&&) noexcept;

  /// True if the file is compressed.
  bool compressed() const;
  /// Reads up to out.size() bytes and returns how many it read; fewer only at the end of the file. Throws a bad_input
  /// Error that names the file and the offset if the file is damaged, truncated or cannot be read.
  std::size_t read(std::span<char> out);
  /// Skips the next `bytes` bytes, by seeking if the file is not compressed. Throws as read() does, also if a
  /// compressed file has fewer.
  void skip(std::int64_t bytes);
  /// Returns how many bytes of the file, as it is stored, have been consumed.
  std::int64_t file_position() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
