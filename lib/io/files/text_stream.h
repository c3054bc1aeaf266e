#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lyceum {

/// A regular file that is read once from its beginning on. What gzip or zstd compressed, by its first bytes, is
/// uncompressed on the way, by a buffer at a time: all members of a gzip file, with zeros between and behind them, and
/// all frames of a zstd file, with skippable ones and with windows of up to 2 GiB, which take that much memory.
class TextStream {
 public:
  /// Throws a bad_input Error that names the file and the system's reason.
  explicit TextStream(const std::string& path);
  ~TextStream();
  TextStream(TextStream&&) noexcept;

  bool compressed() const;
  /// Reads up to out.size() bytes; fewer only at the end. Throws a bad_input Error that names the file and the place
  /// when it is damaged, ends too early or cannot be read.
  std::size_t read(std::span<char> out);
  /// Leaves out the next bytes; quickly where they are not compressed. Same errors.
  void skip(std::int64_t bytes);
  /// Bytes of the file, compressed or not, that were taken so far.
  std::int64_t file_position() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lyceum
