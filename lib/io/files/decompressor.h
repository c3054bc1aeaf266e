#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lyceum {

/// A regular file as it is stored, read from its beginning on or from a place.
class RawFile {
 public:
  /// Throws a bad_input Error that names the file and the system's reason, as all below do.
  explicit RawFile(const std::string& path);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  /// Reads up to out.size() bytes; none at the end.
  std::size_t read(std::span<char> out);
  void seek(std::int64_t to);
  /// Bytes to read at a time.
  std::size_t buffer_bytes() const;
  const std::string& path() const { return path_; }
  std::int64_t position() const { return position_; }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t position_ = 0;
};

/// The bytes of a file that a decoder has not taken yet.
struct RawInput {
  RawFile& file;
  std::vector<char> buffer = std::vector<char>(file.buffer_bytes());
  std::size_t begin = 0, end = 0;

  /// Reads on when all is taken; false at the file's end.
  bool more();
  std::int64_t position() const { return file.position() - static_cast<std::int64_t>(end - begin); }
};

/// Decodes a compressed file. The table of compressions.cpp lists all kinds.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Fills `out` from `input`. Returns how many bytes it made; none only at the end.
  virtual std::size_t read(RawInput& input, std::span<char> out) = 0;
};

/// Throws the bad_input Error for data that cannot be decoded at the input's position, and why.
[[noreturn]] void fail_damaged(const RawInput& input, std::string_view why);
/// Throws the bad_input Error for what follows compressed data and is none. `program`: that decompresses the data.
[[noreturn]] void fail_behind(const RawInput& input, std::int64_t position, std::string_view program);
/// Throws the bad_input Error for a file that ends within compressed data.
[[noreturn]] void fail_truncated(const RawInput& input);

}  // namespace lyceum
